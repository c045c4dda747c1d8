"""Attacks with hand-written SQL that no guard names: tricks of the backends themselves, and forged counters."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from sqlalchemy import Connection, UniqueConstraint, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from migrations.schema.tables import keys, ledger_tables
from models_db.database.base import Base, utc_now
from models_db.services import budget
from models_db.sessions.database import Database
from models_db.values.amounts import Amount
from tests.conftest import Ledgers
from tests.contracts.limit_cases import TWICE
from tests.contracts.rows import PLAN, unheld
from tests.contracts.town import Town, town_of
from tests.support import World, execute, fetch, planned, snapshot, unguarded

CONCERNS = ("migrations/schema", "models_db/services")

KEYS = {t.name: keys(t) for t in ledger_tables() if "REPLACE" not in t.info["allows"] or t.name == "unit_mark"}
CAP = Amount(100, 10)
TAKEN = (Amount(40), Amount(50))
LEFT = (Amount(11), Amount(1, 11), Amount(10, 10), Amount(1000), Amount(1))
"""Further parts of the plan, which the services have not held: what refuses them is not that nobody approved them."""


@pytest.fixture
def held(world: World) -> budget.Attempt:
    """An attempt that holds 90 of 100; it was approved for more."""
    world.dataset(cap=CAP)
    attempt = world.running("clinic", planned(*TAKEN, *LEFT))
    world.hold(attempt, planned(*TAKEN))
    return attempt


def counters(database: Database) -> list[tuple[object, ...]]:
    return fetch(database, "SELECT rho_held, rho_spent FROM account WHERE parent_id IS NOT NULL")


def left(amount: Amount) -> dict[str, int]:
    """The columns of a hold of a part that the services have not held."""
    return {"instalment": len(TAKEN) + LEFT.index(amount), "rho": amount.rho, "delta": amount.delta}


@pytest.mark.parametrize(
    ("amounts", "said"),
    [
        (left(Amount(11)), "the cap would be passed"),
        (left(Amount(1, 11)), "the cap would be passed"),
        (left(Amount(11)) | {"rho": 2**63 - 1}, "approved for another charge"),
    ],
)
def test_a_hand_written_hold_cannot_pass_the_cap(
    world: World, held: budget.Attempt, amounts: dict[str, int], said: str
) -> None:
    before = snapshot(world.database)
    with pytest.raises(DBAPIError, match=said):
        Town(world).do(*unheld(Town(world), held, "HOLD", **amounts))
    assert snapshot(world.database) == before


def test_the_check_holds_without_the_guards(world: World, held: budget.Attempt) -> None:
    """The cap does not hang on a trigger's condition: the CHECK alone refuses too."""
    guard = "entry_within_cap" if world.database.is_sqlite else "entry_is_sound ON entry"
    execute(world.database, f"DROP TRIGGER {guard}")
    before = snapshot(world.database)
    with pytest.raises(IntegrityError, match="ck_account_rho"):
        Town(world).do(*unheld(Town(world), held, "HOLD", **left(Amount(11))))
    assert snapshot(world.database) == before


def test_a_hand_written_hold_may_use_the_rest(world: World, held: budget.Attempt) -> None:
    Town(world).do(*unheld(Town(world), held, "HOLD", "ARM", **left(Amount(10, 10))))
    assert counters(world.database) == [(90, 10)]


@pytest.mark.parametrize("rho", ["0.5", "-1", "-0.5"])
def test_amounts_are_whole_and_not_negative(world: World, held: budget.Attempt, rho: str) -> None:
    insert = (
        "INSERT INTO hold (invocation_id, account_id, instalment, rho, delta)"
        f" SELECT invocation_id, account_id, 9, {rho}, 0 FROM hold WHERE id = 1"
    )
    before = counters(world.database)
    with pytest.raises(IntegrityError, match=r"approved for another charge|ck_hold_"):
        execute(world.database, insert)
    with unguarded(world.database, "hold_planned", "hold"):
        if rho == "0.5" and not world.database.is_sqlite:  # PostgreSQL rounds what it puts into a BIGINT
            execute(world.database, insert)
            assert fetch(world.database, "SELECT rho FROM hold WHERE instalment = 9") == [(1,)]
        else:
            with pytest.raises(IntegrityError, match=r"ck_hold_(amount|rho_type)"):
                execute(world.database, insert)
    assert counters(world.database) == before


