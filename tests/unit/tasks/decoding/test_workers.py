"""Texts drawn by several processes: same texts, same budget, same journal; and what happens when one fails."""

import os
import signal
import time
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from models_db.errors import Refused
from tasks.common.faults import TaskFailed
from tasks.corpus.store import Corpus
from tasks.decoding.journal import ResumeState
from tasks.decoding.run_context import RunContext
from tasks.decoding.workers import Workers
from tasks.inference.embeddings.parallel import WorkerSpec
from tasks.inference.engine.language_model import LanguageModel
from tasks.planning import shared_parameters
from tasks.systems.baselines import PublicOnly
from tasks.systems.invisible_ink import InvisibleInk
from tasks.systems.private_prediction import PrivatePrediction
from tasks.values.results import Generated
from tasks.workers.pool import WorkerDied
from tasks.workers.processes import ThreadRunner
from tests.refusals import refusal
from tests.support import PATIENCE
from tests.tiny_model import load_tiny
from tests.unit.tasks.systems.asking import ask, ink
from tests.unit.tasks.systems.private_decoding.test_baselines import baseline
from tests.unit.tasks.systems.workshop import NoCorpus, Workshop
from tests.watched_journal import WatchedJournal

CONCERNS = ("tasks/decoding", "tasks/workers")

pytestmark = pytest.mark.dear

PLACE = WorkerSpec("cpu", 2**26, 1)
TWO = Workers(partial(load_tiny, "tiny"), (PLACE, PLACE))


