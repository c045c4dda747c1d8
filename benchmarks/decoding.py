"""Tokens per second of the row-isolated engine, against plain Hugging Face decoding of the same rows.

    python benchmarks/decoding.py --generations 4 --references 7 --tokens 48

The baseline decodes one generation after the other, as one writes it with transformers: the public row and the
private rows padded together, one forward pass per token with the library's own cache. Both make the same number of
tokens with the same trivial draw (the likeliest candidate under the mean of the private rows), in the same process,
alternating, and the best round of each counts: what else runs on the machine can only slow a round down. The engine's
first session, which also checks isolation, is reported apart.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from tasks.corpus.demo import demo_notes
from tasks.inference.engine import Engine
from tasks.inference.language_model import LanguageModel
from tasks.inference.loading import load
from tasks.inference.prompts import PromptPieces, private_prompt, public_prompt, reference_tokens
from tasks.inference.quiet import quiet_libraries
from tasks.inference.registry import find
from tasks.inference.store import model_folder

MODEL = "smollm2-135m-instruct"
DESCRIPTION = "Short dialogues between a doctor and a patient about symptoms and history."
TEXTS = Path(__file__).resolve().parents[2] / "shared" / "data" / "mts_dialog.jsonl"
TOP_K = 100


@dataclass(frozen=True)
class Work:
    """What both sides decode: prompts, and the references of each generation."""

    public: PromptPieces
    private: PromptPieces
    references: list[list[tuple[int, ...]]]
    max_reference_tokens: int
    tokens: int

    @property
    def drawn(self) -> int:
        """Tokens that one run draws."""
        return len(self.references) * self.tokens


@dataclass
class Stopwatch:
    """Seconds by name, names inside others as `outer/inner`; waits for an accelerator before it looks at the clock."""

    device: torch.device
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_seconds: float = 0.0
    _open: list[str] = field(default_factory=list)

    def now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    @contextmanager
    def timing(self, name: str) -> Iterator[None]:
        self._open.append(name)
        path, began, worked = "/".join(self._open), self.now(), time.process_time()
        yield
        self.seconds[path] = self.seconds.get(path, 0.0) + self.now() - began
        if len(self._open) == 1:
            self.cpu_seconds += time.process_time() - worked
        self._open.pop()

    @property
    def total(self) -> float:
        return self.seconds["prompts"] + self.seconds["decoding"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generations", type=int, default=4)
    parser.add_argument("--references", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--reference-tokens", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--texts", type=Path, default=TEXTS, help="JSONL with a `text` field")
    arguments = parser.parse_args()
    model = load(MODEL, arguments.device)
    work = make_work(model, arguments)
    plain = plain_network(model.device)
    engine = Engine(model)
    first = decode_engine(engine, work, Stopwatch(model.device))
    ours, theirs = [], []
    for _ in range(arguments.rounds):
        ours.append(decode_engine(engine, work, Stopwatch(model.device)))
        theirs.append(decode_plain(plain, work, Stopwatch(model.device)))
    report(arguments, work, first, ours, theirs)
    report_profile(profile(model, work), work)


def make_work(model: LanguageModel, arguments: argparse.Namespace) -> Work:
    """Real texts where they are, demo notes otherwise."""
    if arguments.texts.exists():
        texts = (json.loads(line)["text"] for line in arguments.texts.open(encoding="utf-8"))
    else:
        print(f"{arguments.texts} is missing: demo notes instead")
        texts = (note["text"] for note in demo_notes())
    tokens = [
        reference_tokens(model.tokenizer, text, arguments.reference_tokens)
        for text in islice(texts, arguments.generations * arguments.references)
    ]
    size = arguments.references
    return Work(
        public=public_prompt(model.tokenizer, DESCRIPTION),
        private=private_prompt(model.tokenizer, DESCRIPTION),
        references=[tokens[start : start + size] for start in range(0, len(tokens), size)],
        max_reference_tokens=arguments.reference_tokens,
        tokens=arguments.tokens,
    )


def plain_network(device: torch.device) -> Any:
    """The same weights as transformers runs them."""
    spec = find(MODEL)
    with quiet_libraries():
        network = AutoModelForCausalLM.from_pretrained(model_folder(MODEL, spec.revision), dtype=torch.float32)
    return network.eval().to(device)


@torch.inference_mode()
def decode_engine(engine: Engine, work: Work, watch: Stopwatch) -> Stopwatch:
    """One run of the engine: seconds for reading the prompts and for decoding."""
    generations = len(work.references)
    with watch.timing("prompts"):
        session = engine.start(
            [work.public] * generations,
            [work.private] * generations,
            work.references,
            nominal_references=len(work.references[0]),
            max_reference_tokens=work.max_reference_tokens,
            max_new_tokens=work.tokens,
        )
    with watch.timing("decoding"):
        for step in range(work.tokens):
            candidates = session.public_logits().topk(TOP_K).indices
            rows = session.private_logits(candidates)
            mean = torch.zeros(candidates.shape, device=watch.device)
            mean.index_add_(0, rows.generation, torch.log_softmax(rows.values, dim=-1))
            tokens = candidates.gather(1, mean.argmax(1, keepdim=True))[:, 0]
            if step + 1 < work.tokens:
                session.advance(tokens)
    return watch


@torch.inference_mode()
def decode_plain(network: Any, work: Work, watch: Stopwatch) -> Stopwatch:
    """One generation after the other through transformers."""
    for batch in work.references:
        prompts = [work.public.tokens, *[work.private.around(reference) for reference in batch]]
        _decode_plain_batch(network, prompts, work.tokens, watch)
    return watch


def _decode_plain_batch(network: Any, prompts: Sequence[Sequence[int]], steps: int, watch: Stopwatch) -> None:
    longest = max(map(len, prompts))
    tokens = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts], device=watch.device)
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=watch.device)
    with watch.timing("prompts"):
        logits, cache = _plain_pass(network, tokens, mask, None)
    with watch.timing("decoding"):
        for step in range(steps):
            candidates = logits[0].topk(TOP_K).indices
            mean = torch.log_softmax(logits[1:, candidates], dim=-1).mean(0)
            drawn = candidates[mean.argmax()].expand(len(prompts), 1)
            if step + 1 < steps:
                mask = torch.cat([mask, torch.ones_like(drawn)], dim=1)
                logits, cache = _plain_pass(network, drawn, mask, cache)


def _plain_pass(network: Any, tokens: Tensor, mask: Tensor, cache: Any) -> tuple[Tensor, Any]:
    positions = (mask.cumsum(1) - 1).clamp_min(0)[:, -tokens.shape[1] :]
    output = network(
        input_ids=tokens,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return output.logits[:, -1], output.past_key_values


class Watched(LanguageModel):
    """A model with a stopwatch around its layers and its head."""

    watch: ClassVar[Stopwatch]
    generations: ClassVar[int]

    def hidden(self, tokens: Tensor, positions: Tensor, bias: Tensor, cache: object) -> Tensor:
        with self.watch.timing("layers, public rows" if len(tokens) == self.generations else "layers, private rows"):
            return super().hidden(tokens, positions, bias, cache)

    def logits(self, hidden: Tensor) -> Tensor:
        with self.watch.timing("head, public rows"):
            return super().logits(hidden)

    def logits_of(self, hidden: Tensor, tokens: Tensor) -> Tensor:
        with self.watch.timing("head, private rows"):
            return super().logits_of(hidden, tokens)


def profile(model: LanguageModel, work: Work) -> Stopwatch:
    """Where one run spends its time."""
    Watched.watch, Watched.generations = Stopwatch(model.device), len(work.references)
    engine = Engine(Watched(**{part.name: getattr(model, part.name) for part in fields(model)}))
    decode_engine(engine, work, Watched.watch)  # the first run checks isolation
    Watched.watch = Stopwatch(model.device)
    return decode_engine(engine, work, Watched.watch)


def report(
    arguments: argparse.Namespace, work: Work, first: Stopwatch, ours: list[Stopwatch], theirs: list[Stopwatch]
) -> None:
    print(
        f"{MODEL}, {first.device}, {torch.get_num_threads()} threads: {len(work.references)} generations x "
        f"(1 public + {len(work.references[0])} private rows), {work.tokens} tokens, "
        f"references up to {work.max_reference_tokens} tokens; best of {arguments.rounds} alternating rounds\n"
    )
    print(f"{'':24}{'prompts s':>12}{'decoding s':>12}{'total s':>10}{'CPU s':>10}{'ms/step':>10}{'tokens/s':>10}")
    for name, runs, steps in (
        ("engine, first session", [first], work.tokens),
        ("engine", ours, work.tokens),
        ("plain Hugging Face", theirs, work.drawn),
    ):
        prompts, decoding, both, cpu = _least(runs)
        step, speed = decoding / steps * 1000, work.drawn / both
        print(f"{name:24}{prompts:>12.2f}{decoding:>12.2f}{both:>10.2f}{cpu:>10.2f}{step:>10.1f}{speed:>10.1f}")
    ratios = [other / own for own, other in zip(_least(ours), _least(theirs), strict=True)]
    print("{:24}{:>12.2f}{:>12.2f}{:>10.2f}{:>10.2f}".format("ratio", *ratios))


def _least(runs: list[Stopwatch]) -> list[float]:
    """The least seconds for prompts, for decoding, for both, and of processor time."""
    parts = [(run.seconds["prompts"], run.seconds["decoding"], run.total, run.cpu_seconds) for run in runs]
    return [min(column) for column in zip(*parts, strict=True)]


def report_profile(watch: Stopwatch, work: Work) -> None:
    print(f"\none engine step, {watch.seconds['decoding'] / work.tokens * 1000:.1f} ms:")
    inside = {path.partition("/")[2]: s for path, s in watch.seconds.items() if path.startswith("decoding/")}
    other = watch.seconds["decoding"] - sum(inside.values())
    for name, seconds in [*inside.items(), ("everything else", other)]:
        share = seconds / watch.seconds["decoding"]
        print(f"  {name:26}{seconds / work.tokens * 1000:>8.1f} ms{share:>8.0%}")


if __name__ == "__main__":
    main()