class TestSQLite:
    """A connection that set none of the ledger's pragmas."""

    @pytest.fixture
    def world(self, sqlite_database: Database) -> World:
        return World.create(sqlite_database)

    @pytest.fixture
    def raw(self, world: World, held: budget.Attempt) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(world.database.engine.url.database or "")) as connection:
            connection.execute("PRAGMA recursive_triggers = OFF")
            connection.execute("PRAGMA foreign_keys = OFF")
            yield connection

    def enter(self, raw: sqlite3.Connection, verb: str, hold_id: int, kind: str, tail: str = "") -> None:
        raw.execute(
            f"{verb} INTO entry (hold_id, kind, at, actor_id) VALUES (?, ?, ?, 1) {tail}", (hold_id, kind, utc_now())
        )

    @pytest.mark.parametrize(
        ("verb", "tail"),
        [
            ("INSERT", ""),
            ("INSERT OR IGNORE", ""),
            ("INSERT OR REPLACE", ""),
            ("INSERT OR FAIL", ""),
            ("INSERT", "ON CONFLICT DO NOTHING"),
        ],
    )
    def test_no_verb_enters_past_the_cap(self, raw: sqlite3.Connection, verb: str, tail: str) -> None:
        part = left(Amount(1000))
        raw.execute(
            "INSERT INTO hold SELECT 3, invocation_id, account_id, :instalment, :rho, :delta FROM hold WHERE id = 1",
            part,
        )
        for kind in ("HOLD", "ARM"):
            with pytest.raises(sqlite3.IntegrityError, match="almoner:"):
                self.enter(raw, verb, 3, kind, tail)
        assert raw.execute("SELECT count(*) FROM entry WHERE hold_id = 3").fetchone() == (0,)
        assert raw.execute("SELECT rho_held, rho_spent FROM account WHERE parent_id IS NOT NULL").fetchone() == (90, 0)

    def test_a_trigger_that_swallows_the_counters(self, raw: sqlite3.Connection) -> None:
        raw.execute("CREATE TEMP TRIGGER swallow BEFORE UPDATE ON account BEGIN SELECT RAISE(IGNORE); END")
        with pytest.raises(sqlite3.IntegrityError, match="the counters did not follow"):
            self.enter(raw, "INSERT", 1, "ARM")

    def test_a_trigger_that_swallows_the_head(self, raw: sqlite3.Connection) -> None:
        raw.execute("CREATE TEMP TRIGGER swallow BEFORE UPDATE ON audit_head BEGIN SELECT RAISE(IGNORE); END")
        with pytest.raises(sqlite3.IntegrityError, match="the head did not follow"):
            raw.execute(
                f"INSERT INTO audit SELECT seq + 1, hash, substr(hash, 2) || 'e', '{utc_now()}', 'x', 'x', NULL, NULL,"
                " '{}' FROM audit_head"
            )

    def test_an_entry_of_a_hold_to_come(self, raw: sqlite3.Connection) -> None:
        """Without foreign keys, HOLD could be recorded first and the hold's amount chosen later."""
        with pytest.raises(sqlite3.IntegrityError, match="the cap would be passed"):
            self.enter(raw, "INSERT", 99, "HOLD")

    def test_a_publication_of_an_artifact_to_come(self, raw: sqlite3.Connection) -> None:
        with pytest.raises(sqlite3.IntegrityError, match="the publish gate is not passed"):
            raw.execute("INSERT INTO publication VALUES (1, 1, ?, 1)", (utc_now(),))

    def test_a_plan_is_written_whole_or_the_request_is_not(self, raw: sqlite3.Connection) -> None:
        """Whatever a guard has missed: under this rule the row that a constraint refuses would be left out."""
        raw.execute("DROP TRIGGER request_says_plan")
        statement = (
            "INSERT OR IGNORE INTO request (dataset_id, version_id, policy_id, canonical, digest, requester_id,"
            " created_at, expires_at) SELECT dataset_id, version_id, policy_id, ?, ?, requester_id, created_at,"
            " expires_at FROM request LIMIT 1"
        )
        with pytest.raises(sqlite3.IntegrityError, match="the plan did not follow the request"):
            raw.execute(statement, (TWICE, "d" * 64))

    def test_a_temporary_table_of_the_same_name(self, raw: sqlite3.Connection, held: budget.Attempt) -> None:
        raw.execute("CREATE TEMP TABLE approval AS SELECT * FROM main.approval")
        raw.execute("CREATE TEMP TABLE account AS SELECT * FROM main.account")
        self.enter(raw, "INSERT", 1, "ARM")
        assert raw.execute("SELECT rho_spent FROM main.account WHERE parent_id IS NOT NULL").fetchone() == (40,)


