"""What a request of URANIA's says (Liu et al., "URANIA", Algorithm 1); all of it is public."""

from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field

from models_db.values.requests import ExactDecimal, RequestModel
from tasks.analysis.clustering.parameters import ClusterSettings
from tasks.analysis.keywords.parameters import KeywordSettings
from tasks.insights.parameters import InsightParameters
from tasks.mechanisms.counts.set_histogram import Wanted

Weight = Annotated[ExactDecimal, Field(gt=0, le=1000)]


class Shares(RequestModel):
    """How rho is shared out: each stage gets its weight's part of the sum of all.

    A keyword set that is public costs nothing, and its weight goes to the others.
    """

    keywords: Weight = Decimal("0.25")
    clusters: Weight = Decimal("0.35")
    sizes: Weight = Decimal("0.1")
    histogram: Weight = Decimal("0.3")

    def of(self, rho: int, *, keywords: bool) -> dict[str, int]:
        """Units of rho for each stage, rounded down; `keywords` says whether that one is paid for."""
        weights = {name: Fraction(getattr(self, name)) for name in ("keywords", "clusters", "sizes", "histogram")}
        if not keywords:
            weights["keywords"] = Fraction(0)
        return {name: int(rho * weight / sum(weights.values())) for name, weight in weights.items()}


class UraniaParameters(InsightParameters):
    """`parameters:` of a request.

    Attributes:
        clusters: k, and how they are found.
        keywords: the closed set from which descriptions are made.
        choice: who chooses a unit's keywords from it: closeness of embeddings and occurrence, or the release's model.
        keywords_of_a_unit: how many a unit may choose.
        keywords_of_a_cluster: t, how many a description is made from.
        smallest_cluster: clusters of fewer units, by their noisy size, are left out; three standard deviations of that
            noise where a request does not say.
        sampled: q, the part of the units that choose keywords; each by itself, independently of all others.
        evidence: which keywords describe a cluster: those of which most units are `believed`, from noisy counts and
            from how close released centres are; or those with the largest `counts`, as in the paper. Neither costs.
        noise: of the keyword histogram; `auto` takes what has the smaller variance at its price.
        shares: how rho is shared out.
        delta_share: the part of delta that selecting keywords needs for failing.
    """

    clusters: ClusterSettings = ClusterSettings()
    keywords: KeywordSettings = KeywordSettings()
    choice: Literal["embedding", "model"] = "embedding"
    keywords_of_a_unit: Annotated[int, Field(ge=1, le=20)] = 5
    keywords_of_a_cluster: Annotated[int, Field(ge=1, le=50)] = 10
    smallest_cluster: Annotated[int, Field(ge=1)] | None = None
    sampled: Annotated[ExactDecimal, Field(gt=0, le=1)] = Decimal(1)
    evidence: Literal["believed", "counts"] = "believed"
    noise: Wanted = "auto"
    shares: Shares = Shares()
    delta_share: Annotated[ExactDecimal, Field(gt=0, lt=1)] = Decimal("0.1")
