"""Parameters of URANIA (Liu et al., Algorithm 1), all of them public, and the stages that a budget buys.

The stages are keywords, clusters, their sizes, and a histogram of the clusters' keywords: clusters x released keywords.
Every unit that takes part is in one cluster and chooses at most m keywords, so it adds 1 to at most m bins of all
clusters together (`SetHistogram`). Empty clusters have bins like any other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from models_db.values.requests import ExactDecimal, RequestModel
from tasks.analysis.clustering.clusterers import Clusterer, clusterer_for
from tasks.analysis.clustering.parameters import ClusterSettings
from tasks.analysis.keywords.keyword_set import KeywordSet, keyword_set_for
from tasks.analysis.keywords.parameters import KeywordSettings
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram, calibrate_histogram
from tasks.mechanisms.counts.set_histogram import NoiseChoice, SetHistogram, calibrate_set_histogram
from tasks.systems.insights.parameters import InsightParameters
from tasks.text.words import roots
from tasks.values.results import SupportRule

Weight = Annotated[ExactDecimal, Field(gt=0, le=1000)]


class Shares(RequestModel):
    """Shares of rho: each stage gets its weight's part of the sum of all.

    A public keyword set costs nothing, and its weight goes to the others.
    """

    keywords: Weight = Decimal("0.25")
    clusters: Weight = Decimal("0.35")
    sizes: Weight = Decimal("0.1")
    histogram: Weight = Decimal("0.3")

    def of(self, rho: int, *, keywords: bool) -> dict[str, int]:
        """Return the units of rho for each stage, rounded down; `keywords` is whether that stage is charged."""
        weights = {name: Fraction(getattr(self, name)) for name in ("keywords", "clusters", "sizes", "histogram")}
        if not keywords:
            weights["keywords"] = Fraction(0)
        return {name: int(rho * weight / sum(weights.values())) for name, weight in weights.items()}


class UraniaParameters(InsightParameters):
    """`parameters:` of a request.

    Attributes:
        clusters: k, and the clusterer.
        keywords: the closed set for descriptions.
        choice: the assigner of a unit's keywords: closeness of embeddings and occurrence, or the release's model.
        keywords_of_a_unit: most keywords of a unit; the noise of counts grows with its root. The paper's figure is 5.
        keywords_of_a_cluster: t, most keywords of a description.
        smallest_cluster: clusters of fewer units, by their noisy size, are left out; three standard deviations of that
            noise by default.
        smallest_support: the share of a cluster's noisy size from which on the noisy count of a keyword supports it.
        sampled: q, the probability with which each unit chooses keywords, independently of all others.
        evidence: the ranking of a cluster's supported keywords: by `believed` units, estimated from noisy counts and
            from the closeness of released centres; or by the largest `counts`, as in the paper. Neither costs.
        noise: of the keyword histogram; `auto` is the one with the smaller variance at its price.
        shares: of rho, by stage.
        delta_share: the part of delta for failures of the keyword selection.
    """

    clusters: ClusterSettings = ClusterSettings()
    keywords: KeywordSettings = KeywordSettings()
    choice: Literal["embedding", "model"] = "embedding"
    keywords_of_a_unit: Annotated[int, Field(ge=1, le=20)] = 3
    keywords_of_a_cluster: Annotated[int, Field(ge=1, le=50)] = 10
    smallest_cluster: Annotated[int, Field(ge=1)] | None = None
    smallest_support: Annotated[ExactDecimal, Field(gt=0, le=1)] = Decimal("0.1")
    sampled: Annotated[ExactDecimal, Field(gt=0, le=1)] = Decimal(1)
    evidence: Literal["believed", "counts"] = "believed"
    noise: NoiseChoice = "auto"
    shares: Shares = Shares()
    delta_share: Annotated[ExactDecimal, Field(gt=0, lt=1)] = Decimal("0.1")


@dataclass(frozen=True)
class ChosenKeywords:
    """Bins of clusters x keywords; a keyword set smaller than planned leaves the last bins empty.

    Attributes:
        clusters, keywords: largest numbers of both, public.
    """

    clusters: int
    keywords: int

    @property
    def bins(self) -> int:
        """Number of bins."""
        return self.clusters * self.keywords

    def counts(self, cluster_of: NDArray[np.int64], chosen: Sequence[Sequence[int]]) -> list[int]:
        """Count the units of each cluster that chose each keyword. PRIVATE: for the mechanism alone.

        Args:
            cluster_of: int64 [n], -1 for a unit in none.
            chosen: for each unit the numbers of its keywords; a repeated one counts once.
        """
        table = np.zeros((self.clusters, self.keywords), np.int64)
        for cluster, keywords in zip(cluster_of.tolist(), chosen, strict=True):
            if cluster >= 0:
                table[cluster, sorted(set(keywords))] += 1
        counts: list[int] = table.ravel().tolist()
        return counts

    def table(self, noisy: Sequence[int], count: int) -> NDArray[np.float64]:
        """Return noisy counts of all bins as float64 [clusters, count], without bins beyond the keywords."""
        return np.array(noisy, np.float64).reshape(self.clusters, self.keywords)[:, :count]


def supported(
    counts: NDArray[np.float64], ranking: NDArray[np.float64], size: int, rule: SupportRule, keywords: Sequence[str]
) -> list[int]:
    """Return the numbers of the keywords of one cluster whose noisy counts support them, the best first.

    Of keywords that differ in plural endings alone the best stays. Equal ones keep the order of the set.

    Args:
        counts: float64 [keywords], noisy numbers of units that chose each.
        ranking: float64 [keywords], by which they are ordered.
        size: the noisy number of units in the cluster.
    """
    able = [number for number in range(len(keywords)) if rule.holds(int(counts[number]), size)]
    by_words: dict[frozenset[str], int] = {}
    for number in sorted(able, key=lambda number: (-ranking[number], number)):
        by_words.setdefault(roots(keywords[number]), number)
    return list(by_words.values())


def in_turn(closeness: NDArray[np.float64], most: int) -> list[int]:
    """Return the columns that are nearest to the rows, each row's best in turn, without repeats.

    Args:
        closeness: float64 [clusters, words].
        most: how many columns at most.
    """
    ranked = np.argsort(-closeness, axis=1, kind="stable").T
    return list(dict.fromkeys(ranked.ravel().tolist()))[:most]


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
