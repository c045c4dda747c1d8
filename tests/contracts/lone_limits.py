"""For each guard on plans, views and erasures: states in which one clause of it decides."""

from sqlalchemy import Executable, text

from tests.contracts.circumstances import OTHER, PAST
from tests.contracts.decision_cases import AFTER_ALL
from tests.contracts.initial_cases import Make
from tests.contracts.limit_cases import paid_again, planned_row
from tests.contracts.lone_states import Lone, sql
from tests.contracts.rows import (
    erased_version,
    evaluation,
    hold,
    internal_view,
    invocation,
    transition,
)
from tests.contracts.town import Town


def without_plan(table: str, condition: str = "TRUE") -> Make:
    """The request of the attempt `deputised` loses rows of its plan; all other requests keep theirs."""
    return lambda t: text(f"DELETE FROM {table} WHERE request_id = {t.deputised.request_id} AND {condition}")


def hold_deputised(town: Town) -> Executable:
    return hold(town, town.deputised)


def invoke_deputised(town: Town) -> Executable:
    return invocation(town, town.deputised)


UNGOVERNED = "UPDATE dataset SET governed = FALSE"
UNITS_ERASED = f"UPDATE erased_version SET manifest_mark = '{OTHER}'"
"""Every version of which something was erased is still there, without some units."""


def paid(town: Town) -> list[Executable]:
    """A hold at no charge of what an earlier attempt has armed."""
    return paid_again(town, rho=0)


def of_lost(statement: str, block: int = 0) -> Make:
    """A statement on the holds that an attempt without an artifact had on a block."""
    return lambda town: text(
        statement.format(
            holds="SELECT h.id FROM hold h JOIN account a ON a.id = h.account_id"
            f" WHERE h.invocation_id = {town.invocation(town.lost)} AND a.block = {block}"
        )
    )


LIMITS: dict[str, list[Lone]] = {
    # --- plans
    "planned_release_with_its_request": [Lone(denied=[lambda t: planned_row(t, "planned_release", t.reopened)])],
    "invocation_planned": [
        Lone((without_plan("planned_invocation"),), denied=[invoke_deputised]),
    ],
    "hold_planned": [
        Lone((without_plan("planned_instalment"),), denied=[hold_deputised]),
        Lone((without_plan("planned_instalment", "sequence = 0"),), denied=[hold_deputised]),
        Lone((without_plan("planned_instalment", "sequence > 0"),), allowed=[hold_deputised]),
        Lone((without_plan("planned_block"),), denied=[hold_deputised]),
        Lone(
            (lambda t: text(f"UPDATE planned_block SET first_block = 1 WHERE request_id = {t.deputised.request_id}"),),
            denied=[hold_deputised],
            allowed=[lambda t: hold(t, t.deputised, account_id=t.account("clinic", 1))],
        ),
        Lone(
            (of_lost("DELETE FROM entry WHERE kind = 'ARM' AND hold_id IN ({holds})", block=1),),
            denied=[lambda t: paid_again(t, rho=0, account_id=t.account("clinic", 1))],
            allowed=[paid],
        ),
        Lone((of_lost("UPDATE hold SET rho = rho - 1 WHERE id IN ({holds})"),), denied=[paid]),
        Lone((of_lost("UPDATE hold SET delta = delta + 1 WHERE id IN ({holds})"),), denied=[paid]),
        Lone((sql("UPDATE invocation SET attempt = 7 WHERE id = {lost_invocation}"),), denied=[paid]),
        Lone((sql("UPDATE invocation SET sequence = 7 WHERE id = {lost_invocation}"),), denied=[paid]),
    ],
    # --- views
    "internal_view_decided": [
        Lone(denied=[lambda t: internal_view(t, t.cleared, "clinic")]),
        Lone((UNGOVERNED,), denied=[lambda t: internal_view(t, t.looked, "seen")]),
    ],
    "internal_view_between_releases": [
        Lone((UNGOVERNED,), allowed=[lambda t: internal_view(t, t.published, "clinic")]),
    ],
    "evaluation_viewed": [
        Lone((UNGOVERNED,), allowed=[lambda t: evaluation(t, t.unseen, "internal")]),
        Lone(allowed=[lambda t: evaluation(t, t.published, "public")]),
    ],
    "evaluation_charged": [
        Lone(denied=[lambda t: evaluation(t, t.produced, "charged", invocation_id=t.invocation(t.unarmed))]),
    ],
    # --- erasures
    "erased_version_of_erasure": [
        # the first erasure concerned this version, but this erasure concerns a unit
        Lone(denied=[lambda t: erased_version(t, version_id=t.emptied, manifest_mark=None)]),
    ],
    # --- the beginning of a run
    "transition_begins": [
        Lone((UNITS_ERASED,), allowed=[lambda t: transition(t, t.gone_approved, "approved", "running")]),
        Lone(allowed=[lambda t: transition(t, t.gone_approved, "approved", "withdrawn")]),
        Lone(allowed=[lambda t: transition(t, t.approved, "approved", "withdrawn", at=AFTER_ALL)]),
        Lone(
            (sql(f"UPDATE request SET expires_at = '{PAST}' WHERE id = {{approved}}"),),
            denied=[lambda t: transition(t, t.approved, "approved", "running")],
        ),
    ],
}
