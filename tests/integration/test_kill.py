"""kill -9 at every step: the ledger never under-counts, nothing gets out, and the next command finds its way.

Each process is killed by itself at a named point (kill_driver.py), then looked at from outside.
"""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from models_db.values.amounts import Amount, total_amount
from tests.integration import kill_driver
from tests.integration.killing import balance, instalments, is_clean, killed, ledger, nothing_is_out, start
from tests.integration.story import Almoner
from tests.support import PATIENCE

pytestmark = pytest.mark.contract

CONCERNS = ("flows/releases", "models_db/services", "tasks/decoding")

ARMED_BEFORE = {
    "before hold": 0,
    "after hold": 0,
    "while arming": 0,  # not durable, so nothing was read and nothing is spent
    "after arm": 1,
    "mid generation": 3,  # the count, and two instalments of four draws for six draws
    "after draft": 4,
    "while committing": 4,
}
"""How many instalments are spent when a run dies there."""
BEGINS_ANEW = ("before hold", "after hold", "while arming", "after arm")
"""Killed there, a run has written down nothing that another could go on from: the count is drawn and paid again."""

FEWER_ON_POSTGRESQL = ["after hold", "while arming", "mid generation", "while committing"]
POINTS = [
    *(("sqlite", point) for point in ARMED_BEFORE),
    *(pytest.param("postgresql", point, marks=pytest.mark.slow) for point in FEWER_ON_POSTGRESQL),
]


@pytest.mark.slow_except("sqlite-mid generation", "sqlite-after hold", "sqlite-while committing")
@pytest.mark.parametrize(("backend", "point"), POINTS)
def test_a_killed_run(any_almoner: Almoner, backend: str, point: str) -> None:
    almoner = any_almoner
    almoner.approved()
    plan = instalments(almoner)
    armed = total_amount(plan[: ARMED_BEFORE[point]])
    killed("run 1", point)
    assert balance(almoner).spent == armed
    assert ledger(almoner).artifacts() == 0
    nothing_is_out(almoner)
    assert almoner.ask("publish 1 --to out", expected=1)["error"] == "WrongState"
    assert almoner.ask("audit verify")["holds"] is True

    swept = almoner.ask("run sweep")
    assert swept == {"requests": [1], "folders_removed": int(point in ("after draft", "while committing"))}
    goes_on = point not in BEGINS_ANEW
    is_clean(almoner, left=goes_on)
    assert almoner.state() == "approved"
    assert balance(almoner).spent == armed
    assert almoner.ask("run sweep") == {"requests": [], "folders_removed": 0}

    assert (almoner.ask("run 1")["goes_on_from"] is not None) == goes_on
    spent = total_amount(plan) if goes_on else armed + total_amount(plan)
    assert balance(almoner).spent == spent
    assert balance(almoner).held == Amount()
    assert [folder.name for folder in almoner.home.quarantine.iterdir()] == ["1-2"]
    assert almoner.ask("release show 1")["rho_spent"] == spent.rho_text
    almoner.go_on_to("published", after="produced")
    assert almoner.ask(f"verify-release {almoner.bundle}")["rho"] == total_amount(plan).rho_text
    assert almoner.ask("doctor")["ok"] is True


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_run_killed_after_its_commit_is_produced(any_almoner: Almoner) -> None:
    almoner = any_almoner
    almoner.approved()
    killed("run 1", "after commit")
    assert almoner.state() == "produced"
    nothing_is_out(almoner)
    assert almoner.ask("run sweep") == {"requests": [], "folders_removed": 1}  # what it had drawn
    assert balance(almoner).spent == total_amount(instalments(almoner))
    assert balance(almoner).held == Amount()
    assert almoner.ask("run 1", expected=1)["error"] == "WrongState"
    almoner.go_on_to("published", after="produced")
    almoner.type(f"verify-release {almoner.bundle}")
    almoner.type("doctor")


UNDER_AUTHORISATION = [
    ("sqlite", "mid generation"),
    *(
        pytest.param(backend, point, marks=pytest.mark.slow)
        for backend, point in [*(("sqlite", p) for p in ARMED_BEFORE), ("postgresql", "mid generation")]
        if (backend, point) != ("sqlite", "mid generation")
    ),
]


def routine(almoner: Almoner) -> None:
    """A request under a standing authorisation of two runs."""
    almoner.ingested()
    file = almoner.request_file(epsilon=2.0)
    almoner.type(f'standing propose {file} --runs 2 --until 2099-12-31 --reason "every month"')
    almoner.type('approve 1 --gate proposal --reason "agreed"', piped="clinic\n")
    almoner.type(f"release request {file} --standing 1")


def counters(almoner: Almoner) -> tuple[int, dict[int, Amount], dict[int, Amount]]:
    """How many blocks there are, and what is held and spent of each of the clinic's."""
    read = ledger(almoner)
    return read.blocks(), read.held(), read.spent()


@pytest.mark.parametrize(("backend", "point"), UNDER_AUTHORISATION)
def test_a_killed_run_leaves_its_authorisation_right(any_almoner: Almoner, point: str) -> None:
    """What was armed is spent, the rest is free, and the run counts as used."""
    almoner = any_almoner
    routine(almoner)
    plan = instalments(almoner)
    armed = total_amount(plan[: ARMED_BEFORE[point]])
    killed("run 1", point)
    almoner.ask("run sweep")
    assert counters(almoner) == (1, {0: Amount()}, {0: armed})
    assert [row["used"] for row in almoner.ask("standing list")] == [1]
    goes_on = point not in BEGINS_ANEW
    is_clean(almoner, left=goes_on)

    almoner.type("run 1")
    whole = total_amount(plan) if goes_on else armed + total_amount(plan)
    assert counters(almoner) == (1, {0: Amount()}, {0: whole})
    file = almoner.folder / "request.yaml"
    assert almoner.ask(f"release request {file} --standing 1", expected=1)["error"] == "AuthorisationExhausted"
    assert almoner.ask("doctor")["ok"] is True


