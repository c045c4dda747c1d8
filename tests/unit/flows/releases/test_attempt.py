"""However a run ends, its attempt is closed, under a name and never under a text."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from flows.releases.attempt import RunInterrupted, close_attempt_on_error
from models_db.errors import Refused
from models_db.services.lifecycle.ledger import AttemptClosed


@dataclass
class FakeRun:
    """An attempt that writes down why it was abandoned."""

    request_id: int = 7
    reasons: list[str] = field(default_factory=list)
    fenced: bool = False

    def abandon(self, reason: str) -> None:
        if self.fenced:
            raise AttemptClosed
        self.reasons.append(reason)


def ended(run: Any, error: BaseException | None) -> None:
    with close_attempt_on_error(run):
        if error is not None:
            raise error


def test_a_run_that_finishes_is_not_abandoned() -> None:
    run = FakeRun()
    ended(run, None)
    assert run.reasons == []


@pytest.mark.parametrize(
    ("error", "reason"), [(Refused("A rule said no."), "Refused"), (MemoryError("private"), "MemoryError")]
)
def test_a_failed_run_is_abandoned_under_the_name_of_its_error(error: BaseException, reason: str) -> None:
    run = FakeRun()
    with pytest.raises(type(error)) as raised:
        ended(run, error)
    assert raised.value is error
    assert run.reasons == [reason]


def test_ctrl_c_is_told_as_what_it_means_for_the_budget() -> None:
    run = FakeRun()
    with pytest.raises(RunInterrupted, match="armed amounts stay spent") as interrupted:
        ended(run, KeyboardInterrupt())
    assert run.reasons == ["Interrupted"]
    assert "almoner run 7" in interrupted.value.advice
    assert interrupted.value.__suppress_context__


def test_a_fenced_run_closes_nothing() -> None:
    run = FakeRun()
    with pytest.raises(AttemptClosed):
        ended(run, AttemptClosed())
    assert run.reasons == []


@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt(), Refused("No.")])
def test_a_run_that_fails_after_it_was_swept_says_that_it_was_swept(error: BaseException) -> None:
    with pytest.raises(AttemptClosed):
        ended(FakeRun(fenced=True), error)
