"""What the utility benchmark reads: public texts that stand for private ones, and the model's states along them.

A trace is one held-out text, read once by the public row and by `MOST_ROWS` private rows, each of which has another
text as its reference. The hidden states before some of its tokens are kept; all logits follow from them. Every system
and setting is then computed from the same logits, so differences between systems carry no sampling noise.
"""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import numpy as np
import torch
from torch import Tensor

from benchmarks.common.json_lines import DATA
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.rows import RowBatch
from tasks.inference.prompt_rendering import prompts_for, reference_tokens
from tasks.inference.prompt_spec import PromptSpec

DESCRIPTIONS = {
    "mts_dialog": "Short dialogues between a doctor and a patient about symptoms and history.",
    "yelp": "Reviews that customers write about restaurants, shops and other businesses.",
}
NOTES = "mts_notes"
"""What doctors noted of the dialogues of mts_dialog, half of them of 13 words at most; a field of its file."""
FIELDS = {NOTES: ("mts_dialog", "summary")}
MOST_ROWS = 31
REFERENCE_TOKENS = 128
STRIDE, POSITIONS = 4, 16
"""Of a held-out text, the tokens 0, 4, .., 60: its beginning, and how it goes on."""
SEED = 20260101
"""Of the choice of texts, public and the same for every system."""
_ROWS_AT_ONCE = 8


@dataclass(frozen=True)
class Forced:
    """One held-out text and the batch of texts that the private rows read.

    Attributes:
        tokens: of the held-out text, cut to what is read of it.
        references: `MOST_ROWS` token sequences; B rows are the first B of them.
    """

    number: int
    tokens: tuple[int, ...]
    references: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Trace:
    """Hidden states before the chosen tokens of one held-out text.

    Attributes:
        hidden: float32 [1 + rows, positions, D]; the public row comes first.
        following: int64 [positions], the token that the text really has there.
    """

    hidden: Tensor
    following: Tensor

    def logits(self, model: LanguageModel) -> Tensor:
        """float32 [1 + rows, positions, V]."""
        return model.logits(self.hidden.to(model.device))

    def save(self, path: Path) -> None:
        part = path.with_suffix(".part.npz")
        np.savez(part, hidden=self.hidden.numpy(), following=self.following.numpy())
        part.rename(path)

    @classmethod
    def load(cls, path: Path) -> "Trace":
        kept = np.load(path)
        return cls(torch.from_numpy(kept["hidden"]), torch.from_numpy(kept["following"]))


def read_texts(data: str, folder: Path = DATA) -> list[str]:
    """All texts of a public data set, in the file's order."""
    file, field = FIELDS.get(data, (data, "text"))
    return [json.loads(line)[field] for line in (folder / f"{file}.jsonl").open(encoding="utf-8")]


def choose(
    tokenizer: object,
    texts: Sequence[str],
    count: int,
    *,
    rows: int = MOST_ROWS,
    needed: int = STRIDE * (POSITIONS - 1) + 1,
) -> list[Forced]:
    """`count` held-out texts of at least `needed` tokens, each with `rows` others; a held-out text is no reference.

    Raises:
        ValueError: there are not so many.
    """
    order = random.Random(SEED).sample(range(len(texts)), len(texts))
    held: list[tuple[int, tuple[int, ...]]] = []
    for place in order:
        tokens = reference_tokens(tokenizer, texts[place], needed)
        if len(held) < count and len(tokens) == needed:
            held.append((place, tokens))
    if len(held) < count:
        raise ValueError(f"only {len(held)} texts have {needed} tokens")
    others = [place for place in order if place not in {chosen for chosen, _ in held}]
    return [
        Forced(number, tokens, _references(tokenizer, texts, others, number, rows))
        for number, (_, tokens) in enumerate(held)
    ]


def _references(
    tokenizer: object, texts: Sequence[str], others: Sequence[int], number: int, rows: int
) -> tuple[tuple[int, ...], ...]:
    """Batches of neighbouring held-out texts have no text in common while there are enough."""
    chosen = [others[(number * rows + row) % len(others)] for row in range(rows)]
    return tuple(reference_tokens(tokenizer, texts[place], REFERENCE_TOKENS) for place in chosen)


@torch.inference_mode()
def read(
    model: LanguageModel,
    description: str,
    text: Forced,
    *,
    stride: int = STRIDE,
) -> Trace:
    """The states of all rows before every `stride`-th token of the text, the first included.

    Rows share padded passes here: this is a measurement on public texts, never part of a private draw.
    """
    public, private = prompts_for(model.tokenizer, PromptSpec(description))
    prompts = [public.tokens, *(private.around(reference) for reference in text.references)]
    found: dict[int, Tensor] = {}
    for some in _groups(prompts):
        rows = [(*prompts[index], *text.tokens[:-1]) for index in some]
        longest = max(map(len, rows))
        states = RowBatch(model, len(rows), longest).read_all(rows, longest)
        # The state of the prompt's last token foretells token 0.
        for index, state in zip(some, states[:, -len(text.tokens) :: stride], strict=True):
            found[index] = state.float().cpu()
    following = torch.tensor(text.tokens[::stride], dtype=torch.int64)
    return Trace(torch.stack([found[index] for index in range(len(prompts))]), following)


def _groups(prompts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Rows of similar length, a few at a time; the public one alone."""
    yield [0]
    order = sorted(range(1, len(prompts)), key=lambda index: len(prompts[index]))
    for start in range(0, len(order), _ROWS_AT_ONCE):
        yield order[start : start + _ROWS_AT_ONCE]


def traces(model: LanguageModel, data: str, count: int, kept: Path) -> Iterator[tuple[int, Trace]]:
    """Each held-out text's trace, read once and then kept in `kept`."""
    kept.mkdir(parents=True, exist_ok=True)
    for text in choose(model.tokenizer, read_texts(data), count):
        path = kept / f"{data}-{text.number}.npz"
        if not path.exists():
            read(model, DESCRIPTIONS[data], text).save(path)
        yield text.number, Trace.load(path)
