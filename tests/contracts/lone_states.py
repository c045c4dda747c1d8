"""The words in which `lone_accounts` and `lone_decisions` describe states of a ledger."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import Executable, text

from models_db.services.budget import Attempt
from tests.contracts.circumstances import FUTURE, OTHER, PAST
from tests.contracts.decision_cases import proposal_id
from tests.contracts.initial_cases import Make
from tests.contracts.rows import (
    approval,
    artifact,
    carried,
    entry,
    hold,
    insert,
    invocation,
    proposal,
    publication,
    transition,
)
from tests.contracts.town import Town
from tests.support import LATE

Change = str | Make


@dataclass(frozen=True)
class Lone:
    """A state of the ledger, and what the guard must then deny and let pass."""

    changes: Sequence[Change] = ()
    denied: Sequence[Make] = field(default=())
    allowed: Sequence[Make] = field(default=())


NO_CHECKS = "checks of tables are set aside"


def rejection(town: Town, number: int, gate: str) -> Executable:
    """A rejection at a gate, whatever the state of its subject."""
    row = {"gate": gate, "subject_digest": OTHER, "approver_id": town.second_steward, "decision": "reject",
           "reason": "because", "at": town.now, "expires_at": LATE, "signature": "s"}  # fmt: skip
    return insert("approval", **{"proposal_id" if gate == "proposal" else "request_id": number}, **row)


def misplaced_rejection(town: Town, number: int) -> Executable:
    """A rejection of a proposal that stands at another gate."""
    row = {"gate": "spend", "subject_digest": OTHER, "approver_id": town.second_steward, "decision": "reject",
           "reason": "because", "at": town.now, "expires_at": LATE, "signature": "s"}  # fmt: skip
    return insert("approval", proposal_id=number, **row)


def sql(statement: str) -> Make:
    """A statement that may name numbers of the town as `{name}`."""
    return lambda town: text(
        statement.format(
            stranger=town.actor("stranger").id, analyst=town.world.analyst.id, runner=town.world.runner.id,
            second=town.second_steward, held=town.held.request_id, settled=town.settled.request_id,
            cleared=town.cleared.request_id, elsewhere=town.elsewhere.request_id,
            routine=town.routine.request_id, running=town.running.request_id, approved=town.approved,
            submitted=town.submitted, scheduled=town.scheduled, standing=town.standing, schedule=town.schedule,
            complete=town.complete.request_id, retracted=town.retracted.request_id,
            paused=town.paused, ready=town.ready_proposal, policy=town.world.policy_id, carried=town.carried_cap,
            clinic=town.account("clinic", None), estate=town.account("estate", None),
            held_invocation=town.invocation(town.held),
            lost=town.lost.request_id, settled_invocation=town.invocation(town.settled),
            lost_invocation=town.invocation(town.lost),
        )
    )  # fmt: skip


STRAY, STRAY_INVOCATION = 90_001, 90_002


def stray_hold(of: str, *kinds: str, **given: object) -> list[Change]:
    """A hold of an attempt that no service made, with entries of these kinds."""

    def made(town: Town) -> list[Executable]:
        attempt: Attempt = getattr(town, of)
        rows = [hold(town, attempt, **{"id": STRAY, "instalment": 77, **given})]
        return [*rows, *(entry(town, STRAY, kind) for kind in kinds)]

    return [made]


def earlier_attempt(of: str, amount: int) -> Make:
    """Another attempt at the same request, with a hold of its own on each account that this one uses."""

    def made(town: Town) -> list[Executable]:
        attempt: Attempt = getattr(town, of)
        number = town.invocation(attempt)
        return [
            invocation(town, attempt, id=STRAY_INVOCATION, attempt=7, idem_key=OTHER),
            text(
                "INSERT INTO hold (invocation_id, account_id, instalment, rho, delta) SELECT"
                f" {STRAY_INVOCATION}, account_id, instalment, {amount}, {amount} FROM hold"
                f" WHERE invocation_id = {number}"
            ),
        ]

    return made


def moved(setting: str) -> Make:
    """The account of the stray hold moves by its newest entry, with this setting besides or instead."""
    base = {
        "rho_held": "rho_held + 3", "delta_held": "delta_held + 2", "rho_spent": "rho_spent",
        "delta_spent": "delta_spent", "last_entry_id": "(SELECT max(id) FROM entry)",
    }  # fmt: skip
    column, _, value = setting.partition(" = ")
    settings = base | ({column: value} if column else {})
    return lambda town: text(
        f"UPDATE account SET {', '.join(f'{name} = {what}' for name, what in settings.items())}"
        f" WHERE id = {town.account('clinic')}"
    )


def recapped(setting: str = "", of: str = "parent_id IS NULL") -> Make:
    """An account of the harbour gets the newest cap, with these settings besides or instead."""
    given = [each.partition(" = ") for each in setting.split(", ") if each]
    settings = {"rho_cap": "4000", "delta_cap": "400"} | {column: value for column, _, value in given}
    return lambda town: text(
        f"UPDATE account SET {', '.join(f'{name} = {what}' for name, what in settings.items())} WHERE {of}"
        f" AND (id = {town.account('harbour', None)} OR parent_id = {town.account('harbour', None)})"
    )


def head(setting: str) -> Make:
    return lambda town: text(f"UPDATE audit_head SET {setting}")


UNMOVED = ("DROP TRIGGER entry_moves_account", *stray_hold("held", "HOLD", rho=3, delta=2))
UNCAPPED = ("DROP TRIGGER carried_moves_cap", lambda t: carried(t, t.ready_proposal))
# Proposals newer than the newest cap of the harbour, which is (2000, 200); none may be taken for one of its.
IMPOSTOR = (
    "DROP TRIGGER carried_moves_cap",
    lambda t: proposal(t, id=950, dataset_id=t.id_of("dataset", "name = 'harbour'"), **proposal_id(t, "standing")),
    lambda t: carried(t, 950),
)
OF_ANOTHER_ACCOUNT = ("DROP TRIGGER carried_moves_cap", lambda t: proposal(t, id=950), lambda t: carried(t, 950))
UNLINKED = "DROP TRIGGER audit_moves_head"


def only(role: str, *changes: str) -> tuple[str, ...]:
    """Everybody has this role and no other."""
    return (f"UPDATE role_grant SET role = '{role}'", "DELETE FROM role_revocation", *changes)


def by_either(first: str, second: str, make: Make) -> list[Lone]:
    """A guard that asks for one of two roles lets pass who has either, while it lasts."""
    found = []
    for role in (first, second):
        found += [
            Lone(only(role), allowed=[make]),
            Lone(only(role, f"UPDATE role_grant SET valid_to = '{FUTURE}'"), allowed=[make]),
            Lone((NO_CHECKS, *only(role, f"UPDATE role_grant SET valid_to = '{PAST}'")), denied=[make]),
            Lone(only(role, f"UPDATE role_grant SET valid_from = '{FUTURE}', valid_to = NULL"), denied=[make]),
        ]
    return found


def admins_do_not(make: Make) -> list[Lone]:
    """An admin's decision passes when they are none any more, or not yet."""
    return [
        Lone((f"UPDATE role_grant SET valid_to = '{FUTURE}'",), denied=[make]),
        Lone((NO_CHECKS, f"UPDATE role_grant SET valid_to = '{PAST}'"), allowed=[make]),
        Lone((f"UPDATE role_grant SET valid_from = '{FUTURE}', valid_to = NULL",), allowed=[make]),
        Lone(
            (
                (
                    "INSERT INTO role_revocation (grant_id, revoked_by, reason, at) SELECT id, granted_by, 'left',"
                    f" '{PAST}' FROM role_grant WHERE id NOT IN (SELECT grant_id FROM role_revocation)"
                ),
            ),
            allowed=[make],
        ),
    ]


