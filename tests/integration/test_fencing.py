"""A run that was swept away while it worked gets no further, whatever it tries and whoever works meanwhile."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import flows.releases.attempt
import flows.releases.execute
import flows.releases.resume
from models_db.values.amounts import Amount, total_amount
from tasks.common.faults import waiting_with
from tasks.decoding.sampling_rule import InvisibleInkRule
from tasks.evaluation.registry import METRICS
from tests.faults import Failing, temporary
from tests.integration.killing import balance, instalments, is_clean, killed, ledger
from tests.integration.story import Almoner
from tests.support import substitute

pytestmark = pytest.mark.contract

CONCERNS = ("flows/releases", "models_db/services")

Act = Callable[[], None]


@pytest.fixture
def when(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str, int, Act], None]:
    """Has something done, once, before a certain call of a function."""

    def plant(room: Any, name: str, number: int, act: Act) -> None:
        real, calls = getattr(room, name), 0

        def watched(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                act()
            return real(*args, **kwargs)

        monkeypatch.setattr(room, name, watched)

    return plant


def sweep_the_living(almoner: Almoner) -> None:
    """Another machine believes that this process is gone."""
    with pytest.MonkeyPatch.context() as elsewhere:
        elsewhere.setattr(flows.releases.resume, "is_dead", lambda lease: True)
        assert almoner.ask("run sweep")["requests"] == [1]


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_swept_run_arms_nothing_more(any_almoner: Almoner, when: Any) -> None:
    almoner = any_almoner
    almoner.approved()
    plan = instalments(almoner)
    when(InvisibleInkRule, "next_tokens", 3, lambda: sweep_the_living(almoner))
    assert almoner.ask("run 1", expected=1)["error"] == "AttemptClosed"
    assert balance(almoner).spent == total_amount(plan[:2])
    assert almoner.state() == "approved"
    is_clean(almoner, left=True)
    almoner.type("run 1")
    assert balance(almoner).spent == total_amount(plan)


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_what_a_swept_run_has_made_is_not_taken(any_almoner: Almoner, when: Any) -> None:
    almoner = any_almoner
    almoner.approved()
    when(flows.releases.execute, "write_draft", 1, lambda: sweep_the_living(almoner))
    assert almoner.ask("run 1", expected=1)["error"] == "AttemptClosed"
    assert ledger(almoner).artifacts() == 0
    assert sorted(folder.name for folder in almoner.home.quarantine.iterdir()) == ["1-1", "1-unfinished"]
    assert almoner.ask("run sweep") == {"requests": [], "folders_removed": 1}
    is_clean(almoner, left=True)
    assert balance(almoner).spent == total_amount(instalments(almoner))


@pytest.mark.slow_except("when done")
@pytest.mark.parametrize("late", ["while generating", "when done"])
def test_a_swept_run_does_not_touch_the_one_that_came_after(almoner: Almoner, when: Any, late: str) -> None:
    almoner.approved()
    plan = instalments(almoner)
    produced: dict[str, Any] = {}

    def another() -> None:
        sweep_the_living(almoner)
        assert almoner.ask("run 1", expected=1)["error"] == "JournalInUse"  # what is paid has one user
        produced.update(almoner.ask("run 1 --anew"))

    if late == "while generating":
        when(InvisibleInkRule, "next_tokens", 3, another)
    else:
        when(flows.releases.execute, "write_draft", 1, another)
    assert almoner.ask("run 1", expected=1)["error"] == "AttemptClosed"
    assert produced["state"] == almoner.state() == "produced"
    wasted = total_amount(plan[:2] if late == "while generating" else plan)
    assert balance(almoner).spent == wasted + total_amount(plan)
    assert balance(almoner).held == Amount()
    almoner.ask("run sweep")
    assert [folder.name for folder in almoner.home.quarantine.iterdir()] == ["1-2"]
    almoner.go_on_to("published", after="produced")
    almoner.type(f"verify-release {almoner.bundle}")
    assert almoner.ask("doctor")["ok"] is True


@pytest.mark.slow_except("failure0")
@pytest.mark.parametrize("failure", [MemoryError("private"), KeyboardInterrupt()])
def test_a_swept_run_that_fails_does_not_end_the_one_that_came_after(
    almoner: Almoner, when: Any, failure: BaseException
) -> None:
    almoner.approved()

    def fail_late() -> None:
        sweep_the_living(almoner)
        almoner.ask("run 1 --anew")
        raise failure

    when(InvisibleInkRule, "next_tokens", 3, fail_late)
    assert almoner.ask("run 1", expected=1)["error"] == "AttemptClosed"
    assert almoner.state() == "produced"
    assert almoner.ask("doctor")["ok"] is True


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_run_that_arms_nothing_more_renews_its_lease_when_it_reports(
    any_almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts of released values are written when all is armed: other machines see of such a run its lease alone."""
    almoner = any_almoner
    monkeypatch.setattr(flows.releases.attempt, "HEARTBEAT_SECONDS", 0.0)
    expiries: list[str] = []

    def written(*given: Any) -> None:
        for done in range(2):
            expiries.extend(ledger(almoner).leases_end())
            context.progress("texts", done, 2)
        expiries.extend(ledger(almoner).leases_end())
        monkeypatch.setattr(flows.releases.attempt, "HEARTBEAT_SECONDS", 3600.0)
        context.progress("texts", 2, 2)
        expiries.extend(ledger(almoner).leases_end())
        ledger(almoner).take_over()
        monkeypatch.setattr(flows.releases.attempt, "HEARTBEAT_SECONDS", 0.0)
        context.progress("texts", 2, 2)
        raise AssertionError("the run goes on")

    context: Any = None
    made = flows.releases.execute.prepare_context

    def prepared(*given: Any) -> Any:
        nonlocal context
        context = made(*given)
        return context

    monkeypatch.setattr(flows.releases.execute, "prepare_context", prepared)
    monkeypatch.setattr(flows.releases.execute, "generate_texts", written)
    almoner.approved()
    assert almoner.ask("run 1", expected=1)["error"] == "AttemptClosed"
    first, second, third, fourth = expiries
    assert first < second < third == fourth


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_run_that_waits_before_a_retry_renews_its_lease_and_ends_if_another_has_it(
    any_almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner = any_almoner
    almoner.approved()
    plan = instalments(almoner)
    compute = Failing(METRICS["length"].compute, *(temporary() for _ in range(3)))
    substitute(monkeypatch, METRICS, "length", replace(METRICS["length"], compute=compute))
    expiries: list[str] = []

    def wait(seconds: float) -> None:
        expiries.extend(ledger(almoner).leases_end())
        if len(expiries) == 2:
            ledger(almoner).take_over()

    with waiting_with(lambda _: wait):
        assert almoner.ask("run 1", expected=1)["error"] == "AttemptClosed"
    first, second = expiries
    assert first < second
    assert compute.calls == 2
    assert balance(almoner).spent == total_amount(plan)


def test_every_armed_instalment_renews_the_lease(almoner: Almoner, when: Any) -> None:
    almoner.approved()
    expiries: list[str] = []

    def look() -> None:
        expiries.extend(ledger(almoner).leases_end())

    for draw in (1, 5, 6, 10):  # before the draw; the fifth and the ninth arm
        when(InvisibleInkRule, "next_tokens", draw, look)
    almoner.type("run 1")
    first, same, second, third = expiries
    assert first == same < second < third


def test_two_sweeps_at_once_both_end_well(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second finds the attempt closed between its look and its deed."""
    almoner.approved()
    killed("run 1", "mid generation")
    plan = instalments(almoner)
    is_dead = flows.releases.resume.is_dead
    seen: list[object] = []

    def another_is_faster(lease: Any) -> bool:
        found = is_dead(lease)
        if not seen:
            seen.append(lease)
            assert almoner.ask("run sweep")["requests"] == [1]
        return found

    monkeypatch.setattr(flows.releases.resume, "is_dead", another_is_faster)
    assert almoner.ask("run sweep") == {"requests": [], "folders_removed": 0}
    assert balance(almoner).spent == total_amount(plan[:3])
    is_clean(almoner, left=True)
