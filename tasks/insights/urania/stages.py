"""Stages of URANIA that a budget buys: keywords, clusters, their sizes, and a histogram of keywords."""

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
"""Default threshold of a cluster's size, in standard deviations of its noise."""


@dataclass(frozen=True)
class Stages:
    """The calibrated stages, in the order in which they are spent."""

    keywords: KeywordSet
    clusterer: Clusterer
    sizes: NoisyHistogram
    histogram: SetHistogram

    @classmethod
    def of(cls, parameters: UraniaParameters, amount: Amount) -> "Stages":
        """Calibrate the stages that cost at most `amount` together.

        Raises:
            UsageError, Refused: a share of it buys nothing.
        """
        rho = parameters.shares.of(amount.rho, keywords=parameters.keywords.charged)
        bins = ChosenKeywords(parameters.clusters.count, parameters.keywords.size).bins
        return cls(
            keyword_set_for(parameters.keywords, Amount(rho["keywords"], amount.delta)),
            clusterer_for(parameters.clusters, rho["clusters"]),
            calibrate_histogram(rho["sizes"], parameters.clusters.count),
            calibrate_set_histogram(rho["histogram"], bins, parameters.keywords_of_a_unit, parameters.noise),
        )

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """The charged events, in order."""
        return (*self.keywords.events, self.clusterer.event, self.sizes.event(), self.histogram.event())

    def smallest(self, parameters: UraniaParameters) -> int:
        """Return the threshold of a cluster's noisy size: a public number."""
        return parameters.smallest_cluster or math.ceil(DEVIATIONS * float(self.sizes.noise.sigma))
