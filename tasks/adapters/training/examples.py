"""Training examples of an adapter: public documents as hidden states, and tokens of their summaries."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import torch
from torch import Tensor

from tasks.adapters.metadata import AdapterWording
from tasks.adapters.prompts import reading_pieces, writing_pieces
from tasks.adapters.training.dataset import Example, TrainingData
from tasks.adapters.training.frozen_model import Line
from tasks.adapters.training.settings import TrainingSettings
from tasks.common import progress
from tasks.inference.catalogue.model_check import ContextTooLong
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.hidden_states import last_hidden
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.shapes import Sizes
from tasks.inference.prompt_rendering import reference_tokens


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
