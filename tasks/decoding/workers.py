"""Decoding workers of one release, each with its own model on a GPU or a share of the cores.

    the run                                            a worker
                                 <-- I am ready --     model
    sizes, memory                -- may it work? -->
                                 <-- it may --         the device was asked
    corpus, ledger, journal      -- its jobs -->       rows, rule
    arms the instalment          <-- may I draw n? --
                                 -- it is armed -->
    writes the step down         <-- what a step drew --
                                 -- go on -->

The runner decides where workers run (`tasks.workers`): processes, threads, a cluster's workers. Text number i
goes to worker i mod N, a public rule. A worker asks before it draws what is not armed yet, and waits after each step
until that step is on disk, so the run's promises hold as they do in one process (docs/decisions/0059). Whatever
happens to a worker ends the attempt; `almoner run` then goes on from what is written down. When the run dies, its
workers notice at their next message and end.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import torch

from tasks.decoding.generate import decode_some
from tasks.decoding.journal import ResumeState
from tasks.decoding.loop import DecodingSpec, DrawMeter, Drawn, DrawReady, GenerationJob, open_session
from tasks.inference.catalogue.devices import choose_devices, devices_for, use_threads
from tasks.inference.embeddings.parallel import MemoryShare, WorkerEnvironment, WorkerSpec, room_here, settle, shared
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.memory import asked_memory, memory_budget
from tasks.values.results import GeneratedText
from tasks.workers.pool import Channel, Runner, WorkerPool
from tasks.workers.processes import ProcessRunner

Kept = TypeVar("Kept")


@dataclass(frozen=True)
class _Ready:
    """Environment and memory of a worker, sent before it receives its share."""

    kit: WorkerEnvironment
    room: MemoryShare


@dataclass(frozen=True)
class _Share:
    """One worker's share of the texts to draw; it holds no private text."""

    drawing: DecodingSpec
    numbers: range
    earlier: ResumeState
    lost: int
    room: MemoryShare


@dataclass(frozen=True)
class _Open:
    """A report that the device keeps rows apart and has memory, so draws may be paid for."""


@dataclass(frozen=True)
class _Ask:
    """A request for leave to make this draw."""

    draw: int


@dataclass(frozen=True)
class _Step:
    """The tokens that a step has drawn."""

    drawn: Drawn


@dataclass(frozen=True)
class _Progress:
    """The number of tokens that a worker has drawn."""

    done: int


