"""Training loop of an adapter: steps, checks on the held-out groups, its checkpoint, and the curve of its loss.

Checkpoint of a training: one safetensors file, its numbers in the tensors and the rest in its header; no pickle.
`<models folder>/adapters/.training/<name>/state.safetensors`, replaced atomically after every check on the held-out
groups. It holds the weights, the best weights, the optimiser's moments and the generator's state, so a resumed training
makes the same steps as an uninterrupted one.

Everything is public, so it uses an ordinary seeded generator; no noise that protects a person is drawn from it.
"""

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from models_db.errors import UsageError
from tasks.adapters.adapter import Decoder, Lens, Space, clipped
from tasks.adapters.metadata import AdapterWording, Fit, figure
from tasks.adapters.store import CURVE, LOSSES, adapters_folder, reading_pieces, writing_pieces
from tasks.adapters.training.data import Example, Order, TrainingData, TrainingSettings
from tasks.adapters.training.frozen_model import FrozenNetwork, Line
from tasks.common import progress
from tasks.common.files import write_over
from tasks.common.svg_axes import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Axis
from tasks.inference.catalogue.model_check import ContextTooLong
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.hidden_states import last_hidden
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.shapes import Sizes
from tasks.inference.prompt_rendering import reference_tokens

_STATE: Final = "state.safetensors"
_KEY: Final = "almoner"


@dataclass
class State:
    """A training between two steps.

    Attributes:
        step: number of finished steps.
        best_step, best_loss: the lowest loss on the held-out groups so far.
        looks_since_best: number of checks since then.
        course: the measurements, one per line of losses.jsonl.
        tensors: everything else, by name.
    """

    step: int = 0
    best_step: int = 0
    best_loss: float = float("inf")
    looks_since_best: int = 0
    course: list[dict[str, Any]] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)


def folder_of(name: str) -> Path:
    """Return the folder of the checkpoint of a training."""
    return adapters_folder() / ".training" / name


def keep(order: Order, state: State) -> None:
    """Write the checkpoint; the earlier one stays until the new one is complete."""
    facts = {name: value for name, value in vars(state).items() if name != "tensors"}
    header = json.dumps({"order": order.digest, **facts}, allow_nan=True)
    folder = folder_of(order.name)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.detach().cpu().contiguous() for name, value in state.tensors.items()}
    write_over(folder / _STATE, save(tensors, {_KEY: header}), 0o600)


def resume(order: Order) -> State | None:
    """Return the state of an interrupted training of the same order; None if there is none.

    Raises:
        TrainingDiffers: the training of that name has another order.
        CheckpointUnreadable.
    """
    path = folder_of(order.name) / _STATE
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads(file.metadata()[_KEY])
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118  # not a mapping
        stored_digest = facts.pop("order")
        state = State(**facts, tensors=tensors)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(
            f"The checkpoint of the training {order.name!r} cannot be read.",
            "Begin again with --anew.",
            {"adapter": order.name},
            code="CheckpointUnreadable",
        ) from None
    if stored_digest != order.digest:
        raise UsageError(
            f"A training named {order.name!r} was interrupted, and it has another order: other data, another model or"
            " other options.",
            "Repeat its command to go on, choose another --name, or begin again with --anew.",
            {"adapter": order.name},
            code="TrainingDiffers",
        )
    return state


def forget(name: str) -> None:
    """Remove a checkpoint, if there is one."""
    shutil.rmtree(folder_of(name), ignore_errors=True)


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return moments and step counts, by the number of the parameter."""
    state: Mapping[int, Mapping[str, Tensor]] = optimiser.state_dict()["state"]
    return {
        f"optimiser.{number}.{name}": value.clone()
        for number, values in state.items()
        for name, value in values.items()
    }


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restore the optimiser from `optimiser_tensors`."""
    whole = optimiser.state_dict()
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("optimiser."):
            _, number, name = key.split(".")
            state.setdefault(int(number), {})[name] = value
    optimiser.load_state_dict({**whole, "state": state})


_HEIGHT: Final = 320
_FONT: Final = 'font-family="sans-serif" font-size="12"'
LINES: Final = {
    "training": ("#8a8f98", "training"),
    "clean": ("#1f5fa8", "held out, without noise"),
    "noisy": ("#b5541c", "held out, with noise"),
}
"""Losses in a line of losses.jsonl, with colour and name."""


