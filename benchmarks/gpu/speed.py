"""Sections `speed_*`: the engine beside a plain loop, plain `generate` and vLLM, with the same rows.

Each side is measured after the prompts, by the step, and with them: the prompts' seconds stand beside. The engine runs
InvisibleInk's whole rule with exact draws. Texts are numbers without meaning and networks of random weights do as much
work as trained ones; a text does not end early on any side.

Before a session the engine asks the device whether it keeps rows apart, and reads fewer rows in a pass where it does
not. `rows a pass` says how many are left; where they are fewer than were wanted, another row is measured without the
question, as an upper bound: no release runs like that.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Final
from unittest import mock

import torch

from benchmarks.gpu import networks, vllm_baseline
from benchmarks.gpu.decoding_plan import Plan
from benchmarks.gpu.networks import LLAMA_1B, LLAMA_8B, SMOLLM2, memory_returned, synchronise
from benchmarks.gpu.reports import roofline
from benchmarks.gpu.section import Bench
from benchmarks.inference.decoding import RHO, TOP_K, Stopwatch, Work, decode_one_by_one, decode_together
from tasks.decoding.loop import DrawMeter, decode
from tasks.decoding.sampling_rule import InvisibleInkRule
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.isolation import IsolationCheck
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.memory import is_out_of_memory
from tasks.inference.engine.recorded_passes import PassRecorder
from tasks.inference.engine.shapes import generations_at_once
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.tokens.integer_table import calibrate

DRAWS: Final = 256
"""Draws of a text that the noise is calibrated to."""
WAYS: Final = ("layers", "attention", "head", "candidates", "before_pass")


SMALL: Final = Plan(
    SMOLLM2, (2, 3), precision="float32", reference_tokens=12, prompt=8, tokens=8, seconds=0.5, most=2
)  # fmt: skip


def llama_8b(bench: Bench) -> None:
    """Section `speed_8b`."""
    compare(bench, SMALL if bench.small else Plan(LLAMA_8B, (7, 31, 15, 63), seconds=8.0))


def llama_1b(bench: Bench) -> None:
    """Section `speed_1b`."""
    compare(bench, SMALL if bench.small else Plan(LLAMA_1B, (7, 31, 15, 63), seconds=5.0))


def smollm2(bench: Bench) -> None:
    """Section `speed_smollm2`."""
    compare(bench, SMALL if bench.small else Plan(SMOLLM2, (7, 31, 15, 63), seconds=4.0))


def compare(bench: Bench, plan: Plan) -> None:
    """All sides at every number of references, the engine's first; then what the targets say."""
    generations: dict[int, int] = {}
    with memory_returned():
        model = _model(bench, plan)
        for references in plan.references:
            row = bench.row(f"engine, {references} references", partial(engine_row, bench, plan, model, references))
            generations[references] = int(row.get("generations", 0))
            if bench.device.startswith("cuda") and references in plan.references[:2]:
                measure = partial(engine_row, bench, plan, model, references, recorded=False)
                bench.row(f"engine without graphs, {references} references", measure)
            if row.get("rows a pass", 0) < row.get("rows wanted", 0):
                measure = partial(engine_row, bench, plan, model, references, asked=False)
                bench.row(f"engine without the question, {references} references", measure)
        del model
    with memory_returned():
        network = networks.random_network(plan.model, bench.device, _dtype(plan), small=bench.small)
        for references in plan.references:
            if generations[references]:
                bench.row(f"plain loop, {references} references", partial(loop_row, bench, plan, network, references))
                measure = partial(generate_row, bench, plan, network, references, generations[references])
                bench.row(f"plain generate, {references} references", measure)
        del network
    for references in plan.references:
        if generations[references]:
            measure = partial(vllm_baseline.measure, bench, plan, references, generations[references])
            bench.row(f"vLLM, {references} references", measure)
    for references in plan.references:
        bench.row(f"ratios, {references} references", partial(ratios, bench, references))