@dataclass(frozen=True)
class Workers:
    """The workers of a release: how many draw, and where.

    Attributes:
        load: loads the model on a device, in the worker.
        places: device and memory of each worker.
        runner: starts them.
    """

    load: Callable[[str], LanguageModel]
    places: tuple[WorkerSpec, ...]
    runner: Runner = field(default_factory=ProcessRunner)

    @classmethod
    def on(
        cls, load: Callable[[str], LanguageModel], device: str, count: int, runner: Runner | None = None
    ) -> "Workers":
        """`count` workers on `device`: with `auto` or `cuda` one GPU after the other, sharing them if they are few.

        A group of devices is divided among them. Of a runner elsewhere each worker looks for `device` where it is: a
        group is the group of each.

        Raises:
            UnknownDevice, DeviceMissing, GroupNotDivisible, BadMemory, BadThreads.
        """
        runner = runner or ProcessRunner()
        if runner.elsewhere:
            return cls(load, (WorkerSpec(device, asked_memory()),) * count, runner)
        devices = devices_for(device, count)
        threads = max(1, use_threads() // count)

        def memory(place: str) -> int | None:
            first, sharers = choose_devices(place)[0], devices.count(place)
            own = first.type == "cuda" and sharers == 1
            return asked_memory() if own else memory_budget(first) // sharers

        return cls(load, tuple(WorkerSpec(place, memory(place), threads) for place in devices), runner)

    @contextmanager
    def ready(
        self, drawing: DecodingSpec, count: int, earlier: ResumeState, lost: int, model: LanguageModel
    ) -> Iterator[DrawReady]:
        """Yield workers whose devices have passed every check of the run; they live as long as the block.

        Args:
            model: the run's own; a worker must have the same.

        Raises:
            WorkerDied: a worker ended without a message.
            WorkerDiffers: one has other code, another library or another model.
            AlmonerError: the refusal that a worker met; the others are ended. Nothing was armed for it.
        """
        places, elsewhere = self.places[:count], self.runner.elsewhere
        numbers = [range(first, count, len(places)) for first in range(len(places))]
        with self.runner.start([partial(_draw, self.load, place, elsewhere) for place in places]) as pool:
            own, hands = kit_of(model, elsewhere), pool.receive_all()
            for worker_ready in hands:
                own.require_same(worker_ready.kit)
            rooms = [worker_ready.room for worker_ready in hands]
            rooms = shared(rooms) if elsewhere else rooms
            for worker, (some, room) in enumerate(zip(numbers, rooms, strict=True)):
                pool.reply(worker, _Share(drawing, some, _restricted_state(earlier, some), lost, room))
            pool.receive_all()
            yield partial(_drawn_by, pool, numbers)


def _drawn_by(
    pool: WorkerPool,
    numbers: Sequence[range],
    jobs: Iterable[GenerationJob],
    meter: DrawMeter,
    keep: Callable[[Drawn], None],
    progress: Callable[[int], None],
) -> list[GeneratedText]:
    """Return all texts, in the order of their jobs."""
    count = sum(map(len, numbers))
    every = [job for job, _ in zip(jobs, range(count), strict=False)]
    for worker, some in enumerate(numbers):
        pool.reply(worker, tuple(every[number] for number in some))
    texts_of_workers = pool.serve(_Serving(meter, keep, progress).answer)
    texts = {
        n: text
        for some, drawn in zip(numbers, texts_of_workers, strict=True)
        for n, text in zip(some, drawn, strict=True)
    }
    return [texts[number] for number in range(count)]


@dataclass
class _Serving:
    """The run's answers to requests of workers while they draw."""

    meter: DrawMeter
    keep: Callable[[Drawn], None]
    progress: Callable[[int], None]
    done: dict[int, int] = field(default_factory=dict)

    def answer(self, worker: int, request: object) -> None:
        """Return when the draw is armed, or the step is written down."""
        match request:
            case _Ask(draw):
                self.meter.admit(draw)
            case _Step(drawn):
                self.keep(drawn)
            case _Progress(done):
                self.done[worker] = done
                self.progress(sum(self.done.values()))
            case other:
                raise TypeError(f"a worker that draws says nothing like {type(other).__name__}")


class _AskingMeter:
    """A worker's meter, which asks the run for draws not known to be armed. Implements `loop.BudgetMeter`."""

    def __init__(self, line: Channel, lost: int) -> None:
        self._line, self.lost = line, lost
        self._admitted = -1

    def admit(self, draw: int) -> None:
        """Return when the draw is armed; a refused draw gets no reply."""
        if draw > self._admitted:
            self._line.request(_Ask(draw))
            self._admitted = draw


def _draw(
    load: Callable[[str], LanguageModel], place: WorkerSpec, elsewhere: bool, line: Channel
) -> list[GeneratedText]:
    """Draw the texts of one worker's share, in the worker."""
    device = settle(place.device, place.threads, elsewhere)
    model = load(device)
    room = room_here(model.layer_devices or (model.device,), place.memory, place.threads)
    share: _Share = line.request(_Ready(kit_of(model, elsewhere), room))
    torch.set_num_threads(share.room.threads)
    engine = Engine(model, memory=share.room.memory)
    count, sizes = len(share.numbers), share.drawing.sizes
    session = open_session(engine, count, sizes, share.earlier.tokens, share.lost, share.drawing.constraint)
    jobs: tuple[GenerationJob, ...] = line.request(_Open())
    return decode_some(
        engine,
        session,
        share.drawing,
        jobs,
        share.numbers,
        _AskingMeter(line, share.lost),
        share.earlier,
        lambda drawn: line.request(_Step(drawn)),
        lambda done: line.request(_Progress(done)),
    )


def kit_of(model: LanguageModel, elsewhere: bool) -> WorkerEnvironment:
    """Return the environment of a process that has loaded this model."""
    return WorkerEnvironment.of_process((model.digest, model.precision), str(model.device), elsewhere)


def _restricted_state(earlier: ResumeState, numbers: range) -> ResumeState:
    def some(of: Mapping[int, Kept]) -> dict[int, Kept]:
        return {number: value for number, value in of.items() if number in numbers}

    return replace(earlier, tokens=some(earlier.tokens), kept=some(earlier.kept))
