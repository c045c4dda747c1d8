"""Loaded causal language model: the part of transformers that the engine needs, its KV cache, its head over candidates.

The cache has keys and values of a fixed number of rows, in memory that is allocated once. Growing a cache by
concatenation copies all of it at every token; here a pass writes its own columns in place and attention reads a view of
the columns in use. The object is what transformers calls `past_key_values`: its attention layers call `update` and
nothing else.

The head over candidate tokens is computed in products of few widths. How many candidates there are differs from step to
step and follows from what was drawn. A product of another width may be another kernel, and the device is asked about
every shape before anything is paid for (`SessionOpening`): so each product is cut into parts whose widths are
CANDIDATE_STEP times a power of two.

All rows of a pass may meet the candidates of all generations in one product (`logits_of`), or each row those of its own
generation (`logits_by_row`). The second reads rows of the head once for each row of the pass, and computes a few
hundredth of the products: it is for accelerators, where hundreds of generations have more candidates together than
there are tokens.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, Protocol, Self

import torch
from torch import Tensor, nn

from tasks.inference.catalogue.devices import keeps_bfloat16, name_of
from tasks.inference.catalogue.model_check import Precision
from tasks.inference.engine.attention import Attention, aligned, attention_of, use_attention, within_window
from tasks.inference.engine.linear_layers import DenseLinear, PackedLinear, linear, linear_of_chosen
from tasks.inference.kernels.kernel_choice import PLAIN, KernelName, KernelOrder


class Cache(Protocol):
    """Key-value cache that a pass writes to (`kv_cache.CacheWindow`)."""

    def newest(self, queries: int) -> int | Tensor:
        """Return the column that the last of `queries` tokens of a row is written to, also as int64 [1]."""
        ...


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A decoder, its head and its tokenizer, on one device; or with its layers spread over several devices.

    Attributes:
        name, revision: what was asked for and which version it is.
        digest: SHA-256 of its files (`model_store`), for the ledger's record.
        decoder: transformers' base model (untyped library), tokens to hidden states.
        head_weight: float32 [V, D], one row per token; `head_bias`: [V] or None.
        packed_head: the head in packed form, on a CPU; the head is float32 at every precision.
        precision: of the decoder's layers.
        soft_tokens: [S, D] in the type of the embeddings, or None: what the token ids V..V+S-1 stand for.
        tokenizer: transformers' tokenizer.
        device: of everything but the layers: tokens, masks, hidden states and logits.
        layer_devices: the device of each layer, of its keys and values too; empty: all are on `device`.
        stop_tokens: every token id that ends a text, ascending.
        layers, heads, key_value_heads, head_size: shape of attention and of the key/value cache.
        positions: the longest context, in tokens, that the decoder's tables of angles are for.
        long_tables: its rotary embeddings for rows of more tokens, at most `long_positions`; none if it has none.
        window: tokens that a layer with a sliding window sees; None if no layer has one.
        layer_kinds: transformers' kind of each layer, where only some have the window; else empty.
        kernel_order: the kernels that it may be multiplied by.
        logit_factor, logit_cap: logits are `cap * tanh(factor * states @ head / cap)`; None: no cap.
    """

    name: str
    revision: str
    digest: str
    decoder: Any
    head_weight: Tensor
    head_bias: Tensor | None
    tokenizer: Any
    device: torch.device
    stop_tokens: tuple[int, ...]
    layers: int
    heads: int
    key_value_heads: int
    head_size: int
    positions: int
    packed_head: PackedLinear | None
    precision: Precision = "float32"
    soft_tokens: Tensor | None = None
    window: int | None = None
    layer_kinds: tuple[str, ...] = ()
    long_tables: Mapping[str, nn.Module] = field(default_factory=dict)
    long_positions: int = 0
    logit_factor: float = 1.0
    logit_cap: float | None = None
    kernel_order: KernelOrder = field(default_factory=lambda: KernelOrder((PLAIN,)))
    layer_devices: tuple[torch.device, ...] = ()

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """Every device that computes in a pass, once each, `device` first; more than one where layers are spread."""
        return tuple(dict.fromkeys((self.device, *self.layer_devices)))

    @property
    def device_name(self) -> str:
        """Name of the device, or of the devices over which layers are spread."""
        return name_of(self.devices)

    def device_of_layer(self, layer: int) -> torch.device:
        """Return the device of a layer, counted from 0, and of its keys and values."""
        return self.layer_devices[layer] if self.layer_devices else self.device

    @property
    def cache_dtype(self) -> torch.dtype:
        """Data type of stored keys and values: a step reads all of them, so fewer bits also take less time.

        That holds where the device multiplies bfloat16.
        """
        fewer = self.precision != "float32" and keeps_bfloat16(self.device)
        return torch.bfloat16 if fewer else torch.float32

    @property
    def vocabulary(self) -> int:
        """V, the number of tokens that have a logit."""
        return self.head_weight.shape[0]

    @property
    def width(self) -> int:
        """D, the size of a hidden state."""
        return self.head_weight.shape[1]

    @property
    def kernels(self) -> KernelName:
        """Name of the kernels that multiply; results of one kernel need not hold for another."""
        return self.kernel_order.current

    @property
    def attention(self) -> Attention:
        """The attention of its layers."""
        return attention_of(self.kernels)

    @property
    def longest(self) -> int:
        """The most tokens of a row that the model reads, by whichever table."""
        return self.long_positions if self.long_tables else self.positions

    def for_length(self, tokens: int) -> Self:
        """Return this model for rows of at most `tokens` tokens, a public number that decides the table of angles."""
        if tokens <= self.positions or not self.long_tables:
            return self
        decoder = with_modules(self.decoder, self.long_tables)
        return replace(self, decoder=decoder, positions=self.long_positions, long_tables={})

    def use_next_kernels(self) -> bool:
        """Multiply by the next kernels from now on, in all copies of this model; return whether there are any."""
        if not self.kernel_order.advance():
            return False
        self.use_kernels()
        return True

    def use_kernels(self) -> None:
        """Let every layer multiply by the kernels of `kernel_order`, in place."""
        layers = self.decoder.modules() if isinstance(self.decoder, nn.Module) else ()
        for layer in (*layers, self.packed_head):
            if isinstance(layer, PackedLinear | DenseLinear):
                layer.use(self.kernels)
        if isinstance(self.decoder, nn.Module):
            use_attention(self.decoder, self.kernels)

    def with_soft_tokens(self, table: Tensor) -> Self:
        """Return this model with the token ids V..V+S-1 standing for the rows of `table` in prompts.

        They are read and never written: logits stay [V], and a reference with one of them is a null row. Row number
        t takes the place of a token's embedding (`embed`), rounded to its type; so one that equals a token's
        embedding is that token, to the bit. An earlier table is replaced. Weights are shared, the digest is the same.
        A worker process loads a model of its own, which has no table (`tasks.decoding.workers`).

        Args:
            table: float32 [S, D], at least one row, all finite, on any device.

        Raises:
            ValueError: another shape, or a value that is not finite.
        """
        like = self.decoder.get_input_embeddings().weight
        if table.dim() != 2 or not len(table) or table.shape[1] != like.shape[1]:
            raise ValueError(f"soft tokens must be [S, {like.shape[1]}] with S > 0, not {list(table.shape)}")
        rows = table.detach().to(self.device, like.dtype, copy=True)
        if not rows.isfinite().all():
            raise ValueError("soft tokens must be finite")
        return replace(self, soft_tokens=rows)

    def check_knows(self, prompt: Sequence[int]) -> None:
        """Raise ValueError unless the model can read every token of a public prompt."""
        token_count = self.vocabulary + (0 if self.soft_tokens is None else len(self.soft_tokens))
        if not all(0 <= token < token_count for token in prompt):
            raise ValueError(f"a prompt has a token that is not among the {token_count} that the model reads")

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the input embeddings of `tokens`: int64 [...] -> [..., D] in the type of the embeddings."""
        embeddings = self.decoder.get_input_embeddings()
        if self.soft_tokens is None:
            plain: Tensor = embeddings(tokens)
            return plain
        soft = tokens >= self.vocabulary
        which = (tokens - self.vocabulary).clamp_min(0)
        return torch.where(soft[..., None], self.soft_tokens[which], embeddings(tokens.masked_fill(soft, 0)))

    def hidden(self, tokens: Tensor, positions: Tensor, bias: Tensor, cache: Cache) -> Tensor:
        """Hidden states of `tokens`, whose keys and values are written into `cache`.

        Args:
            tokens, positions: int64 [R, Q].
            bias: float32 [R, 1, Q, S], added to the attention scores: 0 if a key is seen, -inf where not.
            cache: a `KeyValueCache`, or a view of some of its rows.

        Returns:
            float32 [R, Q, D], after the final norm.
        """
        read = {"input_ids": tokens} if self.soft_tokens is None else {"inputs_embeds": self.embed(tokens)}
        output = self.decoder(
            **read,
            position_ids=positions,
            attention_mask=self._masks(bias, cache),
            past_key_values=cache,
            use_cache=True,
        )
        states: Tensor = output.last_hidden_state
        return states.float()

    def _masks(self, bias: Tensor, cache: Cache) -> Tensor | dict[str, Tensor]:
        """Return the masks that transformers' layers add to their scores; one per kind of layer if kinds differ.

        Whether a window matters is decided by the number of columns, which is public.
        """
        if self.window is None:
            return bias
        queries, columns = bias.shape[-2:]
        windowed = bias
        if columns > self.window:
            windowed = within_window(bias, self.window, cache.newest(queries))
        return {"full_attention": bias, "sliding_attention": windowed} if self.layer_kinds else windowed

    def logits(self, hidden: Tensor) -> Tensor:
        """Map float32 [..., D] -> float32 [..., V]."""
        if self.packed_head is not None:
            return self._final(self.packed_head(hidden))
        return self._final(linear(hidden, self.head_weight, self.head_bias, self.kernels))

    def logits_of(self, hidden: Tensor, tokens: Tensor) -> Tensor:
        """Logits of some tokens only: float32 [R, D] and int64 [N] -> float32 [R, N]."""
        bias = None if self.head_bias is None else self.head_bias[tokens]
        return self._final(linear(hidden, self.head_weight[tokens], bias, self.kernels))

    def logits_of_each(self, hidden: Tensor, tokens: Tensor) -> Tensor:
        """Logits of other tokens for each row: float32 [R, D] and int64 [R, N] -> float32 [R, N]."""
        return self._final(linear_of_chosen(hidden, self.head_weight, self.head_bias, tokens, self.kernels))

    def _final(self, products: Tensor) -> Tensor:
        """Return the logits of the head's products: both steps act on each number by itself, and keep their order."""
        if self.logit_factor != 1.0:
            products = products * self.logit_factor
        return products if self.logit_cap is None else torch.tanh(products / self.logit_cap) * self.logit_cap


