"""Schedules as people type them: due slots become releases, or are skipped for a reason that is recorded."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest

from cli.framework import progress
from flows.schedules.schedules import DueResult, SlotRun
from flows.schedules.slots import UNFINISHED_RUN_REASON, decide_due_slot, run_due, run_request, waiting_requests
from flows.workspace.workspace import open_workspace
from models_db.errors import AlmonerError
from models_db.sessions.database import LedgerUnreachable, OutcomeUnknown
from models_db.writes.database_errors import ClockWentBack
from tasks.inference.catalogue.registry import ModelNotPulled
from tests.integration.killing import killed
from tests.integration.story import Almoner
from tests.integration.team import Team
from tests.support import fetch

CONCERNS = ("flows/schedules", "flows/releases")

SMALL = {"epsilon": 1.0, "delta": 1.0e-7, "evaluation": ["length"]}
LONG_AGO = "2026-01-01"


def authorised(almoner: Almoner, runs: int = 3, **changes: Any) -> None:
    """A corpus, and so many runs of one small request authorised as proposal 1."""

    def prepare() -> None:
        almoner.ingested()
        file = almoner.request_file(**(SMALL | changes))
        almoner.type(f'standing propose {file} --runs {runs} --until 2099-12-31 --reason "every month"')
        almoner.type('approve 1 --gate proposal --reason "agreed"', piped="clinic\n")

    almoner.brought(f"authorised {runs} {changes!r}", prepare)


def scheduled(almoner: Almoner, options: str = "--every 1w", start: str = LONG_AGO) -> int:
    made = almoner.ask(f'schedule create 1 {options} --start {start} --reason "every month"')
    return int(made["schedule"])


def slots(almoner: Almoner) -> list[tuple[object, ...]]:
    return fetch(almoner.database, "SELECT request_id, skipped FROM schedule_slot ORDER BY id")


def test_a_schedule_says_how_many_runs_the_budget_affords(almoner: Almoner) -> None:
    authorised(almoner)
    file = almoner.request_file(**SMALL)
    price = almoner.ask(f"release request {file} --dry-run")["price"]
    whole = int(Fraction(price["budget"]["rho_left_before"]) / Fraction(price["rho"]))
    line = 'schedule create 1 --every 1d --reason "every day" --dry-run'
    assert almoner.ask(line)["afforded"] == whole > 1
    almoner.type(f"release request {file} --standing 1")
    almoner.type("run 1")
    assert almoner.ask(line)["afforded"] == whole - 1
    assert f"afforded {whole - 1}" in " ".join(almoner.type(line).out.split())


def test_a_schedule_is_made_run_paused_resumed_and_ended(any_almoner: Almoner) -> None:
    almoner = any_almoner
    authorised(almoner)
    line = 'schedule create 1 --cron "0 6 * * 1" --zone Europe/Berlin --reason "the weekly report"'
    looked = almoner.ask(f"{line} --dry-run")
    assert (looked["schedule"], looked["dataset"], looked["kind"]) == (None, "clinic", "cron")
    assert len(looked["coming"]) == 3
    assert (looked["runs_left"], looked["last_run"]) == (3, looked["coming"][-1])
    almost_over = almoner.ask(f"{line} --dry-run --start 2099-12-20")
    assert (almost_over["slots_until_it_ends"], almost_over["last_run"]) == (2, None)
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
    assert almoner.ask(f"{line} --dry-run")["runs_left"] == 2
    assert slots(almoner) == [(1, None)]

    assert almoner.ask('schedule pause 1 --reason "cleaning"')["state"] == "paused"
    assert almoner.ask('schedule pause 1 --reason "cleaning"', expected=1)["error"] == "ScheduleNotActive"
    assert almoner.ask("schedule run 1", expected=1)["error"] == "NothingDue"
    assert almoner.ask('schedule resume 1 --reason "clean"')["state"] == "active"
    assert almoner.ask("schedule run 1", expected=1)["error"] == "NothingDue"  # what passed meanwhile is not caught up
    assert almoner.ask('schedule end 1 --reason "over"')["state"] == "ended"
    assert almoner.ask('schedule resume 1 --reason "not over"', expected=1)["error"] == "ScheduleNotActive"
    kinds = [row[0] for row in fetch(almoner.database, "SELECT kind FROM audit ORDER BY seq")]
    assert [kind for kind in kinds if "schedule." in kind or "slot." in kind] == [
        "schedule.created", "request.submitted+slot.decided", *["schedule.changed"] * 3,
    ]  # fmt: skip
    assert "request 1, produced" in almoner.type("schedule list").out.replace("\n", " ")
    assert almoner.ask("schedule show 1")["slots"][0]["request"] == 1
    assert almoner.ask("doctor")["ok"] is True


# --- skipped for a reason --------------------------------------------------------------------------------------


def look(almoner: Almoner, ahead: int = 0) -> Any:
    """What `almoner schedule run` does in a home whose clock is some minutes ahead."""
    return asdict(run_due(open_workspace(almoner.home), datetime.now(UTC) + timedelta(minutes=ahead)))


def skipped(almoner: Almoner) -> str:
    """The reason for which the newest slot was skipped."""
    (slot,) = almoner.ask("schedule show 1 --limit 1")["slots"]
    assert (slot["state"], slot["request"]) == ("skipped", None)
    assert slot["detail"]
    return str(slot["reason"])


def test_a_used_up_authorisation_skips(almoner: Almoner) -> None:
    authorised(almoner, runs=1)
    scheduled(almoner)
    almoner.type(f"release request {almoner.request_file(**SMALL)} --standing 1")
    almoner.type("run 1")
    assert look(almoner)["runs"] == []
    assert skipped(almoner) == "AuthorisationExhausted"
    assert "all 1 runs are used" in almoner.ask("schedule show 1")["slots"][0]["detail"]


def test_an_empty_budget_skips(almoner: Almoner) -> None:
    authorised(almoner)
    scheduled(almoner)
    almoner.type('dataset cap clinic --epsilon 0.1 --delta 1e-6 --reason "less"')
    almoner.type('approve 2 --gate proposal --reason "agreed"', piped="clinic\n")
    look(almoner)
    assert skipped(almoner) == "BudgetExceeded"
    assert fetch(almoner.database, "SELECT * FROM request") == []


def test_another_policy_skips(almoner: Almoner) -> None:
    authorised(almoner)
    scheduled(almoner)
    text = almoner.home.policy.read_text().replace("attempts: 5", "attempts: 4")
    almoner.type(f"policy adopt {almoner.write('other.yaml', text)}")
    look(almoner)
    assert skipped(almoner) == "AuthorisationExhausted"
    assert "another policy is in force" in almoner.ask("schedule show 1")["slots"][0]["detail"]


def test_an_ended_and_a_waiting_authorisation_skip(almoner: Almoner) -> None:
    authorised(almoner)
    scheduled(almoner)
    almoner.type('standing end 1 --reason "over"', piped="clinic\n")
    look(almoner)
    assert skipped(almoner) == "AuthorisationExhausted"
    assert "stewards have ended it" in almoner.ask("schedule show 1")["slots"][0]["detail"]
    assert (
        almoner.ask('schedule create 1 --every 1d --reason "again"', expected=1)["error"]
        == "AuthorisationNotSchedulable"
    )

    file = almoner.request_file(**SMALL)
    number = almoner.ask(f'standing propose {file} --runs 3 --until 2099-12-31 --reason "again"')["proposal"]
    made = almoner.ask(f'schedule create {number} --every 1w --start {LONG_AGO} --reason "once approved"')["schedule"]
    assert [slot["skipped"] for slot in look(almoner)["slots"] if slot["schedule"] == made] == [
        "AuthorisationExhausted"
    ]
    assert "it waits for approvals" in almoner.ask(f"schedule show {made}")["slots"][0]["detail"]


def test_a_paused_schedule_does_nothing(almoner: Almoner) -> None:
    authorised(almoner)
    scheduled(almoner)
    almoner.type('schedule pause 1 --reason "cleaning"')
    assert look(almoner) == {"slots": [], "runs": [], "problems": []}
    assert slots(almoner) == []


def test_a_run_that_is_not_finished_skips_the_next(almoner: Almoner) -> None:
    authorised(almoner)
    scheduled(almoner, "--every 1m")
    workspace, now = open_workspace(almoner.home), datetime.now(UTC)
    first, decided = (decide_due_slot(workspace, 1, at) for at in (now - timedelta(minutes=2), now))
    assert first is not None
    assert decided is not None
    assert first.request == 1
    assert (decided.request, decided.skipped) == (None, UNFINISHED_RUN_REASON)
    assert slots(almoner) == [(1, None), (None, UNFINISHED_RUN_REASON)]
    assert [run["outcome"] for run in look(almoner)["runs"]] == ["produced"]


# --- one look after the other ----------------------------------------------------------------------------------


def test_a_look_does_everything_once_and_the_next_nothing(almoner: Almoner) -> None:
    authorised(almoner)
    scheduled(almoner)
    first, now = look(almoner), datetime.now(UTC)
    assert [run["outcome"] for run in first["runs"]] == ["produced"]
    for minutes in (-60, -1, 0):  # a clock that goes back finds the slot decided
        assert run_due(open_workspace(almoner.home), now + timedelta(minutes=minutes)) == DueResult()
    assert len(slots(almoner)) == 1


def test_a_clock_that_runs_ahead_decides_what_the_ledger_lets_it(almoner: Almoner) -> None:
    """The machine believes it is next week, the ledger does not: the slot stays to be decided, and is when it comes."""
    authorised(almoner)
    scheduled(almoner)
    ahead = look(almoner, ahead=8 * 24 * 60)
    assert [problem["error"] for problem in ahead["problems"]] == ["RuleViolated"]
    assert slots(almoner) == []
    assert [run["outcome"] for run in look(almoner)["runs"]] == ["produced"]


def test_what_failed_is_given_up_and_told(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    authorised(almoner)
    scheduled(almoner)
    with monkeypatch.context() as patch:
        patch.setattr("flows.releases.attempt.code_digest", lambda: "c" * 64)
        done = look(almoner)
    assert [(run["outcome"], run["reason"]) for run in done["runs"]] == [("given up", "PlanChanged")]
    assert look(almoner)["runs"] == []
    (slot,) = almoner.ask("schedule show 1")["slots"]
    assert (slot["state"], slot["reason"]) == ("given up", "PlanChanged")
    assert almoner.ask("doctor")["ok"] is True
    almoner.type("run 1")  # a person still may
    assert almoner.ask("schedule show 1")["slots"][0]["state"] == "produced"


def test_what_is_missing_here_decides_nothing(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    authorised(almoner)
    scheduled(almoner)

    def not_there(*_: object) -> None:
        raise ModelNotPulled("tiny")

    with monkeypatch.context() as patch:
        patch.setattr("flows.releases.propose.model_facts", not_there)
        assert [problem["error"] for problem in look(almoner)["problems"]] == ["ModelNotPulled"]
    assert slots(almoner) == []
    assert [run["outcome"] for run in look(almoner)["runs"]] == ["produced"]


def test_requests_approved_by_hand_are_run_if_that_is_wanted(almoner: Almoner) -> None:
    almoner.approved()
    workspace = open_workspace(almoner.home)
    assert look(almoner)["runs"] == []
    assert run_request(workspace, 1) is None
    assert waiting_requests(workspace, approved=True) == [1]
    assert run_request(workspace, 1, approved=True) == SlotRun(None, 1, "produced", "", "")
    assert waiting_requests(workspace, approved=True) == []


# --- processes that die ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "decided", "attempts"),
    [
        ("while a slot is decided", [], 0),
        pytest.param("after a slot is decided", [(1, None)], 0, marks=pytest.mark.slow),
        ("mid generation", [(1, None)], 1),
        pytest.param("after commit", [(1, None)], 1, marks=pytest.mark.slow),
    ],
)
def test_a_process_that_is_killed_asks_for_nothing_twice(
    almoner: Almoner, point: str, decided: list[tuple[object, ...]], attempts: int
) -> None:
    authorised(almoner)
    scheduled(almoner)
    killed("schedule run 1", point)
    assert slots(almoner) == decided
    assert fetch(almoner.database, "SELECT count(*) FROM request") == [(len(decided),)]
    assert fetch(almoner.database, "SELECT count(*) FROM transition WHERE to_state = 'running'") == [(attempts,)]

    was_produced = point == "after commit"
    paused = not was_produced and bool(decided)
    if paused:  # so that the next look has nothing but the run that was interrupted
        almoner.type('schedule pause 1 --reason "one thing after the other"')
    done = look(almoner)
    assert [run["outcome"] for run in done["runs"]] == ([] if was_produced and not done["slots"] else ["produced"])
    asked = len(slots(almoner))
    assert fetch(almoner.database, "SELECT count(*) FROM request") == [(asked,)]
    assert almoner.state() == "produced"
    if point == "mid generation":
        started = fetch(almoner.database, "SELECT detail FROM transition WHERE to_state = 'running' ORDER BY id")
        assert started[-1] == ("1",)
    almoner.type("run sweep")
    assert almoner.ask("doctor")["ok"] is True


def test_an_attempt_that_this_process_has_lost_is_gone_on_from(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger went away in the middle of a run, and with it the chance to close it; the process lives on."""
    authorised(almoner)
    scheduled(almoner)

    def gone(*_: object, **__: object) -> None:
        raise LedgerUnreachable("somewhere")

    with monkeypatch.context() as patch:
        patch.setattr("models_db.services.budget.arm", gone)
        patch.setattr("models_db.services.attempts.fail_attempt", gone)
        done = look(almoner)
    assert [(run["outcome"], run["reason"]) for run in done["runs"]] == [("not now", "LedgerUnreachable")]
    assert almoner.state() == "running"
    assert [run["outcome"] for run in look(almoner)["runs"]] == ["produced"]


