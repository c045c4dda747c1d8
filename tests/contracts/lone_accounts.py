"""For each guard on data, accounts, people and steps of the budget: states in which one clause of it decides."""

from tests.contracts.circumstances import FUTURE, OTHER, PAST
from tests.contracts.lone_states import (
    ANOTHER_POLICY,
    IMPOSTOR,
    NO_CHECKS,
    OF_ANOTHER_ACCOUNT,
    OTHER_RULES,
    STRAY,
    UNCAPPED,
    UNLINKED,
    UNMOVED,
    Lone,
    _limits,
    arm_held,
    arm_routine,
    foreign_rule,
    head,
    hold_delta,
    misplaced_rejection,
    moved,
    recapped,
    rejection,
    sql,
    stray_hold,
)
from tests.contracts.rows import (
    DIGEST,
    adoption,
    audit,
    block,
    cohort,
    entry,
    hold,
    invocation,
    policy,
    policy_rule,
    role_grant,
    role_revocation,
    unit_mark,
    version,
)

ACCOUNTS: dict[str, list[Lone]] = {
    # --- data and accounts
    "version_keeps_blocks": [
        Lone(
            ("DELETE FROM dataset_version WHERE dataset_id = (SELECT id FROM dataset WHERE name = 'ward')",),
            allowed=[lambda t: version(t, "ward")],
        ),
        Lone(("UPDATE account SET blocks = 1 WHERE blocks > 1",), allowed=[lambda t: version(t, "ward")]),
    ],
    "account_block_of_root": [
        Lone(
            denied=[
                lambda t: block(t, rho_cap=1000, delta_cap=100),
                lambda t: block(t, parent_id=t.account("clinic"), rho_cap=1000, delta_cap=100),
            ]
        )
    ],
    "unit_mark_one_account": [
        Lone(allowed=[lambda t: unit_mark(t, "clinic", b"clinic-unit").prefix_with("OR IGNORE")]),
    ],
    "unit_mark_keeps_cohort": [
        Lone(
            ("UPDATE unit_mark SET cohort = 3",),
            denied=[lambda t: unit_mark(t, "grown", b"clinic-unit", cohort=3)],
            allowed=[lambda t: unit_mark(t, "grown", b"clinic-unit", cohort=2).prefix_with("OR IGNORE")],
        )
    ],
    "account_moves_by_entry": [
        Lone(
            UNMOVED,
            allowed=[moved("")],
            denied=[
                moved(setting)
                for setting in (
                    "rho_held = rho_held + 2",
                    "delta_held = delta_held + 1",
                    "rho_spent = rho_spent + 1",
                    "delta_spent = delta_spent + 1",
                    "rho_cap = rho_cap + 1",
                    "delta_cap = delta_cap + 1",
                    "block = 7",
                    "id = 9000",
                    "parent_id = (SELECT max(id) FROM account WHERE parent_id IS NULL)",
                    "last_entry_id = (SELECT min(id) FROM entry)",
                    "last_entry_id = (SELECT max(id) + 1 FROM entry)",
                )
            ],
        ),
        # an entry that is older than the account's newest does not move it again
        Lone((*UNMOVED, "UPDATE account SET last_entry_id = 9000000 WHERE parent_id IS NOT NULL"), denied=[moved("")]),
        # nor does an entry of another account's hold
        Lone((*UNMOVED, sql(f"UPDATE hold SET account_id = {{estate}} WHERE id = {STRAY}")), denied=[moved("")]),
        Lone(
            UNCAPPED,
            allowed=[recapped(), recapped(of="parent_id IS NOT NULL")],
            denied=[
                recapped(setting)
                for setting in (
                    "rho_cap = 4001",
                    "delta_cap = 401",
                    "rho_held = 1",
                    "rho_spent = 1",
                    "delta_held = 1",
                    "delta_spent = 1",
                    "last_entry_id = 99999",
                    "epsilon = '9'",
                    "delta = '9'",
                    "delta_conversion = 9",
                    "rho = 9",
                    "delta_fail = 9",
                    "blocks = 9",
                    "key_name = '9999999999999999'",
                    f"key_commitment = '{DIGEST}'",
                    f"created_at = '{PAST}'",
                    "created_by = NULL",
                )
            ],
        ),
        # the newest carried proposal of the account counts, and only if it is on a cap
        *(
            Lone(
                (*impostor, f"UPDATE proposal SET rho = {rho}, delta_fail = {delta} WHERE id = 950"),
                denied=[recapped(f"rho_cap = {rho}, delta_cap = {delta}")],
            )
            for impostor in (IMPOSTOR, OF_ANOTHER_ACCOUNT)
            for rho, delta in ((4000, 200), (2000, 400))
        ),
    ],
    "cohort_of_named_units": [
        Lone(("UPDATE dataset SET unit_field = NULL",), denied=[lambda t: cohort(t, "harbour", number=2)]),
    ],
    # --- people and policies
    "role_grant_by_admin": [
        Lone(
            ("DELETE FROM role_revocation", "DELETE FROM role_grant"),
            denied=[lambda t: role_grant(t, "admin", "steward"), lambda t: role_grant(t, "analyst", "admin")],
            allowed=[lambda t: role_grant(t, "admin", "admin")],
        ),
        Lone(
            (NO_CHECKS, f"UPDATE role_grant SET valid_to = '{PAST}'"),
            denied=[lambda t: role_grant(t, "admin", "admin")],
        ),
    ],
    "role_revocation_leaves_admin": [
        Lone(
            (f"UPDATE role_grant SET valid_to = '{FUTURE}'",),
            allowed=[lambda t: role_revocation(t, "runner", "runner")],
        ),
    ],
    "policy_rule_before_use": [
        Lone(("DELETE FROM policy_adoption",), denied=[lambda t: policy_rule(t, dataset="library")]),
        Lone(denied=[lambda t: [policy(t, 1, 1, id=901), adoption(t, 901), policy_rule(t, policy_id=901)]]),
    ],
    # --- mechanisms, holds and entries
    "invocation_separate": [
        Lone(
            denied=[lambda t: invocation(t, t.routine, created_by=t.world.steward.id)],
            allowed=[lambda t: invocation(t, t.routine)],
        ),
        Lone(
            (sql("UPDATE approval SET approver_id = {analyst} WHERE proposal_id = {standing}"),),
            denied=[lambda t: invocation(t, t.routine)],
        ),
        Lone(
            (sql("UPDATE approval SET approver_id = {analyst} WHERE request_id = {running}"),),
            allowed=[lambda t: invocation(t, t.running)],
        ),
        Lone(
            (sql("UPDATE request SET requester_id = {runner} WHERE id = {submitted}"),),
            allowed=[lambda t: invocation(t, t.running)],
        ),
    ],
    "hold_within_release": [
        Lone(
            (ANOTHER_POLICY, *foreign_rule("900", "clinic")),
            allowed=[hold_delta],
        ),
        Lone(foreign_rule("{policy}", "harbour"), allowed=[hold_delta]),
        Lone(
            foreign_rule("{policy}", "clinic"),
            denied=[lambda t: hold(t, t.held, rho=1), lambda t: hold(t, t.held, rho=0, delta=1)],
        ),
        *(
            Lone(
                (
                    "UPDATE policy_version SET rho_max = 1000, delta_max = 1000",
                    ANOTHER_POLICY,
                    *foreign_rule(policy_id, name),
                ),
                allowed=[hold_delta],
            )
            for policy_id, name in (("900", "clinic"), ("{policy}", "harbour"))
        ),
        *_limits("held", "UPDATE policy_version SET rho_max = 11, delta_max = 11"),
        *_limits("routine", "UPDATE proposal SET rho = 11, delta_fail = 11 WHERE kind = 'standing'"),
    ],
    "entry_follows": [
        Lone(stray_hold("held", "COMMIT"), denied=[lambda t: entry(t, STRAY, "ARM")]),
    ],
    "entry_within_cap": [
        Lone(
            ("UPDATE account SET rho_cap = rho_held + rho_spent, delta_cap = delta_held + delta_spent",),
            allowed=[lambda t: entry(t, t.hold(t.held), "RELEASE")],
        ),
    ],
    "entry_arm_approved": [
        Lone((sql("UPDATE invocation SET attempt = 7 WHERE id = {held_invocation}"),), denied=[arm_held]),
        Lone(OTHER_RULES, allowed=[arm_held]),
        Lone((lambda t: rejection(t, t.held.request_id, "publish"),), allowed=[arm_held]),
        Lone((NO_CHECKS, lambda t: misplaced_rejection(t, t.standing)), allowed=[arm_routine]),
    ],
    "audit_head_follows": [
        Lone(
            (UNLINKED, audit),
            allowed=[head(f"seq = seq + 1, hash = '{DIGEST}'")],
            denied=[head(f"seq = seq + 1, hash = '{OTHER}'")],
        ),
        Lone(
            (UNLINKED, lambda t: audit(t, ahead=2)),
            denied=[head(f"seq = seq + 2, hash = '{DIGEST}'"), head(f"seq = seq + 1, hash = '{DIGEST}'")],
        ),
        Lone((UNLINKED, lambda t: audit(t, prev_hash=OTHER)), denied=[head(f"seq = seq + 1, hash = '{DIGEST}'")]),
    ],
}
