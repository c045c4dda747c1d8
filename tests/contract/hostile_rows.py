"""What somebody with a login writes into today's ledger by hand, by what it means, and the nearest lawful thing.

Another ledger has other rows under the same names.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Executable, text

from models_db.values.amounts import Amount
from tests.contracts.charge_cases import (
    armed_again,
    armed_uncharged,
    charged,
    charged_after_nothing,
    charged_again,
    short_by_one,
    under_limits,
)
from tests.contracts.decision_cases import AFTER_ALL, AFTER_ALL_ENDS, LONG_AGO, THEN, THEN_ENDS
from tests.contracts.limit_cases import (
    again,
    last,
    paid_again,
    planned_row,
    spent_up,
    too_late,
    unplanned,
    with_part,
)
from tests.contracts.rows import (
    DIGEST,
    EVENT,
    account,
    adoption,
    approval,
    artifact,
    block,
    carried,
    draft,
    draft_of,
    entry,
    hold,
    invocation,
    new_policy,
    planned_rho,
    publication,
    renyi_charge,
    request,
    role_grant,
    role_revocation,
    transition,
    unheld,
    withdrawal,
)
from tests.contracts.town import Town
from tests.support import LATE, plan_of

Make = Callable[[Town], Executable | list[Executable]]


@dataclass(frozen=True)
class Deed:
    """What the ledger refuses, and the nearest thing that it takes, if there is one."""

    refused: Make
    lawful: Make | None = None


def change(table: str, setting: str, condition: str) -> Make:
    return lambda town: text(f"UPDATE {table} SET {setting} WHERE {condition}")


def backdated(role: str, make: Callable[..., Executable | list[Executable]]) -> Make:
    """A statement of a time long ago, by somebody who says that they had the role by then."""

    def made(town: Town) -> list[Executable]:
        rows = make(town)
        given = role_grant(town, role, role, valid_from=LONG_AGO)
        return [given, *(rows if isinstance(rows, list) else [rows])]

    return made


def former(town: Town) -> int:
    return town.actor("former").id


def ended(town: Town) -> Executable:
    return approval(town, town.standing, "proposal", decision="reject")


def fired(town: Town) -> Executable:
    return role_revocation(town, "steward", "steward")


BLOCK = "rho_held > 0"

BUDGET: dict[str, Deed] = {
    "an account that opens with something held": Deed(lambda t: account(t, rho_held=1), account),
    "an account that opens with something spent": Deed(lambda t: account(t, rho_spent=1), account),
    "an account that opens with delta held": Deed(lambda t: account(t, delta_held=1), account),
    "an account that opens with delta spent": Deed(lambda t: account(t, delta_spent=1), account),
    "an account that opens behind an entry": Deed(lambda t: account(t, last_entry_id=1), account),
    "an account that opens under another cap than its claim": Deed(lambda t: account(t, rho_cap=6), account),
    "a block with a higher cap than its account": Deed(lambda t: block(t, rho_cap=78), block),
    "a block with a higher delta than its account": Deed(lambda t: block(t, delta_cap=8), block),
    "a block that the partition does not have": Deed(lambda t: block(t, block=1), block),
    "a block beyond those of two cohorts": Deed(
        lambda t: block(t, parent_id=t.account("grown", None), block=4, rho_cap=1000, delta_cap=100)
    ),
    "what is held taken off an account": Deed(change("account", "rho_held = 0", BLOCK)),
    "what is held taken off behind an entry": Deed(
        change("account", "rho_held = 0, last_entry_id = last_entry_id + 1", BLOCK)
    ),
    "an account charged without an entry": Deed(change("account", "rho_spent = rho_spent + 1", BLOCK)),
    "what is spent taken off an account": Deed(change("account", "rho_spent = 0", "rho_spent > 0")),
    "delta taken off an account": Deed(change("account", "delta_spent = 5", BLOCK)),
    "the cap of a block raised": Deed(change("account", "rho_cap = rho_cap + 1", BLOCK)),
    "the delta of a block raised": Deed(change("account", "delta_cap = delta_cap + 1", BLOCK)),
    "the cap of an account raised": Deed(change("account", "rho_cap = rho_cap + 1", "parent_id IS NULL")),
    "an account moved to another block": Deed(change("account", "block = 7", BLOCK)),
    "an account given another number": Deed(change("account", "id = 1000", BLOCK)),
    "an account moved back to its first entry": Deed(change("account", "last_entry_id = 0", BLOCK)),
    "a cap set back after it was raised": Deed(change("account", "rho_cap = 1000, delta_cap = 100", "rho_cap = 2000")),
    "a hold on the account of another dataset": Deed(
        lambda t: hold(t, t.held, account_id=t.account("harbour")), lambda t: hold(t, t.held)
    ),
    "a hold on the account that has the blocks": Deed(
        lambda t: hold(t, t.held, account_id=t.account("clinic", None)),
        lambda t: hold(t, t.held, account_id=t.account("clinic", 1)),
    ),
    "a hold above the plan": Deed(lambda t: hold(t, t.held, rho=2), lambda t: hold(t, t.held)),
    "a hold below the plan": Deed(lambda t: hold(t, t.held, rho=0, instalment=2), lambda t: hold(t, t.held)),
    "a hold of more delta than planned": Deed(lambda t: hold(t, t.held, delta=2), lambda t: hold(t, t.held)),
    "a hold of a part that the plan does not have": Deed(
        lambda t: hold(t, t.held, instalment=99), lambda t: hold(t, t.held)
    ),
    "a hold of a part before the first": Deed(lambda t: hold(t, t.held, instalment=-1), lambda t: hold(t, t.held)),
    "another part for nothing by a run that goes on": Deed(
        lambda t: paid_again(t, rho=0, instalment=1), lambda t: paid_again(t, rho=0)
    ),
    "a part for nothing by a run that begins anew": Deed(
        lambda t: paid_again(t, "", rho=0), lambda t: paid_again(t, rho=10)
    ),
    "half of a part by a run that goes on": Deed(
        lambda t: paid_again(t, rho=1), lambda t: paid_again(t, rho=10, instalment=1)
    ),
    "a hold beyond the standing authorisation": Deed(
        lambda t: hold(t, t.routine, rho=1), lambda t: hold(t, t.routine, rho=0)
    ),
    "a hold of delta beyond the standing authorisation": Deed(
        lambda t: hold(t, t.routine, rho=0, delta=1), lambda t: hold(t, t.routine, rho=0)
    ),
    "a hold beyond the cap": Deed(
        lambda t: unheld(t, t.held, "HOLD", rho=1000), lambda t: unheld(t, t.held, "HOLD", delta=100)
    ),
    "a hold beyond the delta of the cap": Deed(
        lambda t: unheld(t, t.held, "HOLD", delta=101), lambda t: unheld(t, t.held, "HOLD", delta=100)
    ),
    "money armed after the approval has expired": Deed(
        lambda t: entry(t, t.hold(t.held), "ARM", at=LATE), lambda t: entry(t, t.hold(t.held), "ARM")
    ),
    "money armed after a rejection": Deed(
        lambda t: entry(t, t.hold(t.vetoed), "ARM"), lambda t: entry(t, t.hold(t.held), "ARM")
    ),
    "money armed by an attempt that has ended": Deed(
        lambda t: unheld(t, t.failed, "HOLD", "ARM"), lambda t: unheld(t, t.held, "HOLD", "ARM")
    ),
    "money armed after its approver is no steward": Deed(
        lambda t: [fired(t), entry(t, t.hold(t.held), "ARM")], lambda t: entry(t, t.hold(t.held), "ARM")
    ),
    "money armed after the last day of its approver as a steward": Deed(
        lambda t: entry(t, t.hold(t.deputised), "ARM", at=t.after_the_deputy),
        lambda t: entry(t, t.hold(t.deputised), "ARM"),
    ),
    "money armed after the authorisation has ended": Deed(
        lambda t: [ended(t), entry(t, t.hold(t.routine), "ARM")],
        lambda t: [fired(t), entry(t, t.hold(t.routine), "ARM")],
    ),
    "money armed after the last day of the authorisation": Deed(
        lambda t: entry(t, t.hold(t.routine), "ARM", at=LATE), lambda t: entry(t, t.hold(t.routine), "ARM")
    ),
    "money armed that nobody held": Deed(lambda t: unheld(t, t.held, "ARM"), lambda t: unheld(t, t.held, "HOLD")),
    "money given back that nobody held": Deed(
        lambda t: unheld(t, t.held, "RELEASE"), lambda t: unheld(t, t.held, "HOLD", "RELEASE")
    ),
    "money given back that was armed": Deed(
        lambda t: entry(t, t.hold(t.armed), "RELEASE"), lambda t: entry(t, t.hold(t.held), "RELEASE")
    ),
    "money committed that was not armed": Deed(
        lambda t: entry(t, t.hold(t.held), "COMMIT"), lambda t: entry(t, t.hold(t.armed), "COMMIT")
    ),
    "money forfeited that was not armed": Deed(
        lambda t: entry(t, t.hold(t.held), "FORFEIT"), lambda t: entry(t, t.hold(t.armed), "FORFEIT")
    ),
    "money committed that was given back": Deed(lambda t: entry(t, t.hold(t.failed), "COMMIT")),
    "money armed by an analyst": Deed(
        lambda t: entry(t, t.hold(t.held), "ARM", actor_id=t.world.analyst.id),
        lambda t: entry(t, t.hold(t.held), "ARM"),
    ),
    "money given back by a steward": Deed(
        lambda t: entry(t, t.hold(t.held), "RELEASE", actor_id=t.world.steward.id),
        lambda t: entry(t, t.hold(t.held), "RELEASE", actor_id=t.world.admin.id),
    ),
    "money forfeited by somebody without a role": Deed(
        lambda t: entry(t, t.hold(t.armed), "FORFEIT", actor_id=former(t))
    ),
    "money moved long ago": Deed(backdated("runner", lambda t: entry(t, t.hold(t.held), "RELEASE", at=THEN))),
    "money armed without a charge in orders": Deed(armed_uncharged, lambda t: armed_uncharged(t)[:-1]),
    "money armed again without a charge in orders": Deed(armed_again, charged_again),
    "a charge in orders by an analyst": Deed(lambda t: charged(t, actor_id=t.world.analyst.id), charged),
    "a charge in orders long ago": Deed(backdated("runner", lambda t: charged(t, at=THEN)), charged),
    "a charge in orders before the run": Deed(lambda t: renyi_charge(t, t.approved), charged),
    "a charge in orders of another attempt": Deed(lambda t: charged(t, attempt=2), charged),
    "a charge in orders below the plan": Deed(short_by_one, charged),
    "a charge in orders above the plan": Deed(lambda t: charged(t, rho=planned_rho(t, t.approved) + 1), charged),
    "a charge in orders after nothing was armed": Deed(charged_after_nothing, charged_again),
    "a charge beyond the limit in orders": Deed(lambda t: under_limits(t, 0), lambda t: under_limits(t, 1)),
}

REQUESTS: dict[str, Deed] = {
    "a request for the data of another dataset": Deed(
        lambda t: request(t, "clinic", "harbour"), lambda t: request(t, "clinic", "clinic")
    ),
    "a request by a steward": Deed(
        lambda t: request(t, "clinic", "clinic", requester_id=t.world.steward.id),
        lambda t: request(t, "clinic", "clinic", requester_id=t.world.admin.id),
    ),
    "a request by somebody without a role": Deed(lambda t: request(t, "clinic", "clinic", requester_id=former(t))),
    "a request under a policy that nobody adopted": Deed(
        lambda t: [*new_policy(t), request(t, "clinic", "clinic", policy_id=t.id_of("policy_version", "TRUE") + 1)],
        lambda t: [
            *new_policy(t),
            adoption(t, t.id_of("policy_version", "TRUE") + 1),
            request(t, "clinic", "clinic", policy_id=t.id_of("policy_version", "TRUE") + 1),
        ],
    ),
    "a request without a plan": Deed(lambda t: request(t, "clinic", "clinic", canonical="{}"), unplanned(plan_of([0]))),
    "a request whose plan has no mechanisms": Deed(
        unplanned({"blocks": [0]}), unplanned({"blocks": [], "invocations": []})
    ),
    "a request whose plan reads a negative block": Deed(
        unplanned({"blocks": [-1], "invocations": []}), unplanned(plan_of([0]))
    ),
    "a request whose plan reads a block that is no number": Deed(
        unplanned({"blocks": [True], "invocations": []}), unplanned(plan_of([0]))
    ),
    "a request whose plan names no event": Deed(unplanned({"blocks": [0], "invocations": [{}]})),
    "a request whose plan costs a negative amount": Deed(
        with_part({"rho": "1", "delta": "-1"}), with_part({"rho": "95", "delta": "0"})
    ),
    "a request whose plan costs a part of a unit": Deed(
        with_part({"rho": "0.5", "delta": "0"}), with_part({"rho": "95", "delta": "0"})
    ),
    "a request whose plan costs more than is counted": Deed(
        with_part({"rho": "9223372036854775808", "delta": "0"}), with_part({"rho": "9223372036854775807", "delta": "0"})
    ),
    "a request that expires after the policy's days": Deed(
        lambda t: request(t, "clinic", "clinic", expires_at=too_late()),
        lambda t: request(t, "clinic", "clinic", expires_at=last()),
    ),
    "a plan added to a request": Deed(lambda t: planned_row(t, "planned_release", t.id_of("request", "TRUE") + 1)),
    "a block added to a plan": Deed(lambda t: planned_row(t, "planned_block", t.reopened)),
    "a mechanism added to a plan": Deed(lambda t: planned_row(t, "planned_invocation", t.reopened)),
    "a part added to a plan": Deed(lambda t: planned_row(t, "planned_instalment", t.reopened)),
    "a request submitted by somebody else": Deed(
        lambda t: draft(t, t.world.runner.id), lambda t: draft(t, t.world.analyst.id)
    ),
    "a request of no block": Deed(lambda t: draft_of(t, []), lambda t: draft_of(t, [0])),
    "a request of a block without an account": Deed(lambda t: draft_of(t, [0, 2]), lambda t: draft_of(t, [0, 1])),
    "a request that no counter could hold": Deed(
        lambda t: draft_of(t, [0], Amount(5 * 10**18), Amount(5 * 10**18)),
        lambda t: draft_of(t, [0], Amount(4 * 10**18, 10), Amount(4 * 10**18, 20)),
    ),
    "a request withdrawn by its runner": Deed(
        lambda t: transition(t, t.submitted, "submitted", "withdrawn"),
        lambda t: transition(t, t.submitted, "submitted", "withdrawn", actor_id=t.world.steward.id),
    ),
    "a request withdrawn long ago": Deed(
        lambda t: transition(t, t.submitted, "submitted", "withdrawn", actor_id=t.world.analyst.id, at=THEN),
        lambda t: transition(t, t.submitted, "submitted", "withdrawn", actor_id=t.world.analyst.id),
    ),
    "a request started before it is approved": Deed(
        lambda t: transition(t, t.submitted, "approved", "running"),
        lambda t: transition(t, t.approved, "approved", "running"),
    ),
    "a request started out of turn": Deed(
        lambda t: transition(t, t.approved, "approved", "running", number=9),
        lambda t: transition(t, t.approved, "approved", "running"),
    ),
    "a request started by a steward": Deed(
        lambda t: transition(t, t.approved, "approved", "running", actor_id=t.world.steward.id),
        lambda t: transition(t, t.approved, "approved", "running"),
    ),
    "a request started after it has expired": Deed(
        lambda t: transition(t, t.approved, "approved", "running", at=AFTER_ALL),
        lambda t: transition(t, t.approved, "approved", "running"),
    ),
    "a request started on erased data": Deed(lambda t: transition(t, t.gone_approved, "approved", "running")),
    "a run more than the policy allows": Deed(lambda t: [*spent_up(t), again(t)], spent_up),
    "a run that ends with a hold open": Deed(
        lambda t: transition(t, t.held.request_id, "running", "approved"),
        lambda t: transition(t, t.running.request_id, "running", "approved"),
    ),
    "a run that ends with a part armed and open": Deed(
        lambda t: transition(t, t.armed.request_id, "running", "approved"),
        lambda t: transition(t, t.settled.request_id, "running", "approved"),
    ),
    "a release that nobody produced": Deed(
        lambda t: transition(t, t.settled.request_id, "running", "produced"),
        lambda t: transition(t, t.complete.request_id, "running", "produced"),
    ),
    "a release produced by an analyst": Deed(
        lambda t: transition(t, t.complete.request_id, "running", "produced", actor_id=t.world.analyst.id)
    ),
    "a mechanism invoked by somebody without a role": Deed(
        lambda t: invocation(t, t.running, created_by=former(t)), lambda t: invocation(t, t.running)
    ),
    "a mechanism invoked by the requester": Deed(
        lambda t: [role_grant(t, "analyst", "runner"), invocation(t, t.running, created_by=t.world.analyst.id)]
    ),
    "a mechanism invoked by the approver": Deed(
        lambda t: [role_grant(t, "steward", "runner"), invocation(t, t.running, created_by=t.world.steward.id)],
        lambda t: [role_grant(t, "second steward", "runner"), invocation(t, t.running, created_by=t.second_steward)],
    ),
    "a mechanism invoked for a request that waits": Deed(
        lambda t: invocation(t, t.running, request_id=t.approved), lambda t: invocation(t, t.running)
    ),
    "a mechanism invoked by an attempt that has ended": Deed(lambda t: invocation(t, t.failed)),
    "a mechanism of a seeded generator": Deed(
        lambda t: invocation(t, t.running, rng_kind="seeded"), lambda t: invocation(t, t.running)
    ),
    "a mechanism with another event than planned": Deed(
        lambda t: invocation(t, t.running, event=EVENT + " "), lambda t: invocation(t, t.running)
    ),
    "a mechanism of another name than planned": Deed(
        lambda t: invocation(t, t.running, mechanism="noisy_count"), lambda t: invocation(t, t.running)
    ),
    "a mechanism that the plan does not have": Deed(
        lambda t: invocation(t, t.running, sequence=10), lambda t: invocation(t, t.running)
    ),
    "an artifact of a part that is not armed": Deed(lambda t: artifact(t, t.held), lambda t: artifact(t, t.settled)),
    "an artifact of a part that is not committed": Deed(
        lambda t: artifact(t, t.armed), lambda t: artifact(t, t.settled)
    ),
    "an artifact of an attempt that never was": Deed(
        lambda t: artifact(t, t.settled, attempt=2), lambda t: artifact(t, t.settled)
    ),
}

GATES: dict[str, Deed] = {
    "an approval of another digest": Deed(
        lambda t: approval(t, t.submitted, subject_digest=DIGEST), lambda t: approval(t, t.submitted)
    ),
    "an approval of another request's digest": Deed(
        lambda t: approval(t, t.submitted, subject_digest=t.world.subject(t.approved, "spend")),
        lambda t: approval(t, t.submitted),
    ),
    "an approval of another release's digest": Deed(
        lambda t: approval(t, t.produced, "publish", subject_digest=t.digest(t.cleared)),
        lambda t: approval(t, t.produced, "publish"),
    ),
    "an approval of spending while it runs": Deed(lambda t: approval(t, t.running, approver_id=t.second_steward)),
    "an approval of a release that nobody produced": Deed(
        lambda t: approval(t, t.running, "publish", subject_digest=DIGEST)
    ),
    "an approval of a discarded release": Deed(
        lambda t: approval(t, t.discarded, "publish", approver_id=t.second_steward)
    ),
    "an approval of another proposal's digest": Deed(
        lambda t: approval(t, t.open_proposal, "proposal", subject_digest=DIGEST),
        lambda t: approval(t, t.open_proposal, "proposal"),
    ),
    "an approval of an expired proposal": Deed(
        lambda t: approval(t, t.open_proposal, "proposal", at=AFTER_ALL, expires_at=AFTER_ALL_ENDS)
    ),
    "an approval of a carried proposal": Deed(
        lambda t: approval(t, t.carried_cap, "proposal", approver_id=t.second_steward)
    ),
    "an approval by somebody who is no steward": Deed(
        lambda t: approval(t, t.submitted, approver_id=former(t)),
        lambda t: approval(t, t.submitted, approver_id=t.second_steward),
    ),
    "an approval by a steward whose role was revoked": Deed(lambda t: [fired(t), approval(t, t.submitted)]),
    "an approval by a steward whose last day is over": Deed(
        lambda t: approval(t, t.submitted, approver_id=t.actor("deputy").id, at=t.after_the_deputy),
        lambda t: approval(t, t.submitted, approver_id=t.actor("deputy").id),
    ),
    "an approval by an admin": Deed(lambda t: approval(t, t.submitted, approver_id=t.world.admin.id)),
    "an approval by a steward who is an admin": Deed(
        lambda t: [role_grant(t, "steward", "admin"), approval(t, t.submitted)]
    ),
    "an approval by the requester": Deed(
        lambda t: [role_grant(t, "analyst", "steward"), approval(t, t.submitted, approver_id=t.world.analyst.id)]
    ),
    "an approval by the runner": Deed(
        lambda t: [
            role_grant(t, "runner", "steward"),
            approval(t, t.produced, "publish", approver_id=t.world.runner.id),
        ],
        lambda t: [role_grant(t, "runner", "steward"), approval(t, t.submitted, approver_id=t.world.runner.id)],
    ),
    "an approval of a proposal by its proposer": Deed(
        lambda t: [
            role_grant(t, "analyst", "steward"),
            approval(t, t.open_proposal, "proposal", approver_id=t.world.analyst.id),
        ]
    ),
    "a second approval by the same person": Deed(
        lambda t: approval(t, t.approved), lambda t: approval(t, t.approved, approver_id=t.second_steward)
    ),
    "a second approval of a proposal by the same person": Deed(
        lambda t: [approval(t, t.open_proposal, "proposal"), approval(t, t.open_proposal, "proposal")]
    ),
    "an approval that was taken back, again": Deed(
        lambda t: approval(t, t.reopened, signature=signature_of(t)), lambda t: approval(t, t.reopened)
    ),
    "an approval that has expired": Deed(
        lambda t: approval(t, t.submitted, expires_at=LONG_AGO), lambda t: approval(t, t.submitted)
    ),
    "an approval that expires after the policy's days": Deed(
        lambda t: approval(t, t.reopened, expires_at=too_late()), lambda t: approval(t, t.reopened, expires_at=last())
    ),
    "an approval long ago": Deed(
        backdated("steward", lambda t: approval(t, t.submitted, at=THEN, expires_at=THEN_ENDS))
    ),
    "an approval by another person's passkey": Deed(
        lambda t: approval(t, t.submitted, passkey_id=t.passkey, assertion="{}", approver_id=t.second_steward),
        lambda t: approval(t, t.submitted, passkey_id=t.passkey, assertion="{}"),
    ),
    "an approval by a revoked passkey": Deed(
        lambda t: approval(t, t.submitted, passkey_id=t.revoked_passkey, assertion="{}", approver_id=t.second_steward)
    ),
    "an approval taken back after it was used": Deed(
        lambda t: withdrawal(t, f"request_id = {t.running.request_id}"),
        lambda t: withdrawal(t, f"request_id = {t.approved}"),
    ),
    "an approval taken back after the publication": Deed(
        lambda t: withdrawal(t, f"request_id = {t.decided.request_id} AND gate = 'publish'"),
        lambda t: withdrawal(t, f"request_id = {t.cleared.request_id} AND gate = 'publish'"),
    ),
    "a rejection taken back": Deed(lambda t: withdrawal(t, f"request_id = {t.rejected} AND decision = 'reject'")),
    "an approval of a carried proposal taken back": Deed(lambda t: withdrawal(t, f"proposal_id = {t.carried_cap}")),
    "an approval taken back long ago": Deed(
        lambda t: withdrawal(t, f"request_id = {t.approved}", at=THEN),
        lambda t: withdrawal(t, f"request_id = {t.approved}"),
    ),
    "an approval taken back by a revoked passkey": Deed(
        lambda t: withdrawal(t, f"request_id = {t.approved}", passkey_id=t.revoked_passkey, assertion="{}"),
        lambda t: withdrawal(t, f"request_id = {t.approved}", passkey_id=t.passkey, assertion="{}"),
    ),
    "a gate that opens without an approval": Deed(
        lambda t: transition(t, t.submitted, "submitted", "approved"),
        lambda t: transition(t, t.undecided, "submitted", "approved"),
    ),
    "a gate that opens after a rejection": Deed(lambda t: transition(t, t.rejected, "submitted", "approved")),
    "a gate that opens by an approval that was taken back": Deed(
        lambda t: transition(t, t.reopened, "submitted", "approved")
    ),
    "a gate that opens after its approver is no steward": Deed(
        lambda t: [fired(t), transition(t, t.undecided, "submitted", "approved")]
    ),
    "a gate that closes though it is passed": Deed(
        lambda t: transition(t, t.approved, "approved", "submitted"),
        lambda t: [withdrawal(t, f"request_id = {t.approved}"), transition(t, t.approved, "approved", "submitted")],
    ),
    "a gate that closes though the authorisation stands": Deed(
        lambda t: transition(t, t.scheduled, "approved", "submitted"),
        lambda t: [ended(t), transition(t, t.scheduled, "approved", "submitted")],
    ),
    "a rejection that nobody made": Deed(
        lambda t: transition(t, t.submitted, "submitted", "rejected"),
        lambda t: transition(t, t.rejected, "submitted", "rejected"),
    ),
    "a release discarded that nobody rejected": Deed(
        lambda t: transition(t, t.produced.request_id, "produced", "discarded"),
        lambda t: transition(t, t.contested.request_id, "produced", "discarded"),
    ),
    "a publication without an approval": Deed(
        lambda t: publication(t, t.produced), lambda t: publication(t, t.cleared)
    ),
    "a publication after a rejection": Deed(lambda t: publication(t, t.contested), lambda t: publication(t, t.cleared)),
    "a publication after the approval has expired": Deed(
        lambda t: publication(t, t.cleared, at=LATE), lambda t: publication(t, t.cleared)
    ),
    "a publication after its approver is no steward": Deed(lambda t: [fired(t), publication(t, t.cleared)]),
    "a publication by an analyst": Deed(
        lambda t: publication(t, t.cleared, actor_id=t.world.analyst.id),
        lambda t: publication(t, t.cleared, actor_id=t.world.steward.id),
    ),
    "a publication long ago": Deed(
        lambda t: [
            *(role_grant(t, name, name, valid_from=LONG_AGO) for name in ("steward", "runner")),
            publication(t, t.cleared, at=THEN),
        ]
    ),
    "a release that is published without a publication": Deed(
        lambda t: transition(t, t.cleared.request_id, "produced", "published"),
        lambda t: transition(t, t.decided.request_id, "produced", "published"),
    ),
    "a retraction that nobody approved": Deed(
        lambda t: transition(t, t.published.request_id, "published", "retracted"),
        lambda t: [
            approval(t, t.open_retraction, "proposal"),
            carried(t, t.open_retraction),
            transition(t, t.published.request_id, "published", "retracted"),
        ],
    ),
}


def signature_of(town: Town) -> object:
    return town.one("SELECT signature FROM approval WHERE request_id = :r", r=town.reopened)
