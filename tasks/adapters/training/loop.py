"""Training loop of an adapter: steps, checks on the held-out groups, and the state of a checkpoint.

Everything is public, so it uses an ordinary seeded generator; no noise that protects a person is drawn from it.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor

from tasks.adapters.adapter import Decoder, Space
from tasks.adapters.logit_lens import Lens
from tasks.adapters.metadata import Fit, figure
from tasks.adapters.projection import clipped
from tasks.adapters.store import CURVE, LOSSES
from tasks.adapters.training import checkpoint
from tasks.adapters.training.examples import Lesson, Lessons, generator_of
from tasks.adapters.training.frozen_model import FrozenNetwork
from tasks.adapters.training.loss_plot import curve
from tasks.adapters.training.settings import TrainingSettings
from tasks.common import progress

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
        self._state = checkpoint.State()
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

    def state(self) -> checkpoint.State:
        """Return everything that the next step depends on."""
        self._state.tensors = {
            **{f"decoder.{name}": value for name, value in self.decoder.state_dict().items()},
            **{f"best.{name}": value for name, value in self.best.state_dict().items()},
            **checkpoint.optimiser_tensors(self.optimiser),
            "generator": self.generator.get_state(),
        }
        return self._state

    def go_on(self, state: checkpoint.State) -> None:
        """Restore the state of an interrupted training."""
        self._state = state
        for name, module in (("decoder.", self.decoder), ("best.", self.best)):
            module.load_state_dict(
                {key.removeprefix(name): value for key, value in state.tensors.items() if key.startswith(name)}
            )
        checkpoint.restore_optimiser(self.optimiser, state.tensors)
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
