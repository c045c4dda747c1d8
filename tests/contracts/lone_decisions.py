"""For each guard on requests and decisions: states in which one clause of it decides."""

from sqlalchemy import text

from tests.contracts.circumstances import OTHER, PAST, standing_request
from tests.contracts.decision_cases import new_cap, proposal_id
from tests.contracts.initial_cases import Make
from tests.contracts.lone_states import (
    NO_CHECKS,
    OTHER_RULES,
    STRAY_INVOCATION,
    Lone,
    admins_do_not,
    approve,
    approve_as_admin,
    artifact_of_settled,
    by_either,
    carry,
    misplaced_rejection,
    publish,
    rejection,
    reopen,
    reopen_scheduled,
    sql,
    stray_hold,
    withdraw,
)
from tests.contracts.rows import (
    approval,
    artifact,
    carried,
    draft,
    hold,
    insert,
    invocation,
    proposal,
    run_scheduled,
    transition,
    withdrawal,
)
from tests.support import LATE


def of_settled(statement: str, part: str) -> Make:
    """A statement on the holds of some parts of an attempt that has settled everything."""
    return lambda t: text(
        statement.format(
            holds="SELECT h.id FROM hold h JOIN invocation i ON i.id = h.invocation_id"
            f" WHERE i.request_id = {t.settled.request_id} AND {part}"
        )
    )


def with_blocks(first: int, last: int) -> Make:
    """The plan of that attempt is of other blocks."""
    return sql(f"UPDATE planned_block SET first_block = {first}, last_block = {last} WHERE request_id = {{settled}}")