def ratios(bench: Bench, references: int) -> Mapping[str, Any]:
    """How many times the other sides' the engine's rate is; targets are told, and do not fail the section."""
    rates = {row["name"]: row.get("tokens/s") for row in bench.record.rows}

    def ratio(side: str, own: str = "engine") -> float | None:
        ours, theirs = rates.get(f"{own}, {references} references"), rates.get(f"{side}, {references} references")
        return ours / theirs if ours and theirs else None

    found = {"of the plain loop": ratio("plain loop"), "of plain generate": ratio("plain generate")}
    if vllm := ratio("vLLM"):
        found["of vLLM"] = vllm
    if without := ratio("engine without graphs"):
        found["of the engine without graphs"] = without
    if without := ratio("plain loop", "engine without the question"):
        found["of the plain loop, without the question"] = without
    return {key: value if value is not None else "not measured" for key, value in found.items()}


def _model(bench: Bench, plan: Plan) -> LanguageModel:
    """The model of a section; SmolLM2 with its own weights where they are here."""
    if plan.model == SMOLLM2 and not bench.small and (weights := networks.smollm2(bench.device, plan.precision)):
        return weights
    return networks.random_model(plan.model, bench.device, plan.precision, small=bench.small)


@dataclass
class Steps:
    """When steps ended, and when there are enough."""

    device: str
    seconds: float
    least: int = 4

    def __post_init__(self) -> None:
        self.times: list[float] = []

    def tell(self, tokens: Mapping[int, int]) -> None:
        """End of a step.

        Raises:
            EnoughSteps: so many and so long that no more are needed.
        """
        synchronise(self.device)
        self.times.append(time.perf_counter())
        if len(self.times) > self.least and self.times[-1] - self.times[0] > self.seconds:
            raise EnoughSteps

    @property
    def step(self) -> float:
        """Seconds of a step, the median of all but the first, which reads the prompts."""
        return statistics.median(later - before for before, later in zip(self.times, self.times[1:], strict=False))


class EnoughSteps(Exception):
    """A measurement is long enough."""


def rule_for(work: Work) -> InvisibleInkRule:
    """InvisibleInk's rule, as a release of these sizes has it."""
    draw = calibrate(RHO, DRAWS, work.sizes.references, Fraction(1))
    meter = DrawMeter(16, work.tokens, lambda number: None)
    return InvisibleInkRule(draw, TOP_K, "log_probability", OS_RANDOM, meter)


def engine_row(
    bench: Bench, plan: Plan, model: LanguageModel, references: int, *, asked: bool = True, recorded: bool = True
) -> Mapping[str, Any]:
    """As many generations at once as fit: figures of the engine."""
    networks.reset_peak(bench.device)
    recorder = PassRecorder(model.device)
    if not recorded:
        recorder.give_up()
    engine, sizes = Engine(model, recorder=recorder), plan.work(references, 1, model.vocabulary).sizes
    fit = min(plan.most, generations_at_once(model, sizes, engine.memory))
    work = plan.work(references, fit, model.vocabulary)
    began = time.perf_counter()
    with nullcontext() if asked else without_question():
        session = engine.session(sizes, fit)
        opened = time.perf_counter() - began
        work = Work(work.jobs[: session.places], sizes)
        steps, rule = Steps(bench.device, plan.seconds), rule_for(work)
        began = time.perf_counter()
        with suppress(EnoughSteps):
            decode(engine, work.jobs, len(work.jobs), sizes, rule, session=session, on_tokens=steps.tell)
    step, places = steps.step, session.places
    found = {
        "generations": places,
        "rows": places * (1 + references),
        "rows a pass": session._per_chunk,
        "rows wanted": engine._rows(places, sizes),
        "opening s": opened,
        "prompts s": max(0.0, steps.times[0] - began - step),
        "step ms": step * 1000,
        "tokens/s": places / step,
        "steps": len(steps.times),
        "graphs": recorder.records,
        "candidates": rule.facts(0)["effective_k"],
        "peak GiB": networks.peak_memory(bench.device) or "not on a CPU",
    }
    return found | _roofline(bench, plan, references, places, step)


