"""Approved request inside a record, and the check that its plan follows from its own fields.

The format is closed, as the record's is. Verification plans the release again from mechanism, parameters, epsilon and
the declared facts of the dataset, as `tasks.pricing.quote` did: so no event can belong to another request.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, model_validator

from models_db.errors import Refused
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json, encode_canonical
from models_db.values.requests import (
    Prompt,
    PublicGroup,
    PublicMetadata,
    ReleaseRequest,
    model_to_json,
    parse_model,
)
from tasks.accounting.zcdp import release_amount
from tasks.common.published_values import Digest, Figure, Name, Strict
from tasks.evaluation.registry import Metric, needs_embedder, requested
from tasks.inference.prompt_spec import prompt_json, wording_of
from tasks.inference.structured_output.json_schema import require_schema_for
from tasks.planning.block_selection import Reading, reading_of_request
from tasks.planning.layout import names_of, require_parts_for
from tasks.pricing.charged_metrics import plan_with_metrics
from tasks.pricing.external_models import require_public_prompts, with_external_fact
from tasks.pricing.quote import plan_json
from tasks.systems.base import System
from tasks.systems.registry import system_for
from tasks.values.plan import PlanInputs
from tasks.values.results import ReleaseKind

Positive = Annotated[int, Field(ge=1)]


class ApprovedDataset(Strict):
    """Dataset and version of a request."""

    name: Name
    version: Positive
    uid: Name


class ApprovedModel(Strict):
    """Model of a request; `sha256` fixes its bytes.

    Attributes:
        base_sha256, adapter_sha256: of the files that it was merged from, where it has a LoRA adapter; else None.
    """

    name: Name
    revision: Name
    sha256: Digest
    licence: Name
    base_sha256: Digest | None = None
    adapter_sha256: Digest | None = None

    @model_validator(mode="after")
    def _merged_from_both(self) -> Self:
        if (self.base_sha256 is None) != (self.adapter_sha256 is None):
            raise ValueError("a merged model has the digests of its base and of its adapter")
        return self

    def __str__(self) -> str:
        merged = f", merged from {self.base_sha256} and the adapter {self.adapter_sha256}" if self.base_sha256 else ""
        return f"{self.name} ({self.licence}), revision {self.revision}{merged}"


class ApprovedEmbedder(Strict):
    """Embedder of a request's metrics; `sha256` fixes its bytes."""

    name: Name
    revision: Name
    sha256: Digest

    def __str__(self) -> str:
        return f"{self.name}, revision {self.revision}"


class ApprovedPrompt(Strict):
    """Prompt of a request: templates written out in full, or a description alone in the default wording."""

    description: str
    form: str | None = None
    preset: str | None = None
    system: str | None = None
    public: str | None = None
    private: str | None = None
    again: str | None = None
    examples: list[str] | None = None
    separator: str | None = None
    date: str | None = None

    @property
    def wording(self) -> dict[str, str]:
        """The words that are written out; none in the default wording."""
        return wording_of(self.model_dump())


class ApprovedAssignment(Strict):
    """Public sizes of a split whose assignment is secret, as `tasks.values.plan.BatchAssignment` says."""

    batches: Positive
    read: Positive


class ApprovedPlan(Strict):
    """Priced plan of a request; `tasks.release.record` reads its events and the sizes of its split.

    `assignment` is absent where the release claims nothing for its secrecy.
    """

    blocks: list[int]
    facts: dict[str, str]
    invocations: list[Any]
    assignment: ApprovedAssignment | None = None