@pytest.fixture(scope="module")
def careless(ledgers: Ledgers) -> Iterator[sqlite3.Connection]:
    """A connection without the ledger's pragmas, to a ledger with a row in every table."""
    with (
        town_of(ledgers, "sqlite") as town,
        closing(sqlite3.connect(town.world.database.engine.url.database or "")) as connection,
    ):
        connection.execute("PRAGMA recursive_triggers = OFF")
        yield connection


class TestReplace:
    """SQLite's REPLACE removes the row it collides with, past the delete triggers of a careless connection."""

    @pytest.mark.parametrize("table", [*KEYS, "audit_head"])
    def test_a_row_is_not_replaced(self, careless: sqlite3.Connection, table: str) -> None:
        columns = ", ".join(column.name for column in Base.metadata.tables[table].columns)
        before = sorted(careless.execute(f"SELECT * FROM {table}"), key=repr)
        values = columns.replace(", at", f", '{utc_now()}'")  # no guard of the clock shall be what refuses
        replace = f"INSERT OR REPLACE INTO {table} ({columns}) SELECT {values} FROM {table} WHERE TRUE LIMIT 1"
        with pytest.raises(sqlite3.IntegrityError, match="almoner:"):
            careless.execute(replace)
        assert sorted(careless.execute(f"SELECT * FROM {table}"), key=repr) == before

    @pytest.mark.parametrize(
        ("table", "unique"),
        [(table, key) for table, those in KEYS.items() for key in those if len(those) > 1],
    )
    def test_a_unique_key_is_not_taken_over(
        self, careless: sqlite3.Connection, table: str, unique: tuple[str, ...]
    ) -> None:
        """A row that is new in everything but one unique key."""
        names = [column.name for column in Base.metadata.tables[table].columns]
        values = ", ".join(name if name in unique else f"'{i}'" for i, name in enumerate(names, 1000))
        with pytest.raises(sqlite3.IntegrityError, match="almoner:"):
            careless.execute(
                f"INSERT OR REPLACE INTO {table} ({', '.join(names)}) SELECT {values} FROM {table}"
                f" WHERE {' AND '.join(f'{name} IS NOT NULL' for name in unique)} LIMIT 1"
            )

    def test_every_unique_key_is_guarded(self) -> None:
        for table, guarded in KEYS.items():
            made = Base.metadata.tables[table]
            unique = {tuple(c.name for c in u.columns) for u in made.constraints if isinstance(u, UniqueConstraint)}
            unique |= {tuple(i.columns.keys()) for i in made.indexes if i.unique and not i.name.startswith("uq_entry_")}
            expected = unique | {tuple(c.name for c in made.primary_key.columns)}
            assert table == "unit_mark" or {tuple(key) for key in guarded} == expected, table