def with_modules(network: nn.Module, modules: Mapping[str, nn.Module]) -> nn.Module:
    """Return a network with these modules in the place of those of the same names, which shares all others.

    Args:
        modules: by their dotted names in `network`.
    """
    for name, module in modules.items():
        first, _, rest = name.partition(".")
        part = network._modules[first]
        if rest and part is not None:
            module = with_modules(part, {rest: module})
        twin = copy.copy(network)
        twin._modules = {**network._modules, first: module}
        network = twin
    return network


@dataclass(frozen=True, eq=False)
class KeyValueCache:
    """One key and one value tensor per layer, each [rows, key/value heads, columns, head size], on the layer's device.

    Keys lie in memory the way their product with queries reads them, columns innermost. A pass sees whole multiples
    of ALIGNMENT columns; those that hold nothing of a row's own are masked.

    Memory starts as zeros and not as whatever was there: a masked key weighs 0, but 0 x NaN is NaN.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]

    @classmethod
    def allocate(
        cls, model: LanguageModel, rows: int, columns: int, *, layers: Sequence[int] | None = None
    ) -> "KeyValueCache":
        """Zeros for `rows` rows of `model`, of at least `columns` columns; `layers`: which, by default all."""
        heads, size, columns = model.key_value_heads, model.head_size, aligned(columns)
        devices = [model.device_of_layer(layer) for layer in (range(model.layers) if layers is None else layers)]

        def zeros(*shape: int) -> tuple[Tensor, ...]:
            each = (rows, heads, *shape)
            return tuple(torch.zeros(each, device=device, dtype=model.cache_dtype) for device in devices)

        return cls(tuple(key.transpose(2, 3) for key in zeros(size, columns)), zeros(columns, size))

    def copy_columns(self, source: "KeyValueCache", rows: Tensor, columns: int) -> None:
        """Start every row r with the first `columns` columns of row `rows[r]` of `source`; rows: int64."""
        rows_on = cache(rows.to)  # once for each device
        for mine, theirs in self._beside(source):
            mine[:, :, :columns] = theirs[rows_on(mine.device), :, :columns]

    def put(self, slots: Tensor, start: int, source: "KeyValueCache", rows: Tensor, columns: slice) -> None:
        """Copy `columns` of the rows `rows` of `source` to the columns from `start` on of the rows `slots`."""
        stop = start + columns.stop - columns.start
        slots_on, rows_on = cache(slots.to), cache(rows.to)
        for mine, theirs in self._beside(source):
            mine[slots_on(mine.device), :, start:stop] = theirs[rows_on(mine.device), :, columns]

    def take_over(self, slots: Tensor, source: "KeyValueCache", rows: Tensor) -> None:
        """Copy whole rows of a cache of the same length."""
        slots_on, rows_on = cache(slots.to), cache(rows.to)
        for mine, theirs in self._beside(source):
            mine[slots_on(mine.device)] = theirs[rows_on(mine.device)]

    def clear(self, slots: Tensor | None = None) -> None:
        """Set all rows, or those in `slots`, to zero: no value of an earlier row, NaN above all, may reach the next."""
        slots_on = None if slots is None else cache(slots.to)
        for mine in self.keys + self.values:
            if slots_on is None:
                mine.zero_()
            else:
                mine[slots_on(mine.device)] = 0.0

    def window(self, rows: slice, start: int | Tensor, visible_columns: int | None = None) -> "CacheWindow":
        """Return the part of a pass over `rows` that writes from column `start` on.

        Args:
            start: int64 [1] on the model's device for a pass over one token of each row, which then may be recorded
                and replayed for another column.
            visible_columns: it reads the first so many columns; if not given, all up to those it writes, or all.
        """
        return CacheWindow(self, rows, start, visible_columns)

    def _beside(self, source: "KeyValueCache") -> list[tuple[Tensor, Tensor]]:
        return list(zip(self.keys + self.values, source.keys + source.values, strict=True))


@dataclass(frozen=True, eq=False)
class CacheWindow:
    """The `past_key_values` of one pass."""

    cache: KeyValueCache
    rows: slice
    start: int | Tensor
    visible_columns: int | None
    _starts: dict[torch.device, Tensor] = field(default_factory=dict)

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Write [R, heads, Q, head size] at this pass's columns; return views of the columns it reads."""
        stored = self.cache.keys[layer][self.rows], self.cache.values[layer][self.rows]
        visible = self.visible_columns
        if isinstance(self.start, Tensor):
            for held, new in zip(stored, (keys, values), strict=True):
                held.index_copy_(2, self._on(held.device, self.start), new.to(held.dtype))
        else:
            stop = self.start + keys.shape[2]
            visible = aligned(stop) if visible is None else visible
            for held, new in zip(stored, (keys, values), strict=True):
                held[:, :, self.start : stop] = new
        return stored[0][:, :, :visible], stored[1][:, :, :visible]

    def _on(self, device: torch.device, start: Tensor) -> Tensor:
        """Return `start` on the device of a layer, to which it moves once for each pass."""
        if device not in self._starts:
            self._starts[device] = start.to(device)
        return self._starts[device]

    def newest(self, queries: int) -> int | Tensor:
        """Return the column of the last of `queries` tokens; int64 [1] where `start` is."""
        return self.start + queries - 1

    def get_seq_length(self, *_: object) -> int | Tensor:
        """Return the number of columns before this pass; int64 [] where `start` is a tensor.

        What a network computes from it is recorded with the rest; a network that decides by it is not recorded.
        """
        return self.start[0] if isinstance(self.start, Tensor) else self.start


