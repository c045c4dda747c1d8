"""dp-accounting's figure for a plan, computed once in a run of tests for the same events and delta: it takes half a
second, and every release that is built or verified asks for it.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest


def plan_report_once() -> Callable[..., Any]:
    """`plan_report`, which keeps its reports; what it refuses it refuses each time."""
    from tasks.accounting.dp_accounting_check import plan_report

    reports: dict[str, Any] = {}

    def report(events: Any, delta: Any) -> Any:
        key = repr((list(events), delta))
        if key not in reports:
            reports[key] = plan_report(events, delta)
        return reports[key]

    return report


@pytest.fixture(scope="session")
def kept_reports() -> Callable[..., Any]:
    """The reports of this run."""
    return plan_report_once()


@pytest.fixture(autouse=True, scope="module")
def second_opinions_once(kept_reports: Callable[..., Any]) -> Iterator[None]:
    """Second opinions are asked for once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks.accounting.dp_accounting_check.plan_report", kept_reports)
        yield
