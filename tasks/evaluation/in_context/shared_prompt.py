"""Shared prompt of many questions, read once: its keys and values are copied to each row.

Rows share padded passes of changing shape: a measurement on public texts, never part of a private draw.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.rows import RowBatch

MEMORY = 2**29
"""Bytes that keys and values of the rows of one pass may take."""

# Tokens of a pass, padding included: more at a time gain nothing on a processor.
_TOKENS_AT_ONCE = 2048


@dataclass(frozen=True, eq=False)
class ReadQuestions:
    """Questions that the model has read behind a shared prompt.

    Attributes:
        numbers: which questions, in the order of the rows.
        rows: their keys and values, the shared prompt's before them.
        hidden: float32 [R, D], the states after the last token of each.
    """

    numbers: tuple[int, ...]
    rows: RowBatch
    hidden: Tensor


@torch.inference_mode()
def read_prompt(model: LanguageModel, tokens: Sequence[int]) -> RowBatch:
    """Return a batch of one row that has read `tokens`."""
    row = RowBatch(model, 1, len(tokens))
    row.read([tokens], len(tokens))
    return row


def ask(
    prompt: RowBatch, questions: Sequence[Sequence[int]], copies: int = 1, more: int = 0
) -> Iterator[ReadQuestions]:
    """Read every question after `prompt`, questions of similar length together.

    Args:
        copies: rows that will be made of each row afterwards, with `more` columns; they too must fit the memory.
    """
    model = prompt.model
    longest_first = sorted(range(len(questions)), key=lambda number: -len(questions[number]))
    while longest_first:
        width = len(questions[longest_first[0]])
        count = _questions_per_pass(model, prompt.filled + width + more, width, copies)
        numbers, longest_first = tuple(longest_first[:count]), longest_first[count:]
        yield _read_questions(prompt, numbers, [questions[number] for number in numbers], width)


@torch.inference_mode()
def _read_questions(
    prompt: RowBatch, numbers: tuple[int, ...], questions: Sequence[Sequence[int]], width: int
) -> ReadQuestions:
    rows = RowBatch(prompt.model, len(numbers), prompt.filled + width)
    rows.begin_with(prompt, [0] * len(numbers))
    return ReadQuestions(numbers, rows, rows.read(questions, width))


def _questions_per_pass(model: LanguageModel, columns: int, width: int, copies: int) -> int:
    """Return how many questions a pass takes; at least one."""
    column = 2 * 4 * model.layers * model.key_value_heads * model.head_size  # key and value, four bytes each
    return max(1, min(_TOKENS_AT_ONCE // width, MEMORY // (column * columns * (1 + copies))))
