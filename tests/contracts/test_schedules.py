"""Schedules and slots on both backends: decided once, and only forwards, whatever clocks and pollers do."""

import multiprocessing
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from multiprocessing.queues import Queue

import pytest
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.services import datasets, policies, proposals, requests, schedules
from models_db.services.audit import verify_chain
from models_db.services.schedules import ScheduleNotActive, SlotTaken, Timing
from models_db.services.verification import verify_rows
from models_db.sessions.database import Database
from tests.contracts.meeting import meanwhile
from tests.contracts.moving_clock import MovingClock
from tests.refusals import refusal
from tests.support import PATIENCE, ROUTINE, World, fetch, snapshot

FIFTY = 50
LONG_AGO = "2026-01-01T00:00:00.000000Z"
HOUR = timedelta(hours=1)


def made(world: World, standing: int | None = None) -> int:
    """A schedule of the clinic, due every minute since long ago."""
    number = standing or world.standing(runs=FIFTY)
    with world.database.write() as session:
        clinic, proposal = datasets.find_dataset(session, "clinic"), proposals.find_proposal(session, number)
        timing = Timing("interval", "1m", "UTC", LONG_AGO)
        return schedules.create(session, world.analyst, clinic, proposal, timing, "every minute").id


def skip(world: World, number: int, slot: str) -> None:
    with world.database.write() as session:
        schedules.require_slot_open(session, number, slot)
        schedules.record_slot(
            session, world.analyst, schedules.find_schedule(session, number), slot, skipped="BudgetExceeded"
        )


def asking(world: World, number: int, slot: str) -> Callable[[Session], None]:
    """What a poller does with a slot, in one transaction."""

    def act(session: Session) -> None:
        schedules.require_slot_open(session, number, slot)
        schedule, clinic = schedules.find_schedule(session, number), datasets.find_dataset(session, "clinic")
        policy = policies.policy_in_force(session)
        assert policy is not None
        made_now = requests.submit(
            session, world.analyst, clinic, datasets.newest_version(session, clinic), policy,
            ROUTINE | {"nonce": f"{slot} {datetime.now(UTC)}"}, timedelta(days=30),
            standing=proposals.find_proposal(session, schedule.standing_id),
        )  # fmt: skip
        schedules.record_slot(session, world.analyst, schedule, slot, request_id=made_now.id)

    return act


def ask(world: World, number: int, slot: str) -> None:
    with world.database.write() as session:
        asking(world, number, slot)(session)


def minute(number: int) -> str:
    return utc_now(datetime(2026, 1, 1, tzinfo=UTC) + number * timedelta(minutes=1))


@pytest.fixture
def clinic(world: World) -> World:
    world.dataset()
    return world


def change(world: World, number: int, kind: str, by: str = "steward") -> None:
    with world.database.write() as session:
        schedules.record_change(session, getattr(world, by), number, kind, "because")


def decided(world: World) -> list[tuple[object, ...]]:
    return fetch(world.database, "SELECT slot, request_id, skipped FROM schedule_slot ORDER BY id")


def test_a_slot_is_decided_once_and_only_forwards(clinic: World) -> None:
    number = made(clinic)
    ask(clinic, number, minute(5))
    for earlier in (minute(5), minute(4), minute(0)):
        before = snapshot(clinic.database)
        with pytest.raises(SlotTaken) as taken:
            ask(clinic, number, earlier)
        assert taken.value.facts == {"schedule": number, "slot": earlier}
        assert snapshot(clinic.database) == before
    skip(clinic, number, minute(6))
    assert [row[0] for row in decided(clinic)] == [minute(5), minute(6)]
    with clinic.database.read() as session:
        assert [slot.request_id for slot in schedules.unfinished_slots(session)] == [1]
        assert verify_rows.compare_rows_with_chain(session) == []
        assert verify_chain.verify_chain(session).holds


def test_a_slot_is_judged_where_it_is_recorded(clinic: World) -> None:
    """Without the question before."""
    number = made(clinic)
    skip(clinic, number, minute(5))
    for slot, code in (
        (minute(5), "SlotTaken"),
        (minute(4), "SlotTaken"),
        (utc_now(datetime.now(UTC) + HOUR), "RuleViolated"),
    ):
        with refusal(code), clinic.database.write() as session:
            schedules.record_slot(session, clinic.analyst, schedules.find_schedule(session, number), slot, skipped="x")
    change(clinic, number, "paused")
    with pytest.raises(ScheduleNotActive), clinic.database.write() as session:
        schedules.record_slot(session, clinic.analyst, schedules.find_schedule(session, number), minute(6), skipped="x")


def test_who_may_do_what(clinic: World) -> None:
    number = made(clinic)
    with refusal("RoleDenied"):
        change(clinic, number, "paused", by="runner")
    change(clinic, number, "paused", by="analyst")
    change(clinic, number, "resumed", by="analyst")
    change(clinic, number, "paused")
    with refusal("RoleDenied"):
        change(clinic, number, "resumed", by="analyst")
    with pytest.raises(ScheduleNotActive):
        change(clinic, number, "paused")
    change(clinic, number, "resumed")
    change(clinic, number, "ended", by="analyst")
    for kind in ("paused", "resumed", "ended"):
        with pytest.raises(ScheduleNotActive):
            change(clinic, number, kind)
    with refusal("ScheduleUnknown"):
        change(clinic, 99, "paused")
    again = made(clinic, standing=1)
    with clinic.database.read() as session:
        row = schedules.find_schedule(session, again)
    with refusal("RoleDenied"), clinic.database.write() as session:
        schedules.record_slot(session, clinic.runner, row, minute(1), skipped="x")


