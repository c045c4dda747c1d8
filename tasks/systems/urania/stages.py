"""Stages of URANIA that a budget buys: keywords, clusters, their sizes, and a histogram of keywords."""

import math
from dataclasses import dataclass
from fractions import Fraction

from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from tasks.analysis.clustering.clusterers import Clusterer, clusterer_for
from tasks.analysis.keywords.keyword_set import KeywordSet, keyword_set_for
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram, calibrate_histogram
from tasks.mechanisms.counts.set_histogram import SetHistogram, calibrate_set_histogram
from tasks.systems.urania.cluster_keywords import ChosenKeywords
from tasks.systems.urania.parameters import UraniaParameters
from tasks.values.results import SupportRule

DEVIATIONS = 3
"""Default threshold of a cluster's size, in standard deviations of its noise."""
COUNT_DEVIATIONS = 6
"""Lowest threshold of a keyword's count, in standard deviations of its noise. Half of it is three of them: noise makes
a true count more than twice as large and lifts it over the threshold about once in 740 times."""
FALSE_SUPPORT = 0.05
"""Largest probability that noise alone supports some keyword in some cluster of a release."""


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

    def support(self, parameters: UraniaParameters) -> SupportRule:
        """Return when a noisy count supports a keyword: a public rule.

        The least count is COUNT_DEVIATIONS of its noise, or more where there are very many bins: noise alone reaches it
        in any of them with probability FALSE_SUPPORT at most, by the union bound. A bin's noise reaches t
        with probability exp(-t^2 / (2 sigma^2)) at most, because discrete Gaussian noise is sub-Gaussian (Canonne,
        Kamath, Steinke, arXiv 2004.00010, section 2), and discrete Laplace noise with exp(-t / b) at most. The share is
        of the sampled units.
        """
        odds = math.log(self.histogram.bins / FALSE_SUPPORT) if self.histogram.bins else 0.0
        scale = float(self.histogram.scale)
        tail = scale * (math.sqrt(2 * odds) if self.histogram.noise == "gaussian" else odds)
        least = math.ceil(max(COUNT_DEVIATIONS * math.sqrt(self.histogram.variance()), tail))
        return SupportRule(least, Fraction(parameters.smallest_support) * Fraction(parameters.sampled))