CANDIDATE_STEP = 256
"""Candidate sets are filled up to a multiple of this."""

GATHERED = 2**26
"""Numbers of the head that are gathered at once, where rows are scored by themselves."""

# Candidates of a generation up to which they are.
_MOST_BY_ROW = {"cuda": 4 * CANDIDATE_STEP}


Scoring = Literal["whole", "by row", "together"]
"""The head over the whole vocabulary; over each row's own candidates; over the candidates of all generations."""


def scoring_of(model: LanguageModel, candidates: Tensor | None) -> Scoring:
    """Return how rows are scored for candidates int64 [L, K], which are public; None stands for the vocabulary."""
    if candidates is None:
        return "whole"
    if scored_by_row(model.device, candidates.shape[1]):
        return "by row"
    return "whole" if candidates.numel() >= model.vocabulary else "together"


def scored_by_row(device: torch.device, candidates: int) -> bool:
    """Return whether rows meet the candidates of their own generation alone, where each has at most `candidates`."""
    return -(-candidates // CANDIDATE_STEP) * CANDIDATE_STEP <= _MOST_BY_ROW.get(device.type, 0)


def head_widths_by_row(device: torch.device) -> list[int]:
    """Every width that `logits_by_row` may have, ascending; none where rows are not scored so."""
    return [width for width in head_widths(_MOST_BY_ROW.get(device.type, 0)) if scored_by_row(device, width)]


def head_widths(vocabulary: int) -> list[int]:
    """Every width that a part may have where fewer than `vocabulary` candidates are asked about, ascending."""
    widths, most = [CANDIDATE_STEP], -(-vocabulary // CANDIDATE_STEP) * CANDIDATE_STEP
    while widths[-1] * 2 <= most:
        widths.append(widths[-1] * 2)
    return widths


def head_parts(candidates: int) -> list[slice]:
    """So many candidates, filled up, cut into parts: the widest first."""
    remaining, start = -(-candidates // CANDIDATE_STEP), 0
    slices: list[slice] = []
    while remaining:
        width = 1 << (remaining.bit_length() - 1)
        slices.append(slice(start, start + width * CANDIDATE_STEP))
        remaining, start = remaining - width, start + width * CANDIDATE_STEP
    return slices


def logits_of(model: LanguageModel, hidden: Tensor, tokens: Tensor) -> Tensor:
    """Map float32 [R, D] and int64 [N] -> float32 [R, N]."""
    return _in_parts(tokens, lambda some: model.logits_of(hidden, some))


def logits_by_row(model: LanguageModel, hidden: Tensor, tokens: Tensor) -> Tensor:
    """Map float32 [R, D] and each row's own tokens, int64 [R, N], -> float32 [R, N]."""
    return _in_parts(tokens, lambda some: _gathered(model, hidden, some))


def _in_parts(tokens: Tensor, score: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the scores of tokens [..., N], which `score` computes for each part: float32 [R, N]."""
    count = tokens.shape[-1]
    filled = torch.nn.functional.pad(tokens, (0, -count % CANDIDATE_STEP))
    return torch.cat([score(filled[..., part]) for part in head_parts(count)], dim=1)[:, :count]


def _gathered(model: LanguageModel, hidden: Tensor, tokens: Tensor) -> Tensor:
    """Return the scores of one width.

    A few rows at a time, and as many each time: fewer rows may be another kernel. Their number follows from the number
    of rows and the width, which are public.
    """
    rows, most = len(hidden), max(1, GATHERED // (tokens.shape[1] * model.width))
    height = next(some for some in range(min(most, rows), 0, -1) if rows % some == 0)
    few = (slice(start, start + height) for start in range(0, rows, height))
    return torch.cat([model.logits_of_each(hidden[some], tokens[some]) for some in few])
