"""Metrics that a policy requires, and the bounds of their figures."""

from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from functools import cache

from models_db.canonical import Json
from models_db.errors import Refused, UsageError
from models_db.policy import PAGE, Bound
from tasks.evaluation.registry import METRICS, names
from tasks.evaluation.results import MetricResult, Value
from tasks.evaluation.subject import Subject

Required = Mapping[str, Mapping[str, Bound]]


def require_measurable(required: Required) -> None:
    """Check that what a policy requires can be measured and may be looked at before a publish decision (PRIVACY §7).

    Raises:
        NotMeasurable: a metric or figure does not exist, or the metric is internal.
    """
    problems = [problem for metric, bounds in required.items() for problem in _mistakes(metric, bounds)]
    if problems:
        raise NotMeasurable(problems)


def require_within(request_id: int, required: Required, measured: Mapping[str, MetricResult]) -> None:
    """Check the stored figures of a release against the bounds.

    Raises:
        OutsideBounds: with every figure that is outside, or missing.
    """
    outside = [
        (f"{metric}.{figure}", _figure(measured.get(metric), figure), str(bound))
        for metric, bounds in required.items()
        for figure, bound in bounds.items()
        if not _admitted(_figure(measured.get(metric), figure), bound)
    ]
    outside += [(metric, None, "measured") for metric in required if metric not in measured]
    if outside:
        raise OutsideBounds(request_id, outside)


@cache
def figures_of(metric: str) -> frozenset[str]:
    """The names of a metric's figures: those it has of no texts at all."""
    return frozenset(METRICS[metric].compute(Subject((), score=lambda texts: [], documents=lambda: ())).values)


def _mistakes(metric: str, bounds: Mapping[str, Bound]) -> Iterator[str]:
    if metric not in names("public", "charged"):
        known = ", ".join(names("public", "charged"))
        yield f"{metric!r} is none of the metrics that a gate may look at ({known})"
        return
    for figure in bounds:
        if figure not in figures_of(metric):
            yield f"{metric!r} has no figure {figure!r} (it has {', '.join(sorted(figures_of(metric)))})"


def _figure(result: MetricResult | None, figure: str) -> Value:
    return None if result is None else result.values.get(figure)


def _admitted(value: Value, bound: Bound) -> bool:
    """What was not measured, or is no number, is outside of every bound."""
    if value is None:
        return False
    try:
        number = Decimal(value)
    except InvalidOperation:
        return False
    return number.is_finite() and bound.admits(number)


class NotMeasurable(UsageError):
    """A policy requires what no gate can look at."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(
            f"The policy requires evaluations that cannot be had: {'; '.join(problems)}.",
            f"Correct `evaluation` in the policy; nothing was adopted. The format is in {PAGE}.",
            {"problems": problems},
        )


class OutsideBounds(Refused):
    """A release is not as good as its policy demands."""

    def __init__(self, request_id: int, outside: list[tuple[str, Value, str]]) -> None:
        told = "; ".join(f"{name} is {_shown(value)}, allowed is {bound}" for name, value, bound in outside)
        facts: list[Json] = [{"figure": name, "value": value, "allowed": bound} for name, value, bound in outside]
        super().__init__(
            f"The release of request {request_id} is outside the bounds of its policy: {told}.",
            f'It cannot be published. Reject it: `almoner reject {request_id} --gate publish --reason "..."`;'
            " what it spent stays spent.",
            {"request": request_id, "outside": facts},
        )


def _shown(value: Value) -> str:
    return "not measured" if value is None else str(value)
