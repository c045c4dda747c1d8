"""The engine against plain Hugging Face decoding: the same rows, alternating in one process.

    python -m benchmarks.inference.decoding                          8 generations x 7 references x 64 tokens, float32
    python -m benchmarks.inference.decoding --precision float32 bfloat16 int8
    python -m benchmarks.inference.decoding --generations 64 --device cuda --precision bfloat16
    python -m benchmarks.inference.decoding --table                  time against generations 1..64 and references 1..31

Three programs, the engine once for each precision, make the same number of tokens with the same rows:

engine   the whole decoding loop of InvisibleInk: candidates, clipped sums, exact draws from the operating system;
(a)      one generation at a time, `generate(max_new_tokens=1)` with its cache for the public row and the references,
         and a trivial draw (the likeliest candidate under the mean of the references);
(b)      no privacy: one `generate` of all rows in one batch, each row its own text.

The best round of each counts, by wall time and by processor time: what else runs on the machine can only slow a round
down. The first session of the engine also checks row isolation; its processor time is printed apart. References have
different lengths, as in the corpus; texts do not end early on any side.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any, ClassVar

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache

from benchmarks.common.json_lines import DATA
from tasks.corpus.demo_clinic import demo_notes
from tasks.decoding.loop import DrawMeter, GenerationJob, decode
from tasks.decoding.sampling_rule import InvisibleInkRule
from tasks.inference.catalogue.model_check import PRECISIONS
from tasks.inference.catalogue.model_store import model_folder, silence_libraries
from tasks.inference.catalogue.registry import find
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.shapes import Sizes
from tasks.inference.loading.load_model import load
from tasks.inference.prompt_rendering import private_prompt, public_prompt, reference_tokens
from tasks.inference.prompt_spec import PromptSpec
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.tokens.integer_table import calibrate

MODEL = "smollm2-135m-instruct"
DESCRIPTION = "Short dialogues between a doctor and a patient about symptoms and history."
TEXTS = DATA / "mts_dialog.jsonl"
TOP_K = 100
# About epsilon 10 at delta 1e-5, in units of 1e-12.
RHO = 1_780_000_000_000


@dataclass(frozen=True)
class Work:
    """What all sides decode."""

    jobs: tuple[GenerationJob, ...]
    sizes: Sizes

    @property
    def tokens(self) -> int:
        """Tokens of a text."""
        return self.sizes.max_new_tokens

    def prompts(self, job: GenerationJob) -> list[tuple[int, ...]]:
        """The public row and the private ones of one generation."""
        assert job.private is not None
        return [job.public.tokens, *[job.private.around(reference) for reference in job.references]]


@dataclass
class Stopwatch:
    """Seconds by name; waits for an accelerator before it looks at the clock."""

    device: torch.device
    seconds: dict[str, float] = field(default_factory=dict)
    cpu: float = 0.0
    decoding_cpu: float = 0.0

    def now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    @contextmanager
    def timing(self, name: str) -> Iterator[None]:
        began, worked = self.now(), time.process_time()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + self.now() - began
        if name == "all":
            self.cpu += time.process_time() - worked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generations", type=int, default=8)
    parser.add_argument("--references", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=64, help="at least 2")
    parser.add_argument("--reference-tokens", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--precision", choices=PRECISIONS, nargs="+", default=["float32"], help="of the engine's model, one or several"
    )
    parser.add_argument("--plain-dtype", default="float32", help="of Hugging Face's model: float32, bfloat16, float16")
    parser.add_argument("--table", action="store_true", help="times of the engine alone, for many sizes")
    parser.add_argument("--texts", type=Path, default=TEXTS, help="JSONL with a `text` field")
    arguments = parser.parse_args()
    # Nothing ends early, so that all sides make equally many tokens.
    models = {
        precision: replace(load(MODEL, arguments.device, precision), stop_tokens=())
        for precision in arguments.precision
    }
    if arguments.table:
        for precision, model in models.items():
            tables(model, precision, arguments)
    else:
        compare(models, arguments)


def make_work(model: LanguageModel, arguments: argparse.Namespace, generations: int, references: int) -> Work:
    """Real texts where they are, demo notes otherwise; used again where there are too few."""
    if arguments.texts.exists():
        texts = [json.loads(line)["text"] for line in arguments.texts.open(encoding="utf-8")]
    else:
        print(f"{arguments.texts} is missing: demo notes instead")
        texts = [note["text"] for note in demo_notes()]
    limit, spec = arguments.reference_tokens, PromptSpec(DESCRIPTION)
    public, private = public_prompt(model.tokenizer, spec), private_prompt(model.tokenizer, spec)
    several = cycle(texts)

    def job() -> GenerationJob:
        some = islice(several, references)
        return GenerationJob(
            public, private, tuple(tuple(reference_tokens(model.tokenizer, text, limit)) for text in some)
        )

    return Work(
        tuple(job() for _ in range(generations)), Sizes.of([public], [private], limit, arguments.tokens, references)
    )


def plain_network(device: torch.device, dtype: str) -> Any:
    """The same model as transformers runs it."""
    with silence_libraries():
        folder = model_folder(MODEL, find(MODEL).revision)
        network = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    network.generation_config.pad_token_id = 0
    network.generation_config.eos_token_id = None
    return network.eval().to(device)


def decode_engine(engine: Engine, work: Work, watch: Stopwatch) -> Stopwatch:
    """The whole loop, as a release runs it."""
    draw = calibrate(RHO, work.tokens, work.sizes.references, Fraction(1))
    rule = InvisibleInkRule(draw, TOP_K, "log_probability", OS_RANDOM, DrawMeter(16, work.tokens, lambda number: None))
    steps: list[tuple[float, float]] = []

    def tell(tokens: Mapping[int, int]) -> None:
        steps.append((watch.now(), time.process_time()))

    with watch.timing("all"):
        made = decode(engine, work.jobs, len(work.jobs), work.sizes, rule, on_tokens=tell)
    if any(text.tokens != work.tokens for text in made):
        raise AssertionError("a text ended early")
    # All steps but the first, which also reads the prompts.
    watch.seconds["decoding"], watch.decoding_cpu = (
        last - first for first, last in zip(steps[0], steps[-1], strict=True)
    )
    return watch


@torch.inference_mode()
def decode_one_by_one(network: Any, work: Work, watch: Stopwatch) -> Stopwatch:
    """(a): one generation after the other, one `generate` a token."""
    with watch.timing("all"):
        for job in work.jobs:
            tokens, mask = padded(work.prompts(job), watch.device)
            cache = DynamicCache()
            for _ in range(work.tokens):
                made = network.generate(
                    input_ids=tokens,
                    attention_mask=mask,
                    past_key_values=cache,
                    max_new_tokens=1,
                    do_sample=False,
                    output_logits=True,
                    return_dict_in_generate=True,
                )
                logits, cache = made.logits[0], made.past_key_values
                candidates = logits[0].topk(TOP_K).indices
                mean = torch.log_softmax(logits[1:, candidates].float(), dim=-1).mean(0)
                drawn = candidates[mean.argmax()].expand(len(tokens), 1)
                tokens, mask = torch.cat([tokens, drawn], dim=1), torch.cat([mask, torch.ones_like(drawn)], dim=1)
    return watch


@torch.inference_mode()
def decode_together(network: Any, work: Work, watch: Stopwatch) -> Stopwatch:
    """(b): all rows in one batch, each its own text."""
    with watch.timing("all"):
        tokens, mask = padded([prompt for job in work.jobs for prompt in work.prompts(job)], watch.device)
        made = network.generate(
            input_ids=tokens, attention_mask=mask, max_new_tokens=work.tokens, do_sample=True, top_k=TOP_K
        )
    if made.shape[1] != tokens.shape[1] + work.tokens:
        raise AssertionError("a row ended early")
    return watch


def padded(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Tokens and mask, padded on the left."""
    longest = max(map(len, prompts))
    tokens = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts], device=device)
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=device)
    return tokens, mask


