"""Several processes that draw the texts of one release, each with a model of its own: on a GPU or a share of the cores.

    the run                                            a worker
    corpus, ledger, journal      -- its jobs -->       model, rows, rule
    arms the instalment          <-- may I draw n? --
                                 -- so many are armed -->
    writes the step down         <-- what a step drew --
                                 -- go on -->

Text number i goes to worker i mod N, a public rule. A worker asks before it draws what is not armed yet, and waits
after each step until that step is on disk, so the run's promises hold as they do in one process
(docs/decisions/0026). Whatever happens to a worker ends the attempt; `almoner run` then goes on from what is written
down. When the run dies, its workers notice at their next message and end.
"""

import signal
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import TypeAlias, TypeVar

import torch

from models_db.errors import AlmonerError, EnvironmentProblem
from tasks.failures import TaskFailed
from tasks.generation.decoding import DrawMeter, Job
from tasks.generation.drawing import Drawing, Drawn, draw_some
from tasks.generation.interface import GeneratedText
from tasks.generation.journal import Earlier
from tasks.inference.devices import devices_for, use_threads
from tasks.inference.engine import Engine
from tasks.inference.language_model import LanguageModel
from tasks.inference.memory import memory_budget

Kept = TypeVar("Kept")

# Not fork: neither torch's threads nor CUDA survive it.
_PROCESSES = get_context("spawn")


@dataclass(frozen=True)
class _Share:
    """What one worker draws."""

    drawing: Drawing
    jobs: tuple[Job, ...]
    numbers: range
    earlier: Earlier
    lost: int


@dataclass(frozen=True)
class _Ask:
    """May this draw be made?"""

    draw: int


@dataclass(frozen=True)
class _Step:
    """What a step has drawn."""

    drawn: Drawn


@dataclass(frozen=True)
class _Progress:
    """How many tokens are behind a worker."""

    done: int


@dataclass(frozen=True)
class _Done:
    """All texts of a share."""

    texts: tuple[GeneratedText, ...]


_Message: TypeAlias = _Ask | _Step | _Progress | _Done | AlmonerError


@dataclass(frozen=True)
class Workplace:
    """Where one worker computes.

    Attributes:
        device: `cpu` or `cuda:N`.
        memory: bytes for keys and values. Public: measured before any private text was read, never in the worker,
            which others' rows may have left more or less.
        threads: on a CPU.
    """

    device: str
    memory: int
    threads: int