def curve(course: Sequence[Mapping[str, Any]], best_step: int, title: str) -> str:
    """Draw losses in nats per token against steps; the dashed line marks the step of the kept weights.

    Args:
        course: lines of losses.jsonl, each with `step` and some of LINES; at least one.
    """
    series = {name: [(each["step"], each[name]) for each in course if name in each] for name in LINES}
    values = [value for points in series.values() for _, value in points]
    base, end = _HEIGHT - BOTTOM, WIDTH - RIGHT
    across = Axis.over([0.0, max(float(each["step"]) for each in course)], LEFT, end, margin=0)
    up = Axis.over(values, base, TOP + 20)
    last_losses = "; ".join(f"{LINES[name][1]}: {points[-1][1]:.3f}" for name, points in series.items() if points)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {_HEIGHT}" role="img" {_FONT}>',
        f"<title>{escape(title)}</title>",
        f"<desc>Losses in nats per token against steps; the last ones are {escape(last_losses)}.</desc>",
        f'<rect width="{WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        *_grid(across, up, base, end),
        f'<path d="M{across.place(best_step)} {TOP + 20}V{base}" stroke="#444444" stroke-dasharray="4 3"/>',
    ]
    for number, (name, points) in enumerate(series.items()):
        if points:
            parts.extend(_curve(points, *LINES[name], across, up, LEFT + 190 * number))
    return "\n".join([*parts, "</svg>", ""])


def _grid(across: Axis, up: Axis, base: int, end: int) -> list[str]:
    lines = [
        f'<line x1="{LEFT}" x2="{end}" y1="{tick["at"]}" y2="{tick["at"]}" stroke="#dddddd"/>'
        f'<text x="{LEFT - 8}" y="{tick["at"] + 4}" text-anchor="end">{tick["text"]}</text>'
        for tick in up.ticks()
    ]
    return (
        lines
        + [
            f'<text x="{tick["at"]}" y="{base + 18}" text-anchor="middle">{tick["text"]}</text>'
            for tick in across.ticks()
        ]
        + [
            f'<text x="{end}" y="{base + 36}" text-anchor="end">steps</text>',
            f'<text x="{LEFT}" y="{TOP + 14}" text-anchor="start">nats per token</text>',
        ]
    )


def _curve(
    points: Sequence[tuple[int, float]], colour: str, name: str, across: Axis, up: Axis, legend: int
) -> list[str]:
    places = " ".join(f"{across.place(step)},{up.place(value)}" for step, value in points)
    return [
        f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>',
        f'<rect x="{legend}" y="8" width="12" height="12" fill="{colour}"/>',
        f'<text x="{legend + 18}" y="18">{escape(name)}</text>',
    ]


@dataclass(frozen=True, eq=False)
class Lesson:
    """One training example.

    Attributes:
        source: number of the set of documents; several lessons may share one.
        line: the prompt and the summary.
    """

    source: int
    line: Line


@dataclass(frozen=True, eq=False)
class Lessons:
    """All examples of a file, for training and held out.

    Attributes:
        states: the hidden states of each set of documents, float32 [n, D]; documents without any token are left out.
        learned, held_out: the examples for training and for checks.
        held_groups: number of held-out groups.
    """

    states: tuple[Tensor, ...]
    learned: tuple[Lesson, ...]
    held_out: tuple[Lesson, ...]
    held_groups: int

    @property
    def learned_sources(self) -> list[int]:
        """The sets of documents of `learned`."""
        return sorted({lesson.source for lesson in self.learned})


def split_groups(groups: Sequence[str], held_out: Decimal, generator: torch.Generator) -> frozenset[str]:
    """Choose the held-out groups: their share of all, rounded, at least one and never all."""
    count = min(max(1, round(held_out * len(groups))), len(groups) - 1)
    order = torch.randperm(len(groups), generator=generator).tolist()
    return frozenset(groups[place] for place in order[:count])