def test_what_was_paused_is_due_from_the_day_it_went_on(clinic: World) -> None:
    number = made(clinic)
    for kind in ("paused", "resumed"):
        change(clinic, number, kind)
    with clinic.database.read() as session:
        resumed = schedules.list_changes(session, number)[-1].at
        assert schedules.due_from(session, schedules.find_schedule(session, number)) == resumed > LONG_AGO
        assert schedules.state_of(session, number) == "active"


def test_two_pollers_ask_for_the_same_slot_at_once(clinic: World) -> None:
    """The second waits for the first and finds the slot decided; what it had begun is gone."""
    number = made(clinic)
    assert (
        meanwhile(clinic.database, asking(clinic, number, minute(1)), lambda: ask(clinic, number, minute(1)))
        == "SlotTaken"
    )
    assert decided(clinic) == [(minute(1), 1, None)]
    assert fetch(clinic.database, "SELECT count(*) FROM request") == [(1,)]


def test_one_pauses_while_another_decides(clinic: World) -> None:
    number = made(clinic)

    def pause(session: object) -> None:
        schedules.record_change(session, clinic.steward, number, "paused", "because")  # type: ignore[arg-type]

    assert meanwhile(clinic.database, pause, lambda: ask(clinic, number, minute(1))) == ScheduleNotActive.__name__
    assert decided(clinic) == []


def test_one_decides_a_later_slot_meanwhile(clinic: World) -> None:
    number = made(clinic)

    def later(session: object) -> None:
        row = schedules.find_schedule(session, number)  # type: ignore[arg-type]
        schedules.record_slot(session, clinic.analyst, row, minute(9), skipped="x")  # type: ignore[arg-type]

    assert meanwhile(clinic.database, later, lambda: ask(clinic, number, minute(8))) == SlotTaken.__name__
    assert [row[0] for row in decided(clinic)] == [minute(9)]


# --- two pollers -----------------------------------------------------------------------------------------------


def _poll(url: str, world: World, number: int, results: "Queue[int]") -> None:
    """Ask for fifty slots, in order, in a process of its own."""
    database, won = Database(url), 0
    mine = World(database, world.policy_id, world.admin, world.analyst, world.steward, world.runner)
    for each in range(FIFTY):
        try:
            ask(mine, number, minute(each))
        except SlotTaken:
            continue
        won += 1
    database.dispose()
    results.put(won)


@pytest.mark.slow
def test_two_processes_race_for_fifty_slots_and_each_is_asked_for_once(clinic: World) -> None:
    number = made(clinic)
    clinic.database.dispose()
    context = multiprocessing.get_context("spawn")
    results: Queue[int] = context.Queue()
    bare = World(None, *_people(clinic))  # type: ignore[arg-type]
    racers = [context.Process(target=_poll, args=(clinic.database.url, bare, number, results)) for _ in range(2)]
    for racer in racers:
        racer.start()
    won = [results.get(timeout=PATIENCE) for _ in racers]
    for racer in racers:
        racer.join(PATIENCE)
    assert sum(won) == FIFTY
    rows = decided(clinic)
    assert [row[0] for row in rows] == [minute(each) for each in range(FIFTY)]
    assert sorted(int(str(row[1])) for row in rows) == list(range(1, FIFTY + 1))
    assert fetch(clinic.database, "SELECT count(*) FROM request") == [(FIFTY,)]
    with clinic.database.read() as session:
        assert verify_chain.verify_chain(session).holds
        assert verify_rows.compare_rows_with_chain(session) == []


def _people(world: World) -> tuple[object, ...]:
    return world.policy_id, world.admin, world.analyst, world.steward, world.runner


# --- clocks ----------------------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> Iterator[MovingClock]:
    with MovingClock() as moving:
        yield moving


def test_a_clock_that_is_set_back_and_forth_decides_nothing_twice(
    sqlite_database: Database, clock: MovingClock
) -> None:
    world = World.create(sqlite_database)
    world.dataset()
    number, now = made(world), datetime.now(UTC)
    clock.ahead += HOUR
    ask(world, number, utc_now(now + HOUR / 2))
    clock.ahead -= HOUR  # the chain has a link from the future now: nothing is recorded before that time comes
    for slot in (utc_now(now), utc_now(now + HOUR / 2)):
        before = snapshot(sqlite_database)
        with pytest.raises(Exception, match=r"clock is behind|is decided already"):
            ask(world, number, slot)
        assert snapshot(sqlite_database) == before
    clock.ahead += 2 * HOUR
    with pytest.raises(SlotTaken):
        ask(world, number, utc_now(now + HOUR / 2))
    ask(world, number, utc_now(now + HOUR))
    assert len(decided(world)) == 2
