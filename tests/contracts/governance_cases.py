"""For every guard of people, policies, accounts, runs and steps: what it denies, and the nearest
things it lets pass."""

from models_db.values.amounts import Amount
from tests.contracts.initial_cases import Case, change
from tests.contracts.rows import (
    adoption,
    approval,
    carried,
    draft,
    draft_of,
    entry,
    hold,
    invocation,
    new_policy,
    other_policy,
    passkey,
    passkey_end,
    policy_rule,
    request,
    role_grant,
    role_revocation,
    run_scheduled,
    run_scheduled_again,
    transition,
    unheld,
    withdrawal,
)
from tests.support import LATE

LONG_AGO, THEN = "2000-01-01T00:00:00.000000Z", "2001-01-01T00:00:00.000000Z"
AFTER_ALL = "9990-01-01T00:00:00.000000Z"
BLOCK = "rho_held > 0"


WORK: dict[str, Case] = {
    # --- people
    "role_grant_by_admin": Case(
        denied=[
            lambda t: role_grant(t, "auditor", "steward", granted_by=t.world.steward.id),
            lambda t: role_grant(t, "former", "admin", granted_by=t.actor("former").id),
            lambda t: role_grant(t, "analyst", "admin", granted_by=t.world.analyst.id),
        ],
        allowed=[lambda t: role_grant(t, "auditor", "steward"), lambda t: role_grant(t, "analyst", "admin")],
    ),
    "role_revocation_leaves_admin": Case(
        denied=[
            lambda t: role_revocation(t, "admin", "admin"),
            lambda t: [role_grant(t, "analyst", "admin", valid_to=LATE), role_revocation(t, "admin", "admin")],
            lambda t: [role_grant(t, "analyst", "admin", valid_from=LATE), role_revocation(t, "admin", "admin")],
        ],
        allowed=[lambda t: [role_grant(t, "analyst", "admin"), role_revocation(t, "admin", "admin")]],
    ),
    "passkey_of_the_person": Case(
        denied=[
            lambda t: passkey(t, "analyst", created_by=t.world.steward.id),
            lambda t: passkey(t, "analyst", created_by=t.actor("former").id),
        ],
        allowed=[
            lambda t: passkey(t, "analyst"),
            lambda t: passkey(t, "analyst", created_by=t.world.admin.id),
        ],
    ),
    "passkey_end_own": Case(
        denied=[lambda t: passkey_end(t, "second steward"), lambda t: passkey_end(t, "former")],
        allowed=[lambda t: passkey_end(t, "steward"), lambda t: passkey_end(t, "admin")],
    ),
    # --- policies
    "ck_policy_rule_asks_for_an_approval_at_each_gate": Case(
        denied=[
            lambda t: new_policy(t, spend_approvals=0),
            lambda t: new_policy(t, publish_approvals=0),
            lambda t: new_policy(t, proposal_approvals=-1),
        ],
        allowed=[lambda t: new_policy(t, spend_approvals=1), lambda t: new_policy(t, rho_max=1)],
    ),
    "policy_rule_before_use": Case(
        denied=[
            lambda t: policy_rule(t, spend_approvals=1),
            lambda t: policy_rule(t, policy_id=other_policy(t), spend_approvals=1),
        ],
        allowed=[new_policy],
    ),
    # --- data
    # --- accounts
    "account_moves_by_entry": Case(
        denied=[
            change("account", setting, condition)
            for condition, settings in {
                BLOCK: (
                    "rho_held = 0",
                    "rho_held = 0, last_entry_id = last_entry_id + 1",
                    "rho_held = rho_held - 1",
                    "rho_spent = rho_spent + 1",
                    "rho_held = 0, rho_spent = rho_spent + rho_held",
                    "delta_spent = 5",
                    "rho_cap = rho_cap + 1",
                    "delta_cap = delta_cap + 1",
                    "block = 7",
                    "parent_id = NULL, block = NULL",
                    "id = 1000",
                    "last_entry_id = 0",
                    "last_entry_id = (SELECT max(id) FROM entry)",
                ),
                "parent_id IS NULL": ("rho_cap = rho_cap + 1", "rho_held = 1"),
                "rho_cap = 2000": ("rho_cap = 1000, delta_cap = 100", "rho_cap = 3000, delta_cap = 300"),
            }.items()
            for setting in settings
        ]
    ),
    # --- requests and runs
    "request_policy_in_force": Case(
        denied=[
            lambda t: request(t, "clinic", "clinic", policy_id=other_policy(t)),
            lambda t: [adoption(t, other_policy(t)), request(t, "clinic", "clinic")],
        ],
        allowed=[
            lambda t: [adoption(t, other_policy(t)), request(t, "clinic", "clinic", policy_id=other_policy(t))],
        ],
    ),
    "invocation_separate": Case(
        denied=[
            lambda t: [role_grant(t, "steward", "runner"), invocation(t, t.running, created_by=t.world.steward.id)],
            lambda t: [role_grant(t, "deputy", "runner"), invocation(t, t.deputised, created_by=t.actor("deputy").id)],
            lambda t: [role_grant(t, "analyst", "runner"), invocation(t, t.running, created_by=t.world.analyst.id)],
        ],
        allowed=[
            lambda t: invocation(t, t.running),
            lambda t: [
                role_grant(t, "second steward", "runner"), invocation(t, t.running, created_by=t.second_steward)
            ],
        ],
    ),
    "hold_within_release": Case(
        denied=[
            lambda t: hold(t, t.limited, rho=91, account_id=t.account("limited")),
            lambda t: hold(t, t.routine, rho=1),
            lambda t: hold(t, t.routine, rho=0, delta=1),
        ],
        allowed=[
            lambda t: hold(t, t.limited, rho=90, account_id=t.account("limited")),
            lambda t: hold(t, t.routine, rho=0),
        ],
    ),
    "entry_within_cap": Case(
        denied=[
            lambda t: unheld(t, t.held, "HOLD", rho=1000),
            lambda t: unheld(t, t.held, "HOLD", delta=101),
            lambda t: unheld(t, t.elsewhere, "HOLD", account_id=t.account("estate"), rho=991),
            lambda t: unheld(t, t.elsewhere, "HOLD", account_id=t.account("estate"), delta=101),
        ],
        allowed=[
            lambda t: unheld(t, t.held, "HOLD", delta=100),
            lambda t: unheld(t, t.elsewhere, "HOLD", account_id=t.account("estate"), rho=990),
            lambda t: unheld(t, t.elsewhere, "HOLD", account_id=t.account("estate"), delta=100),
        ],
    ),
    "entry_arm_approved": Case(
        denied=[
            lambda t: entry(t, t.hold(t.held), "ARM", at=LATE),
            lambda t: entry(t, t.hold(t.vetoed), "ARM"),
            lambda t: unheld(t, t.failed, "HOLD", "ARM"),
            lambda t: [role_revocation(t, "steward", "steward"), entry(t, t.hold(t.held), "ARM")],
            lambda t: [role_revocation(t, "deputy", "steward"), entry(t, t.hold(t.deputised), "ARM")],
            lambda t: entry(t, t.hold(t.deputised), "ARM", at=t.after_the_deputy),
            lambda t: entry(t, t.hold(t.routine), "ARM", at=LATE),
            lambda t: [approval(t, t.standing, "proposal", decision="reject"), entry(t, t.hold(t.routine), "ARM")],
        ],
        allowed=[
            lambda t: entry(t, t.hold(t.held), "ARM"),
            lambda t: unheld(t, t.held, "HOLD", "ARM"),
            lambda t: entry(t, t.hold(t.deputised), "ARM"),
            lambda t: entry(t, t.hold(t.elsewhere), "ARM"),
            lambda t: entry(t, t.hold(t.routine), "ARM"),
            lambda t: [role_revocation(t, "steward", "steward"), entry(t, t.hold(t.routine), "ARM")],
        ],
    ),
    # --- steps
    "transition_approved": Case(
        denied=[
            lambda t: transition(t, t.submitted, "submitted", "approved"),
            lambda t: transition(t, t.rejected, "submitted", "approved"),
            lambda t: transition(t, t.reopened, "submitted", "approved"),
            lambda t: [
                role_revocation(t, "steward", "steward"), transition(t, t.undecided, "submitted", "approved")
            ],
        ],
        allowed=[lambda t: transition(t, t.undecided, "submitted", "approved")],
    ),
    "transition_by_runner": Case(
        denied=[
            lambda t: transition(t, t.approved, "approved", "running", actor_id=t.world.steward.id),
            lambda t: transition(t, t.running.request_id, "running", "approved", actor_id=t.world.analyst.id),
            lambda t: transition(t, t.complete.request_id, "running", "produced", actor_id=t.actor("former").id),
        ],
        allowed=[
            lambda t: transition(t, t.approved, "approved", "running"),
            lambda t: transition(t, t.running.request_id, "running", "approved"),
        ],
    ),
    "transition_submits": Case(
        denied=[lambda t: draft(t, t.world.runner.id), lambda t: draft(t, t.world.admin.id)],
        allowed=[lambda t: draft(t, t.world.analyst.id)],
    ),
    "transition_of_blocks": Case(
        denied=[lambda t: draft_of(t, []), lambda t: draft_of(t, [0, 2]), lambda t: draft_of(t, [1, 2])],
        allowed=[lambda t: draft_of(t, [0]), lambda t: draft_of(t, [1]), lambda t: draft_of(t, [0, 1])],
    ),
    "transition_of_amounts": Case(
        denied=[
            lambda t: draft_of(t, [0], Amount(5 * 10**18), Amount(5 * 10**18)),
            lambda t: draft_of(t, [0], Amount(1, 5 * 10**18), Amount(1, 5 * 10**18)),
        ],
        allowed=[lambda t: draft_of(t, [0], Amount(4 * 10**18, 10), Amount(4 * 10**18, 20))],
    ),
    "transition_reopens": Case(
        denied=[
            lambda t: transition(t, t.approved, "approved", "submitted"),
            lambda t: transition(t, t.scheduled, "approved", "submitted"),
        ],
        allowed=[
            lambda t: [withdrawal(t, f"request_id = {t.approved}"), transition(t, t.approved, "approved", "submitted")],
            lambda t: [
                approval(t, t.standing, "proposal", decision="reject"),
                transition(t, t.scheduled, "approved", "submitted"),
            ],
        ],
    ),
    "transition_rejected": Case(
        denied=[
            lambda t: transition(t, t.submitted, "submitted", "rejected"),
            lambda t: transition(t, t.approved, "approved", "rejected"),
            lambda t: transition(t, t.produced.request_id, "produced", "discarded"),
        ],
        allowed=[
            lambda t: transition(t, t.rejected, "submitted", "rejected"),
            lambda t: transition(t, t.contested.request_id, "produced", "discarded"),
        ],
    ),
    "transition_withdrawn": Case(
        denied=[
            lambda t: transition(t, t.submitted, "submitted", "withdrawn"),
            lambda t: transition(t, t.approved, "approved", "withdrawn", actor_id=t.actor("former").id),
        ],
        allowed=[
            lambda t: transition(t, t.submitted, "submitted", "withdrawn", actor_id=t.world.steward.id),
            lambda t: transition(t, t.approved, "approved", "withdrawn", actor_id=t.world.analyst.id),
        ],
    ),
    "transition_authorised": Case(
        denied=[
            run_scheduled_again,
            lambda t: transition(t, t.exhausted, "approved", "running"),
            lambda t: [approval(t, t.standing, "proposal", decision="reject"), run_scheduled(t)],
        ],
        allowed=[run_scheduled, lambda t: transition(t, t.approved, "approved", "running")],
    ),
    "transition_retracted": Case(
        denied=[
            lambda t: transition(t, t.published.request_id, "published", "retracted"),
            lambda t: [
                approval(t, t.open_retraction, "proposal"),
                transition(t, t.published.request_id, "published", "retracted"),
            ],
        ],
        allowed=[
            lambda t: [
                approval(t, t.open_retraction, "proposal"),
                carried(t, t.open_retraction),
                transition(t, t.published.request_id, "published", "retracted"),
            ]
        ],
    ),
}  # fmt: skip