@pytest.mark.slow_except("problem0")
@pytest.mark.parametrize("problem", [LedgerUnreachable("somewhere"), OutcomeUnknown("somewhere"), ClockWentBack()])
def test_an_attempt_that_lost_its_ledger_for_a_moment_is_gone_on_from(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch, problem: AlmonerError
) -> None:
    """The ledger was there again when the attempt was closed: that is no run that has failed by itself."""
    authorised(almoner)
    scheduled(almoner)

    def gone(*_: object, **__: object) -> None:
        raise problem

    with monkeypatch.context() as patch:
        patch.setattr("models_db.services.budget.arm", gone)
        done = look(almoner)
    assert [(run["outcome"], run["reason"]) for run in done["runs"]] == [("not now", problem.code)]
    assert almoner.state() == "approved"
    assert [run["outcome"] for run in look(almoner)["runs"]] == ["produced"]


# --- roles -----------------------------------------------------------------------------------------------------


def test_where_roles_are_separate_one_asks_and_another_runs(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner.ingested()
    team = Team(almoner, almoner.home.database_url, monkeypatch)
    text = almoner.home.policy.read_text().replace("several_roles: true", "several_roles: false")
    almoner.type(f"policy adopt {almoner.write('team.yaml', text)}")
    sue, anna = team.enrol("sue", "steward"), team.enrol("anna", "analyst")
    team.at(anna).type(
        f'standing propose {anna.request_file(**SMALL)} --runs 3 --until 2099-12-31 --reason "every month"'
    )
    team.at(sue).type('approve 1 --gate proposal --reason "agreed"', piped="clinic\n")
    assert team.at(sue).ask('schedule create 1 --every 1m --reason "mine"', expected=1)["error"] == "RoleDenied"
    scheduled(team.at(anna))

    first = look(team.at(anna))
    assert [(slot["request"], slot["skipped"]) for slot in first["slots"]] == [(1, None)]
    assert first["runs"] == []  # an analyst runs nothing
    assert [(run["request"], run["outcome"]) for run in look(team.at(almoner))["runs"]] == [(1, "produced")]
    team.at(almoner)


def test_who_asked_does_not_run_where_roles_are_separate(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt would use up a run of the authorisation before the ledger refused it."""
    almoner.ingested()
    team = Team(almoner, almoner.home.database_url, monkeypatch)
    text = almoner.home.policy.read_text().replace("several_roles: true", "several_roles: false")
    almoner.type(f"policy adopt {almoner.write('team.yaml', text)}")
    sue = team.enrol("sue", "steward")
    file = team.at(almoner).request_file(**SMALL)
    almoner.type(f'standing propose {file} --runs 3 --until 2099-12-31 --reason "every month"')
    team.at(sue).type('approve 1 --gate proposal --reason "agreed"', piped="clinic\n")
    scheduled(team.at(almoner))
    assert [slot["request"] for slot in look(almoner)["slots"]] == [1]
    assert look(almoner) == {"slots": [], "runs": [], "problems": []}
    assert fetch(almoner.database, "SELECT count(*) FROM transition WHERE to_state = 'running'") == [(0,)]


# --- every schedule, without a server --------------------------------------------------------------------------


def test_a_command_runs_what_every_schedule_has_due(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    authorised(almoner)
    scheduled(almoner)
    done = almoner.type("schedule run")
    assert "produced" in done.out
    assert ": 100 %" in done.err
    assert almoner.type("schedule run").out == "Nothing is due.\n"
    assert almoner.ask("schedule run --slot 2026-11-23", expected=2)["error"] == "ScheduleMissing"
