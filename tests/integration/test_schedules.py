"""Schedules as people type them: due slots become releases, or are skipped for a reason that is recorded."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from flows.poller import Poller, Settings
from flows.slots import BUSY
from tests.integration.story import Almoner
from tests.support import fetch

SMALL = {"epsilon": 1.0, "delta": 1.0e-7, "evaluation": ["length"]}
LONG_AGO = "2026-01-01"


def authorised(almoner: Almoner, runs: int = 3, **changes: Any) -> None:
    """A corpus, and so many runs of one small request authorised as motion 1."""

    def prepare() -> None:
        almoner.ingested()
        file = almoner.request_file(**(SMALL | changes))
        almoner.type(f'standing propose {file} --runs {runs} --until 2099-12-31 --reason "every month"')
        almoner.type('approve 1 --gate motion --reason "agreed"', piped="clinic\n")

    almoner.brought(f"authorised {runs} {changes!r}", prepare)


def scheduled(almoner: Almoner, options: str = "--every 1m", start: str = LONG_AGO) -> int:
    made = almoner.ask(f'schedule create 1 {options} --start {start} --reason "every month"')
    return int(made["schedule"])


def slots(almoner: Almoner) -> list[tuple[object, ...]]:
    return fetch(almoner.database, "SELECT request_id, skipped FROM schedule_slot ORDER BY id")


def test_a_schedule_is_made_run_paused_resumed_and_ended(any_almoner: Almoner) -> None:
    almoner = any_almoner
    authorised(almoner)
    line = 'schedule create 1 --cron "0 6 * * 1" --zone Europe/Berlin --reason "the weekly report"'
    looked = almoner.ask(f"{line} --dry-run")
    assert (looked["schedule"], looked["dataset"], looked["kind"]) == (None, "clinic", "cron")
    assert len(looked["coming"]) == 3
    assert almoner.ask("schedule list") == []
    assert scheduled(almoner) == 1

    done = almoner.ask("schedule run 1")
    assert [(slot["request"], slot["skipped"]) for slot in done["slots"]] == [(1, None)]
    assert [(run["request"], run["outcome"]) for run in done["runs"]] == [(1, "produced")]
    assert almoner.state() == "produced"
    (row,) = almoner.ask("schedule list")
    assert (row["state"], row["used"], row["runs"], row["last"]["state"]) == ("active", 1, 3, "produced")
    taken = almoner.ask(f"schedule run 1 --slot {row['last']['slot']}", expected=1)
    assert taken["error"] == "SlotTaken"
    assert slots(almoner) == [(1, None)]

    assert almoner.ask('schedule pause 1 --reason "cleaning"')["state"] == "paused"
    assert almoner.ask('schedule pause 1 --reason "cleaning"', expected=1)["error"] == "ScheduleIdle"
    assert almoner.ask("schedule run 1", expected=1)["error"] == "NothingDue"
    assert almoner.ask('schedule resume 1 --reason "clean"')["state"] == "active"
    assert almoner.ask("schedule run 1", expected=1)["error"] == "NothingDue"  # what passed meanwhile is not caught up
    assert almoner.ask('schedule end 1 --reason "over"')["coming"] == []
    assert almoner.ask('schedule resume 1 --reason "not over"', expected=1)["error"] == "ScheduleIdle"
    kinds = [row[0] for row in fetch(almoner.database, "SELECT kind FROM audit ORDER BY seq")]
    assert [kind for kind in kinds if kind.startswith(("schedule.", "slot."))] == [
        "schedule.created", "slot.decided", "schedule.changed", "schedule.changed", "schedule.changed",
    ]  # fmt: skip
    assert "request 1, produced" in almoner.type("schedule list").out.replace("\n", " ")
    assert almoner.ask("schedule show 1")["slots"][0]["request"] == 1
    assert almoner.ask("doctor")["ok"] is True
