"""What the chain tells is what the tables say, on both backends; what somebody with all rights changes is named."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from migrations.schema import tables
from migrations.schema.tables import is_stamped, ledger_tables
from models_db.database.base import Base
from models_db.services import people
from models_db.services.audit import log, verify_chain
from models_db.services.audit.log import LogFilter
from models_db.services.logins import ADDED_BY_LOGINS
from models_db.services.queries import health
from models_db.services.verification import verify_rows
from models_db.sessions.database import Database
from models_db.values.canonical_json import encode_canonical
from models_db.writes import link_content
from tests.conftest import Ledgers
from tests.contracts import whole_story
from tests.contracts.tampering import rewrite, superuser
from tests.support import World, append_link, fetch

HOSTILE = {
    "many digits": '{"n":' + "9" * 5000 + "}",
    "deep": '{"n":' + "[" * 3000 + "]" * 3000 + "}",
    "no object": "[]",
    "no json": "no json",
}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def worked(request: pytest.FixtureRequest, ledgers: Ledgers) -> Iterator[World]:
    """A ledger in which everything was done that is told of."""
    with ledgers.new(request.param) as database:
        world = World.create(database)
        whole_story.tell(world)
        yield world


@pytest.fixture
def copy(worked: World, ledgers: Ledgers) -> Iterator[Database]:
    """Another ledger like it."""
    with ledgers.new(worked.database.engine.dialect.name, like=worked.database) as database:
        yield database


def found(database: Database) -> list[str]:
    with database.read() as session:
        return verify_rows.compare_rows_with_chain(session)


def test_what_the_services_do_is_told(worked: World) -> None:
    """On PostgreSQL the server has spelled every link out, and here it is spelled out in Python: the same bytes."""
    assert found(worked.database) == []
    kinds = {
        part for (kind,) in fetch(worked.database, "SELECT DISTINCT kind FROM audit") for part in str(kind).split("+")
    }
    assert kinds >= {
        "account.opened", "attack.public_twin", "backup.restored", "checkpoint.recorded", "cohort.opened",
        "dataset.ingested", "dataset.registered", "evaluation.internal",
        "ledger.arm", "ledger.commit", "ledger.forfeit", "ledger.hold", "proposal.approve", "proposal.carried",
        "proposal.proposed", "policy.adopted", "principal.enrolled", "release.delivered",
        "release.published", "request.approval_withdrawn", "request.approve", "request.reject", "request.submitted",
        "role.granted", "role.revoked", "run.failed", "run.produced", "run.started", "schedule.changed",
        "schedule.created", "slot.decided", "slot.ended",
    }  # fmt: skip


def test_every_table_is_told_or_listed() -> None:
    assert {*tables.LEADING, *tables.FOLLOWING} == link_content.LINKED_TABLES
    assert set(link_content.EXEMPT_COLUMNS) < set(Base.metadata.tables)
    assert {table.name for table in ledger_tables() if is_stamped(table)} == ADDED_BY_LOGINS


def test_both_backends_tell_the_same_story_in_the_same_words(ledgers: Ledgers) -> None:
    stories = []
    for backend in ("sqlite", "postgresql"):
        with ledgers.new(backend) as database:
            whole_story.tell(World.create(database))
            with database.read() as session:
                stories.append([said(link) for link in log.stream_links(session, LogFilter())])
    for one, other in zip(*stories, strict=True):
        assert one == other


def said(link: log.LoggedLink) -> tuple[Any, ...]:
    body = json.loads(link.body)
    assert encode_canonical(body).decode() == link.body
    rows = [(each["table"], each["ids"]) for each in body["rows"]]
    return link.actor, link.kind, link.dataset, link.request_id, rows


def test_a_version_without_new_units_tells_what_every_version_tells(worked: World, copy: Database) -> None:
    """How many units of a version are new is private: the link has a salted digest, and no number."""
    bodies = []
    world = World(copy, worked.policy_id, worked.admin, worked.analyst, worked.steward, worked.runner)
    next(world._numbers)
    for marks in ([b"clinic-unit".ljust(32, b"\0")], [bytes([number]) * 32 for number in range(1, 9)]):
        for _ in range(90):
            next(world._numbers)
        world.version("clinic", marks)
        [(body,)] = fetch(copy, "SELECT body FROM audit ORDER BY seq DESC LIMIT 1")
        bodies.append(json.loads(str(body)))
    shapes = [[{**row, "ids": "", "content": ""} for row in body["rows"]] for body in bodies]
    assert shapes[0] == shapes[1]
    assert [len(fetch(copy, "SELECT salt FROM unit_claim GROUP BY salt HAVING count(*) > 1"))] == [0]
    assert found(copy) == []


# --- what somebody with all rights does -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("UPDATE approval SET decision = 'approve' WHERE decision = 'reject'", ["approval"]),
        ("DELETE FROM withdrawal", ["withdrawal 1 of link"]),
        ("UPDATE account SET rho_cap = rho_cap * 100", ["account 1: rho_cap"]),
        ("UPDATE account SET epsilon = '70' WHERE id = 1", ["account 1-3 differs"]),
        ("DELETE FROM unit_mark", ["unit_mark of unit_claim 1"]),
        ("UPDATE dataset_version SET source_mark = manifest_mark", ["dataset_version 1"]),
        ("UPDATE policy_version SET spend_approvals = 1", ["policy_version"]),
        ("UPDATE dataset SET governed = NOT governed", ["dataset 1"]),
        ("UPDATE request SET canonical = canonical || ' ' WHERE id = 1", ["request 1"]),
        ("UPDATE lease SET attempt = 7", ["lease of request"]),
    ],
)
def test_what_was_altered_is_named(copy: Database, change: str, named: list[str]) -> None:
    superuser(copy, change)
    differences = found(copy)
    assert all(any(name.split(",")[0] in each for each in differences) for name in named), differences
    with copy.read() as session:
        [wrong] = [each for each in health.check_health(session) if each.check == "rows and links"]
    assert not wrong.ok


def test_links_of_nothing_are_named(worked: World, copy: Database) -> None:
    with copy.write() as session:
        number = append_link(session, worked.steward, "note.x", {})
        again = append_link(session, worked.steward, "request.approve", {"rows": [
            {"table": "approval", "ids": "1", "content": "d" * 64}]})  # fmt: skip
        none = append_link(session, worked.steward, "policy.adopted", {"rows": []})
        late = append_link(session, worked.steward, "ledger.upgraded", {"rows": []})
    assert set(found(copy)) == {
        f"link {again} names approval 1 again",
        f"approval 1 differs from link {again}",
        *[f"link {each} names no row" for each in (none, late, number)],
    }


def test_a_link_that_says_something_else_of_its_rows_is_named(copy: Database) -> None:
    columns = ("actor", "kind", "dataset", "request_id", "body")
    first = "FROM audit WHERE kind = 'request.approve' ORDER BY seq LIMIT 1"
    [(seq, *stored)] = fetch(copy, f"SELECT seq, {', '.join(columns)} {first}")
    said = dict(zip(columns, stored, strict=True))
    lies = ("somebody", "request.reject", "court", None, f" {said['body']}")
    for name, lie in zip(columns, lies, strict=True):
        rewrite(copy, {int(str(seq)): said | {name: lie}})
        assert found(copy) == [f"link {seq} differs from its rows"], name
    rewrite(copy, {int(str(seq)): said})
    assert found(copy) == []


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_a_link_that_cannot_be_read_is_named(copy: Database, body: str) -> None:
    [(seq,)] = fetch(copy, "SELECT min(seq) FROM audit WHERE kind = 'request.approve'")
    rewrite(copy, {int(str(seq)): {"body": body}})
    differences = found(copy)
    assert f"link {seq} cannot be read" in differences
    assert "approval 1 has no link" in differences
    with copy.read() as session:
        assert verify_chain.verify_chain(session).reason == verify_chain.OFF_CHAIN  # of the links that were hashed anew
        assert not all(each.ok for each in health.check_health(session))


def test_what_was_taken_back_is_not_told(worked: World, copy: Database) -> None:
    before = fetch(copy, "SELECT max(seq) FROM audit")
    with copy.write() as session:
        people.grant(session, worked.admin, "dora", "steward", "a mistake")
        session.rollback()
    assert fetch(copy, "SELECT max(seq) FROM audit") == before
    assert found(copy) == []
