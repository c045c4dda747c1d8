"""What a budget buys of URANIA: keywords, clusters, their sizes, and a histogram of keywords."""

import math
from dataclasses import dataclass

from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from tasks.analysis.clustering.registry import Clusterer, clusterer_for
from tasks.analysis.keywords.keyword_set import KeywordSet, keyword_set_for
from tasks.insights.urania.cluster_keywords import ChosenKeywords
from tasks.insights.urania.parameters import UraniaParameters
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram, calibrate_histogram
from tasks.mechanisms.counts.set_histogram import SetHistogram, calibrate_set_histogram

DEVIATIONS = 3
"""The threshold of a cluster's size where a request names none, in standard deviations of its noise."""


@dataclass(frozen=True)
class Stages:
    """What the budget buys, in the order in which it is spent."""

    keywords: KeywordSet
    clusterer: Clusterer
    sizes: NoisyHistogram
    histogram: SetHistogram

    @classmethod
    def of(cls, wanted: UraniaParameters, amount: Amount) -> "Stages":
        """The stages that cost at most `amount` together.

        Raises:
            UsageError, Refused: some share of it buys nothing.
        """
        rho = wanted.shares.of(amount.rho, keywords=wanted.keywords.charged)
        bins = ChosenKeywords(wanted.clusters.count, wanted.keywords.size).bins
        return cls(
            keyword_set_for(wanted.keywords, Amount(rho["keywords"], amount.delta)),
            clusterer_for(wanted.clusters, rho["clusters"]),
            calibrate_histogram(rho["sizes"], wanted.clusters.count),
            calibrate_set_histogram(rho["histogram"], bins, wanted.keywords_of_a_unit, wanted.noise),
        )

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """What is charged, in order."""
        return (*self.keywords.events, self.clusterer.event, self.sizes.event(), self.histogram.event())

    def smallest(self, wanted: UraniaParameters) -> int:
        """The threshold of a cluster's noisy size: a public number."""
        return wanted.smallest_cluster or math.ceil(DEVIATIONS * float(self.sizes.noise.sigma))
