"""Memory runs out in the middle: the attempt ends, nothing is drawn twice, and the next one has fewer places."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

from tasks.decoding.loop import DrawMeter, GenerationJob, Step, decode, open_session
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.language_model import KeyValueCache
from tasks.inference.engine.memory import MemoryRanOut, is_out_of_memory, memory_budget
from tasks.inference.engine.shapes import Sizes
from tasks.inference.prompt_rendering import PromptPieces
from tasks.values.results import GeneratedText
from tests.refusals import refusal
from tests.tiny_model import tiny_model

CONCERNS = ("tasks/decoding", "tasks/systems", "tasks/inference/engine")

pytestmark = pytest.mark.dear

PUBLIC = PromptPieces((10, 11), (12,))
PRIVATE = PromptPieces((10, 11, 13), (14,))
SECRET = 77
STEPS = 5
ERRORS: dict[str, Callable[[], BaseException]] = {
    "accelerator": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    "processor": lambda: RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to"),
    "Python": MemoryError,
}


@dataclass
class Failing:
    """The tiny model's layers; a pass that `when` (number of the pass, its rows) names fails for want of memory.

    Passes count from the first draw on: the session is open by then.
    """

    when: Callable[[int, int], bool]
    error: Callable[[], BaseException] = MemoryError
    passes: int = 0
    at_work: bool = False
    private: Callable[[], None] = lambda: None

    def __call__(self, **inputs: Any) -> Any:
        if self.at_work and (inputs["input_ids"] == SECRET).any():
            self.private()
        self.passes += self.at_work
        if self.at_work and self.when(self.passes, len(inputs["input_ids"])):
            raise self.error()
        return tiny_model().decoder(**inputs)


@dataclass
class Likeliest:
    """Draws the likeliest token under the sum of the rows; admits like InvisibleInk; notes every draw."""

    meter: DrawMeter
    draws: list[tuple[int, int]] = field(default_factory=list)
    reading: bool = False

    def next_tokens(self, step: Step) -> list[int]:
        self.meter.admit(max(step.positions))
        self.reading = True
        rows = step.private(None)
        self.reading = False
        sums = step.public.index_add(0, rows.generation, rows.values)
        self.draws += zip(step.numbers, step.positions, strict=True)
        return [int(token) for token in sums.argmax(1)]

    def facts(self, number: int) -> Mapping[str, float]:
        return {}


@dataclass
class Attempt:
    """What one attempt was given, and what it leaves."""

    layers: Any
    earlier: Mapping[int, list[int]] = field(default_factory=dict)
    interruptions: int = 0
    count: int = 6
    chunk_rows: int | None = 4
    memory: int = 2**30
    kind: type[Likeliest] = Likeliest
    places: int = 0

    def run(self) -> list[GeneratedText]:
        """Each generation has one to four rows."""
        self.armed: list[int] = []
        self.kept = {number: list(tokens) for number, tokens in self.earlier.items()}
        self.rule = self.kind(DrawMeter(2, STEPS, self.armed.append))
        if isinstance(self.layers, Failing):
            unpaid = "private text was read outside a paid step"
            self.layers.private = lambda: None if self.rule.reading else pytest.fail(unpaid)
        texts = [tuple((SECRET, 20 + n, 30 + row) for row in range(1 + n % 4)) for n in range(self.count)]
        sizes = Sizes.of([PUBLIC], [PRIVATE], 4, STEPS, references=2)
        engine = Engine(replace(tiny_model(), decoder=self.layers, stop_tokens=()), self.chunk_rows, self.memory)
        session = open_session(engine, self.count, sizes, self.earlier, self.interruptions)
        self.places = session.places
        if isinstance(self.layers, Failing):
            self.layers.at_work = True
        jobs = [GenerationJob(PUBLIC, PRIVATE, rows) for rows in texts]
        return decode(
            engine, jobs, self.count, sizes, self.rule, earlier=self.earlier, on_tokens=self._keep, session=session
        )

    def _keep(self, tokens: Mapping[int, int]) -> None:
        for number, token in tokens.items():
            self.kept.setdefault(number, []).append(token)


EVERY = sorted((number, position) for number in range(6) for position in range(STEPS))


@pytest.mark.slow
def test_wherever_memory_runs_out_the_attempt_ends_and_the_next_goes_on() -> None:
    smooth = Failing(lambda number, rows: False)
    whole = Attempt(smooth)
    expected = whole.run()
    names = list(ERRORS)
    for fails in range(1, smooth.passes + 1, 3):
        first = Attempt(Failing(lambda number, rows, fails=fails: number == fails, ERRORS[names[fails % 3]]))
        with pytest.raises(MemoryRanOut) as ended:
            first.run()
        assert (ended.value.exit_code, ended.value.__cause__) == (3, None)
        assert "Run it again" in ended.value.advice
        drawn = [(number, position) for number, tokens in first.kept.items() for position in range(len(tokens))]
        assert sorted(first.rule.draws) == sorted(drawn), "what was drawn is kept"
        second = Attempt(tiny_model().decoder, first.kept, interruptions=1)
        assert second.run() == expected
        assert second.places == first.places // 2
        assert sorted(first.rule.draws + second.rule.draws) == EVERY, "and nothing is drawn twice"


def test_nothing_but_the_number_of_attempts_says_how_many_go_on() -> None:
    """The next attempt is the same whenever, and by whatever, the ones before it ended."""
    places = set()
    for drawn in range(STEPS):
        attempt = Attempt(tiny_model().decoder, {n: [20] * drawn for n in range(6)}, interruptions=1)
        attempt.run()
        places.add(attempt.places)
    assert places == {3}
    for interruptions, expected in ((0, 6), (2, 1), (9, 1)):
        attempt = Attempt(tiny_model().decoder, interruptions=interruptions)
        attempt.run()
        assert attempt.places == expected


def test_with_one_place_a_pass_is_halved() -> None:
    sizes = Sizes.of([PUBLIC], [PRIVATE], 4, STEPS, references=20)
    engine = Engine(tiny_model(), memory=2**30)
    assert [engine.session(sizes, 1, (), number)._per_chunk for number in range(4)] == [24, 12, 4, 4]


def test_without_memory_for_one_generation_nothing_begins() -> None:
    @dataclass
    class NoMemory:
        def __call__(self, **inputs: Any) -> Any:
            raise MemoryError

    attempt = Attempt(NoMemory())
    with refusal("NotEnoughMemory") as refused:
        attempt.run()
    assert refused.value.exit_code == 3
    assert "references" in refused.value.advice
    assert attempt.armed == []


def test_what_memory_lacks_before_anything_is_read_takes_places() -> None:
    expected = Attempt(tiny_model().decoder).run()
    honest = KeyValueCache.allocate

    def scarce(model: Any, rows: int, columns: int, **options: Any) -> KeyValueCache:
        if rows in (3, 6):
            raise MemoryError
        return honest(model, rows, columns, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KeyValueCache, "allocate", scarce)
        attempt = Attempt(tiny_model().decoder)
        assert attempt.run() == expected
    assert attempt.places == 1


def test_other_errors_are_not_taken_for_a_lack_of_memory() -> None:
    with pytest.raises(RuntimeError, match="shape"):
        Attempt(Failing(lambda number, rows: number == 3, lambda: RuntimeError("bad shape"))).run()
    assert not is_out_of_memory(ValueError("out of memory"))


def test_a_rule_that_fails_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have drawn already: only what the engine computes is tried again."""
    asked: list[int] = []

    def fail(self: Likeliest, step: Step) -> list[int]:
        asked.append(len(asked))
        raise MemoryError

    monkeypatch.setattr(Likeliest, "next_tokens", fail)
    with pytest.raises(MemoryError):
        Attempt(tiny_model().decoder).run()
    assert asked == [0]


def test_the_budget_is_a_setting_or_half_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    monkeypatch.delenv("ALMONER_MEMORY", raising=False)
    monkeypatch.setattr("tasks.inference.engine.memory.free_memory", lambda device: 2 * 2**30)
    assert memory_budget(cpu) == 2**30
    monkeypatch.setattr("tasks.inference.engine.memory.free_memory", lambda device: 2**40)
    assert memory_budget(cpu) == 4 * 2**30
    monkeypatch.setenv("ALMONER_MEMORY", "1000000")
    assert memory_budget(cpu) == 1_000_000
    for bad in ("0", "-1", "4G", "1.5"):
        monkeypatch.setenv("ALMONER_MEMORY", bad)
        with refusal("BadMemory"):
            memory_budget(cpu)


def test_a_small_budget_decodes_few_generations_at_a_time() -> None:
    expected = Attempt(tiny_model().decoder).run()
    attempt = Attempt(tiny_model().decoder, memory=1)
    assert attempt.run() == expected
    assert attempt.places == 1
    assert attempt.rule.draws == [(number, position) for number in range(6) for position in range(STEPS)]
    assert attempt.armed == [0, 1, 2]
