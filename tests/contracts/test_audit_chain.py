"""The record on both backends: what a superuser who goes past the guards can alter, the chain shows."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from models_db.database.base import utc_now
from models_db.services.audit import chain, verify_chain
from models_db.services.audit.verify_chain import ChainReport
from models_db.services.queries import health
from models_db.sessions.database import Database
from models_db.tables import AuditLink
from tests.conftest import Ledgers
from tests.contracts.tampering import superuser, truncate
from tests.support import World, append_link, execute, fetch


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def original(request: pytest.FixtureRequest, ledgers: Ledgers) -> Iterator[World]:
    """A ledger with a dozen links and a checkpoint in the middle."""
    with ledgers.new(request.param) as database:
        world = World.create(database)
        world.dataset()
        with database.write() as session:
            head = chain.read_chain_head(session).hash
            chain.record_checkpoint(session, world.steward, head, "signature", "key of steward", utc_now())
        world.published()
        yield world


@pytest.fixture
def recorded(original: World, ledgers: Ledgers) -> Iterator[World]:
    """A copy of it."""
    backend = original.database.engine.dialect.name
    with ledgers.new(backend, like=original.database) as database:
        yield replace(original, database=database)


def report(world: World) -> ChainReport:
    with world.database.read() as session:
        return verify_chain.verify_chain(session)


def test_an_honest_chain_holds(recorded: World) -> None:
    found = report(recorded)
    assert (found.holds, found.broken_at, found.reason) == (True, None, "")
    assert found.links == found.head.seq > 10
    rows = fetch(recorded.database, "SELECT seq, prev_hash, row_hash FROM audit ORDER BY seq")
    assert [row[1] for row in rows] == [chain.GENESIS, *(row[2] for row in rows[:-1])]


@pytest.mark.parametrize(
    "setting",
    [
        "body = replace(body, ':', ': ')",
        "body = '{}'",
        "actor = 'somebody'",
        "kind = 'run.failed'",
        "at = '2020-01-01T00:00:00.000000Z'",
        "dataset = 'other'",
        "dataset = NULL",
        "request_id = 77",
    ],
)
def test_an_altered_link_is_found(recorded: World, setting: str) -> None:
    [(submitted,)] = fetch(recorded.database, "SELECT seq FROM audit WHERE kind = 'request.submitted'")
    superuser(recorded.database, f"UPDATE audit SET {setting} WHERE seq = {submitted}")
    found = report(recorded)
    assert (found.holds, found.broken_at, found.reason) == (False, submitted, "a link was altered")


def test_a_link_rehashed_after_altering_is_found_at_the_next(recorded: World) -> None:
    with recorded.database.read() as session:
        link = session.get_one(AuditLink, 8)
        link.body = "{}"
        forged = link.computed_hash
    superuser(recorded.database, f"UPDATE audit SET body = '{{}}', row_hash = '{forged}' WHERE seq = 8")
    assert (report(recorded).broken_at, report(recorded).reason) == (9, "a link does not follow the one before")


@pytest.mark.parametrize(
    ("statement", "broken_at", "reason"),
    [
        ("DELETE FROM audit WHERE seq = 8", 8, "a link is missing"),
        ("DELETE FROM audit WHERE seq = 1", 1, "a link is missing"),
        ("UPDATE audit SET seq = seq + 1000 WHERE seq = (SELECT max(seq) FROM audit)", None, "a link is missing"),
        ("UPDATE audit_head SET seq = seq - 1", None, "the chain ends before the recorded head"),
        (f"UPDATE audit_head SET hash = '{'d' * 64}'", None, "the chain ends before the recorded head"),
        (
            "DELETE FROM audit WHERE seq > (SELECT max(seq) - 2 FROM audit)",
            None,
            "the chain ends before the recorded head",
        ),
        (f"UPDATE checkpoint SET hash = '{'d' * 64}'", None, "a signed checkpoint does not lie on the chain"),
        ("UPDATE checkpoint SET seq = seq + 1", None, "a signed checkpoint does not lie on the chain"),
    ],
)
def test_what_a_superuser_can_do_is_found(recorded: World, statement: str, broken_at: int | None, reason: str) -> None:
    superuser(recorded.database, statement)
    found = report(recorded)
    assert (found.holds, found.reason) == (False, reason)
    assert broken_at in (None, found.broken_at)


def test_a_truncated_tail_is_found_by_a_checkpoint(recorded: World) -> None:
    """A chain alone cannot show it; the signed checkpoint beyond the new end does."""
    [(seq,)] = fetch(recorded.database, "SELECT seq FROM checkpoint")
    truncate(recorded.database, int(str(seq)) - 1)
    found = report(recorded)
    assert (found.broken_at, found.reason) == (seq, "a signed checkpoint does not lie on the chain")


def test_a_truncated_tail_after_the_last_checkpoint_needs_another_witness(recorded: World) -> None:
    """The limit of what the ledger can say of itself: bundles carry checkpoints for this reason."""
    [(seq,)] = fetch(recorded.database, "SELECT seq FROM checkpoint")
    truncate(recorded.database, int(str(seq)))
    assert report(recorded).holds


def test_a_rewritten_chain_is_found_by_a_checkpoint(recorded: World) -> None:
    """Everything re-hashed from link 2 on, head included: consistent in itself, but not the chain that was signed."""
    statements, previous = [], None
    with recorded.database.read() as session:
        for link in session.query(AuditLink).order_by(AuditLink.seq):
            if link.seq == 2:
                link.actor = "somebody"
            link.prev_hash = previous or link.prev_hash
            previous = link.row_hash = link.computed_hash
            statements.append(
                f"UPDATE audit SET actor = '{link.actor}', prev_hash = '{link.prev_hash}',"
                f" row_hash = '{link.row_hash}' WHERE seq = {link.seq}"
            )
        session.expunge_all()
    superuser(recorded.database, *statements, f"UPDATE audit_head SET hash = '{previous}'")
    assert report(recorded).reason == "a signed checkpoint does not lie on the chain"


def test_a_forged_link_with_a_wrong_hash_is_found(recorded: World) -> None:
    """The database checks that a link follows; only the verifier can compute what its hash must be."""
    execute(
        recorded.database,
        f"INSERT INTO audit SELECT seq + 1, hash, '{'d' * 64}', '{utc_now()}', 'x', 'x', NULL, NULL, '{{}}'"
        " FROM audit_head",
    )
    found = report(recorded)
    assert (found.broken_at, found.reason) == (found.links, "a link was altered")


def test_the_chain_goes_on_after_a_refusal(recorded: World) -> None:
    before = report(recorded)
    with recorded.database.write() as session:
        append_link(session, recorded.steward, "test", {})
        session.rollback()
    assert report(recorded) == before
    with recorded.database.write() as session:
        for number in range(3):
            append_link(session, recorded.steward, "test", {"number": number})
    assert (report(recorded).holds, report(recorded).links) == (True, before.links + 3)


def test_a_body_is_canonical_and_holds_no_float(recorded: World) -> None:
    with pytest.raises(TypeError), recorded.database.write() as session:
        append_link(session, recorded.steward, "test", {"epsilon": 0.5})  # type: ignore[dict-item]
    for (body,) in fetch(recorded.database, "SELECT body FROM audit"):
        assert body == json.dumps(json.loads(str(body)), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


# --- health ---------------------------------------------------------------------------------------------------------


def unhealthy(world: World) -> set[str]:
    with world.database.read() as session:
        return {finding.check for finding in health.check_health(session) if not finding.ok}


def test_a_healthy_ledger(recorded: World) -> None:
    with recorded.database.read() as session:
        found = health.check_health(session)
    assert all(finding.ok and finding.detail for finding in found)
    assert {f.check for f in found} >= {"counters", "audit chain"}


def test_health_finds_a_broken_chain_and_says_where(recorded: World) -> None:
    superuser(recorded.database, "UPDATE audit SET actor = 'x' WHERE seq = 8")
    with recorded.database.read() as session:
        wrong = {finding.check: finding.detail for finding in health.check_health(session) if not finding.ok}
    assert wrong == {
        "audit chain": "broken at link 8: a link was altered",
        "rows and links": "not as the chain tells: link 8 differs from its rows",
    }


def test_health_finds_damaged_counters(recorded: World) -> None:
    if recorded.database.is_sqlite:
        execute(recorded.database, "DROP TRIGGER account_moves_by_entry", "UPDATE account SET rho_held = 3")
    else:
        superuser(recorded.database, "UPDATE account SET rho_held = 3")
    assert unhealthy(recorded) == {"counters", "rows and links"}


def test_health_finds_a_row_without_its_parent(sqlite_database: Database) -> None:
    world = World.create(sqlite_database)
    with sqlite_database.engine.connect() as connection:
        connection.rollback()
        raw = connection.connection.driver_connection
        assert raw is not None
        raw.execute("PRAGMA foreign_keys = OFF")
        raw.execute(f"INSERT INTO unit_claim VALUES (1, 99, '{'0' * 64}', '{'0' * 64}', '{utc_now()}', NULL)")
        raw.execute("PRAGMA foreign_keys = ON")
    assert unhealthy(world) == {"foreign keys", "rows and links"}


def test_health_finds_a_row_that_breaks_a_check(sqlite_database: Database) -> None:
    with sqlite_database.engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert raw is not None
        raw.execute("PRAGMA ignore_check_constraints = ON")
        raw.execute(f"INSERT INTO account (rho_cap, delta_cap, created_at) VALUES (1, 1, '{utc_now()}')")
        raw.execute("PRAGMA ignore_check_constraints = OFF")
    assert unhealthy(World.create(sqlite_database)) == {"storage", "rows and links"}
