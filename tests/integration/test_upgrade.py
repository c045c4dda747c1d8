"""A ledger of the oldest schema, with rows in every table and requests in every state, becomes one of the newest."""

import importlib
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from multiprocessing import get_context

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from sqlalchemy import MetaData, event, inspect, text
from sqlalchemy.orm import Session

from flows.workspace import overlap_key_path, signing_key_path
from migrations.inventory import Item, differences, inventory
from migrations.upgrade import SchemaDiffers, upgrade
from models_db import linking
from models_db.budgets import Amount
from models_db.engine import Database
from models_db.services import artifacts, gates, health, people, policies, releases, runs
from models_db.services.audits import Actor
from models_db.services.denials import Denied
from tasks.corpus.keys import create_key
from tests.conftest import Ledgers
from tests.earlier import attempt_of, described, inherited, private_key, rebuild
from tests.integration import upgrade_driver
from tests.integration.story import Almoner
from tests.support import PATIENCE, World, execute, fetch, planned, terms

Rows = dict[str, list[tuple[object, ...]]]
REQUESTS = described().requests


@pytest.fixture
def old(backend: str, ledgers: Ledgers) -> Iterator[Database]:
    """The recorded ledger of schema 0001, once on each backend."""
    with ledgers.new(backend, like=ledgers.recorded(backend, upgraded=False)) as made:
        yield made


@pytest.fixture
def world(backend: str, ledgers: Ledgers) -> Iterator[World]:
    """The same after the upgrade."""
    with ledgers.new(backend, like=ledgers.recorded(backend, upgraded=True)) as made:
        yield inherited(made)


def rows(database: Database, known: MetaData | None = None) -> tuple[Rows, MetaData]:
    """Every row of every table, in the columns of the tables that are `known`."""
    with database.engine.connect() as connection:
        if known is None:
            known = MetaData()
            known.reflect(connection)
        found = {
            table.name: sorted((tuple(row) for row in connection.execute(table.select())), key=repr)
            for table in known.sorted_tables
        }
        connection.rollback()
    return found, known


def whole(database: Database) -> tuple[frozenset[Item], Rows]:
    """The schema and all rows, to compare before and after a refusal."""
    with database.engine.connect() as connection:
        items = inventory(connection)
        connection.rollback()
    return items, rows(database)[0]


def is_sound(database: Database) -> None:
    """What the doctor looks at."""
    with database.read() as session:
        assert [each for each in health.examine(session) if not each.ok] == []
        assert differences(session.connection()) == []


def test_the_record_has_everything(old: Database) -> None:
    """Rows in every table, requests in every state, several people and policies, holds in every stage."""
    found, _ = rows(old)
    assert [name for name, lines in found.items() if not lines] == []
    states = fetch(old, "SELECT DISTINCT to_state FROM transition")
    assert {row[0] for row in states} == {
        "submitted", "approved", "rejected", "withdrawn", "running", "produced", "discarded", "published",
    }  # fmt: skip
    assert {row[0] for row in fetch(old, "SELECT DISTINCT kind FROM entry")} == {
        "HOLD", "ARM", "RELEASE", "COMMIT", "FORFEIT",
    }  # fmt: skip
    assert len(found["principal"]) == 5
    assert len(found["policy_version"]) == 3
    assert fetch(old, "SELECT count(*) FROM account WHERE rho_held > 0 AND rho_spent > 0") == [(2,)]


def test_every_row_is_kept(old: Database) -> None:
    before, known = rows(old)
    upgrade(old)
    after, _ = rows(old, known)
    for link in [row for row in after["audit"] if row not in before["audit"]]:
        after["audit"].remove(link)
    last = int(str(max(row[0] for row in before["audit"])))  # type: ignore[type-var]
    assert fetch(old, f"SELECT seq, kind, actor FROM audit WHERE seq > {last} ORDER BY seq") == [
        (last + 1, "roles.migrated", "admin"),
        (last + 2, "ledger.upgraded", "admin"),
    ]
    after["alembic_version"], after["audit_head"] = before["alembic_version"], before["audit_head"]
    assert after == before
    is_sound(old)


