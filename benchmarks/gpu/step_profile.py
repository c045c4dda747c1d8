"""Section `split`: where a step's time goes, and what is launched in it."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Final

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu import networks
from benchmarks.gpu.decoding_plan import Plan
from benchmarks.gpu.networks import LLAMA_1B, LLAMA_8B, memory_returned
from benchmarks.gpu.section import Bench
from benchmarks.gpu.speed import SMALL, EnoughSteps, Steps, rule_for
from benchmarks.inference.decoding import Stopwatch, Watched, Work
from tasks.decoding.loop import decode
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.shapes import generations_at_once
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.tokens.integer_table import IntegerTableMechanism

PROFILED: Final = 3
"""Steps under the profiler."""
BEFORE: Final = 4
"""Steps before: prompts are read in the first, and passes are recorded in the third at the latest."""
GENERATIONS: Final = 32
LAUNCHES: Final = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx")
READS: Final = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")


def measure(bench: Bench) -> None:
    """A small and a large model at 7 references: shares of a step, and the kernels."""
    for name in (LLAMA_1B,) if bench.small else (LLAMA_1B, LLAMA_8B):
        plan = SMALL if bench.small else Plan(name, (7,), seconds=3.0, most=GENERATIONS)
        with memory_returned():
            model = networks.random_model(name, bench.device, plan.precision, small=bench.small)
            bench.row(f"{name}, shares", partial(shares, bench, plan, model))
            bench.row(f"{name}, launches", partial(launches, bench, plan, model))
            del model


@dataclass(frozen=True)
class TimedDraw:
    """A mechanism whose draws are timed; everything else is the mechanism's own."""

    mechanism: IntegerTableMechanism
    watch: Stopwatch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.mechanism, name)

    def draw_each(self, scores: torch.Tensor, allowed: torch.Tensor, rng: RandomSource) -> list[int]:
        """As the mechanism's."""
        with self.watch.timing("draw"):
            return self.mechanism.draw_each(scores, allowed, rng)


def shares(bench: Bench, plan: Plan, model: LanguageModel) -> Mapping[str, Any]:
    """Milliseconds of a step by part, of plain passes.

    Each part waits for the device, which cannot be recorded; so their sum is more than a step alone.
    """
    watch = Stopwatch(torch.device(bench.device))
    Watched.watch = watch
    engine, work = _engine_and_work(plan, _watched(model))
    Watched.public_rows = len(work.jobs)
    rule = rule_for(work)
    rule = replace(rule, draw=TimedDraw(rule.draw, watch))
    first: dict[str, float] = {}
    steps = Steps(bench.device, plan.seconds)

    def tell(tokens: Mapping[int, int]) -> None:
        if not steps.times:
            first.update(watch.seconds)  # the first step reads the prompts, and opening a session asked the device
        steps.tell(tokens)

    with suppress(EnoughSteps):
        decode(engine, work.jobs, len(work.jobs), work.sizes, rule, on_tokens=tell)
    count, whole = len(steps.times) - 1, steps.times[-1] - steps.times[0]
    inside = {name: seconds - first.get(name, 0.0) for name, seconds in watch.seconds.items() if name != "prompts"}
    parts = inside | {"host, and all else": whole - sum(inside.values())}
    milliseconds = {f"{name} ms": seconds / count * 1000 for name, seconds in parts.items()}
    return {"generations": len(work.jobs), "step ms": whole / count * 1000, **milliseconds}


@dataclass
class Profiled:
    """The profiler around a few steps after the prompts."""

    device: str
    steps: int = 0
    events: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        on_device = [ProfilerActivity.CUDA] if self.device.startswith("cuda") else []
        self._profile = profile(activities=[ProfilerActivity.CPU, *on_device])

    def tell(self, tokens: Mapping[int, int]) -> None:
        """End of a step.

        Raises:
            EnoughSteps: the profiler has seen its steps.
        """
        self.steps += 1
        networks.synchronise(self.device)
        if self.steps == BEFORE:
            self._profile.start()
        if self.steps == BEFORE + PROFILED:
            self._profile.stop()
            self.events = list(self._profile.events())
            raise EnoughSteps


def launches(bench: Bench, plan: Plan, model: LanguageModel) -> Mapping[str, Any]:
    """What a step launches; on a CPU, where nothing is launched, its operations."""
    engine, work = _engine_and_work(plan, model)
    profiled = Profiled(bench.device)
    with suppress(EnoughSteps):
        decode(engine, work.jobs, len(work.jobs), work.sizes, rule_for(work), on_tokens=profiled.tell)
    return counted(profiled.events, PROFILED)


def counted(events: list[Any], steps: int) -> Mapping[str, Any]:
    """Numbers a step: launches, waits of the host, copies, operations; and the kernels that take most of the device."""
    names = Counter(event.name for event in events)
    on_device: Counter[str] = Counter()
    for event in events:
        if str(event.device_type).endswith("CUDA"):
            on_device[event.name[:60]] += event.time_range.elapsed_us()

    def each(counted: int) -> float:
        return counted / steps

    figures: dict[str, Any] = {
        "operations": each(sum(count for name, count in names.items() if name.startswith("aten::"))),
        "launches": each(sum(names[name] for name in LAUNCHES)),
        "waits": each(sum(names[name] for name in READS)),
        "copies": each(sum(count for name, count in names.items() if name.startswith("cudaMemcpy"))),
    }
    if on_device:
        figures["device ms"] = each(sum(on_device.values())) / 1000
        figures["kernels, ms"] = {name: each(us) / 1000 for name, us in on_device.most_common(12)}
    return figures


def _watched(model: LanguageModel) -> LanguageModel:
    return Watched(**{part.name: getattr(model, part.name) for part in fields(model)})


def _engine_and_work(plan: Plan, model: LanguageModel) -> tuple[Engine, Work]:
    engine = Engine(model)
    sizes = plan.work(plan.references[0], 1, model.vocabulary).sizes
    fit = min(plan.most, generations_at_once(model, sizes, engine.memory))
    return engine, plan.work(plan.references[0], fit, model.vocabulary)