def _limits(of: str, limit: str) -> list[Lone]:
    """A release's holds on one account count together: those of this attempt, and no others."""
    within: Make = lambda t: hold(t, getattr(t, of), rho=1, delta=1)  # noqa: E731
    beyond_rho: Make = lambda t: hold(t, getattr(t, of), rho=2, delta=1)  # noqa: E731
    beyond_delta: Make = lambda t: hold(t, getattr(t, of), rho=1, delta=2)  # noqa: E731
    number = f"(SELECT i.id FROM invocation i WHERE i.request_id = {{{of}}})"
    first = (
        "UPDATE hold SET rho = 10, delta = 10",
        sql(
            f"DELETE FROM entry WHERE hold_id IN (SELECT id FROM hold WHERE invocation_id = {number}"
            " AND instalment > 0)"
        ),
        sql(f"DELETE FROM hold WHERE invocation_id = {number} AND instalment > 0"),
        *([limit] if isinstance(limit, str) else limit),
        earlier_attempt(of, 10),
    )
    return [Lone(first, denied=[beyond_rho, beyond_delta], allowed=[within])]


def foreign_rule(policy_id: str, name: str) -> list[Change]:
    return [
        "DELETE FROM policy_rule",
        sql(f"INSERT INTO policy_rule (policy_id, dataset, rho_max, delta_max) SELECT {policy_id}, '{name}', 0, 0"),
    ]


ANOTHER_POLICY = (
    "INSERT INTO policy_version (id, digest, body, several_roles, spend_approvals, publish_approvals,"
    " proposal_approvals, created_at, attempts, approval_days, request_days)"
    f" SELECT 900, '{OTHER}', body, several_roles, spend_approvals, publish_approvals, proposal_approvals, created_at,"
    " attempts, approval_days, request_days FROM policy_version LIMIT 1"
)
ITS_RULE = (
    "INSERT INTO policy_rule (policy_id, dataset, spend_approvals, publish_approvals, proposal_approvals)"
    " SELECT DISTINCT 900, name, 9, 9, 9 FROM dataset"
)
OTHER_RULES = ("DELETE FROM policy_rule", ANOTHER_POLICY, ITS_RULE)


def arm_routine(t: Town) -> Executable:
    return entry(t, t.hold(t.routine), "ARM")


def arm_held(t: Town) -> Executable:
    return entry(t, t.hold(t.held), "ARM")


def artifact_of_settled(t: Town) -> Executable:
    return artifact(t, t.settled)


def reopen(t: Town) -> Executable:
    return transition(t, t.approved, "approved", "submitted")


def withdraw(t: Town) -> Executable:
    return transition(t, t.approved, "approved", "withdrawn")


def approve(t: Town) -> Executable:
    return transition(t, t.undecided, "submitted", "approved")


def carry(t: Town) -> Executable:
    return carried(t, t.ready_proposal)


def publish(t: Town) -> Executable:
    return publication(t, t.cleared)


def approve_as_admin(t: Town) -> Executable:
    return approval(t, t.submitted, approver_id=t.world.admin.id)


def hold_delta(t: Town) -> Executable:
    return hold(t, t.held, delta=1)


def reopen_scheduled(t: Town) -> Executable:
    return transition(t, t.scheduled, "approved", "submitted")