@contextmanager
def without_question() -> Iterator[None]:
    """Sessions do not ask the device: for public numbers of a benchmark alone."""
    with mock.patch.multiple(IsolationCheck, **{way: lambda *_, **__: None for way in WAYS}):
        yield


def _roofline(bench: Bench, plan: Plan, references: int, generations: int, step: float) -> Mapping[str, Any]:
    """What the measured device should take for the step, where a Llama of that shape was decoded."""
    shapes = {shape.name: shape for shape in (roofline.SMOLLM2, roofline.LLAMA_1B, roofline.LLAMA_8B)}
    device = roofline.measured(bench.path.parent)
    if bench.small or device is None:
        return {"roofline ms": "not for tiny sizes" if bench.small else "`environment` was not measured"}
    work = roofline.Work(references, plan.reference_tokens, plan.tokens, plan.prompt)
    least = roofline.step_seconds(shapes[plan.model], device, work, generations)
    return {"roofline ms": least * 1000, "share of the roofline": least / step}


def loop_row(bench: Bench, plan: Plan, network: Any, references: int) -> Mapping[str, Any]:
    """(a): one generation after the other, `generate(max_new_tokens=1)` with its cache; one is enough to know it."""
    vocabulary, few, more = network.config.vocab_size, 2, 4 if bench.small else 12
    runs = [partial(_looped, bench, plan, network, references, vocabulary, n) for n in (few, more)]
    runs[-1]()  # every number of columns is another shape, whose kernels are loaded when it is first met
    return _between(bench, runs, 1)


def _looped(bench: Bench, plan: Plan, network: Any, references: int, vocabulary: int, tokens: int) -> int:
    decode_one_by_one(
        network, plan.work(references, 1, vocabulary, tokens), Stopwatch(torch.device(bench.device))
    )  # fmt: skip
    return tokens


def generate_row(bench: Bench, plan: Plan, network: Any, references: int, generations: int) -> Mapping[str, Any]:
    """(b): no privacy, all rows in one batch; half as many generations where memory does not hold them."""
    few, more = 2, 4 if bench.small else 14
    while True:
        try:
            with memory_returned():
                runs = [partial(_together, bench, plan, network, references, generations, n) for n in (few, more)]
                return {"generations": generations, **_between(bench, runs, generations)}
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error) or generations == 1:
                raise
            generations //= 2


def _together(bench: Bench, plan: Plan, network: Any, references: int, generations: int, tokens: int) -> int:
    work = plan.work(references, generations, network.config.vocab_size, tokens)
    decode_together(network, work, Stopwatch(torch.device(bench.device)))
    return tokens


def _between(bench: Bench, runs: list[Callable[[], int]], generations: int) -> Mapping[str, Any]:
    """The seconds of a step: the difference of a short and a long run, so without the prompts.

    Args:
        runs: short and long; each returns its tokens of a text. The short one runs once before, which is not counted.
        generations: the generations that are advanced by a step.
    """
    runs[0]()
    seconds, tokens = [], []
    for run in runs:
        synchronise(bench.device)
        began = time.perf_counter()
        tokens.append(run())
        synchronise(bench.device)
        seconds.append(time.perf_counter() - began)
    step = (seconds[1] - seconds[0]) / (tokens[1] - tokens[0])
    if step <= 0:
        return {"too noisy": f"{tokens[1]} tokens took {seconds[1]:.3f} s and {tokens[0]} took {seconds[0]:.3f} s"}
    prompts = max(0.0, seconds[0] - tokens[0] * step)
    return {"prompts s": prompts, "step ms": step * 1000, "tokens/s": generations / step}


def _dtype(plan: Plan) -> torch.dtype:
    return torch.bfloat16 if plan.precision == "bfloat16" else torch.float32
