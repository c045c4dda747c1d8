"""However a run ends, its attempt is closed, under a name and never under a text."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

import flows.releases.execute
from flows.releases.attempt import RunInterrupted, RunningAttempt, close_attempt_on_error
from flows.releases.resume import ResumePoint
from flows.workspace.workspace import Workspace
from models_db.errors import Refused
from models_db.services.budget import Attempt, AttemptClosed
from tasks.corpus.partition import BatchSplit, PartitionScheme
from tasks.decoding.journal import Journal, ResumeState
from tasks.pricing.quote import Quote


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


KEY = bytes(range(32))


def split(digest: str, number: int, goes_on_from: int | None = None) -> BatchSplit:
    """The split of an attempt at a request whose requester wrote the nonce "n"."""
    point = None if goes_on_from is None else ResumePoint(goes_on_from, number - 1, (), KEY, ResumeState(), 0)
    attempt = Attempt(7, number, "clinic", 1, (0,))
    unused = cast(Workspace, None), cast(Quote, None), cast(PartitionScheme, None), cast(Journal, None)
    workspace, quote, scheme, journal = unused
    return RunningAttempt(workspace, digest, attempt, "", quote, {"nonce": "n"}, scheme, journal, point, KEY).split


def test_each_split_has_a_name_of_its_own_whatever_nonces_requesters_write() -> None:
    splits = [split("a" * 64, 1), split("a" * 64, 2), split("b" * 64, 1), split("b" * 64, 11)]
    assert len({each.name for each in splits}) == 4


def test_an_attempt_that_goes_on_keeps_the_split() -> None:
    assert split("a" * 64, 3, goes_on_from=1) == split("a" * 64, 1)
    assert split("a" * 64, 3, goes_on_from=1) != split("a" * 64, 3)


def test_the_corpus_is_split_by_the_split_of_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever reads units has the attempt's own split, and no other."""
    parts = ("external_backend", "require_tools", "load_values", "_open_corpus", "heartbeat")
    for part in parts:
        monkeypatch.setattr(flows.releases.execute, part, lambda *args, **named: "outside")
    splits = [split("a" * 64, number) for number in (1, 2)]
    request = SimpleNamespace(model="m", evaluation_embedder="e")
    quote = SimpleNamespace(request=request, parameters=SimpleNamespace(), metrics=(), prompt=None)
    unused = dict.fromkeys(("scheme", "arm", "resume_state", "journal", "steps", "body"))
    workspace = SimpleNamespace(home=SimpleNamespace(derived=None))
    monkeypatch.setattr(flows.releases.execute, "precision_of", lambda parameters: "float32")
    for own in splits:
        run: Any = SimpleNamespace(quote=quote, workspace=workspace, split=own, **unused)
        assert flows.releases.execute.prepare_context(run, "cpu", 1).split == own
