"""Policy as an admin writes it (`policy.yaml`), validated, and its rules for one dataset.

A policy is stored as canonical JSON and named by its digest: in the ledger, in requests, in bundles.
"""

import ast
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from types import MappingProxyType
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, model_validator

from models_db.values.requests import ExactDecimal, MechanismName, RequestModel, format_decimal

POLICY_PAGE = "docs/policy.md"
ApprovalCount = Annotated[int, Field(strict=True, ge=1, le=20)]
Days = Annotated[int, Field(strict=True, ge=1, le=365)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
MetricValue = Annotated[ExactDecimal, Field(max_digits=30, decimal_places=12)]


def _format_number(value: object) -> object:
    """Return the number of a format; a bool or text that only looks like one is a mistake."""
    if type(value) is not int or value != 1:
        raise ValueError("this almoner reads format 1")
    return value


def _describe_fields(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Add the docstrings of a model's fields to its JSON schema.

    Pydantic's `use_attribute_docstrings` does the same when a class is made, and parses its source in every command.
    """
    for owner in reversed(model.__mro__):
        if owner.__module__ != __name__:
            continue
        statements = cast(ast.ClassDef, ast.parse(inspect.getsource(owner)).body[0]).body
        for field, text in pairwise(statements):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                name = cast(ast.Name, field.target).id
                schema["properties"][name]["description"] = inspect.cleandoc(str(text.value.value))


class _RuleModel(RequestModel):
    model_config = ConfigDict(json_schema_extra=_describe_fields)


class RequiredApprovals(_RuleModel):
    """Numbers of different stewards, by decision."""

    spend: ApprovalCount = 1
    """Stewards for the spend gate, before private data is read."""
    publish: ApprovalCount = 1
    """Stewards for the publish gate, before a release leaves the home."""
    proposal: ApprovalCount = 2
    """Cap changes, standing authorisations, retractions: a cap is not raised by one person unasked."""


class ReleaseLimits(_RuleModel):
    """The most one release may claim."""

    epsilon_max: Annotated[ExactDecimal, Field(gt=0, le=1_000_000, max_digits=30, decimal_places=12)]
    """Its epsilon."""
    delta_max: Annotated[ExactDecimal, Field(ge=Decimal("1e-18"), lt=1, max_digits=30, decimal_places=18)]
    """Its delta, down to 1e-18, the ledger's unit."""
    epsilon_while_secret_max: Annotated[ExactDecimal, Field(gt=0, le=1_000_000, max_digits=30, decimal_places=12)] | (
        None
    ) = None
    """Its epsilon while its assignment is secret; a release that claims none then counts with its epsilon."""


class LifetimeLimit(_RuleModel):
    """The most that all releases of a dataset may come to while their assignments are secret."""

    epsilon: Annotated[ExactDecimal, Field(gt=0, le=1_000_000, max_digits=30, decimal_places=12)]
    """Its epsilon, for all releases ever run."""
    delta: Annotated[ExactDecimal, Field(ge=Decimal("1e-18"), lt=1, max_digits=30, decimal_places=18)]
    """Its delta, beside the failure probabilities that the account of the dataset caps."""


class MetricBound(_RuleModel):
    """Bounds on a figure of a metric."""

    min: MetricValue | None = None
    """Smallest allowed value."""
    max: MetricValue | None = None
    """Largest allowed value."""

    @model_validator(mode="after")
    def _requires_a_bound(self) -> "MetricBound":
        if self.min is None and self.max is None:
            raise ValueError("a bound has a min, a max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("min is above max")
        return self

    def admits(self, value: Decimal) -> bool:
        """Return whether `value` lies inside, the ends included."""
        return (self.min is None or self.min <= value) and (self.max is None or value <= self.max)

    def __str__(self) -> str:
        ends = (("at least", self.min), ("at most", self.max))
        return " and ".join(f"{word} {format_decimal(end)}" for word, end in ends if end is not None)


class EvaluationRules(_RuleModel):
    """Metrics that must be measured before a release may be published."""

    required: dict[Name, dict[Name, MetricBound]] = Field(default_factory=dict, max_length=20)
    """Bounds by metric, then by figure; a metric without figures must be measured and may have any value."""
    overrides: Literal["allowed", "refused"] = "allowed"
    """`allowed` lets stewards approve a release outside its bounds, explicitly and on the record."""


class DatasetApprovals(_RuleModel):
    """Numbers of stewards that must approve for one dataset; omitted fields take the general rule."""

    spend: ApprovalCount | None = None
    """Stewards for the spend gate, before private data is read."""
    publish: ApprovalCount | None = None
    """Stewards for the publish gate, before a release leaves the home."""
    proposal: ApprovalCount | None = None
    """Cap changes, standing authorisations, retractions."""


class DatasetRules(_RuleModel):
    """Rules for one dataset; omitted fields take the general rule."""

    approvals: DatasetApprovals = DatasetApprovals()
    """Numbers of stewards that must approve."""
    release: ReleaseLimits | None = None
    """The most one release may claim."""
    delta_below_population: Annotated[bool, Field(strict=True)] | None = None
    """True if a release's delta must be below 1/(declared population)."""
    mechanisms: Annotated[tuple[MechanismName, ...], Field(min_length=1)] | None = None
    """Mechanisms that may be used."""
    models: Annotated[tuple[Name, ...], Field(min_length=1, max_length=200)] | None = None
    """Models that may be used."""
    evaluation: EvaluationRules | None = None
    """Metrics that must be measured."""
    lifetime_while_secret: LifetimeLimit | None = None
    """The most that its releases may come to while their assignments are secret."""


@dataclass(frozen=True)
class EffectiveRules:
    """Rules of a policy for releases of one dataset; None means no restriction."""

    spend: int
    publish: int
    proposal: int
    release: ReleaseLimits | None
    delta_below_population: bool
    mechanisms: tuple[str, ...] | None
    models: tuple[str, ...] | None
    required: Mapping[str, Mapping[str, MetricBound]]
    lifetime_while_secret: LifetimeLimit | None = None
    overrides: bool = True
    """True if a release outside the required bounds may be approved explicitly."""


class Policy(_RuleModel):
    """Release policy of a project home."""

    model_config = ConfigDict(title="almoner policy")
    version: Annotated[Literal[1], PlainValidator(_format_number, json_schema_input_type=Literal[1])] = 1
    """The format of this file."""
    several_roles: Annotated[bool, Field(strict=True)] = False
    """True if one person may request, approve and run the same release."""
    approvals: RequiredApprovals = RequiredApprovals()
    """Numbers of different stewards that must approve."""
    approval_days: Days = 30
    """Days until an approval expires."""
    request_days: Days = 90
    """Days until an undecided request or proposal expires."""
    attempts: Annotated[int, Field(strict=True, ge=1, le=100)] = 5
    """Maximum number of runs of one approved request, failures included; each run spends the budget that it arms."""
    release: ReleaseLimits | None = None
    """The most one release may claim. Left out: only the lifetime budget of the dataset limits it."""
    delta_below_population: Annotated[bool, Field(strict=True)] = False
    """True if a release's delta must be below 1/(declared population of the dataset)."""
    mechanisms: Annotated[tuple[MechanismName, ...], Field(min_length=1)] | None = None
    """Mechanisms that may be used. Left out: all."""
    models: Annotated[tuple[Name, ...], Field(min_length=1, max_length=200)] | None = None
    """Models that may be used, as requests name them. Left out: all that are installed."""
    evaluation: EvaluationRules = EvaluationRules()
    """Metrics that must be measured, and their bounds, before a release may be published."""
    lifetime_while_secret: LifetimeLimit | None = None
    """The most that the releases of a dataset may come to while their assignments are secret, beside its lifetime
    budget, which always holds. If omitted, no limit."""
    refusals: Literal["full", "quiet"] = "full"
    """`quiet`: only stewards, auditors and admins see remaining budgets."""
    datasets: dict[Name, DatasetRules] = Field(default_factory=dict, max_length=500)
    """Rules for single datasets, by dataset name."""

    def rules_for(self, dataset: str) -> EffectiveRules:
        """Return the rules of this policy for releases of `dataset`."""
        dataset_rules, approvals = self.datasets.get(dataset, DatasetRules()), self.approvals
        evaluation = self.evaluation if dataset_rules.evaluation is None else dataset_rules.evaluation
        return EffectiveRules(
            spend=dataset_rules.approvals.spend or approvals.spend,
            publish=dataset_rules.approvals.publish or approvals.publish,
            proposal=dataset_rules.approvals.proposal or approvals.proposal,
            release=dataset_rules.release or self.release,
            delta_below_population=(
                self.delta_below_population
                if dataset_rules.delta_below_population is None
                else dataset_rules.delta_below_population
            ),
            mechanisms=dataset_rules.mechanisms or self.mechanisms,
            models=dataset_rules.models or self.models,
            required=MappingProxyType(evaluation.required),
            lifetime_while_secret=dataset_rules.lifetime_while_secret or self.lifetime_while_secret,
            overrides=evaluation.overrides == "allowed",
        )