def test_every_row_of_0002_is_kept(old: Database) -> None:
    upgrade(old, "0002")
    before, known = rows(old)
    upgrade(old)
    after, _ = rows(old, known)
    assert after.pop("alembic_version") != before.pop("alembic_version")
    after.pop("audit_head"), before.pop("audit_head")
    [link] = [row for row in after["audit"] if row not in before["audit"]]
    after["audit"].remove(link)
    assert fetch(old, "SELECT kind, actor FROM audit ORDER BY seq DESC LIMIT 1") == [("ledger.upgraded", "admin")]
    assert after == before
    now, _ = rows(old)
    new = {name: now[name] for name in now.keys() - before.keys() - {"alembic_version", "audit_head"}}
    assert len(new.pop("unit_claim")) == 1
    assert list(new.values()) == [[]] * 16  # 0004, 0005, 0007, 0008, 0009
    is_sound(old)


def append_as_0006(session: Session, who: str, kind: str, body: str, dataset: str, request: int) -> None:
    """A link as links were made before the database made them."""
    if session.get_bind().dialect.name == "sqlite":
        linking.append(session, who, kind, body, dataset, request)
        return
    query = text("SELECT almoner_append(:who, :kind, :dataset, :request, :body)")
    session.execute(query, {"who": who, "kind": kind, "dataset": dataset, "request": request, "body": body})


def test_whoever_looked_before_0008_is_marked(old: Database) -> None:
    upgrade(old, "0006")
    query = (
        "SELECT min(r.id), min(d.name) FROM request r JOIN dataset d ON d.id = r.dataset_id"
        " JOIN artifact f ON f.request_id = r.id JOIN publication p ON p.artifact_id = f.id WHERE d.governed"
    )
    [(request, dataset)] = fetch(old, query)
    [(by,)] = fetch(old, "SELECT id FROM principal WHERE name = 'steward'")
    with old.write() as session:
        link = ("steward", "evaluation.internal", '{"metrics":["overlap"]}', str(dataset), int(str(request)))
        append_as_0006(session, *link)
    upgrade(old)
    query = "SELECT f.request_id, v.actor_id, v.kind FROM internal_view v JOIN artifact f ON f.id = v.artifact_id"
    assert fetch(old, query) == [(request, by, "computed")]
    is_sound(old)


@pytest.mark.parametrize("backend", ["postgresql"])
def test_what_guards_are_merged_still_stands_in_them(old: Database) -> None:
    """0003 puts the row guards of a table together; what each of them denied, and its message, is in the whole."""
    source = "SELECT p.proname, p.prosrc FROM pg_proc p JOIN pg_trigger g ON g.tgfoid = p.oid"
    upgrade(old, "0002")
    earlier = {str(name): str(body) for name, body in fetch(old, source)}
    upgrade(old)
    now = {str(name): str(body) for name, body in fetch(old, source)}
    merged = importlib.import_module("migrations.versions.0003_fewer_steps").MERGED
    assert earlier.keys() - now.keys() == {name for names in merged.values() for name in names}
    for table, names in merged.items():
        for name in names:
            denied, _, message = earlier[name].removeprefix(" BEGIN IF ").partition(" THEN RAISE EXCEPTION '")
            whole_guard = now[f"{table}_is_sound"]
            asked = denied if denied in whole_guard else denied.partition(" AND ")[2]  # its kinds went before it
            assert asked != ""
            assert asked in whole_guard
            assert message.partition("'")[0] in whole_guard


@pytest.mark.parametrize("backend", ["postgresql"])
def test_a_guard_of_0002_that_was_altered_is_not_merged(old: Database) -> None:
    upgrade(old, "0002")
    execute(old, HARMLESS_ON_POSTGRESQL.replace("approval_separate", "entry_needs_arm"))
    before = whole(old)
    with pytest.raises(SchemaDiffers, match="trigger entry_needs_arm on entry is altered"):
        upgrade(old)
    assert whole(old) == before


def test_a_second_upgrade_changes_nothing(world: World) -> None:
    before = whole(world.database)
    upgrade(world.database)
    assert whole(world.database) == before


def test_everybody_may_do_what_they_could_do(world: World) -> None:
    with world.database.read() as session:
        roles = {each.name: people.roles_of(session, each.id) for each in people.every(session)}
    others = frozenset({"analyst", "runner", "steward", "auditor"})
    assert roles == dict.fromkeys(("analyst", "steward", "runner", "second steward"), others) | {
        "admin": others | {"admin"}
    }
    assert {row[0] for row in fetch(world.database, "SELECT DISTINCT granted_by FROM role_grant")} == {world.admin.id}