def test_running_again_needs_no_sweep(almoner: Almoner) -> None:
    almoner.approved()
    plan = instalments(almoner)
    killed("run 1", "mid generation")
    almoner.type("run 1")
    assert balance(almoner).spent == total_amount(plan)
    assert balance(almoner).held == Amount()
    almoner.type("doctor")


def test_every_dead_attempt_that_nobody_goes_on_from_is_paid_for(almoner: Almoner) -> None:
    almoner.approved(epsilon=2)
    plan = instalments(almoner)
    for point in ("mid generation", "after arm", "after draft"):
        killed("run 1 --anew", point)
    almoner.type("run sweep")
    assert balance(almoner).spent == total_amount(plan[:3]) + total_amount(plan[:1]) + total_amount(plan)
    assert almoner.ask("budget show clinic")["spent_by"] == [
        {"request": 1, "dataset": "clinic", "state": "approved", "rho_spent": balance(almoner).spent.rho_text}
    ]
    steps = [step["detail"] for step in almoner.ask("release show 1")["steps"] if step["from"] == "running"]
    assert steps == ["Swept"] * 3


def test_dead_attempts_can_use_up_the_budget_and_then_it_is_refused(almoner: Almoner) -> None:
    almoner.approved(epsilon=6)
    killed("run 1", "after draft")
    almoner.type("run sweep")
    before = almoner.everything()
    assert almoner.ask("run 1 --anew", expected=1)["error"] == "BudgetExceeded"
    assert almoner.everything() == before
    almoner.type("run 1")  # goes on, and needs nothing more


@pytest.mark.parametrize(
    "point", ["while publishing", "before delivery", "with half a bundle", "before delivery is recorded"]
)
def test_a_killed_publication_is_finished_by_the_next(almoner: Almoner, point: str) -> None:
    almoner.passed()
    killed(f"publish 1 --to {almoner.folder / 'out'}", point)
    recorded = point != "while publishing"
    assert almoner.state() == ("published" if recorded else "produced")
    assert almoner.bundle.exists() == (point == "before delivery is recorded")
    assert ledger(almoner).deliveries() == 0
    almoner.type(f"publish 1 --to {almoner.folder / 'out'}")
    assert [path.name for path in (almoner.folder / "out").iterdir()] == [almoner.bundle.name]
    almoner.type(f"verify-release {almoner.bundle}")
    assert ledger(almoner).publications() == 1
    assert almoner.ask("doctor")["ok"] is True


@pytest.mark.parametrize("point", ["in the middle of an ingest", "before a version is recorded"])
def test_a_killed_ingest_leaves_nothing_that_counts(almoner: Almoner, point: str) -> None:
    almoner.registered()
    killed(f"dataset ingest clinic {almoner.notes_file()}", point)
    assert almoner.ask("dataset show clinic")["versions"] == 0
    assert almoner.ask(f"release request {almoner.request_file()}", expected=1)["error"] == "NothingIngested"
    assert almoner.ask("run sweep") == {"requests": [], "folders_removed": 1}
    assert list(almoner.home.corpora.iterdir()) == []
    almoner.type(f"dataset ingest clinic {almoner.notes_file()}")
    assert almoner.ask("dataset show clinic")["versions"] == 1


@pytest.mark.parametrize("point", ["before a version is recorded", "while a cohort is opened"])
def test_a_killed_ingest_opens_all_of_a_cohort_or_nothing(almoner: Almoner, point: str) -> None:
    almoner.ingested("--blocks 2")
    file = almoner.notes_file("later.jsonl", [{"patient_id": "new", "text": "a first visit"}])
    later = f"dataset ingest clinic {file} --new-cohort"
    read = ledger(almoner)
    before = read.units()
    killed(later, point)
    assert (read.units(), read.blocks()) == (before, 2)
    shown = almoner.ask("dataset show clinic")
    assert (shown["versions"], shown["cohorts"]) == (1, 1)
    assert almoner.ask("run sweep") == {"requests": [], "folders_removed": 1}
    assert almoner.ask(later)["opened_cohort"] == 2
    assert read.blocks() == 4
    assert almoner.ask("doctor")["ok"] is True


@pytest.mark.parametrize("as_json", [True, False])
def test_ctrl_c_in_the_middle_of_a_generation(almoner: Almoner, as_json: bool) -> None:
    almoner.approved()
    plan = instalments(almoner)
    sign, output = almoner.folder / "sign", almoner.folder / "output"
    line = "run 1" + " --json" * as_json
    process = start(kill_driver.type_and_wait, line, "mid generation", sign, output)
    wait_for(sign)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)
    process.join(PATIENCE)
    assert process.exitcode == 1
    told = output.read_text()
    if as_json:
        assert json.loads(told)["error"] == "RunInterrupted"
    assert "armed amounts stay spent" in told
    assert "almoner run 1" in told
    assert "Traceback" not in told
    assert balance(almoner).spent == total_amount(plan[:3])
    is_clean(almoner, left=True)
    assert almoner.state() == "approved"
    almoner.type("run 1")
    assert balance(almoner).spent == total_amount(plan)


def wait_for(sign: Path) -> None:
    """Until another process has left its sign."""
    patience = time.monotonic() + PATIENCE
    while not sign.exists():
        assert time.monotonic() < patience, "the other process never came to its point"
        time.sleep(0.01)
