"""Clustering settings of a request; all of them are public (PRIVACY §1)."""

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from models_db.values.requests import ExactDecimal, RequestModel

Method = Literal["anchored", "lsh_tree", "lloyd"]

MOST_CLUSTERS = 4096
MOST_DEPTH = 24

ROUNDS: dict[str, int] = {"anchored": 1, "lsh_tree": 1, "lloyd": 2}
"""Sum rounds of a method by default; written into the request when it is read."""


class ClusterSettings(RequestModel):
    """Settings of the clustering of units.

    Attributes:
        method: `anchored`, from public points, with means shrunk by their noise; `lsh_tree`, after
            Chang and Kamath; `lloyd`, Lloyd's rounds from public points.
        count: k, how many clusters there are at most.
        rounds: how often noisy sums are taken; once for an `lsh_tree`.
        depth: how many times an `lsh_tree` splits; the other methods ignore it.
        count_share: share of all noisy counts in the clustering's budget; the sums get the rest.
    """

    method: Method = "anchored"
    count: Annotated[int, Field(ge=1, le=MOST_CLUSTERS)] = 64
    rounds: Annotated[int, Field(ge=1, le=20)] = 1
    depth: Annotated[int, Field(ge=1, le=MOST_DEPTH)] = 10
    count_share: Annotated[ExactDecimal, Field(gt=0, lt=1)] = Decimal("0.3")

    @model_validator(mode="before")
    @classmethod
    def _by_method(cls, raw: Any) -> Any:
        """Fill in the default rounds of the method."""
        if not isinstance(raw, dict):
            return raw
        method = raw.get("method", "anchored")
        if method not in ROUNDS:
            return raw  # the field's own validation reports it
        return {"rounds": ROUNDS[method], **raw}

    @model_validator(mode="after")
    def _one_sum_a_leaf(self) -> "ClusterSettings":
        if self.method == "lsh_tree" and self.rounds != 1:
            raise ValueError("a tree takes the sums of its leaves once: rounds must be 1")
        return self