def compare(models: Mapping[str, LanguageModel], arguments: argparse.Namespace) -> None:
    """The engine at each precision, (a) and (b), alternating."""
    first = next(iter(models.values()))
    device = first.device
    work = make_work(first, arguments, arguments.generations, arguments.references)
    network = plain_network(device, arguments.plain_dtype)
    sides: dict[str, Callable[[Stopwatch], Stopwatch]] = {}
    for precision, model in models.items():
        engine = Engine(model)
        opened = decode_engine(engine, work, Stopwatch(device))
        print(f"  first session, with the checks of row isolation: {precision}: {opened.cpu:.1f} s of processor")
        sides[f"engine, {precision}"] = partial(decode_engine, engine, work)
    sides["(a) one generation at a time"] = partial(decode_one_by_one, network, work)
    sides["(b) all rows, no privacy"] = partial(decode_together, network, work)
    runs: dict[str, list[Stopwatch]] = {name: [] for name in sides}
    for number in range(arguments.rounds):
        for name, run in sides.items():
            runs[name].append(run(Stopwatch(device)))
            last = runs[name][-1]
            print(
                f"  round {number + 1}: {name}: {last.seconds['all']:.1f} s, {last.cpu:.1f} s of processor", flush=True
            )
    report(device, arguments, runs)
    for precision, model in models.items():
        print(f"\none engine step, {precision}:")
        report_step(runs[f"engine, {precision}"], arguments.tokens)
        report_profile(profile(model, work))