def test_an_empty_ledger_has_nobody_to_give_roles_to(bare_database: Database) -> None:
    upgrade(bare_database, "0001")
    upgrade(bare_database)
    assert fetch(bare_database, "SELECT count(*) FROM role_grant") == [(0,)]
    assert fetch(bare_database, "SELECT seq FROM audit_head") == [(0,)]
    is_sound(bare_database)
    World.create(bare_database).dataset()


def second(world: World) -> Actor:
    with world.database.read() as session:
        return Actor(people.find(session, "second steward").id, "second steward")


def publish(world: World, request_id: int) -> None:
    with world.database.write() as session:
        artifacts.publish(session, world.runner, request_id)


def finish(world: World, request_id: int) -> None:
    """Start, run, approve and publish what was approved."""
    attempt = world.start(request_id)
    world.hold(attempt, planned(Amount(10), Amount(5)))
    world.arm(attempt)
    world.arm(attempt, instalment=1)
    world.produce(attempt)


def test_a_request_under_way_is_approved_run_and_published(world: World) -> None:
    spent = world.balance().spent
    assert world.decide(REQUESTS["submitted"]) == "approved"
    for request_id in (REQUESTS["submitted"], REQUESTS["approved"]):
        finish(world, request_id)
        world.decide(request_id, "publish")
        publish(world, request_id)
        assert world.state(request_id) == "published"
    assert world.balance().spent == spent + Amount(30)
    is_sound(world.database)


def test_what_was_produced_is_published(world: World) -> None:
    publish(world, REQUESTS["cleared"][0])
    produced = REQUESTS["produced"][0]
    with pytest.raises(gates.GateClosed):
        publish(world, produced)
    world.decide(produced, "publish")
    publish(world, produced)
    with pytest.raises(Denied, match="the publish gate is not passed"):
        publish(world, REQUESTS["contested"][0])
    is_sound(world.database)


def test_an_armed_attempt_goes_on(world: World) -> None:
    attempt = attempt_of(world.database, "armed")
    world.arm(attempt, instalment=1)
    world.produce(attempt)
    assert world.state(attempt.request_id) == "produced"
    is_sound(world.database)


def test_dead_attempts_are_closed(world: World) -> None:
    with world.database.read() as session:
        leases = runs.running(session)
    assert len(leases) == 6
    held = world.balance().held
    assert held != Amount()
    for name in ("running", "held", "armed", "vetoed"):
        world.fail(attempt_of(world.database, name))
    assert world.balance().held == Amount()
    is_sound(world.database)


def test_the_rules_of_their_policy_hold_on(world: World) -> None:
    """Two approvals where two were asked, one of them already there; a rejection still blocks."""
    half = REQUESTS["half"]
    with pytest.raises(gates.GateClosed):
        world.start(half)
    assert world.decide(half, by=second(world)) == "approved"
    finish(world, half)
    world.decide(half, "publish")
    with pytest.raises(gates.GateClosed):
        publish(world, half)
    world.decide(half, "publish", by=second(world))
    publish(world, half)
    with pytest.raises(Denied, match="the spend gate is not passed"):
        world.arm(attempt_of(world.database, "vetoed"))


def test_one_person_may_have_several_roles_where_they_might(world: World) -> None:
    """The analyst who asked is one of the two who approved, and the admin may approve too."""
    assert world.state(REQUESTS["shared"]) == "approved"
    finish(world, REQUESTS["shared"])
    world.decide(REQUESTS["shared"], "publish", by=world.admin)
    publish(world, REQUESTS["shared"])


def test_where_they_might_not_the_admin_no_longer_approves(world: World) -> None:
    with pytest.raises(Denied, match="an admin does not approve"):
        world.decide(REQUESTS["submitted"], by=world.admin)


def test_new_requests_wait_for_a_policy(world: World) -> None:
    with world.database.read() as session:
        assert policies.in_force(session) is None
        old_policy = releases.find(session, REQUESTS["submitted"]).policy_id
    with world.database.write() as session:
        policies.adopt(session, world.admin, terms())
    request_id = world.request()
    with world.database.read() as session:
        assert releases.find(session, request_id).policy_id != old_policy
    world.decide(request_id)
    finish(world, request_id)
    is_sound(world.database)


def test_a_role_that_is_taken_away_voids_old_approvals(world: World) -> None:
    """Approvals of 0001 count as long as who gave them is a steward."""
    with world.database.write() as session:
        people.revoke(session, world.admin, "steward", "steward", "left")
    with pytest.raises(gates.GateClosed):
        world.start(REQUESTS["approved"])


