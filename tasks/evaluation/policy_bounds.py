"""Metrics that a policy requires, the bounds of their figures, and the override of a bound in an approval's reason.

Override of a policy's bounds: explicit, in the signed reason of an approval, in one form. The reason of an approval is
signed, stands in the audit log and on every screen, and is published with the release. An override begins with a
sentence that names every figure outside its bound as it is, so it is signed for these figures and no others; what
follows is the steward's own reason. A policy that says `overrides: refused` allows none.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Final

from models_db.errors import Refused, UsageError
from models_db.policies.policy import POLICY_PAGE, EffectiveRules, MetricBound
from models_db.values.canonical_json import Json
from tasks.evaluation.evaluation_input import EvaluationInput
from tasks.evaluation.registry import METRICS, names
from tasks.values.results import MetricResult, MetricValue

Required = Mapping[str, Mapping[str, MetricBound]]


@dataclass(frozen=True)
class BoundCheck:
    """Requirement of a policy and the measured value; `figure` is None if the metric only has to be measured."""

    metric: str
    figure: str | None
    value: MetricValue
    allowed: str
    met: bool

    @property
    def name(self) -> str:
        """Return the name as policies and refusals write it: metric, or metric.figure."""
        return self.metric if self.figure is None else f"{self.metric}.{self.figure}"

    def __str__(self) -> str:
        return f"{self.name} is {_value_text(self.value)}, allowed is {self.allowed}"


def require_measurable(required: Required) -> None:
    """Check that required metrics can be measured, and may be seen before a publish decision (PRIVACY §7).

    Raises:
        NotMeasurable: a metric or figure does not exist, or the metric is internal.
    """
    problems = [problem for metric, bounds in required.items() for problem in _unmeasurable(metric, bounds)]
    if problems:
        raise UsageError(
            f"The policy requires evaluations that cannot be had: {'; '.join(problems)}.",
            f"Correct `evaluation` in the policy; nothing was adopted. The format is in {POLICY_PAGE}.",
            {"problems": problems},
            code="NotMeasurable",
        )


def missed(required: Required, measured: Mapping[str, MetricResult]) -> tuple[BoundCheck, ...]:
    """Return the demands that a release does not meet."""
    return tuple(check for check in bound_checks(required, measured) if not check.met)


def bound_checks(required: Required, measured: Mapping[str, MetricResult]) -> Iterator[BoundCheck]:
    """Yield every requirement with its measured value: first the figures, then metrics without bounds.

    By name: a stored policy has its fields in another order than a written one, and signed words must not depend on it.
    """
    for metric, bounds in sorted(required.items()):
        for figure, bound in sorted(bounds.items()):
            value = _value_of(measured.get(metric), figure)
            yield BoundCheck(metric, figure, value, str(bound), _is_within(value, bound))
    for metric, bounds in sorted(required.items()):
        if metric not in measured or not bounds:
            yield BoundCheck(metric, None, None, "measured", metric in measured)


@cache
def figures_of(metric: str) -> frozenset[str]:
    """Return the names of a metric's figures: those it has of no texts at all."""
    return frozenset(METRICS[metric].compute(EvaluationInput((), score=lambda texts: [], documents=lambda: ())).values)


def _unmeasurable(metric: str, bounds: Mapping[str, MetricBound]) -> Iterator[str]:
    if metric not in names("public", "charged"):
        known_names = ", ".join(names("public", "charged"))
        yield f"{metric!r} is not a metric that a gate may show ({known_names})"
        return
    for figure in bounds:
        if figure not in figures_of(metric):
            yield f"{metric!r} has no figure {figure!r} (it has {', '.join(sorted(figures_of(metric)))})"


def _value_of(result: MetricResult | None, figure: str) -> MetricValue:
    return None if result is None else result.values.get(figure)


def _is_within(value: MetricValue, bound: MetricBound) -> bool:
    """Return whether a value is within a bound; a missing value, or one that is not a number, never is."""
    if value is None:
        return False
    try:
        number = Decimal(value)
    except InvalidOperation:
        return False
    return number.is_finite() and bound.admits(number)


class OutsideBounds(Refused):
    """A release is not as good as its policy demands."""

    def __init__(self, request_id: int, outside: Sequence[BoundCheck], *, overridable: bool = False) -> None:
        facts: list[Json] = [
            {"figure": check.name, "value": check.value, "allowed": check.allowed} for check in outside
        ]
        override = f'`almoner approve {request_id} --gate publish --override "..."`'
        otherwise = f" or, on the record, approve it all the same: {override}" if overridable else ""
        super().__init__(
            f"The release of request {request_id} is outside the bounds of its policy: {describe_checks(outside)}.",
            f'Reject it: `almoner reject {request_id} --gate publish --reason "..."`{otherwise}.'
            " Its budget stays spent.",
            {"request": request_id, "outside": facts, "overridable": overridable},
        )


def describe_checks(outside: Sequence[BoundCheck]) -> str:
    """Return some outcomes as one line."""
    return "; ".join(map(str, outside))


def _value_text(value: MetricValue) -> str:
    return "not measured" if value is None else str(value)


_HEAD: Final = "Overrides the bounds of the policy"
_STATED: Final = re.compile(rf"{_HEAD} \((.+?)\): ", re.DOTALL)


def override_reason(outside: Sequence[BoundCheck], reason: str) -> str:
    """Return the reason to sign, for an approval in spite of `outside`."""
    return f"{_override_prefix(outside)}{reason}"


def overridden_bounds(reason: str) -> str | None:
    """Return the bounds that a signed reason overrides, in its own words; None if it overrides none."""
    match = _STATED.match(reason)
    return match[1] if match else None


def require_admitted(
    request_id: int, rules: EffectiveRules, measured: Mapping[str, MetricResult], reasons: Iterable[str]
) -> None:
    """Check the figures of a release against its policy, given the reasons of its approvers.

    Raises:
        OutsideBounds: some are outside, and the policy allows no override, or not every reason overrides exactly these.
    """
    outside = missed(rules.required, measured)
    if not outside:
        return
    override_reasons = list(reasons)
    if (
        not rules.overrides
        or not override_reasons
        or not all(_has_override_prefix(reason, outside) for reason in override_reasons)
    ):
        raise OutsideBounds(request_id, outside, overridable=rules.overrides)


def _override_prefix(outside: Sequence[BoundCheck]) -> str:
    return f"{_HEAD} ({describe_checks(outside)}): "


def _has_override_prefix(reason: str, outside: Sequence[BoundCheck]) -> bool:
    head = _override_prefix(outside)
    return reason.startswith(head) and bool(reason.removeprefix(head).strip())


def nothing_to_override(request_id: int) -> UsageError:
    """Return the error of an override of bounds that the release keeps."""
    return UsageError(
        f"The release of request {request_id} is within the bounds of its policy: there is nothing to override.",
        f'Approve it: `almoner approve {request_id} --gate publish --reason "..."`.',
        {"request": request_id},
        code="NothingToOverride",
    )
