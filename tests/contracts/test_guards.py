"""Every guard that the migrations put into the database, fired by hand-written SQL that goes past the services.

One town per backend holds requests in every state; a case changes nothing in it, because it is refused or rolled back.
Where a legal neighbour of the forbidden statement exists it is tried too, so that the refusal is for the stated reason.
"""

import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from sqlalchemy import Executable, text
from sqlalchemy.exc import IntegrityError

from models_db.base import Base, moment
from tests.conftest import Ledgers
from tests.contracts.town import (
    DIGEST,
    Town,
    account,
    approval,
    artifact,
    audit,
    block,
    dataset,
    entry,
    evaluation,
    hold,
    invocation,
    policy,
    publication,
    released,
    request,
    transition,
    unheld,
    unit_mark,
    version,
)
from tests.support import LATE, World, execute, snapshot

initial = importlib.import_module("migrations.versions.0001_initial")
MESSAGES = {name: message for name, _, _, _, message in initial.GUARDS}
Make = Callable[[Town], Executable | list[Executable]]


@dataclass(frozen=True)
class Case:
    """What a guard denies, and the nearest things it lets pass."""

    denied: list[Make]
    allowed: list[Make] = field(default_factory=list)


def change(table: str, setting: str, condition: str = "TRUE") -> Make:
    return lambda town: text(f"UPDATE {table} SET {setting} WHERE {condition}")


