"""For the guards of requests, budgets and the chain: what it denies, and the nearest things it lets pass."""

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy import Executable, text

from models_db.database.base import utc_now
from tests.contracts.rows import (
    DIGEST,
    account,
    approval,
    artifact,
    audit,
    block,
    checkpoint,
    dataset,
    entry,
    evaluation,
    insert,
    invocation,
    policy,
    produced,
    request,
    transition,
    unheld,
    unit_mark,
    version,
)
from tests.contracts.town import Town
from tests.support import LATE

Make = Callable[[Town], Executable | list[Executable]]


@dataclass(frozen=True)
class Case:
    """What a guard denies, and the nearest things it lets pass."""

    denied: list[Make]
    allowed: list[Make] = field(default_factory=list)


def change(table: str, setting: str, condition: str = "TRUE") -> Make:
    return lambda town: text(f"UPDATE {table} SET {setting} WHERE {condition}")


INITIAL: dict[str, Case] = {
    "dataset_like_its_account": Case(
        denied=[
            lambda t: dataset(t, "clinic", governed=False),
            lambda t: dataset(t, "clinic", unit_field=None),
            lambda t: dataset(t, "clinic", unit_field="other_id"),
            lambda t: dataset(t, "ward", unit_field="patient_id"),
            lambda t: dataset(t, "library", unit_field=None),
        ],
        allowed=[
            lambda t: dataset(t, "clinic"),
            lambda t: dataset(t, "harbour", unit_field="other_id"),
            lambda t: dataset(t, "library", governed=False),
        ],
    ),
    "version_keeps_blocks": Case(
        denied=[lambda t: version(t, "ward")],
        allowed=[lambda t: version(t, "clinic"), lambda t: version(t, "harbour")],
    ),
    "ck_policy_version_asks_for_an_approval_at_each_gate": Case(
        denied=[
            lambda t: policy(t, 0, 1),
            lambda t: policy(t, 1, 0),
            lambda t: policy(t, -1, 1),
            lambda t: policy(t, 1, 1, proposal_approvals=0),
        ],
        allowed=[lambda t: policy(t, 1, 1, proposal_approvals=1), lambda t: policy(t, 2, 3)],
    ),
    "account_opens_empty": Case(
        denied=[
            lambda t: account(t, rho_held=1),
            lambda t: account(t, rho_spent=1),
            lambda t: account(t, delta_held=1),
            lambda t: account(t, delta_spent=1),
            lambda t: account(t, last_entry_id=1),
            lambda t: account(t, rho_cap=6),
            lambda t: account(t, delta_cap=4),
        ],
        allowed=[account, lambda t: block(t)],
    ),
    "account_block_of_root": Case(
        denied=[
            lambda t: block(t, rho_cap=78),
            lambda t: block(t, delta_cap=8),
            lambda t: block(t, block=1),
        ],
        allowed=[block],
    ),
    "unit_mark_one_account": Case(
        denied=[lambda t: unit_mark(t, "harbour", b"clinic-unit")],
        allowed=[lambda t: unit_mark(t, "harbour", b"new"), lambda t: unit_mark(t, "clinic", b"new")],
    ),
    "request_own_version": Case(
        denied=[lambda t: request(t, "clinic", "harbour")], allowed=[lambda t: request(t, "clinic", "clinic")]
    ),
    "invocation_of_running_attempt": Case(
        denied=[
            lambda t: invocation(t, t.running, request_id=t.approved),
            lambda t: invocation(t, t.running, attempt=2),
            lambda t: invocation(t, t.failed),
            lambda t: invocation(t, t.produced, attempt=3),
        ],
        allowed=[lambda t: invocation(t, t.running)],
    ),
    "ck_invocation_uses_the_randomness_of_the_operating_system": Case(
        denied=[lambda t: invocation(t, t.running, rng_kind="seeded")], allowed=[lambda t: invocation(t, t.running)]
    ),
    "entry_follows": Case(
        denied=[
            lambda t: unheld(t, t.held, "ARM"),
            lambda t: unheld(t, t.held, "RELEASE"),
            lambda t: entry(t, t.hold(t.held), "COMMIT"),
            lambda t: entry(t, t.hold(t.held), "FORFEIT"),
            lambda t: entry(t, t.hold(t.failed), "COMMIT"),
        ],
        allowed=[
            lambda t: entry(t, t.hold(t.armed), "COMMIT"),
            lambda t: entry(t, t.hold(t.armed), "FORFEIT"),
            lambda t: unheld(t, t.held, "HOLD"),
            lambda t: unheld(t, t.held, "HOLD", "RELEASE"),
            lambda t: entry(t, t.hold(t.held), "RELEASE", at=LATE),
        ],
    ),
    "transition_follows": Case(
        denied=[
            lambda t: transition(t, t.approved, "approved", "running", number=-1),
            lambda t: transition(t, t.approved, "approved", "running", number=9),
            lambda t: transition(t, t.submitted, "approved", "running"),
        ],
        allowed=[lambda t: transition(t, t.approved, "approved", "running")],
    ),
    "transition_closes_holds": Case(
        denied=[
            lambda t: transition(t, t.held.request_id, "running", "approved"),
            lambda t: transition(t, t.armed.request_id, "running", "approved"),
        ],
        allowed=[
            lambda t: transition(t, t.running.request_id, "running", "approved"),
            lambda t: transition(t, t.settled.request_id, "running", "approved"),
        ],
    ),
    "transition_produced": Case(
        denied=[
            lambda t: transition(t, t.running.request_id, "running", "produced"),
            lambda t: transition(t, t.settled.request_id, "running", "produced"),
        ],
        allowed=[lambda t: transition(t, t.complete.request_id, "running", "produced")],
    ),
    "transition_published": Case(
        denied=[
            lambda t: transition(t, t.produced.request_id, "produced", "published"),
            lambda t: transition(t, t.cleared.request_id, "produced", "published"),
        ],
        allowed=[lambda t: transition(t, t.decided.request_id, "produced", "published")],
    ),
    "ck_approval_ends_after_it_is_given": Case(
        denied=[lambda t: approval(t, t.submitted, at=utc_now(), expires_at="2000-01-01T00:00:00.000000Z")],
        allowed=[lambda t: approval(t, t.submitted)],
    ),
    "artifact_of_running_attempt": Case(
        denied=[lambda t: [transition(t, t.settled.request_id, "running", "approved"), artifact(t, t.settled)]],
        allowed=[lambda t: artifact(t, t.settled)],
    ),
    "artifact_complete": Case(
        denied=[lambda t: artifact(t, t.running), lambda t: artifact(t, t.held), lambda t: artifact(t, t.armed)],
        allowed=[lambda t: artifact(t, t.settled)],
    ),
    "evaluation_charged": Case(
        denied=[
            lambda t: produced(t, "charged", invocation_id=t.invocation(t.unarmed)),
            lambda t: produced(t, "charged", invocation_id=t.invocation(t.published)),
            lambda t: [*produced(t, "charged"), produced(t, "charged", metric="dp_labels")[1]],
        ],
        allowed=[lambda t: produced(t, "charged")],
    ),
    "evaluation_of_run": Case(
        denied=[
            lambda t: evaluation(t, t.produced, "public"),
            lambda t: evaluation(t, t.published, "public"),
            lambda t: evaluation(t, t.produced, "charged", invocation_id=t.invocation(t.produced)),
            lambda t: produced(t, "public", created_by=t.world.steward.id),
            lambda t: [*produced(t, "public"), produced(t, "public")[1]],
        ],
        allowed=[
            lambda t: produced(t, "public"),
            lambda t: [*produced(t, "public"), evaluation(t, None, "public", metric="distinct")],
        ],
    ),
    "checkpoint_on_chain": Case(
        denied=[lambda t: checkpoint(t, hash=DIGEST), lambda t: checkpoint(t, seq=3), lambda t: checkpoint(t, seq=999),
                lambda t: checkpoint(t, seq=0, hash=DIGEST), lambda t: checkpoint(t, hash="0" * 64)],
        allowed=[lambda t: checkpoint(t), lambda t: checkpoint(t, seq=0, hash="0" * 64)],
    ),
    "audit_links": Case(
        denied=[lambda t: audit(t, prev_hash=DIGEST), lambda t: audit(t, ahead=2)],
        allowed=[audit],
    ),
    "audit_head_no_insert": Case(
        denied=[lambda _, id_=id_: insert("audit_head", id=id_, seq=0, hash=DIGEST) for id_ in (1, 2)]
    ),
    "audit_head_follows": Case(
        denied=[
            change("audit_head", "seq = seq + 1"),
            change("audit_head", "seq = seq - 1"),
            change("audit_head", f"seq = seq + 1, hash = '{DIGEST}'"),
            change("audit_head", f"hash = '{DIGEST}'"),
        ]
    ),
}  # fmt: skip
