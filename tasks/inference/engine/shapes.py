"""The public sizes of a session: every number here is a function of declared parameters, never of private counts.

Memory that a session takes on an accelerator beside its keys and values is counted from them, too. Three parts count:
what lies between the kernels of a pass, which recorded passes share in one pool (`recorded_passes.CudaGraphs`); the
outputs that recorded passes keep, one for each shape; and logits, with the rows of the head that are gathered for them
(`language_model.GATHERED`). Each is the most that any system may ask for. On a CPU nothing is counted: half of its
memory is left free for that.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tasks.inference.catalogue.model_check import ContextTooLong
from tasks.inference.engine.attention import aligned, attention_of, grouped_attention
from tasks.inference.engine.language_model import GATHERED, LanguageModel
from tasks.inference.engine.rows import blocks, prefill_shape, visible_counts
from tasks.inference.prompt_rendering import PromptPieces

WITH_ALL_ELSE = 1.2
"""An accelerator's memory for a session over that for its keys and values: nine tenths and three quarters of the free
memory (`memory.memory_budget`)."""

# Beyond this many rows a pass is bound by arithmetic and larger ones gain nothing (two cores; one accelerator).
_ROWS_WORTH = {"cpu": 64, "cuda": 1024}


@dataclass(frozen=True)
class Sizes:
    """Columns of a session's caches.

    Attributes:
        public_prompt: the longest public prompt.
        prefix: the longest private prefix.
        segment: reference limit and the longest private suffix.
        new_tokens: columns for what is generated; the last token drawn is never read.
        reference_tokens: to how many tokens a reference is cut.
        references: the public number of references of a generation.
    """

    public_prompt: int
    prefix: int
    segment: int
    new_tokens: int
    reference_tokens: int = 0
    references: int = 0

    @classmethod
    def of(
        cls,
        public: Sequence[PromptPieces],
        private: Sequence[PromptPieces],
        max_reference_tokens: int,
        max_new_tokens: int,
        references: int = 0,
    ) -> "Sizes":
        """Return the sizes these public parameters imply; a system without private rows has no `private`."""
        if not public or max_new_tokens < 1 or (private and max_reference_tokens < 1):
            raise ValueError("at least one prompt, one reference token and one new token are needed")
        return cls(
            public_prompt=max(len(pieces.tokens) for pieces in public),
            prefix=max((len(pieces.prefix) for pieces in private), default=0),
            segment=max(max_reference_tokens + len(pieces.suffix) for pieces in private) if private else 0,
            new_tokens=max_new_tokens - 1,
            reference_tokens=max_reference_tokens if private else 0,
            references=references,
        )

    @property
    def max_new_tokens(self) -> int:
        """The most tokens that a generation draws."""
        return self.new_tokens + 1

    @property
    def public_columns(self) -> int:
        """Columns of the public rows' cache."""
        return self.public_prompt + self.new_tokens

    @property
    def private_columns(self) -> int:
        """Columns of the private rows' caches."""
        return self.prefix + self.segment + self.new_tokens

    def check_holds(self, public: PromptPieces, private: PromptPieces | None) -> None:
        """Raise ValueError unless these prompts are within the sizes."""
        if not public.tokens or len(public.tokens) > self.public_prompt:
            raise ValueError(f"a public prompt has 1 to {self.public_prompt} tokens, not {len(public.tokens)}")
        if private is not None:
            self.check_holds_private(private)

    def check_holds_private(self, private: PromptPieces) -> None:
        """Raise ValueError unless this prompt of private rows is within the sizes."""
        if not (private.prefix and private.suffix):
            raise ValueError("a private prompt needs public tokens before and after the reference")
        if len(private.prefix) > self.prefix or len(private.suffix) > self.segment - self.reference_tokens:
            raise ValueError("the private prompt is longer than the public sizes say")

    def check_fits(self, model: LanguageModel) -> None:
        """Raise ContextTooLong unless every row fits the model's context."""
        needed = max(self.public_columns, self.private_columns) + 1
        if needed > model.longest:
            raise ContextTooLong(needed, model.longest)

    def model_for(self, model: LanguageModel) -> LanguageModel:
        """Return the model with the table of angles by which all rows of a session are read: these sizes decide it.

        Raises:
            ContextTooLong: as `check_fits`.
        """
        self.check_fits(model)
        return model.for_length(max(self.public_columns, self.private_columns))


def likely_rows(generations: int, nominal_references: int) -> int:
    """Room for the rows of `generations` batches of public nominal size.

    Keyed assignment makes batch sizes vary like a Poisson variable; one standard deviation of room spares most
    sessions a second, nearly empty chunk.
    """
    nominal = generations * nominal_references
    return nominal + math.isqrt(nominal)