def killed(device: str) -> LanguageModel:
    """A worker that the system kills for want of memory, say."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def clumsy(device: str) -> LanguageModel:
    raise ValueError("Mrs. Smith, of all people")


def refused(device: str) -> LanguageModel:
    raise OnlyHere("nobody", 7)


class OnlyHere(Refused):
    """An error with arguments of its own."""

    def __init__(self, who: str, number: int) -> None:
        super().__init__(f"{who} may load it.", "Ask.", {"number": number})


@dataclass
class Desk:
    """A context that two processes draw for, and what it was told."""

    corpus: Any
    workers: Workers | None = TWO
    armed: list[int] = field(default_factory=list)
    steps: list[dict[int, list[float]]] = field(default_factory=list)
    done: list[int] = field(default_factory=list)

    def context(self, **changes: Any) -> RunContext:
        """Everything that happens is written down."""
        return replace(
            Workshop(self.corpus).context(arm=self._arm),
            workers=self.workers,
            journal=WatchedJournal(step=self._drawn),
            progress=lambda what, done, total: self.done.append(done),
            **changes,
        )

    def tokens(self) -> dict[int, list[int]]:
        """What was written down of each text."""
        found: dict[int, list[int]] = {}
        for step in self.steps:
            for number, (token, *_) in step.items():
                found.setdefault(number, []).append(int(token))
        return found

    def _arm(self, sequence: int, instalment: int) -> None:
        self.armed.append(instalment)

    def _drawn(self, armed: int, drawn: Any) -> None:
        assert armed == len(set(self.armed))
        self.steps.append({number: list(values) for number, values in drawn.items()})


def made(system: Any, wanted: Any, context: RunContext, **facts: Any) -> Generated:
    found: Generated = system.generate(system.plan(ask(wanted, **facts)), wanted, context)
    return found


# --- the same texts -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_draw_what_one_draws() -> None:
    """At this temperature the likeliest token is the only one, whoever draws it."""
    wanted = baseline(samples=5, temperature="0.002", top_k=2)
    alone = _public(wanted, None)
    together = _public(wanted, TWO)
    assert [text.text for text in together.texts] == [text.text for text in alone.texts]


def _public(wanted: Any, workers: Workers | None) -> Generated:
    system = PublicOnly()
    return system.generate(system.plan(ask(wanted, None)), wanted, Desk(NoCorpus(), workers).context())


@pytest.mark.slow
def test_every_instalment_is_armed_once_and_every_draw_written_down(corpus: Corpus) -> None:
    desk, wanted = Desk(corpus), ink(samples=5, batches=5, instalment=3, max_new_tokens=8)
    texts = made(InvisibleInk(), wanted, desk.context()).texts
    assert desk.armed == [0, 1, 2]
    assert {number: len(tokens) for number, tokens in desk.tokens().items()} == dict.fromkeys(range(5), 8)
    assert [text.tokens for text in texts] == [8] * 5
    assert all(len({number % 2 for number in step}) == 1 for step in desk.steps)  # two workers, each with its own
    assert desk.done == sorted(desk.done)
    assert desk.done[-1] == 5 * 8
    assert active_children() == []


@pytest.mark.slow
def test_what_is_drawn_already_goes_to_the_worker_that_goes_on(corpus: Corpus) -> None:
    wanted, first = ink(samples=3, batches=3, instalment=3, max_new_tokens=6), Desk(corpus)
    made(InvisibleInk(), wanted, first.context())
    left = {number: tokens[: 3 - number] for number, tokens in first.tokens().items()}
    kept = {number: first.steps[-1].get(number, [0, 3, 9, 0])[1:] for number in left}
    desk = Desk(corpus, armed=[0])
    earlier = ResumeState({"batches_per_block": "3"}, left, kept, armed=1, lost=1)
    texts = made(InvisibleInk(), wanted, desk.context(earlier=earlier)).texts
    assert [text.tokens for text in texts] == [5, 5, 5]  # one draw of each is lost
    assert {number: len(tokens) for number, tokens in desk.tokens().items()} == {0: 2, 1: 3, 2: 4}
    assert desk.armed == [0, 1]  # the sixth draw of a text is in the second instalment


@pytest.mark.slow
def test_workers_complete_sentences_and_go_on_with_the_count(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte of random text ends a sentence now and then; most texts get all of their 5 public tokens."""
    monkeypatch.setattr(shared_parameters, "COMPLETION_TOKENS", 5)
    wanted, whole = ink(samples=4, batches=4, max_new_tokens=6, instalment=3), Desk(corpus)
    texts = made(InvisibleInk(), wanted, whole.context()).texts
    assert all(text.tokens - text.facts["completion_tokens"] == 6 for text in texts)
    assert sum(text.facts["completion_tokens"] for text in texts) > 5
    assert whole.armed == [0, 1]
    going = [n for n, text in enumerate(texts) if text.facts["completion_tokens"] > 1]
    first = {number: [step[number] for step in whole.steps if number in step][:7] for number in range(4)}
    half = {number: [int(token) for token, *_ in steps] for number, steps in first.items()}
    kept = {number: steps[-1][1:] for number, steps in first.items()}
    assert [kept[number][0] for number in going] == [1] * len(going)
    desk = Desk(corpus, armed=[0, 1])
    earlier = ResumeState({"batches_per_block": "4"}, half, kept, armed=2, lost=1)
    rest = made(InvisibleInk(), wanted, desk.context(earlier=earlier)).texts
    assert all(rest[number].facts["draws"] == 6 for number in range(4))
    assert all(rest[number].tokens - rest[number].facts["completion_tokens"] == 6 for number in range(4))
    assert desk.armed == [0, 1]


@pytest.mark.slow
def test_both_mechanisms_of_private_prediction_are_armed_before_a_worker_tests(corpus: Corpus) -> None:
    wanted = PrivatePrediction.parameters.model_validate(
        {"samples": 4, "references": 2, "max_new_tokens": 6, "temperature": "1", "private_tokens": 2, "batches": 4}
    )
    desk = Desk(corpus)
    texts = made(PrivatePrediction(), wanted, desk.context()).texts
    assert len(texts) == 4
    assert desk.armed == [0, 0]


# --- what goes wrong -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("load", "error", "words"),
    [
        pytest.param(killed, WorkerDied, "SIGKILL", marks=pytest.mark.slow),
        (clumsy, TaskFailed, "ValueError"),
        pytest.param(refused, OnlyHere, "nobody may load it", marks=pytest.mark.slow),
    ],
)
def test_a_worker_that_fails_ends_the_others(corpus: Corpus, load: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words) as told:
        made(InvisibleInk(), ink(samples=3, batches=3), Desk(corpus, Workers(load, (PLACE,))).context())
    assert "Smith" not in told.value.diagnostics()
    assert told.value.facts
    assert active_children() == []


