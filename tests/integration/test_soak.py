"""Scheduled releases go on being right while everything around them fails (docs/soak.md), and the soak would notice."""

import random
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from itertools import islice
from operator import attrgetter
from typing import Any

import pytest

from models_db.sessions.database import Database
from tests.conftest import in_memory
from tests.integration.canary import PRIVATE_TEXT
from tests.integration.story import Almoner
from tests.soak import checks, world
from tests.soak.faults import AROUND, IN_A_PROCESS, PLACES, Backend, Fault, Round, every_kind, plan
from tests.soak.ledgers import File, ledger_on
from tests.soak.report import as_text, figures
from tests.soak.soak import Soak, soak
from tests.support import execute, fetch

ONE = (replace(world.SOURCES[0], schedules=1),)
FEW = (
    Round(1, (1,), (Fault("kill", "a step is drawn", 6),), None),
    Round(2, (1,), (Fault("disk full", "the draft is written", 1, before=True, lasts=3600, amount=300),), None),
    Round(3, (1, 1), (None, None), None),
)


def started(almoner: Almoner, ledger: Any, backend: Backend, sources: tuple[world.Source, ...]) -> Soak:
    return Soak(almoner, ledger, backend, world.made(almoner, sources), random.Random(1))


@pytest.fixture
def soaked(almoner: Almoner) -> Soak:
    """A poller was killed in the middle of a run, the next found the disk full, two looked at once, and all ended."""
    it = started(almoner, File(almoner.home), "sqlite", ONE)
    soak(it, iter(FEW), releases=100, every=100)
    return it


@pytest.mark.slow
def test_a_few_releases_with_a_kill_and_a_full_disk(soaked: Soak) -> None:
    assert soaked.figures.wrong == []
    assert soaked.figures.ends["killed"] == 1
    assert soaked.figures.outcomes["a run was not now: OutcomeUnknown"] == 1  # the ledger is on that disk, too
    assert soaked.produced >= 2
    told = figures(soaked, 1, 0.0)
    assert told["ledger"]["attempts that went on"] >= 1
    assert "wrong: nothing" in as_text(told)
    for break_something, complaint in BREAKS:
        break_something(soaked)
        assert any(complaint in found for found in looked(soaked)), complaint


def looked(it: Soak) -> list[str]:
    return checks.examine(it.almoner, it.database, it.drawn, "\n".join(it.said))


def unguarded(database: Database, statement: str) -> None:
    """Change what the ledger's triggers would not let anybody change."""
    names = [str(name) for (name,) in fetch(database, "SELECT name FROM sqlite_master WHERE type = 'trigger'")]
    execute(database, *(f"DROP TRIGGER {name}" for name in names), statement)


def make_a_stray_folder(it: Soak) -> None:
    (it.almoner.home.quarantine / "77-1").mkdir()


def lose_a_file(it: Soak) -> None:
    next(it.almoner.home.quarantine.glob("*/README.md")).unlink()


def say_something_private(it: Soak) -> None:
    it.said.append(PRIVATE_TEXT)


def draw_twice(it: Soak) -> None:
    key = next(iter(it.drawn))
    it.drawn[key].append(it.drawn[key][0])


def draw_unpaid(it: Soak) -> None:
    execute(it.database, "DELETE FROM entry WHERE kind = 'ARM' AND hold_id = (SELECT max(hold_id) FROM entry)")


def charge_too_little(it: Soak) -> None:
    unguarded(it.database, "UPDATE account SET rho_spent = rho_spent - 1 WHERE parent_id IS NOT NULL")


def decide_twice(it: Soak) -> None:
    execute(it.database, "UPDATE schedule_slot SET request_id = NULL, skipped = 'Nothing' WHERE id = 1")


BREAKS = [
    (make_a_stray_folder, "is nobody's"),
    (lose_a_file, "instead of"),
    (say_something_private, "private text stands in what pollers told"),
    (draw_twice, "was made twice"),
    (charge_too_little, "its entries say"),
    (draw_unpaid, "instalments armed"),
    (decide_twice, "are of no slot"),
]
"""What the checks have to find, one after the other in the same home."""


@pytest.mark.long
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_soak_with_every_kind_of_fault(backend: Backend, almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    with ledger_on(backend, almoner.home, in_memory()) as ledger:
        if ledger.own is not None:
            monkeypatch.setenv("ALMONER_DATABASE_URL", ledger.own)
        it = started(almoner, ledger, backend, world.SOURCES)
        rounds = list(every_kind(backend))
        done = soak(it, iter(rounds), releases=1000, every=25)
        assert done.wrong == []
        assert done.rounds == len(rounds)
        assert it.produced >= 25
        assert done.ends["killed"] == 3 + sum(f.how in ("back", "forth and back") for r in rounds for f in r.faults)


def kinds(rounds: Iterator[Round], many: int) -> set[str]:
    return {fault.kind for each in islice(rounds, many) for fault in each.faults}


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_seed_tells_the_plan_and_every_kind_is_in_it(backend: Backend) -> None:
    assert list(islice(plan(7, backend), 50)) == list(islice(plan(7, backend), 50))
    assert list(islice(plan(7, backend), 50)) != list(islice(plan(8, backend), 50))
    known = {*IN_A_PROCESS, *AROUND[backend]}
    assert kinds(plan(7, backend), 400) == known
    assert kinds(every_kind(backend), 400) == known - {"kill at a moment"}
    places = {fault.place for each in islice(plan(7, backend), 400) for fault in each.faults if fault.place}
    assert places == set(PLACES)


@pytest.mark.parametrize("place", PLACES)
def test_a_place_of_a_fault_is_one(place: str) -> None:
    module, name, most = PLACES[place]
    assert callable(attrgetter(name)(import_module(module)))
    assert most >= 1