class ApprovedRequest(Strict):
    """The canonical request, as `tasks.pricing.quote` builds it and the spend gate approves it."""

    format: Literal["almoner-request/1"]
    dataset: ApprovedDataset
    unit: Name
    relation: Literal["add_or_remove_one"]
    governed: bool
    population: Positive | None
    blocks: Positive
    kind: Name
    mechanism: Name
    epsilon: Figure | None
    delta: Figure | None
    model: ApprovedModel
    parameters: dict[str, Any]
    prompt: ApprovedPrompt
    evaluation: list[Name]
    plan: ApprovedPlan
    policy: Digest
    code: Digest
    nonce: Name
    epsilon_while_secret: Figure | None = None
    """The most that the release may claim while its assignment is secret, where its author asked for that; `epsilon`
    follows from it. Absent elsewhere."""
    evaluation_share: Figure | None = None
    """Part of rho for charged metrics; absent where there are none."""
    evaluation_embedder: ApprovedEmbedder | None = None
    """Embedder of the metrics; None if no metric embeds texts."""
    cohorts: list[Positive] | None = None
    """Cohorts that the request reads, with `blocks` blocks each; absent where the dataset had a single cohort."""
    public_metadata: dict[str, Any] | None = None
    """Declared facts about the published data; absent where nothing is declared."""
    prompt_sha256: Digest | None = None
    """Digest of the prompts' token ids (`tasks.inference.prompt_rendering`); absent where rows read other prompts."""
    choices: dict[str, str] | None = None
    """Parameters that almoner chose when it priced the request, each with its reason
    (`tasks.planning.parameter_choices`); their values are in `parameters`. Absent if the author wrote all."""

    @property
    def groups(self) -> tuple[PublicGroup, ...]:
        """The public groups that it summarises; empty for every other kind."""
        return groups_asked(self.kind, self.parameters)

    def require_planned(self) -> None:
        """Check that the stated plan is the one that this request leads to.

        Raises:
            PlanMismatch: it is another plan.
            Refused, UsageError: the mechanism is unknown or forbidden here, or its parameters do not fit it.
        """
        system = system_for(self.mechanism, self.kind)
        require_public_prompts(system, self.model.name)
        parameters = parse_model(system.parameters, self.parameters, f"`parameters` of {self.mechanism}")
        if encode_canonical(model_to_json(parameters)) != encode_canonical(self.parameters):
            raise _plan_mismatch("its parameters are not written out in full")
        require_parts_for(self.kind, parameters)
        require_schema_for(self.kind, parameters)
        stored_prompt = self.prompt.model_dump(exclude_none=True)
        prompt = parse_model(Prompt, stored_prompt, "`prompt`")
        if encode_canonical(prompt_json(prompt, names_of(parameters))) != encode_canonical(stored_prompt):
            raise _plan_mismatch("its prompt is not written out in full")
        if reason := system.contradiction(parameters, (self.model.name, self.model.sha256), self.prompt.model_dump()):
            raise _plan_mismatch(reason)
        if self.public_metadata is not None:
            self._require_declared(self.public_metadata)
        if self.choices is not None and not set(self.choices) <= set(self.parameters):
            raise _plan_mismatch("it names choices that are no parameters")
        reading = self._reading()
        if len(self.plan.blocks) != reading.size:
            raise _plan_mismatch("it charges other blocks than it reads")
        inputs = PlanInputs(self._amount(system, parameters), parameters, self.blocks, self.population, self.governed)
        if self.prompt_sha256 is not None and not system.renders_prompt:
            raise _plan_mismatch("it has a digest of prompts that its rows do not read")
        metrics = requested(self.evaluation, governed=self.governed)
        ask = reading.restrict_inputs(inputs)
        plan = plan_with_metrics(system, ask, metrics, self._evaluation_share())
        self._require_for_metrics(metrics, paid=bool(plan.measuring))
        plan = with_external_fact(reading.renumber_plan(plan), self.model.name, self.model.revision)
        if encode_canonical(plan_json(plan)) != encode_canonical(self._stated_plan()):
            raise _plan_mismatch(
                f"{self.mechanism} with these parameters leads to another plan in this version of almoner"
            )

    def _require_for_metrics(self, metrics: Sequence[Metric], *, paid: bool) -> None:
        """Check that there is a share, and an embedder, exactly where some metric needs one."""
        if (self.evaluation_share is not None) != paid:
            raise _plan_mismatch("it has a share for charged metrics without naming any, or names some without a share")
        if (self.evaluation_embedder is not None) != needs_embedder(metrics):
            raise _plan_mismatch(
                "it has an embedder without metrics that need one, or such metrics without an embedder"
            )

    def _reading(self) -> Reading:
        """Return the selection of the dataset's blocks that it reads."""
        try:
            return reading_of_request({"cohorts": self.cohorts}, self.blocks)
        except ValueError:
            raise _plan_mismatch("there are no such cohorts") from None

    def _evaluation_share(self) -> Decimal:
        """Return the share of rho for charged metrics; the default where there are none."""
        field = ReleaseRequest.model_fields["evaluation_share"]
        share: Decimal = field.default if self.evaluation_share is None else Decimal(self.evaluation_share)
        return share

    def _require_declared(self, stated: dict[str, Any]) -> None:
        declared = model_to_json(parse_model(PublicMetadata, stated, "`public_metadata`"))
        if not stated or encode_canonical(declared) != encode_canonical(stated):
            raise _plan_mismatch("its public metadata is not in its one form")

    def _amount(self, system: System, parameters: BaseModel) -> Amount | None:
        if not system.charges:
            return None
        if self.epsilon is None or self.delta is None:
            raise _plan_mismatch("a mechanism that charges needs an epsilon and a delta")
        return release_amount(self.epsilon, self.delta, system.failure_delta_share(parameters))

    def _stated_plan(self) -> Json:
        stated: Json = self.plan.model_dump(exclude={"assignment"} if self.plan.assignment is None else None)
        return stated


def groups_asked(kind: str, parameters: Mapping[str, Any]) -> tuple[PublicGroup, ...]:
    """Return the public groups of a stored request.

    Raises:
        ValidationError, KeyError: it is not in its stored form.
    """
    return tuple(map(PublicGroup.model_validate, parameters["groups"])) if kind == ReleaseKind.SUMMARIES else ()


def _plan_mismatch(reason: str) -> Refused:
    return Refused(
        f"The plan does not follow from the request: {reason}.",
        "Approve nothing of it; do not rely on its bundle, unless the version of almoner that made it verifies it.",
        {"reason": reason},
        code="PlanMismatch",
    )
