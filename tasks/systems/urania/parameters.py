"""Parameters of a URANIA request (Liu et al., "URANIA", Algorithm 1); all of them are public."""

from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field

from models_db.values.requests import ExactDecimal, RequestModel
from tasks.analysis.clustering.parameters import ClusterSettings
from tasks.analysis.keywords.parameters import KeywordSettings
from tasks.mechanisms.counts.set_histogram import NoiseChoice
from tasks.systems.insights.parameters import InsightParameters

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