def report(device: torch.device, arguments: argparse.Namespace, runs: dict[str, list[Stopwatch]]) -> None:
    """Each side's best round, and how many times the plain sides' the engine's speed is."""
    rows = arguments.generations * (1 + arguments.references)
    print(
        f"\n{MODEL}, {device}, {torch.get_num_threads()} threads, plain in {arguments.plain_dtype}: "
        f"{arguments.generations} generations x (1 public + {arguments.references} private rows), {arguments.tokens} "
        f"tokens, references up to {arguments.reference_tokens} tokens; best of {arguments.rounds} alternating rounds\n"
    )
    plain = [least(runs[name]) for name in list(runs)[-2:]]
    heads = "".join(f"{f'{side} / it, {clock}':>16}" for side in ("(a)", "(b)") for clock in ("wall", "CPU"))
    print(f"{'':32}{'wall s':>10}{'CPU s':>10}{'row-tokens/s':>14}{heads}")
    for name, some in runs.items():
        wall, cpu = least(some)
        ratios = "".join(f"{a / own:>16.2f}" for other in plain for a, own in zip(other, (wall, cpu), strict=True))
        print(f"{name:32}{wall:>10.2f}{cpu:>10.2f}{rows * arguments.tokens / wall:>14.1f}{ratios}")


def report_step(runs: list[Stopwatch], tokens: int) -> None:
    """The time of a step after the prompts."""
    wall, cpu = step(runs, tokens)
    print(f"{wall:.1f} ms, {cpu:.1f} ms of processor")


def least(runs: list[Stopwatch]) -> tuple[float, float]:
    """The least wall time and the least processor time."""
    return min(run.seconds["all"] for run in runs), min(run.cpu for run in runs)


def step(runs: list[Stopwatch], tokens: int) -> tuple[float, float]:
    """Milliseconds of a step after the prompts, and of processor time."""
    wall, cpu = min(run.seconds["decoding"] for run in runs), min(run.decoding_cpu for run in runs)
    return wall / (tokens - 1) * 1000, cpu / (tokens - 1) * 1000


class Watched(LanguageModel):
    """A model with a stopwatch around its layers and its head; only steps of one token count."""

    watch: ClassVar[Stopwatch]
    public_rows: ClassVar[int]

    def hidden(self, tokens: Tensor, positions: Tensor, bias: Tensor, cache: object) -> Tensor:
        who = "public" if len(tokens) == self.public_rows else "private"
        with self.watch.timing(f"layers, {who} rows" if tokens.shape[1] == 1 else "prompts"):
            return super().hidden(tokens, positions, bias, cache)

    def logits(self, hidden: Tensor) -> Tensor:
        with self.watch.timing("head, public rows" if len(hidden) == self.public_rows else "head, private rows"):
            return super().logits(hidden)

    def logits_of(self, hidden: Tensor, tokens: Tensor) -> Tensor:
        with self.watch.timing("head, private rows"):
            return super().logits_of(hidden, tokens)


def profile(model: LanguageModel, work: Work) -> Stopwatch:
    """Where the steps of one run spend their time."""
    Watched.watch, Watched.public_rows = Stopwatch(model.device), len(work.jobs)
    engine = Engine(Watched(**{part.name: getattr(model, part.name) for part in fields(model)}))
    decode_engine(engine, work, Watched.watch)  # the first run checks isolation
    Watched.watch = Stopwatch(model.device)
    return decode_engine(engine, work, Watched.watch)


def report_profile(watch: Stopwatch) -> None:
    """Shares of the steps; the first step's heads are counted too, which is little."""
    inside = {name: seconds for name, seconds in watch.seconds.items() if "rows" in name}
    whole = watch.seconds["decoding"]
    print("shares of a step:")
    for name, seconds in [*inside.items(), ("outside the model's forward pass", whole - sum(inside.values()))]:
        print(f"  {name:34}{seconds / whole:>8.1%}")


def tables(model: LanguageModel, precision: str, arguments: argparse.Namespace) -> None:
    """Time of the engine for many sizes."""
    print(f"{MODEL}, {model.device}, {torch.get_num_threads()} threads, {precision}, {arguments.tokens} tokens")
    sizes = [(generations, arguments.references) for generations in (1, 2, 4, 8, 16, 32, 64)]
    sizes += [(arguments.generations, references) for references in (1, 3, 7, 15, 31)]
    print(
        f"{'generations':>12}{'references':>12}{'wall s':>10}{'CPU s':>10}"
        f"{'ms a step':>12}{'CPU ms a step':>14}{'tokens/s':>10}"
    )
    for generations, references in sizes:
        work = make_work(model, arguments, generations, references)
        engine = Engine(model)
        decode_engine(engine, work, Stopwatch(model.device))
        runs = [decode_engine(engine, work, Stopwatch(model.device)) for _ in range(arguments.rounds)]
        (wall, cpu), (a_step, a_step_cpu) = least(runs), step(runs, arguments.tokens)
        speed = generations * arguments.tokens / wall
        print(
            f"{generations:>12}{references:>12}{wall:>10.2f}{cpu:>10.2f}{a_step:>12.1f}{a_step_cpu:>14.1f}{speed:>10.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