@pytest.mark.slow
def test_a_refused_instalment_ends_the_workers(corpus: Corpus) -> None:
    desk = Desk(corpus)

    def arm(sequence: int, instalment: int) -> None:
        if instalment == 1:
            raise PermissionError
        desk.armed.append(instalment)

    context = replace(desk.context(), arm=arm)
    with pytest.raises(PermissionError):
        made(InvisibleInk(), ink(samples=3, batches=3, instalment=3), context)
    assert max(map(len, desk.tokens().values())) == 3  # nobody has drawn what was not armed
    assert active_children() == []


@pytest.mark.slow
def test_workers_end_when_they_can_not_tell_the_run_any_more(tmp_path: Path) -> None:
    """They end at their next message at the latest: here the one that says that the model cannot be loaded."""
    run = get_context("spawn").Process(target=_run, args=(tmp_path,))
    run.start()
    assert run.pid is not None
    while not (crew := psutil.Process(run.pid).children()) or not (tmp_path / "loading").exists():
        assert run.is_alive()
        time.sleep(0.05)
    run.kill()
    run.join()
    (tmp_path / "go").touch()
    _, alive = psutil.wait_procs(crew, timeout=PATIENCE)
    assert alive == []


def waiting(folder: Path, device: str) -> LanguageModel:
    (folder / "loading").touch()
    while not (folder / "go").exists():
        time.sleep(0.02)
    return load_tiny("tiny", device)


def _run(folder: Path) -> None:
    """A run that is going to be killed."""
    system = PublicOnly()
    context = Desk(NoCorpus(), Workers(partial(waiting, folder), (PLACE, PLACE))).context()
    system.generate(system.plan(ask(baseline(), None)), baseline(), context)


# --- where they compute ----------------------------------------------------------------------------------------


def test_workers_on_one_device_share_its_memory_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALMONER_MEMORY", str(3 * 2**20))
    monkeypatch.setenv("ALMONER_THREADS", "6")
    before = torch.get_num_threads()
    try:
        crew = Workers.on(partial(load_tiny, "tiny"), "cpu", 3)
    finally:
        torch.set_num_threads(before)
    assert crew.places == (WorkerSpec("cpu", 2**20, 2),) * 3


def test_workers_are_dealt_out_to_all_accelerators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**33, 2**34))
    found = [(place.device, place.memory) for place in Workers.on(partial(load_tiny, "tiny"), "auto", 3).places]
    assert found == [("cuda:0", 3 * 2**30), ("cuda:1", None), ("cuda:0", 3 * 2**30)]  # None: it measures its own device
    monkeypatch.setenv("ALMONER_MEMORY", "1000")
    found = [(place.device, place.memory) for place in Workers.on(partial(load_tiny, "tiny"), "auto", 2).places]
    assert found == [("cuda:0", 1000), ("cuda:1", 1000)]
    assert [place.device for place in Workers.on(partial(load_tiny, "tiny"), "cuda:1", 2).places] == ["cuda:1"] * 2


def test_a_group_of_devices_is_divided_among_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALMONER_MEMORY", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    places = Workers.on(partial(load_tiny, "tiny"), "cuda:0-7", 2).places
    assert [(place.device, place.memory) for place in places] == [("cuda:0-3", None), ("cuda:4-7", None)]
    for count in (3, 16):
        with refusal("GroupNotDivisible", match=f"among {count} workers"):
            Workers.on(partial(load_tiny, "tiny"), "cuda:0-7", count)
    elsewhere = ThreadRunner()
    elsewhere.elsewhere = True
    places = Workers.on(partial(load_tiny, "tiny"), "cuda:0-3", 2, elsewhere).places
    assert [place.device for place in places] == ["cuda:0-3", "cuda:0-3"]  # each worker's own, on its machine


@pytest.mark.slow
def test_there_is_no_worker_without_a_text(corpus: Corpus) -> None:
    assert len(made(InvisibleInk(), ink(samples=1, batches=1), Desk(corpus).context()).texts) == 1
