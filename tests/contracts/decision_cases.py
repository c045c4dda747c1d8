"""For every guard of decisions and proposals: what it denies, and the nearest things it lets pass."""

from sqlalchemy import Executable

from tests.contracts.initial_cases import Case
from tests.contracts.rows import (
    DIGEST,
    approval,
    carried,
    other_policy,
    passkey,
    passkey_end,
    proposal,
    publication,
    role_grant,
    role_revocation,
    unheld,
    withdrawal,
)
from tests.contracts.town import Town
from tests.support import LATE

LONG_AGO, THEN = "2000-01-01T00:00:00.000000Z", "2001-01-01T00:00:00.000000Z"
AFTER_ALL = "9990-01-01T00:00:00.000000Z"
THEN_ENDS = "2001-06-01T00:00:00.000000Z"
AFTER_ALL_ENDS = "9990-06-01T00:00:00.000000Z"
BLOCK = "rho_held > 0"


def proposal_id(town: Town, kind: str) -> dict[str, object]:
    """What only a proposal of that kind says."""
    if kind == "retraction":
        return {
            "kind": kind,
            "publication_id": town.id_of("publication", f"artifact_id = {town.artifact(town.published)}"),
        }
    return {"kind": kind, "runs": 1, "until": LATE, "config_digest": DIGEST, "configuration": "{}"}


def new_cap(town: Town, **given: object) -> list[Executable]:
    """Another cap for a dataset of which rho 10 is held, proposed, approved and carried."""
    number = town.id_of("proposal", "TRUE") + 1
    estate = town.id_of("dataset", "name = 'estate'")
    return [
        proposal(town, id=number, dataset_id=estate, **given),
        approval(town, number, "proposal", subject_digest=DIGEST),
        carried(town, number),
    ]


