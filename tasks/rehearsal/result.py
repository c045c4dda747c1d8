"""Result of a rehearsal, as the ledger keeps it: figures on public data, and which requests they belong to."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, StringConstraints

from models_db.values.canonical_json import Json, digest
from tasks.common.published_values import Digest, Name, Strict

FORMAT: Final = "almoner-rehearsal/1"
CONFIGURATION_FIELDS = ("population", "kind", "mechanism", "epsilon", "delta", "model", "parameters", "prompt")
"""Fields of a canonical request that decide what its texts are like; the plan is another one."""

SignedFigure = Annotated[str, StringConstraints(pattern=r"^-?[0-9]{1,30}(\.[0-9]{1,60})?$")]
Percent = Annotated[int, Field(ge=-1_000_000, le=1_000_000)]

MetricName: TypeAlias = Literal["mauve", "coverage", "perplexity_gap", "accuracy"]
METRIC_NAMES: Mapping[MetricName, str] = {
    "mauve": "MAUVE",
    "coverage": "coverage",
    "perplexity_gap": "perplexity gap",
    "accuracy": "accuracy of a classifier",
}
"""The metrics of a rehearsal, by their names in results, as people read them."""


def configuration_digest(body: Mapping[str, Any]) -> str:
    """Return the digest of the fields that a rehearsal of a canonical request depends on.

    Two requests have the same one if they differ in nothing but the nonce, the code, the policy, the version of the
    data or the numbers of the blocks; a request that was changed has no rehearsal.
    """
    plan = body["plan"]
    configuration: dict[str, Json] = {name: body.get(name) for name in CONFIGURATION_FIELDS}
    configuration |= {
        "dataset": body["dataset"]["name"],
        "blocks": len(plan["blocks"]),
        "events": [invocation["event"] for invocation in plan["invocations"]],
    }
    return digest(configuration)


class MetricShare(Strict):
    """One metric of the three releases, and the share of the way from the public model to no privacy.

    Attributes:
        public_only, request, non_private: the metric's figure of each release.
        share, low, high: percent of the way, with a 95 % interval; None if the metric gives none, and `reason` why.
    """

    metric: MetricName
    public_only: SignedFigure
    request: SignedFigure
    non_private: SignedFigure
    share: Percent | None = None
    low: Percent | None = None
    high: Percent | None = None
    reason: Name | None = None

    @property
    def name(self) -> str:
        """The metric as people read it."""
        return METRIC_NAMES[self.metric]

    @property
    def way(self) -> str:
        """The share in words, or why there is none."""
        return self.reason or f"{self.share} % [{self.low}, {self.high}]"


class Twin(Strict):
    """The public dataset of a rehearsal."""

    name: Name
    version: Annotated[int, Field(ge=1)]
    uid: Name


class RehearsalResult(Strict):
    """Figures of one rehearsal.

    Attributes:
        configuration: see `configuration_digest`.
        code: digest of the code that made it.
        texts: the number of texts of each of the three releases.
        asked: the number of texts that the request asks for.
        people: the number of people that the twin has.
        declared: the declared population of the request; None if it declares none.
        units_per_text, asked_units_per_text: people behind a text, on the twin and in the request.
        held_out: the number of documents that texts are compared with; their people were not read.
        left_out: metrics that could not be computed, each with the reason.
    """

    format: Literal["almoner-rehearsal/1"] = FORMAT
    configuration: Digest
    code: Digest
    twin: Twin
    model: Name
    mechanism: Name
    texts: Annotated[int, Field(ge=1)]
    asked: Annotated[int, Field(ge=1)]
    people: Annotated[int, Field(ge=1)]
    declared: Annotated[int, Field(ge=1)] | None
    units_per_text: SignedFigure
    asked_units_per_text: SignedFigure
    held_out: Annotated[int, Field(ge=1)]
    metrics: tuple[MetricShare, ...]
    left_out: tuple[Name, ...] = ()

    @property
    def sentence(self) -> str:
        """The result in one sentence, for the spend gate."""
        measured = [one for one in self.metrics if one.share is not None]
        others = [one.name for one in self.metrics if one.share is None]
        extent = f"On the public twin {self.twin.name!r} ({self.extent})"
        if not measured:
            return f"{extent} no metric gives a share of the way from the public model to no privacy."
        shares = "; ".join(f"{one.way} by {one.name}" for one in measured)
        rest = f" No share by {', '.join(others)}." if others else ""
        return f"{extent}, of the way from the public model to no privacy: {shares}.{rest}"

    @property
    def extent(self) -> str:
        """Return the extent of the rehearsal, as text."""
        if self.declared is None:
            return f"{self.texts} of {self.asked} texts, {self.people} people"
        whom = f"{self.people} people" if self.people == self.declared else self.people_of_declared
        return f"{self.texts} of {self.asked} texts, at {whom}"

    @property
    def people_of_declared(self) -> str:
        """The size of the twin beside the declared population."""
        return f"{self.people:,} of the declared {self.declared:,} people"