DECISIONS: dict[str, list[Lone]] = {
    # --- steps
    "transition_closes_holds": [
        Lone(
            allowed=[
                lambda t: transition(t, t.held.request_id, "approved", "withdrawn"),
                lambda t: [
                    hold(t, t.settled, instalment=77),
                    transition(t, t.settled.request_id, "running", "approved"),
                ],
            ]
        ),
        Lone(
            stray_hold("settled", "ARM"), allowed=[lambda t: transition(t, t.settled.request_id, "running", "approved")]
        ),
    ],
    "transition_produced": [
        Lone(
            ("UPDATE artifact SET attempt = attempt + 5",),
            denied=[lambda t: transition(t, t.complete.request_id, "running", "produced")],
        ),
    ],
    "artifact_of_running_attempt": [
        Lone(denied=[lambda t: artifact(t, t.settled, attempt=2)]),
    ],
    "artifact_complete": [
        Lone((sql("UPDATE invocation SET attempt = 2 WHERE request_id = {settled}"),), denied=[artifact_of_settled]),
        Lone((lambda t: invocation(t, t.settled, attempt=7),), allowed=[artifact_of_settled]),
        Lone(
            (
                lambda t: [
                    invocation(t, t.settled, id=STRAY_INVOCATION, attempt=7),
                    hold(t, t.settled, invocation_id=STRAY_INVOCATION),
                ],
            ),
            allowed=[artifact_of_settled],
        ),
        Lone(stray_hold("settled", "HOLD"), denied=[artifact_of_settled]),
        Lone(stray_hold("settled", "HOLD", "ARM"), denied=[artifact_of_settled]),
        *(
            Lone((of_settled(f"UPDATE hold SET {change} WHERE id IN ({{holds}})", part),), denied=[artifact_of_settled])
            for change in ("rho = 0", "rho = rho - 1", "delta = delta + 1")
            for part in ("i.sequence = 0", "i.sequence = 1", "h.instalment = 1")
        ),
        Lone(
            (of_settled("DELETE FROM entry WHERE kind = 'ARM' AND hold_id IN ({holds})", "i.sequence = 1"),),
            denied=[artifact_of_settled],
        ),
        Lone((sql("UPDATE invocation SET attempt = 0 WHERE id = {settled_invocation}"),), denied=[artifact_of_settled]),
        Lone(
            (
                sql("UPDATE invocation SET attempt = 2 WHERE request_id = {settled} AND sequence = 1"),
                lambda t: transition(t, t.settled.request_id, "running", "approved"),
                lambda t: transition(t, t.settled.request_id, "approved", "running", number=5),
            ),
            denied=[lambda t: artifact(t, t.settled, attempt=2)],
        ),
        *(Lone((with_blocks(block, block),), allowed=[artifact_of_settled]) for block in (0, 1)),
        Lone((with_blocks(0, 2),), denied=[artifact_of_settled]),
    ],
    "transition_approved": [
        Lone(
            (NO_CHECKS, f"UPDATE approval SET expires_at = '{PAST}'"),
            allowed=[lambda t: transition(t, t.running.request_id, "running", "approved")],
        ),
        Lone(
            (
                sql(
                    "UPDATE request SET config_digest = (SELECT config_digest FROM proposal WHERE id = {standing})"
                    " WHERE id = {submitted}"
                ),
            ),
            denied=[lambda t: transition(t, t.submitted, "submitted", "approved")],
        ),
        Lone(OTHER_RULES, allowed=[approve]),
        Lone((NO_CHECKS, lambda t: misplaced_rejection(t, t.standing)), allowed=[standing_request]),
        Lone((lambda t: rejection(t, t.undecided, "publish"),), allowed=[approve]),
    ],
    "transition_submits": [
        Lone(
            (sql("UPDATE request SET requester_id = {runner} WHERE id = {submitted}"),),
            denied=[lambda t: draft(t, t.world.runner.id)],
        ),
    ],
    "transition_of_blocks": [
        Lone(
            (sql("UPDATE planned_block SET last_block = 9 WHERE request_id = {approved}"),),
            allowed=[draft, lambda t: transition(t, t.approved, "approved", "running")],
        ),
    ],
    "transition_of_amounts": [
        Lone(
            (sql("UPDATE planned_instalment SET rho = 9223372036854775807 WHERE request_id = {approved}"),),
            allowed=[draft, lambda t: transition(t, t.approved, "approved", "running")],
        ),
    ],
    "transition_reopens": [
        Lone(allowed=[lambda t: transition(t, t.approved, "draft", "submitted")]),
        Lone((lambda t: rejection(t, t.approved, "spend"),), allowed=[reopen]),
        Lone((lambda t: rejection(t, t.approved, "publish"),), denied=[reopen]),
        Lone(OTHER_RULES, denied=[reopen]),
        Lone((NO_CHECKS, lambda t: misplaced_rejection(t, t.standing)), denied=[reopen_scheduled]),
    ],
    "transition_rejected": [
        Lone(
            (lambda t: rejection(t, t.submitted, "publish"),),
            denied=[lambda t: transition(t, t.submitted, "submitted", "rejected")],
        ),
        Lone(
            (lambda t: rejection(t, t.cleared.request_id, "spend"),),
            denied=[lambda t: transition(t, t.cleared.request_id, "produced", "discarded")],
        ),
    ],
    "transition_withdrawn": [
        Lone((sql("UPDATE request SET requester_id = {runner} WHERE id = {submitted}"),), denied=[withdraw]),
        *by_either("steward", "admin", withdraw),
    ],
    "transition_authorised": [
        Lone(denied=[lambda t: run_scheduled(t, at=LATE)]),
        Lone((NO_CHECKS, lambda t: misplaced_rejection(t, t.standing)), allowed=[run_scheduled]),
    ],
    "transition_retracted": [
        Lone(
            (NO_CHECKS, "UPDATE proposal SET kind = 'cap' WHERE kind = 'retraction'"),
            denied=[lambda t: transition(t, t.retracted.request_id, "published", "retracted")],
        ),
    ],
    # --- decisions
    "approval_subject": [
        Lone(
            denied=[
                lambda t: approval(
                    t, t.open_proposal, "proposal", subject_digest=t.world.subject(t.ready_proposal, "proposal")
                )
            ]
        ),
    ],
    "approval_separate": [
        Lone(
            (sql("UPDATE proposal SET proposer_id = {second} WHERE id = {carried}"),),
            allowed=[lambda t: approval(t, t.submitted, approver_id=t.second_steward)],
        ),
    ],
    "approval_not_by_admin": [
        *admins_do_not(approve_as_admin),
        Lone((sql("UPDATE policy_version SET several_roles = (id = {policy})"),), allowed=[approve_as_admin]),
    ],
    "approval_counts_once": [
        Lone((NO_CHECKS, change), allowed=[lambda t: approval(t, t.approved)])
        for change in (
            f"UPDATE approval SET expires_at = '{PAST}'",
            f"UPDATE approval SET subject_digest = '{OTHER}'",
            "UPDATE approval SET gate = 'publish' WHERE gate = 'spend'",
            "UPDATE approval SET decision = 'reject'",
            "UPDATE approval SET request_id = (SELECT min(id) FROM request) WHERE request_id IS NOT NULL",
            (
                "INSERT INTO withdrawal (approval_id, reason, signature, at)"
                f" SELECT id, 'a doubt', 's', '{PAST}' FROM approval"
                " WHERE id NOT IN (SELECT approval_id FROM withdrawal)"
            ),
        )
    ]
    + [
        Lone(
            (
                sql(
                    "UPDATE approval SET subject_digest = (SELECT digest FROM request WHERE id = {approved})"
                    " WHERE request_id <> {approved} AND gate = 'spend'"
                ),
                sql("DELETE FROM withdrawal"),
                sql("DELETE FROM approval WHERE request_id = {approved}"),
            ),
            allowed=[lambda t: approval(t, t.approved)],
        )
    ],
    "approval_not_taken_back": [
        Lone(
            allowed=[
                lambda t: approval(
                    t,
                    t.reopened,
                    approver_id=t.second_steward,
                    signature=t.one("SELECT signature FROM approval WHERE request_id = :r", r=t.reopened),
                )
            ]
        ),
    ],
    "withdrawal_unused": [
        Lone(
            allowed=[lambda t: withdrawal(t, f"proposal_id = {t.ready_proposal}")],
            denied=[lambda t: withdrawal(t, f"request_id = {t.cleared.request_id} AND gate = 'spend'")],
        ),
        Lone(
            (sql("UPDATE approval SET gate = 'publish' WHERE request_id = {approved}"),),
            denied=[lambda t: withdrawal(t, f"request_id = {t.approved}")],
        ),
        Lone(
            (lambda t: transition(t, t.cleared.request_id, "produced", "discarded"),),
            denied=[lambda t: withdrawal(t, f"request_id = {t.cleared.request_id} AND gate = 'publish'")],
        ),
    ],
    "publication_approved": [
        Lone(
            (lambda t: artifact(t, t.cleared, attempt=9, digest=OTHER),),
            denied=[
                lambda t: insert("publication", at=t.now, actor_id=t.world.runner.id, artifact_id=t.artifact(t.cleared))
            ],
        ),
        Lone((lambda t: transition(t, t.cleared.request_id, "produced", "discarded"),), denied=[publish]),
        Lone((lambda t: rejection(t, t.cleared.request_id, "spend"),), allowed=[publish]),
        Lone(OTHER_RULES, allowed=[publish]),
    ],
    "carried_approved": [
        Lone((f"UPDATE proposal SET expires_at = '{PAST}'",), denied=[carry]),
        Lone((lambda t: rejection(t, t.ready_proposal, "proposal"),), denied=[carry]),
        Lone((lambda t: rejection(t, t.open_proposal, "proposal"),), allowed=[carry]),
        Lone((NO_CHECKS, lambda t: misplaced_rejection(t, t.ready_proposal)), allowed=[carry]),
        Lone(OTHER_RULES, allowed=[carry]),
    ],
    "carried_covers_spent": [
        Lone(allowed=[lambda t: new_cap(t, **{**proposal_id(t, "standing"), "rho": 1, "delta_fail": 0})]),
        Lone(
            (
                lambda t: proposal(
                    t,
                    rho=1,
                    delta_fail=0,
                    dataset_id=t.id_of("dataset", "name = 'estate'"),
                    nonce="small",
                    digest=OTHER,
                ),
            ),
            allowed=[
                lambda t: [
                    proposal(t, id=950, rho=10, delta_fail=0, dataset_id=t.id_of("dataset", "name = 'estate'")),
                    carried(t, 950),
                ]
            ],
        ),
    ],
    # --- schedules
}