DAMAGES = {
    "a guard that is made anew": "DROP TRIGGER entry_within_cap",
    "a guard that stays": "DROP TRIGGER entry_no_update",
    "an index": "DROP INDEX uq_entry_closed",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_ledger_is_not_upgraded(old: Database, backend: str, damage: str) -> None:
    statement = DAMAGES[damage]
    on = " ON entry" if backend == "postgresql" and "TRIGGER" in statement else ""
    execute(old, statement + on)
    before = whole(old)
    with pytest.raises(SchemaDiffers, match=f"{statement.split()[-1]} on entry is missing"):
        upgrade(old)
    assert whole(old) == before


HARMLESS_ON_SQLITE = (
    "DROP TRIGGER approval_separate",
    "CREATE TRIGGER approval_separate BEFORE INSERT ON approval WHEN FALSE BEGIN SELECT RAISE(ABORT, 'no'); END",
)
HARMLESS_ON_POSTGRESQL = (
    "CREATE OR REPLACE FUNCTION approval_separate() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp"
    " AS $$ BEGIN RETURN NEW; END $$"
)


def test_a_harmless_guard_under_the_right_name_is_not_healed_unseen(old: Database, backend: str) -> None:
    """0002 makes this guard anew: without a look before the upgrade nobody would know of the damage."""
    statements = HARMLESS_ON_SQLITE if backend == "sqlite" else (HARMLESS_ON_POSTGRESQL,)
    execute(old, *statements)
    before = whole(old)
    with pytest.raises(SchemaDiffers, match="trigger approval_separate on approval is altered"):
        upgrade(old)
    assert whole(old) == before


@pytest.mark.parametrize("backend", ["sqlite"])
def test_rows_that_point_nowhere_are_not_upgraded(old: Database) -> None:
    """SQLite checks foreign keys where a connection asks for it; PostgreSQL always does."""
    with closing(sqlite3.connect(old.engine.url.database or "")) as careless, careless:
        careless.execute("INSERT INTO lease VALUES (999, 1, 't', 'o', 'x')")
    before = whole(old)
    with pytest.raises(SchemaDiffers, match="rows of lease point nowhere"):
        upgrade(old)
    assert whole(old) == before


def statements_of_an_upgrade(database: Database) -> int:
    """How many there are; a child process that upgrades a copy issues as many."""
    seen = 0

    def count(*_: object) -> None:
        nonlocal seen
        seen += 1

    event.listen(database.engine, "before_cursor_execute", count)
    upgrade(database)
    event.remove(database.engine, "before_cursor_execute", count)
    return seen


def killed(database: Database, statement: int | None) -> None:
    """An upgrade in another process, which dies there."""
    database.dispose()
    context = get_context("forkserver")
    context.set_forkserver_preload([upgrade_driver.__name__])
    process = context.Process(target=upgrade_driver.upgrade_and_die, args=(database.url, statement))
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.slow
def test_a_killed_upgrade_leaves_the_old_ledger(old: Database, backend: str, ledgers: Ledgers) -> None:
    before = whole(old)
    with ledgers.new(backend, like=old) as copy:
        total = statements_of_an_upgrade(copy)
    for part in (1, total // 8, total // 4, total // 2, 3 * total // 4, total, 0):
        killed(old, part)
        assert whole(old) == before, part
        with old.engine.connect() as connection:
            assert differences(connection, "0001") == []
            connection.rollback()
    killed(old, None)
    is_sound(old)
    assert fetch(old, "SELECT count(*) FROM audit WHERE kind = 'roles.migrated'") == [(1,)]


def test_an_upgrade_killed_in_its_middle_is_done_again(old: Database) -> None:
    before = whole(old)
    killed(old, 200)
    assert whole(old) == before
    upgrade(old)
    is_sound(old)


def test_two_upgrades_at_once(old: Database) -> None:
    others = [Database(old.url) for _ in range(3)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(upgrade, [old, *others]))
    for other in others:
        other.dispose()
    is_sound(old)
    assert fetch(old, "SELECT count(*) FROM audit WHERE kind = 'roles.migrated'") == [(1,)]
    assert len(inspect(old.engine).get_table_names()) == len(set(inspect(old.engine).get_table_names()))


POLICY_OF_0001 = """\
# The policy of this project home. Every request records the version it was made under, and every card says
# what it allows. A change does not touch requests that were made before it.

# One person may request, approve and run the same release. For a team, set this to false.
several_roles: true

# How many approvals each gate needs: before private data is touched, and before anything leaves.
approvals: {spend: 1, publish: 1}

# Days until an approval, or an undecided request, expires.
approval_days: 30
request_days: 90

# How often one approved request may be run; a failed run has spent what it armed.
attempts: 5
"""


@pytest.fixture
def old_home(any_almoner: Almoner, backend: str, ledgers: Ledgers) -> Almoner:
    """A home as 0001 left it, around the recorded ledger; its key is that of the first principal."""
    home = any_almoner.home
    home.create()
    pem = private_key("admin").private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path = signing_key_path(home)
    path.write_bytes(pem)
    path.chmod(0o600)
    create_key(overlap_key_path(home))
    home.policy.write_text(POLICY_OF_0001)
    home.policy.chmod(0o600)
    if backend == "sqlite":
        recorded = ledgers.recorded(backend, upgraded=False)
        recorded.dispose()  # so that the file is whole
        shutil.copy(recorded.engine.url.database or "", home.root / "almoner.db")
    else:
        rebuild(any_almoner.database)
    return any_almoner


def files_of(almoner: Almoner) -> dict[str, bytes]:
    return {
        str(path.relative_to(almoner.home.root)): path.read_bytes()
        for path in almoner.home.root.rglob("*")
        if path.is_file() and not path.name.startswith("almoner.db")
    }


@pytest.mark.parametrize("line", ["release list", "budget show clinic", "user list", "dataset list", "run sweep"])
@pytest.mark.parametrize("backend", ["sqlite"])
def test_before_the_upgrade_commands_ask_for_init(old_home: Almoner, line: str) -> None:
    before = whole(old_home.database)
    told = old_home.ask(line, expected=3)
    assert told["error"] == "SchemaOutdated"
    assert "almoner init" in told["advice"]
    assert whole(old_home.database) == before


MADE_UP = {"amounts", "policies"}
"""What `doctor` finds in the recorded ledger: its caps follow from no epsilon, and its policies have no text."""


def unsound(almoner: Almoner) -> set[str]:
    """The checks that fail."""
    return {finding["check"] for finding in almoner.ask("doctor", expected=3)["findings"] if not finding["ok"]}


def test_init_upgrades_a_home_and_keeps_everything(old_home: Almoner) -> None:
    doctor = old_home.ask("doctor", expected=3)
    assert "almoner init" in str(doctor) or "another version" in str(doctor)
    files, (before, known) = files_of(old_home), rows(old_home.database)
    made = old_home.ask("init")
    assert made["principal"] == "admin"
    after, _ = rows(old_home.database, known)
    for table in set(before) - {"audit", "audit_head", "policy_version", "alembic_version"}:
        assert after[table] == before[table], table
    assert [row for row in before["audit"] if row not in after["audit"]] == []
    assert {name: old for name, old in files_of(old_home).items() if name in files} == files
    found = old_home.ask("doctor", expected=3)
    assert {f["check"] for f in found["findings"] if not f["ok"]} == MADE_UP
    assert old_home.ask("audit verify")["holds"] is True
    assert {each["name"] for each in old_home.ask("user list")["people"]} >= {"admin", "second steward"}
    assert len(old_home.ask("dataset list")) == 5
    again = whole(old_home.database)[0]
    old_home.ask("init")
    assert whole(old_home.database)[0] == again


def test_the_story_goes_on_after_the_upgrade(old_home: Almoner) -> None:
    """A new dataset, a new release, published and verified, in the ledger that came from 0001."""
    old_home.type("init")
    old_home.type("dataset register surgery --unit patient_id --epsilon 8 --delta 1e-6")
    old_home.type(f"dataset ingest surgery {old_home.notes_file()}")
    number = old_home.ask(f"release request {old_home.request_file(dataset='surgery')}")["request"]
    old_home.type(f'approve {number} --gate spend --reason "a first look"', piped="surgery\n")
    old_home.type(f"run {number}")
    old_home.type(f'approve {number} --gate publish --reason "names nobody"', piped="surgery\n")
    old_home.type(f"publish {number} --to {old_home.folder / 'out'}")
    old_home.type(f"verify-release {old_home.folder / 'out' / f'surgery-release-{number}'}")
    assert unsound(old_home) == MADE_UP