class TestPostgreSQL:
    """What an owner of the tables can try short of dropping the guards."""

    @pytest.fixture
    def world(self, postgresql_database: Database) -> World:
        return World.create(postgresql_database)

    @pytest.fixture
    def raw(self, world: World, held: budget.Attempt) -> Iterator[Connection]:
        with world.database.engine.connect() as connection:
            yield connection
            connection.rollback()

    @property
    def arm(self) -> str:
        return f"INSERT INTO public.entry (hold_id, kind, at, actor_id) VALUES (1, 'ARM', '{utc_now()}', 1)"

    def test_temporary_tables_do_not_stand_in(self, raw: Connection) -> None:
        for table in ("account", "approval", "transition", "hold", "entry", "audit_head"):
            raw.execute(text(f"CREATE TEMP TABLE {table} AS SELECT * FROM public.{table}"))
        raw.execute(text(self.arm))
        assert raw.scalar(text("SELECT rho_spent FROM public.account WHERE parent_id IS NOT NULL")) == 40
        assert raw.scalar(text("SELECT rho_spent FROM account WHERE parent_id IS NOT NULL")) == 0

    def test_a_rule_that_swallows_the_counters(self, raw: Connection) -> None:
        raw.execute(text("CREATE RULE swallow AS ON UPDATE TO account DO INSTEAD NOTHING"))
        with pytest.raises(IntegrityError, match="the counters did not follow"):
            raw.execute(text(self.arm))

    def test_a_rule_that_swallows_the_head(self, raw: Connection) -> None:
        raw.execute(text("CREATE RULE swallow AS ON UPDATE TO audit_head DO INSTEAD NOTHING"))
        with pytest.raises(IntegrityError, match="the head did not follow"):
            raw.execute(
                text(
                    f"INSERT INTO audit SELECT seq + 1, hash, substr(hash, 2) || 'e', '{utc_now()}', 'x', 'x', NULL,"
                    " NULL, '{}' FROM audit_head".replace(":", "\\:")
                )
            )

    def test_nothing_is_truncated(self, postgresql_database: Database) -> None:
        for table in [each.name for each in ledger_tables() if "DELETE" not in each.info["allows"]]:
            with pytest.raises(IntegrityError, match=f"almoner: {table} is append-only"):
                execute(postgresql_database, f"TRUNCATE {table} CASCADE")

    def test_upsert_does_not_update(self, raw: Connection) -> None:
        raw.execute(text(self.arm))
        with pytest.raises(IntegrityError, match="entry is append-only"):
            raw.execute(text(self.arm + " ON CONFLICT (hold_id, kind) DO UPDATE SET kind = 'HOLD'"))


def test_the_services_go_on_after_an_attack(world: World, held: budget.Attempt) -> None:
    town = Town(world)
    with pytest.raises(IntegrityError):
        town.do(*unheld(town, held, "ARM", **left(Amount(1))))
    world.arm(held)
    world.fail(held)
    assert world.balance().spent == Amount(40)
    world.produced()
    assert world.balance().spent == Amount(50)
    with world.database.read() as session:
        assert budget.differing_counters(session) == []


LINKS = "SELECT seq, kind, body FROM audit WHERE kind LIKE 'ledger%' ORDER BY seq"


@pytest.mark.slow
def test_a_town_of_two_backends_is_the_same(ledgers: Ledgers) -> None:
    """The same story leaves the same counters and states on both backends."""
    stories = []
    for backend in ("sqlite", "postgresql"):
        with ledgers.new(backend) as database:
            world = Town.build(World.create(database, approved=PLAN)).world
            stories.append(
                (
                    fetch(
                        world.database,
                        "SELECT rho_held, rho_spent, delta_spent, last_entry_id FROM account ORDER BY id",
                    ),
                    fetch(world.database, "SELECT request_id, to_state FROM transition ORDER BY id"),
                    fetch(world.database, "SELECT hold_id, kind FROM entry ORDER BY id"),
                    [(seq, kind, str(body).partition('"rows"')[0]) for seq, kind, body in fetch(world.database, LINKS)],
                )
            )
    assert stories[0] == stories[1]