@dataclass(frozen=True)
class Workers:
    """How many processes draw, and where.

    Attributes:
        load: loads the model on a device, in the worker's process.
        places: one for each worker.
    """

    load: Callable[[str], LanguageModel]
    places: tuple[Workplace, ...]

    @classmethod
    def on(cls, load: Callable[[str], LanguageModel], device: str, count: int) -> "Workers":
        """`count` workers on `device`: with `auto` or `cuda` one GPU after the other, sharing them if they are few.

        Raises:
            UnknownDevice, DeviceMissing, BadMemory, BadThreads.
        """
        devices = devices_for(device, count)
        threads = max(1, use_threads() // count)
        return cls(
            load,
            tuple(Workplace(str(each), memory_budget(each) // devices.count(each), threads) for each in devices),
        )

    def draw(
        self,
        drawing: Drawing,
        jobs: Iterable[Job],
        count: int,
        meter: DrawMeter,
        earlier: Earlier,
        keep: Callable[[Drawn], None],
        progress: Callable[[int], None],
    ) -> list[GeneratedText]:
        """All texts, in the order of their jobs; arguments as `drawing.draw_some`.

        Raises:
            WorkerDied: a process ended without a word.
            AlmonerError: whatever a worker was refused; the others are ended.
        """
        every = [job for job, _ in zip(jobs, range(count), strict=False)]
        places = self.places[:count]
        crew = [_Worker.start(self.load, place, range(first, count, len(places))) for first, place in enumerate(places)]
        try:
            for worker in crew:
                share = [every[number] for number in worker.numbers]
                worker.tell(_Share(drawing, tuple(share), worker.numbers, _part(earlier, worker.numbers), meter.lost))
            _Serving(crew, meter, keep, progress).until_done()
        finally:
            for worker in crew:
                worker.end()
        found = {number: text for worker in crew for number, text in worker.texts.items()}
        return [found[number] for number in range(count)]


@dataclass
class _Worker:
    """One process, seen from the run."""

    process: SpawnProcess
    line: Connection
    numbers: range
    done: int = 0
    texts: dict[int, GeneratedText] = field(default_factory=dict)

    @classmethod
    def start(cls, load: Callable[[str], LanguageModel], place: Workplace, numbers: range) -> "_Worker":
        mine, its = _PROCESSES.Pipe()
        process = _PROCESSES.Process(target=_work, args=(its, load, place), daemon=True)
        process.start()
        its.close()
        return cls(process, mine, numbers)

    def tell(self, what: object) -> None:
        """Send; who has died is noticed when it is listened to."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.line.send(what)

    def hear(self) -> _Message:
        try:
            message: _Message = self.line.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            raise WorkerDied(self.process.exitcode) from None
        return message

    def end(self) -> None:
        self.line.close()
        self.process.terminate()
        self.process.join()


@dataclass
class _Serving:
    """The run's side: one message after the other, until every worker has its texts."""

    crew: list[_Worker]
    meter: DrawMeter
    keep: Callable[[Drawn], None]
    progress: Callable[[int], None]

    def until_done(self) -> None:
        working = {worker.line: worker for worker in self.crew}
        while working:
            for line in wait(list(working)):
                worker = working[line]  # type: ignore[index]  # wait returns what it was given
                if self._serve(worker, worker.hear()):
                    del working[worker.line]

    def _serve(self, worker: _Worker, message: _Message) -> bool:
        """Answer; whether that was the last message."""
        match message:
            case _Ask(draw):
                self.meter.admit(draw)
                worker.tell(self.meter.armed)
            case _Step(drawn):
                self.keep(drawn)
                worker.tell(None)
            case _Progress(done):
                worker.done = done
                self.progress(sum(each.done for each in self.crew))
            case _Done(texts):
                worker.texts = dict(zip(worker.numbers, texts, strict=True))
                return True
            case problem:
                raise problem
        return False


class _AskingMeter:
    """A worker's meter: asks the run for what it does not know to be armed. Implements `decoding.Meter`."""

    def __init__(self, line: Connection, lost: int) -> None:
        self._line, self.lost = line, lost
        self._admitted = -1

    def admit(self, draw: int) -> None:
        """Return when it is armed; if it may not be, the run ends this process instead."""
        if draw > self._admitted:
            self._line.send(_Ask(draw))
            self._line.recv()
            self._admitted = draw


def _work(line: Connection, load: Callable[[str], LanguageModel], place: Workplace) -> None:
    """A worker's whole life. Nothing it prints or raises may quote a text, so it does neither."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the run decides
    try:
        line.send(_Done(tuple(_draw(line, load, place))))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the run is gone
    except AlmonerError as problem:
        _tell_last(line, problem)
    except BaseException as problem:  # noqa: BLE001 - it may quote private text
        _tell_last(line, TaskFailed.of("draw", problem))


def _draw(line: Connection, load: Callable[[str], LanguageModel], place: Workplace) -> list[GeneratedText]:
    share: _Share = line.recv()
    engine = Engine(load(place.device), memory=place.memory)
    torch.set_num_threads(place.threads)

    def keep(drawn: Drawn) -> None:
        line.send(_Step(drawn))
        line.recv()

    meter = _AskingMeter(line, share.lost)
    return draw_some(
        engine,
        share.drawing,
        share.jobs,
        share.numbers,
        meter,
        share.earlier,
        keep,
        lambda done: line.send(_Progress(done)),
    )


def _tell_last(line: Connection, problem: AlmonerError) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):
        line.send(problem)


def _part(earlier: Earlier, numbers: range) -> Earlier:
    def some(of: Mapping[int, Kept]) -> dict[int, Kept]:
        return {number: value for number, value in of.items() if number in numbers}

    return replace(earlier, tokens=some(earlier.tokens), kept=some(earlier.kept))


class WorkerDied(EnvironmentProblem):
    """A worker ended without saying why."""

    def __init__(self, code: int | None) -> None:
        how = f"killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit status {code}"
        super().__init__(
            f"A worker died ({how}). What was drawn until then is kept.",
            "Go on with `almoner run` and fewer --workers; a killed one often means that memory was short.",
            {"exit_code": code},
        )