def rows_per_chunk(generations: int, nominal_references: int, device: torch.device) -> int:
    """Return the fixed number of rows in every pass over private rows: a multiple of a prefill pass's rows."""
    rows, height = max(1, likely_rows(generations, nominal_references)), prefill_shape(device)[0]
    chunks = math.ceil(rows / _rows_worth(device))
    return height * math.ceil(rows / chunks / height)


def public_rows_per_chunk(places: int, device: torch.device) -> int:
    """Return the fixed number of public rows in a pass."""
    chunks = math.ceil(places / _rows_worth(device))
    return math.ceil(places / chunks)


def groups_read_together(nominal_references: int, device: torch.device) -> int:
    """Return how many groups of public nominal size are sorted and read in one go, where nothing of them is kept."""
    return max(1, _rows_worth(device) // max(1, nominal_references))


def _rows_worth(device: torch.device) -> int:
    return _ROWS_WORTH.get(device.type, _ROWS_WORTH["cpu"])


def smaller_chunk(rows: int, device: torch.device) -> int:
    """Return half as many rows per pass, but still a multiple of a prefill pass's rows and at least those."""
    height = prefill_shape(device)[0]
    return max(height, rows // 2 // height * height)


def generations_at_once(model: LanguageModel, sizes: Sizes, memory: int) -> int:
    """Return how many generations' keys and values fit into `memory` bytes, with the scratch of a prompt; at least 1.

    Keys and values together with all else that a session takes (`working_bytes`) are at most `WITH_ALL_ELSE` times
    `memory`, on each of the model's devices. One more would not fit; because passes are of whole chunks, a larger
    number still might.
    """
    column = 2 * model.cache_dtype.itemsize * model.layers * model.key_value_heads * model.head_size  # key and value
    scratch = prefill_shape(model.device)[0] * sizes.private_columns

    def fit(generations: int) -> bool:
        chunk, private = 0, 0
        if sizes.references:
            chunk = rows_per_chunk(generations, sizes.references, model.device)
            private = math.ceil(likely_rows(generations, sizes.references) / chunk) * chunk
        needed = column * (private * sizes.private_columns + generations * sizes.public_columns + scratch)
        largest = max(chunk, public_rows_per_chunk(generations, model.device))
        beside = working_bytes(model, generations, private, largest, sizes.public_columns, sizes.private_columns)
        return needed <= memory and needed + len(model.devices) * beside <= WITH_ALL_ELSE * memory

    fits, exceeds = 1, 2
    while fit(exceeds):
        fits, exceeds = exceeds, 2 * exceeds
    while exceeds - fits > 1:
        middle = (fits + exceeds) // 2
        fits, exceeds = (middle, exceeds) if fit(middle) else (fits, middle)
    return fits


_FLOAT = 4
_STATES, _WIDE, _SCORES = 8, 4, 4
"""Tensors of a layer that are there at one time: hidden states, the widest products, scores of all columns."""
_PUBLIC_LOGITS, _PRIVATE_LOGITS = 6, 3
"""Copies of the logits of all rows: what a rule computes from public ones, and chunks that are joined and chosen."""


def working_bytes(
    model: LanguageModel, public_rows: int, private_rows: int, rows: int, public_columns: int, private_columns: int
) -> int:
    """Return the bytes beside keys and values; 0 on a CPU.

    Args:
        public_rows, private_rows: rows of all passes together.
        rows: of the largest pass over one token of each row.
        public_columns, private_columns: of their caches.
    """
    if model.device.type == "cpu":
        return 0
    height, width = prefill_shape(model.device)
    columns = aligned(max(public_columns, private_columns))
    between = max(pass_bytes(model, rows, 1, columns), pass_bytes(model, height, width, columns))
    steps = len(visible_counts(1, columns, model.device))
    kept = steps * (public_rows + private_rows) + len(blocks(columns, width)) * height * width
    logits = _PUBLIC_LOGITS * public_rows + _PRIVATE_LOGITS * private_rows
    return between + _FLOAT * (kept * model.width + logits * model.vocabulary + GATHERED)


def pass_bytes(model: LanguageModel, rows: int, queries: int, columns: int) -> int:
    """Return the bytes between the kernels of a pass over `queries` tokens of `rows` rows; float32 numbers throughout.

    Scores of all columns lie in memory where attention is torch's (`grouped_attention`); masks do in any case.
    """
    scores = _SCORES * model.heads if attention_of(model.kernels) is grouped_attention else 0
    return _FLOAT * rows * queries * (_STATES * model.width + _WIDE * _widest(model) + (_SCORES + scores) * columns)


def _widest(model: LanguageModel) -> int:
    """Return the largest number of outputs of a layer's weight."""
    tables = {id(module.weight) for module in model.decoder.modules() if isinstance(module, nn.Embedding)}
    weights: list[Tensor] = [weight for weight in model.decoder.parameters() if id(weight) not in tables]
    return max((max(weight.shape[-2:]) for weight in weights), default=model.width)