CASES: dict[str, Case] = {
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
    "policy_asks_somebody": Case(
        denied=[lambda t: policy(t, 0, 1), lambda t: policy(t, 1, 0), lambda t: policy(t, -1, 1)],
        allowed=[lambda t: policy(t, 1, 1), lambda t: policy(t, 2, 3)],
    ),
    "account_opens_empty": Case(
        denied=[
            lambda t: account(t, rho_held=1),
            lambda t: account(t, rho_spent=1),
            lambda t: account(t, delta_held=1),
            lambda t: account(t, delta_spent=1),
            lambda t: account(t, last_entry_id=1),
        ],
        allowed=[account],
    ),
    "account_block_caps": Case(
        denied=[
            lambda t: block(t, rho_cap=78),
            lambda t: block(t, delta_cap=8),
        ],
        allowed=[block],
    ),
    "account_block_number": Case(denied=[lambda t: block(t, block=1)], allowed=[block]),
    "account_moves_by_entry": Case(
        denied=[
            change("account", setting, "kind = 'block' AND rho_held > 0")
            for setting in (
                "rho_held = 0",
                "rho_held = 0, last_entry_id = last_entry_id + 1",
                "rho_held = rho_held",
                "rho_spent = 0",
                "rho_held = 0, rho_spent = rho_spent + rho_held",
                "delta_spent = 5",
                "rho_cap = rho_cap + 1",
                "delta_cap = delta_cap + 1",
                "block = 7",
                "kind = 'root', parent_id = NULL, block = NULL",
                "id = 1000",
                "last_entry_id = 0",
                "last_entry_id = (SELECT max(id) FROM entry)",
            )
        ]
    ),
    "unit_mark_one_account": Case(
        denied=[lambda t: unit_mark(t, "harbour", b"clinic-unit")],
        allowed=[lambda t: unit_mark(t, "harbour", b"new"), lambda t: unit_mark(t, "clinic", b"new")],
    ),
    "request_own_version": Case(
        denied=[lambda t: request(t, "clinic", "harbour")], allowed=[lambda t: request(t, "clinic", "clinic")]
    ),
    "invocation_relation": Case(
        denied=[lambda t: invocation(t, t.running, relation="replace_one")],
        allowed=[lambda t: invocation(t, t.running)],
    ),
    "invocation_running": Case(
        denied=[
            lambda t: invocation(t, t.running, request_id=t.approved),
            lambda t: invocation(t, t.running, attempt=2),
            lambda t: invocation(t, t.failed),
            lambda t: invocation(t, t.produced),
        ],
        allowed=[lambda t: invocation(t, t.running)],
    ),
    "invocation_os_randomness": Case(
        denied=[lambda t: invocation(t, t.running, rng_kind="seeded")], allowed=[lambda t: invocation(t, t.running)]
    ),
    "invocation_separate": Case(
        denied=[lambda t: invocation(t, t.running, created_by=t.world.steward.id)],
        allowed=[lambda t: invocation(t, t.running)],
    ),
    "hold_not_negative": Case(
        denied=[lambda t: hold(t, t.held, rho=-1), lambda t: hold(t, t.held, delta=-1)],
        allowed=[lambda t: hold(t, t.held, rho=0), lambda t: hold(t, t.held, rho=1, delta=1)],
    ),
    "hold_own_account": Case(
        denied=[
            lambda t: hold(t, t.held, account_id=t.account("harbour")),
            lambda t: hold(t, t.held, account_id=t.account("clinic", None)),
        ],
        allowed=[lambda t: hold(t, t.held), lambda t: hold(t, t.held, account_id=t.account("clinic", 1))],
    ),
    "entry_needs_hold": Case(
        denied=[lambda t: unheld(t, t.held, "ARM"), lambda t: unheld(t, t.held, "RELEASE")],
        allowed=[lambda t: unheld(t, t.held, "HOLD"), lambda t: unheld(t, t.held, "HOLD", "RELEASE")],
    ),
    "entry_within_cap": Case(
        denied=[lambda t: unheld(t, t.held, "HOLD", rho=1000), lambda t: unheld(t, t.held, "HOLD", delta=101)],
        allowed=[lambda t: unheld(t, t.held, "HOLD", delta=100)],
    ),
    "entry_needs_arm": Case(
        denied=[
            lambda t: entry(t, t.hold(t.held), "COMMIT"),
            lambda t: entry(t, t.hold(t.held), "FORFEIT"),
            lambda t: entry(t, t.hold(t.failed), "COMMIT"),
        ],
        allowed=[lambda t: entry(t, t.hold(t.armed), "COMMIT"), lambda t: entry(t, t.hold(t.armed), "FORFEIT")],
    ),
    "entry_arm_approved": Case(
        denied=[
            lambda t: entry(t, t.hold(t.held), "ARM", at=LATE),
            lambda t: entry(t, t.hold(t.vetoed), "ARM"),
            lambda t: unheld(t, t.failed, "HOLD", "ARM"),
        ],
        allowed=[lambda t: entry(t, t.hold(t.held), "ARM"), lambda t: unheld(t, t.held, "HOLD", "ARM")],
    ),
    "transition_follows": Case(
        denied=[
            lambda t: transition(t, t.approved, "approved", "running", number=-1),
            lambda t: transition(t, t.approved, "approved", "running", number=9),
            lambda t: transition(t, t.submitted, "approved", "running"),
        ],
        allowed=[lambda t: transition(t, t.approved, "approved", "running")],
    ),
    "transition_approved": Case(
        denied=[
            lambda t: transition(t, t.submitted, "submitted", "approved"),
            lambda t: transition(t, t.rejected, "submitted", "approved"),
        ],
        allowed=[lambda t: transition(t, t.undecided, "submitted", "approved")],
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
    "approval_subject": Case(
        denied=[
            lambda t: approval(t, t.submitted, subject_digest=DIGEST),
            lambda t: approval(t, t.submitted, subject_digest=t.world.subject(t.approved, "spend")),
            lambda t: approval(t, t.running, approver_id=t.second_steward),
            lambda t: approval(t, t.running, "publish", subject_digest=DIGEST),
            lambda t: approval(t, t.produced, "publish", subject_digest=t.digest(t.cleared)),
            lambda t: approval(t, t.discarded, "publish", approver_id=t.second_steward),
        ],
        allowed=[lambda t: approval(t, t.submitted), lambda t: approval(t, t.produced, "publish")],
    ),
    "approval_separate": Case(
        denied=[
            lambda t: approval(t, t.submitted, approver_id=t.world.analyst.id),
            lambda t: approval(t, t.produced, "publish", approver_id=t.world.analyst.id),
            lambda t: approval(t, t.produced, "publish", approver_id=t.world.runner.id),
        ],
        allowed=[lambda t: approval(t, t.submitted, approver_id=t.second_steward)],
    ),
    "approval_expiry": Case(
        denied=[lambda t: approval(t, t.submitted, at=moment(), expires_at="2000-01-01T00:00:00.000000Z")],
        allowed=[lambda t: approval(t, t.submitted)],
    ),
    "artifact_complete": Case(
        denied=[
            lambda t: artifact(t, t.running),
            lambda t: artifact(t, t.held),
            lambda t: artifact(t, t.armed),
            lambda t: artifact(t, t.failed),
            lambda t: artifact(t, t.settled, attempt=2),
            lambda t: [invocation(t, t.settled), artifact(t, t.settled)],
            lambda t: [*released(t, t.settled), artifact(t, t.settled)],
        ],
        allowed=[lambda t: artifact(t, t.settled)],
    ),
    "evaluation_charged": Case(
        denied=[
            lambda t: evaluation(t, t.produced, "charged", t.invocation(t.unarmed)),
            lambda t: evaluation(t, t.produced, "charged", t.invocation(t.published)),
        ],
        allowed=[lambda t: evaluation(t, t.produced, "charged", t.invocation(t.produced))],
    ),
    "evaluation_internal": Case(
        denied=[lambda t: evaluation(t, t.produced, "internal"), lambda t: evaluation(t, t.cleared, "internal")],
        allowed=[
            lambda t: evaluation(t, t.published, "internal"),
            lambda t: evaluation(t, t.discarded, "internal"),
            lambda t: evaluation(t, t.open_data, "internal"),
            lambda t: evaluation(t, t.produced, "public"),
        ],
    ),
    "publication_approved": Case(
        denied=[
            lambda t: publication(t, t.produced),
            lambda t: publication(t, t.cleared, at=LATE),
            lambda t: publication(t, t.contested),
            lambda t: publication(t, t.discarded),
        ],
        allowed=[lambda t: publication(t, t.cleared)],
    ),
    "audit_links": Case(
        denied=[lambda t: audit(t, prev_hash=DIGEST), lambda t: audit(t, ahead=2)],
        allowed=[audit],
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


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def town(request: pytest.FixtureRequest, ledgers: Ledgers) -> Iterator[Town]:
    """Whatever the tests of this file try, in the end every table is as it was."""
    with ledgers.new(request.param) as database:
        built = Town.build(World.create(database))
        before = snapshot(database)
        yield built
        assert snapshot(database) == before


def attempt_to(town: Town, make: Make) -> None:
    """Run what a case makes, and roll it back."""
    made = make(town)
    with town.world.database.write() as session:
        for statement in made if isinstance(made, list) else [made]:
            session.execute(statement)
        session.rollback()


def said(message: str) -> str:
    return f"almoner: {re.escape(message)}"


def test_every_guard_has_a_case() -> None:
    assert set(CASES) == set(MESSAGES)


@pytest.mark.parametrize("name", CASES)
def test_guard(town: Town, name: str) -> None:
    for make in CASES[name].denied:
        with pytest.raises(IntegrityError, match=said(MESSAGES[name])):
            attempt_to(town, make)
    for make in CASES[name].allowed:
        attempt_to(town, make)


@pytest.mark.parametrize("table", initial.RECORDS)
def test_records_are_append_only(town: Town, table: str) -> None:
    column = next(iter(Base.metadata.tables[table].columns)).name
    for statement in (f"UPDATE {table} SET {column} = {column}", f"DELETE FROM {table}"):
        with pytest.raises(IntegrityError, match=said(f"{table} is append-only")):
            execute(town.world.database, statement)


@pytest.mark.parametrize("table", ["account", "audit_head"])
def test_counters_and_head_stay(town: Town, table: str) -> None:
    with pytest.raises(IntegrityError, match=said(f"{table} is append-only")):
        execute(town.world.database, f"DELETE FROM {table}")


@pytest.mark.parametrize("id_", [1, 2])
def test_there_is_one_head(town: Town, id_: int) -> None:
    with pytest.raises(IntegrityError, match=said("audit_head has one row")):
        execute(town.world.database, f"INSERT INTO audit_head (id, seq, hash) VALUES ({id_}, 0, '{DIGEST}')")