def prepare(
    data: TrainingData, wording: AdapterWording, settings: TrainingSettings, model: LanguageModel, held: frozenset[str]
) -> Lessons:
    """Read every document once with the model, and tokenise every summary.

    Raises:
        ContextTooLong, `bad_template`, BadDescription, NoChatTemplate, NotEnoughMemory, RowsNotIsolated.
    """
    sources = list(dict.fromkeys((example.documents, example.about) for example in data.examples))
    states = _read(sources, wording, settings, model)
    place = {source: number for number, source in enumerate(sources)}
    parts: tuple[list[Lesson], list[Lesson]] = ([], [])
    for example in data.examples:
        lesson = Lesson(place[example.documents, example.about], _tokenised_example(example, wording, settings, model))
        parts[example.group in held].append(lesson)
    learned, held_out = map(tuple, parts)
    return Lessons(tuple(states), learned, held_out, len(held))


def _read(
    sources: Sequence[tuple[tuple[str, ...], str | None]],
    wording: AdapterWording,
    settings: TrainingSettings,
    model: LanguageModel,
) -> list[Tensor]:
    pieces = [reading_pieces(model.tokenizer, wording, about) for _, about in sources]
    limit = settings.max_reference_tokens
    rows = [[reference_tokens(model.tokenizer, text, limit) for text in documents] for documents, _ in sources]
    sizes = Sizes.of(pieces[:1], pieces, limit, 1, references=max(map(len, rows)))
    states = []
    for done, hidden in enumerate(last_hidden(Engine(model), pieces, rows, sizes)):
        progress.report("reading documents", done + 1, len(sources))
        states.append(hidden.values[hidden.valid].cpu())
    return states


def _tokenised_example(
    example: Example, wording: AdapterWording, settings: TrainingSettings, model: LanguageModel
) -> Line:
    pieces = writing_pieces(model.tokenizer, wording, example.about)
    limit = settings.max_summary_tokens
    target = reference_tokens(model.tokenizer, example.summary, limit)
    if len(target) < limit:
        target = (*target, _end_token(model.tokenizer, model.stop_tokens))
    if (needed := len(pieces.tokens) + settings.soft_tokens + len(target)) > model.positions:
        raise ContextTooLong(needed, model.positions)
    return Line(pieces, target)


def _end_token(tokenizer: Any, stop_tokens: Sequence[int]) -> int:
    """Return the token that ends an answer: the tokenizer's own, which ends a turn of instruction-tuned models."""
    own = tokenizer.eos_token_id
    return int(own) if own is not None else stop_tokens[0]


def generator_of(seed: int) -> torch.Generator:
    """Return a generator for public choices: no noise that protects a person is drawn from it."""
    return torch.Generator().manual_seed(seed)


_WITHOUT_NOISE: Final = 0.2  # share of a step's examples: large groups have almost no noise
_WARM_UP: Final = 10  # steps
_LAST_RATE: Final = 0.1  # of the learning rate, at the last step
_CHECKED: Final = 48  # most held-out examples, so that a check takes about as long as a few steps
_LONGEST_STEP: Final = 1.0  # norm above which a gradient is scaled down