DECISIONS: dict[str, Case] = {
    # --- decisions
    "approval_subject": Case(
        denied=[
            lambda t: approval(t, t.submitted, subject_digest=DIGEST),
            lambda t: approval(t, t.submitted, subject_digest=t.world.subject(t.approved, "spend")),
            lambda t: approval(t, t.running, approver_id=t.second_steward),
            lambda t: approval(t, t.running, "publish", subject_digest=DIGEST),
            lambda t: approval(t, t.produced, "publish", subject_digest=t.digest(t.cleared)),
            lambda t: approval(t, t.discarded, "publish", approver_id=t.second_steward),
            lambda t: approval(t, t.open_proposal, "proposal", subject_digest=DIGEST),
            lambda t: approval(t, t.open_proposal, "proposal", at=AFTER_ALL, expires_at=AFTER_ALL_ENDS),
            lambda t: approval(t, t.carried_cap, "proposal", approver_id=t.second_steward),
        ],
        allowed=[
            lambda t: approval(t, t.submitted),
            lambda t: approval(t, t.produced, "publish"),
            lambda t: approval(t, t.open_proposal, "proposal"),
            lambda t: approval(t, t.standing, "proposal", decision="reject"),
            lambda t: approval(t, t.standing, "proposal", decision="reject", at=AFTER_ALL, expires_at=AFTER_ALL_ENDS),
        ],
    ),
    "approval_by_own_passkey": Case(
        denied=[
            lambda t: approval(t, t.submitted, passkey_id=t.passkey, assertion="{}", approver_id=t.second_steward),
            lambda t: [
                passkey(t, "second steward"),
                approval(t, t.submitted, passkey_id=t.passkey, assertion="{}", approver_id=t.second_steward),
            ],
            lambda t: [passkey_end(t), approval(t, t.submitted, passkey_id=t.passkey, assertion="{}")],
            lambda t: approval(
                t, t.submitted, passkey_id=t.revoked_passkey, assertion="{}", approver_id=t.second_steward
            ),
        ],
        allowed=[
            lambda t: approval(t, t.submitted, passkey_id=t.passkey, assertion="{}"),
            lambda t: approval(t, t.submitted, approver_id=t.second_steward),
        ],
    ),
    "approval_separate": Case(
        denied=[
            lambda t: [role_grant(t, "analyst", "steward"), approval(t, t.submitted, approver_id=t.world.analyst.id)],
            lambda t: [
                role_grant(t, "runner", "steward"), approval(t, t.produced, "publish", approver_id=t.world.runner.id)
            ],
            lambda t: [
                role_grant(t, "analyst", "steward"),
                approval(t, t.open_proposal, "proposal", approver_id=t.world.analyst.id),
            ],
        ],
        allowed=[
            lambda t: approval(t, t.submitted, approver_id=t.second_steward),
            lambda t: [role_grant(t, "runner", "steward"), approval(t, t.submitted, approver_id=t.world.runner.id)],
        ],
    ),
    "approval_not_by_admin": Case(
        denied=[
            lambda t: approval(t, t.submitted, approver_id=t.world.admin.id),
            lambda t: approval(t, t.open_proposal, "proposal", approver_id=t.world.admin.id),
            lambda t: [role_grant(t, "steward", "admin"), approval(t, t.submitted)],
        ],
        allowed=[lambda t: approval(t, t.submitted)],
    ),
    "approval_counts_once": Case(
        denied=[
            lambda t: approval(t, t.approved),
            lambda t: [approval(t, t.open_proposal, "proposal"), approval(t, t.open_proposal, "proposal")],
        ],
        allowed=[
            lambda t: approval(t, t.approved, approver_id=t.second_steward),
            lambda t: approval(t, t.approved, decision="reject"),
        ],
    ),
    "approval_not_taken_back": Case(
        denied=[lambda t: approval(t, t.reopened, signature=t.one(
            "SELECT signature FROM approval WHERE request_id = :r", r=t.reopened))],
        allowed=[lambda t: approval(t, t.reopened)],
    ),
    "withdrawal_by_own_passkey": Case(
        denied=[
            lambda t: withdrawal(t, f"request_id = {t.approved}", passkey_id=t.revoked_passkey, assertion="{}"),
            lambda t: [
                passkey(t, "second steward"),
                withdrawal(
                    t,
                    f"request_id = {t.approved}",
                    passkey_id=t.id_of("passkey", "TRUE") + 1,
                    assertion="{}",
                ),
            ],
            lambda t: [
                passkey_end(t),
                withdrawal(t, f"request_id = {t.approved}", passkey_id=t.passkey, assertion="{}"),
            ],
        ],
        allowed=[
            lambda t: withdrawal(t, f"request_id = {t.approved}", passkey_id=t.passkey, assertion="{}"),
            lambda t: withdrawal(t, f"request_id = {t.approved}"),
        ],
    ),
    "withdrawal_unused": Case(
        denied=[
            lambda t: withdrawal(t, f"request_id = {t.running.request_id}"),
            lambda t: withdrawal(t, f"request_id = {t.published.request_id} AND gate = 'publish'"),
            lambda t: withdrawal(t, f"request_id = {t.decided.request_id} AND gate = 'publish'"),
            lambda t: withdrawal(t, f"request_id = {t.rejected} AND decision = 'reject'"),
            lambda t: withdrawal(t, f"proposal_id = {t.carried_cap}"),
        ],
        allowed=[
            lambda t: withdrawal(t, f"request_id = {t.approved}"),
            lambda t: withdrawal(t, f"request_id = {t.cleared.request_id} AND gate = 'publish'"),
        ],
    ),
    "publication_approved": Case(
        denied=[
            lambda t: publication(t, t.produced),
            lambda t: publication(t, t.cleared, at=LATE),
            lambda t: publication(t, t.contested),
            lambda t: publication(t, t.discarded),
            lambda t: [role_revocation(t, "steward", "steward"), publication(t, t.cleared)],
        ],
        allowed=[lambda t: publication(t, t.cleared)],
    ),
    # --- proposals
    "proposal_policy_in_force": Case(
        denied=[lambda t: proposal(t, policy_id=other_policy(t))],
        allowed=[proposal, lambda t: proposal(t, proposer_id=t.world.steward.id)],
    ),
    "proposal_of_its_dataset": Case(
        denied=[
            lambda t: proposal(t, dataset_id=t.id_of("dataset", "name = 'harbour'"), **proposal_id(t, "retraction")),
            lambda t: proposal(t, kind="retraction", publication_id=999),
        ],
        allowed=[lambda t: proposal(t, **proposal_id(t, "retraction"))],
    ),
    "ck_proposal_is_never_negative": Case(
        denied=[
            lambda t: proposal(t, rho=-1),
            lambda t: proposal(t, delta_fail=-1),
            lambda t: proposal(t, rho=-1, **proposal_id(t, "standing")),
        ],
        allowed=[lambda t: proposal(t, rho=0), lambda t: proposal(t, **proposal_id(t, "standing"))],
    ),
    "carried_approved": Case(
        denied=[
            lambda t: carried(t, t.open_proposal),
            lambda t: [approval(t, t.open_proposal, "proposal", decision="reject"), carried(t, t.open_proposal)],
            lambda t: [approval(t, t.open_proposal, "proposal"), carried(t, t.open_proposal, at=LATE)],
            lambda t: [
                approval(t, t.open_proposal, "proposal"),
                role_revocation(t, "steward", "steward"),
                carried(t, t.open_proposal),
            ],
        ],
        allowed=[lambda t: [approval(t, t.open_proposal, "proposal"), carried(t, t.open_proposal)]],
    ),
    "carried_covers_spent": Case(
        denied=[
            lambda t: new_cap(t, rho=9),
            lambda t: new_cap(t, rho=0),
            lambda t: [
                *unheld(t, t.elsewhere, "HOLD", account_id=t.account("estate"), delta=1),
                *new_cap(t, delta_fail=0),
            ],
        ],
        allowed=[lambda t: new_cap(t, rho=10, delta_fail=0)],
    ),
}  # fmt: skip
