"""Second opinion on epsilon: dp-accounting's figure for the same stored events."""

from collections.abc import Sequence
from importlib.metadata import version

from models_db.values.amounts import Amount, total_amount
from models_db.values.events import PrivacyEvent
from tasks.accounting.rounding import Exact
from tasks.common.strict_model import figure
from tasks.release.record import SecondOpinion


def second_opinion(events: Sequence[PrivacyEvent], delta: Exact) -> SecondOpinion | None:
    """Return dp-accounting's epsilon for `events` at `delta`; None where nothing is charged.

    Raises:
        NotReportable: dp-accounting knows no such event.
    """
    if total_amount([event.loss for event in events]) == Amount():
        return None
    from tasks.accounting.dp_accounting_check import plan_report  # dp-accounting takes a second to load

    report = plan_report(events, delta)
    return SecondOpinion(
        library=f"dp-accounting {version('dp-accounting')}",
        accountant=report.accountant,
        epsilon=figure(report.epsilon),
        delta=figure(report.delta),
    )