@dataclass(eq=False)
class Course:
    """A training in progress: the perceptron, its optimiser, the generator, and the measurements.

    Attributes:
        vectors: of each set of documents, clipped, float32 [n, c * r].
        decoder, best: the perceptron after the last step, and at the best check.
    """

    settings: TrainingSettings
    lessons: Lessons
    space: Space
    clip_norm: float
    network: FrozenNetwork
    lens: Lens | None
    vectors: list[Tensor] = field(init=False)
    decoder: Decoder = field(init=False)
    best: Decoder = field(init=False)

    def __post_init__(self) -> None:
        settings = self.settings
        self.vectors = [clipped(self.space.represent(rows), self.clip_norm) for rows in self.lessons.states]
        self.generator = generator_of(settings.seed + 1)
        self.decoder, self.best = self._new_decoder(), self._new_decoder()
        self._begin()
        self.optimiser = torch.optim.AdamW(
            self.decoder.parameters(), lr=float(settings.learning_rate), weight_decay=float(settings.weight_decay)
        )
        self._state = State()
        self._checks = self._held_out_means()

    def begin(self) -> None:
        """Make the first check, before any step."""
        self._measure(None)

    @property
    def ended(self) -> bool:
        """Return whether all steps are made, or the held-out loss has stopped falling."""
        return self._state.step >= self.settings.steps or self._state.looks_since_best >= self.settings.patience

    @property
    def line(self) -> str:
        """The last check in one line, for people."""
        last = self._state.course[-1]
        return (
            f"Step {last['step']} of at most {self.settings.steps}: held-out loss {last['clean']:.3f} without noise,"
            f" {last['noisy']:.3f} with noise (best after step {self._state.best_step})."
        )

    def advance(self) -> None:
        """Make the steps up to the next check, and the check."""
        losses = []
        until = min(self._state.step + self.settings.check_every, self.settings.steps)
        while self._state.step < until:
            losses.append(self._step())
            self._state.step += 1
            progress.report("training", self._state.step, self.settings.steps)
        self._measure(sum(losses) / len(losses))

    def state(self) -> State:
        """Return everything that the next step depends on."""
        self._state.tensors = {
            **{f"decoder.{name}": value for name, value in self.decoder.state_dict().items()},
            **{f"best.{name}": value for name, value in self.best.state_dict().items()},
            **optimiser_tensors(self.optimiser),
            "generator": self.generator.get_state(),
        }
        return self._state

    def go_on(self, state: State) -> None:
        """Restore the state of an interrupted training."""
        self._state = state
        for name, module in (("decoder.", self.decoder), ("best.", self.best)):
            module.load_state_dict(
                {key.removeprefix(name): value for key, value in state.tensors.items() if key.startswith(name)}
            )
        restore_optimiser(self.optimiser, state.tensors)
        self.generator.set_state(state.tensors["generator"])

    def files(self, name: str) -> dict[str, str]:
        """Return the files about the training that are stored beside the adapter."""
        lines = "".join(json.dumps(line) + "\n" for line in self._state.course)
        return {LOSSES: lines, CURVE: curve(self._state.course, self._state.best_step, f"Training of {name}")}

    def fit(self) -> Fit:
        """Return the results of the training, with the best weights measured once more."""
        clean, noisy, blind = self._losses(self.best)
        first = self._state.course[0]
        return Fit(
            steps=self._state.step,
            best_step=self._state.best_step,
            first_loss=figure((first["clean"] + first["noisy"]) / 2),
            best_loss=figure((clean + noisy) / 2),
            clean_loss=figure(clean),
            blind_loss=figure(blind),
        )

    def _new_decoder(self) -> Decoder:
        width, inputs = self.network.embeddings.shape[1], self.space.group_mean.numel()
        return Decoder(inputs, self.settings.hidden_units, self.settings.soft_tokens, self.settings.words, width)

    def _begin(self) -> None:
        """Initialise the weights: small ones, and soft tokens near the embeddings of words in summaries."""
        embeddings = self.network.embeddings.float().cpu()
        spoken = sorted({token for lesson in self.lessons.learned for token in lesson.line.target[:-1]}) or [0]
        count = self.settings.soft_tokens
        chosen = torch.randint(len(spoken), (count,), generator=self.generator).tolist()
        scale = embeddings.square().mean().sqrt()
        decoder = self.decoder
        with torch.no_grad():
            decoder.scale.copy_(scale)
            for layer, size in ((decoder.first, 1.0), (decoder.second, 0.1)):
                spread = size / math.sqrt(layer.in_features)
                layer.weight.copy_(torch.randn(layer.weight.shape, generator=self.generator) * spread)
                layer.bias.zero_()
            begin = embeddings[[spoken[place] for place in chosen]] / scale
            decoder.unsaid.copy_(begin[count - decoder.words :])
            decoder.second.bias.copy_(begin[: count - decoder.words].flatten())
        self.best.load_state_dict(decoder.state_dict())

    def _step(self) -> float:
        """Make one step of the optimiser; return the loss before it, nats per token."""
        learned = self.lessons.learned
        picks = torch.randint(len(learned), (self.settings.batch,), generator=self.generator).tolist()
        lessons = [learned[pick] for pick in picks]
        means, noise = self._noisy_means(lessons)
        for group in self.optimiser.param_groups:
            group["lr"] = float(self.settings.learning_rate) * self._rate()
        self.optimiser.zero_grad()
        loss, tokens = self.network.loss(self._soft(self.decoder, means, noise), [each.line for each in lessons])
        (loss / tokens).backward()  # type: ignore[no-untyped-call]  # torch's own gap
        torch.nn.utils.clip_grad_norm_(self.decoder.parameters(), _LONGEST_STEP)
        self.optimiser.step()
        return float(loss.detach()) / tokens

    def _rate(self) -> float:
        """Return the factor of the learning rate: warm-up over the first steps, then half a cosine."""
        step, steps = self._state.step, self.settings.steps
        falling = (1 + math.cos(math.pi * step / steps)) / 2
        return min(1.0, (step + 1) / _WARM_UP) * (_LAST_RATE + (1 - _LAST_RATE) * falling)

    def _soft(self, decoder: Decoder, means: Tensor, noise: Tensor) -> Tensor:
        soft: Tensor = decoder(self.space.shrink(means, noise), self.space.mean, self.lens)
        return soft

    def _noisy_means(self, lessons: Sequence[Lesson]) -> tuple[Tensor, Tensor]:
        """Return noisy means of some of each lesson's documents' vectors, [B, c * r], and the noise levels, [B]."""
        means, levels = [], []
        for lesson in lessons:
            vectors = self.vectors[lesson.source]
            count = max(1, math.ceil(len(vectors) * float(self._uniform(0.25, 1.0))))
            chosen = torch.randperm(len(vectors), generator=self.generator)[:count]
            means.append(vectors[chosen].sum(0) / count)
            levels.append(self._level())
        noise = torch.tensor(levels)
        clean = torch.stack(means)
        return clean + noise[:, None] * torch.randn(clean.shape, generator=self.generator), noise

    def _level(self) -> float:
        """Draw the standard deviation of the noise of one mean: none, or uniform on a logarithmic scale."""
        if not self.settings.noisy or float(self._uniform(0.0, 1.0)) < _WITHOUT_NOISE:
            return 0.0
        least, most = math.log(self.settings.noise_least), math.log(self.settings.noise_most)
        return math.exp(float(self._uniform(least, most))) * self.clip_norm

    def _uniform(self, low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand((), generator=self.generator)

    def _held_out_means(self) -> list[tuple[list[Lesson], Tensor, Tensor]]:
        """Return the fixed data of all checks: lessons, clean means, and standard normal noise for them."""
        generator = generator_of(self.settings.seed + 2)
        order = torch.randperm(len(self.lessons.held_out), generator=generator).tolist()[:_CHECKED]
        checks = []
        for start in range(0, len(order), self.settings.batch):
            lessons = [self.lessons.held_out[place] for place in order[start : start + self.settings.batch]]
            clean = torch.stack([self._mean(lesson.source) for lesson in lessons])
            checks.append((lessons, clean, torch.randn(clean.shape, generator=generator)))
        return checks

    def _mean(self, source: int) -> Tensor:
        vectors = self.vectors[source]
        return vectors.sum(0) / max(1, len(vectors))

    def _measure(self, training: float | None) -> None:
        """Measure the loss on the held-out groups, and keep the weights if they are the best so far."""
        clean, noisy, _ = self._losses(self.decoder, blind=False)
        line = {"step": self._state.step, "clean": clean, "noisy": noisy}
        self._state.course.append(line if training is None else {**line, "training": training})
        loss = (clean + noisy) / 2
        self._state.looks_since_best += 1
        if loss < self._state.best_loss:
            self._state.best_loss, self._state.best_step, self._state.looks_since_best = loss, self._state.step, 0
            self.best.load_state_dict(self.decoder.state_dict())

    @torch.no_grad()
    def _losses(self, decoder: Decoder, *, blind: bool = True) -> tuple[float, float, float]:
        """Return nats per token on the held-out groups: without noise, with noise, and with the mean of all groups."""
        level = self._middle()
        sums, tokens = [0.0, 0.0, 0.0], 0
        for lessons, clean, drawn in self._checks:
            lines = [lesson.line for lesson in lessons]
            inputs = [(clean, 0.0), (clean + level * drawn, level)] if level else [(clean, 0.0)]
            inputs += [(self.space.group_mean.expand_as(clean), 0.0)] if blind else []
            losses = [
                self.network.loss(self._soft(decoder, means, torch.full((len(lines),), noise)), lines)
                for means, noise in inputs
            ]
            loss_values = [float(loss) for loss, _ in losses]
            loss_values = loss_values if level else [loss_values[0], *loss_values]
            sums = [total + more for total, more in zip(sums, [*loss_values, 0.0][:3], strict=True)]
            tokens += losses[0][1]
        return sums[0] / tokens, sums[1] / tokens, sums[2] / tokens

    def _middle(self) -> float:
        """Return the noise level of checks; 0 for training without noise."""
        least, most = float(self.settings.noise_least), float(self.settings.noise_most)
        return math.sqrt(least * most) * self.clip_norm
