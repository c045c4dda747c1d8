"""What a request says about clustering; every word of it is public (PRIVACY §1)."""

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from models_db.values.requests import ExactDecimal, RequestModel

Method = Literal["anchored", "lsh_tree", "lloyd"]

MOST_CLUSTERS = 4096
MOST_DEPTH = 24

ROUNDS: dict[str, int] = {"anchored": 1, "lsh_tree": 1, "lloyd": 2}
"""How often a method takes sums where a request is silent; it is written out when the request is read."""


class ClusterSettings(RequestModel):
    """How units are put into clusters.

    Attributes:
        method: `anchored`, from public points, with means that are shrunk by how noisy they are; `lsh_tree`, after
            Chang and Kamath; `lloyd`, Lloyd's rounds from public points.
        count: k, how many clusters there are at most.
        rounds: how often noisy sums are taken; of an `lsh_tree` once.
        depth: how many times an `lsh_tree` splits; the others do not look at it.
        count_share: what all noisy counts get of the clustering's budget; the sums get the rest.
    """

    method: Method = "anchored"
    count: Annotated[int, Field(ge=1, le=MOST_CLUSTERS)] = 64
    rounds: Annotated[int, Field(ge=1, le=20)] = 1
    depth: Annotated[int, Field(ge=1, le=MOST_DEPTH)] = 10
    count_share: Annotated[ExactDecimal, Field(gt=0, lt=1)] = Decimal("0.3")

    @model_validator(mode="before")
    @classmethod
    def _by_method(cls, written: Any) -> Any:
        """The rounds that suit the method, where nothing is said about them."""
        if not isinstance(written, dict):
            return written
        method = written.get("method", "anchored")
        if method not in ROUNDS:
            return written  # the field says what is wrong with it
        return {"rounds": ROUNDS[method], **written}

    @model_validator(mode="after")
    def _one_sum_a_leaf(self) -> "ClusterSettings":
        if self.method == "lsh_tree" and self.rounds != 1:
            raise ValueError("a tree takes the sums of its leaves once: rounds must be 1")
        return self
