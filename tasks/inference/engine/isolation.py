"""Row isolation: a check that this device gives a row the same bits in any slot and beside any other rows.

PRIVACY §4.2 point 1 needs it: when one unit leaves, the rows behind it move up, and when a text changes its length
rows are sorted anew. Fixed shapes make it true only where a kernel treats all rows alike; some do not (MKL's float32
product at 5, 6, 7 and 9 to 11 rows; torch's CPU attention, see `attention`; work-splitting kernels on accelerators).
So the device itself is asked, once for every shape and with public numbers, before a session begins (`SessionOpening`).
The computation of a pass is checked in parts, whose shapes are few:

* all layers, each row at a position and with a past of its own, the longest that the model has among them;
* attention alone, over every number of columns that a step may read, on each device that has layers;
* the head, over all tokens and over each number of candidates that a product has, common ones and each row's own.

A row's bits are a function of its content alone (PRIVACY §10.1). So a few contents are computed in several arrangements
(`arrangements`), and every content must have one result, in any slot and beside any other contents:

1. the same content in every slot: a kernel that treats slots unlike, by tile, thread or alignment, shows at once;
2. the longest content in every slot: whatever follows the largest position or value of a pass follows it now, and what
   is kept from one pass to the next has been changed;
3. all contents, the longest beside the shortest;
4. the same contents, shuffled;
5. half of them in other slots, the others replaced by copies of some: other sums, other loads, other maxima;
6. one content in nearly every slot, in all but one and in seven eighths: where rows are routed they pile up on one
   expert, and the few others make small groups, which other kernels compute.

Where passes are recorded (`recorded_passes`), all arrangements of layers and of attention but the first are replays,
and the one with every content is computed as it stands once more: each replay must have the bits of the plain pass.

The device is the second line only: a network with a module that is known to couple rows is never loaded
(`row_wise_modules`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from functools import cache as cache_by_device
from typing import Final

import torch
from torch import Tensor

from models_db.errors import EnvironmentProblem
from tasks.inference.catalogue.model_check import PRECISIONS, Precision
from tasks.inference.engine.attention import ALIGNMENT, aligned
from tasks.inference.engine.language_model import KeyValueCache, LanguageModel, logits_by_row
from tasks.inference.engine.recorded_passes import PassRecorder, RecordedPasses

Shape = tuple[str | int, ...]

_PAST = ALIGNMENT
"""Columns that rows have behind them when all layers are asked about; how many does not matter to them."""


class RowsNotIsolated(EnvironmentProblem):
    """This device's arithmetic lets a row's bits depend on its place or its neighbours."""

    def __init__(self, device: str, shape: str, precision: Precision) -> None:
        others = " or ".join(name for name in PRECISIONS if name != precision)
        elsewhere = "" if device.startswith("cpu") else "Use --device cpu, or request"
        super().__init__(
            f"On {device} in {precision}, the results of a row ({shape}) depend on the rows beside it; "
            "a private row must not influence another. Nothing was read or spent for it.",
            f"{elsewhere or 'Request'} precision {others}, or choose another model.",
            {"device": device, "shape": shape, "precision": precision},
        )


class IsolationCheck:
    """Checks each shape once; the result holds as long as the model multiplies by the same kernels.

    Its methods raise RowsNotIsolated if some row came out with other bits.

    Attributes:
        recorder: of the passes that are asked about, and of all that follow. It gives up where a replay has other bits
            than a plain pass.
    """

    def __init__(self, model: LanguageModel, recorder: PassRecorder | None = None) -> None:
        self._model = model
        self.recorder = recorder or PassRecorder(model.device)
        if len(model.devices) > 1:
            self.recorder.give_up()  # a graph is captured on one device
        self._verdicts: dict[Shape, bool] = {}

    @property
    def tested_shapes(self) -> frozenset[Shape]:
        """All shapes for which this device was tested."""
        return frozenset(self._verdicts)

    def before_pass(self, rows: int, queries: int, visible: int, columns: int) -> None:
        """A pass over `queries` new tokens for each of `rows` rows that see `visible` of a cache's `columns` columns.

        The length of the cache belongs to the shape: it is the distance between rows in memory.
        """
        self.layers(rows, queries)
        self.attention(rows, queries, [visible], columns)

    def layers(self, rows: int, queries: int) -> None:
        """All layers, `queries` new tokens for each of `rows` rows."""
        if self._is_new("layers", rows, queries):
            holds = self._verdicts_of(lambda recorder: [self._layers_hold(rows, queries, recorder)])
            self._learn(holds[0], "layers", rows, queries)
        self._require("layers", rows, queries)

    def attention(self, rows: int, queries: int, column_counts: Sequence[int], columns: int) -> None:
        """Attention of `queries` tokens per row to the first so many of `columns` columns of a cache."""
        new = [some for some in column_counts if self._is_new("attention", rows, queries, some, columns)]
        if new:
            holds = self._verdicts_of(lambda recorder: self._attention_holds(rows, queries, new, columns, recorder))
            for some, verdict in zip(new, holds, strict=True):
                self._learn(verdict, "attention", rows, queries, some, columns)
        for some in column_counts:
            self._require("attention", rows, queries, some, columns)

    def forget(self) -> None:
        """Forget all verdicts: passes are computed in another way from now on."""
        self._verdicts.clear()

    def _verdicts_of(self, ask: Callable[[PassRecorder | None], Sequence[bool]]) -> Sequence[bool]:
        """Return the verdicts on passes; where plain ones keep rows apart and replays do not, give replays up."""
        holds = ask(self.recorder)
        if all(holds) or not self.recorder.records:
            return holds
        plain = ask(None)
        if plain != holds:
            self.recorder.give_up()
        return plain

    def _attention_holds(
        self, rows: int, queries: int, column_counts: Sequence[int], columns: int, recorder: PassRecorder | None
    ) -> list[bool]:
        holds = dict.fromkeys(column_counts, True)
        for layer in self._layer_of_each_device():
            witnesses = {some: FirstResults(contents_of(rows)) for some in column_counts}
            for some, contents, mixed in self._attended(rows, queries, column_counts, columns, layer, recorder):
                witnesses[some].compare(contents, mixed)
            for some, witness in witnesses.items():
                holds[some] &= witness.holds
        return [holds[some] for some in column_counts]

    def _layer_of_each_device(self) -> list[int]:
        """Return the first layer of every device that has one; attention of a layer is computed where the layer is."""
        first: dict[torch.device, int] = {}
        for layer in range(self._model.layers):
            first.setdefault(self._model.device_of_layer(layer), layer)
        return list(first.values())

    def head(self, rows: int) -> None:
        """The head over all tokens."""
        self._product("head", lambda hidden, _: self._model.logits(hidden), rows)

    def candidates(self, rows: int, candidates: int) -> None:
        """The head over `candidates` candidate tokens."""
        some = torch.arange(candidates, device=self._model.device) % self._model.vocabulary
        self._product("candidates", lambda hidden, _: self._model.logits_of(hidden, some), rows, candidates)

    def candidates_by_row(self, rows: int, candidates: int) -> None:
        """The head over `candidates` tokens of each row's own."""
        tokens = torch.arange(candidates, device=self._model.device)

        def run(hidden: Tensor, contents: Tensor) -> Tensor:
            own = (contents[:, None] * 7919 + tokens) % self._model.vocabulary
            return logits_by_row(self._model, hidden, own)

        self._product("candidates of each row", run, rows, candidates)

    def _product(self, what: str, run: Callable[[Tensor, Tensor], Tensor], rows: int, *more: int) -> None:
        if self._is_new(what, rows, *more):
            number = contents_of(rows)
            deck, witness = self._numbers((number, self._model.width)), FirstResults(number)
            for contents in arrangements(rows):
                where = contents.to(deck.device)
                witness.compare(contents, run(deck[where], where))
            self._learn(witness.holds, what, rows, *more)
        self._require(what, rows, *more)

    def _is_new(self, *shape: str | int) -> bool:
        return (self._model.kernels, *shape) not in self._verdicts

    def _learn(self, holds: bool, *shape: str | int) -> None:
        self._verdicts[self._model.kernels, *shape] = holds

    def _require(self, what: str, rows: int, *more: int) -> None:
        if not self._verdicts[self._model.kernels, what, rows, *more]:
            sizes = f"{rows} rows, {' x '.join(map(str, more))} {what}".replace(",  ", ", ")
            raise RowsNotIsolated(self._model.device_name, sizes, self._model.precision)

    def _layers_hold(self, rows: int, queries: int, recorder: PassRecorder | None) -> bool:
        """The first arrangement is a plain pass, the others replay it where passes are recorded."""
        witness, hidden = FirstResults(contents_of(rows)), self._passes(rows, queries, recorder)
        for contents in arrangements(rows):
            witness.compare(contents, hidden(contents))
        if recorder is not None and recorder.records:
            every = arrangements(rows)[EVERY]
            witness.compare(every, self._passes(rows, queries)(every))
        return witness.holds

    def _passes(self, rows: int, queries: int, recorder: PassRecorder | None = None) -> Callable[[Tensor], Tensor]:
        """Return what computes the hidden states of all layers over one cache: contents -> float32 [R, queries, D]."""
        model, columns, passes = self._model, aligned(_PAST + queries), RecordedPasses(recorder)
        cache = KeyValueCache.allocate(model, rows, columns)
        shape = (contents_of(rows), model.key_value_heads, _PAST, model.head_size)
        deck = self._numbers(shape).to(model.cache_dtype)

        def run(tokens: Tensor, positions: Tensor, bias: Tensor, column: Tensor) -> Tensor:
            window = cache.window(slice(0, rows), column if queries == 1 else _PAST, columns)
            return model.hidden(tokens, positions, bias, window)

        @torch.inference_mode()
        def hidden(contents: Tensor) -> Tensor:
            dealt_on = cache_by_device(deck[contents.to(model.device)].to)
            for held in cache.keys + cache.values:
                held[:, :, :_PAST] = dealt_on(held.device)
            column = torch.full((1,), _PAST, device=model.device)
            inputs = [part.to(model.device) for part in self._inputs(contents, queries, columns)]
            return passes.run((), run, *inputs, column)

        return hidden

    def _inputs(self, contents: Tensor, queries: int, columns: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return tokens and positions, int64 [R, queries], and the mask, float32 [R, 1, queries, columns]."""
        model, past = self._model, self._pasts(contents_of(len(contents)), _PAST)[contents]
        index = torch.arange(queries)
        tokens = (contents[:, None] * 7919 + index * 104729 + 11) % model.vocabulary
        started = past**3 * (model.longest - queries) // _PAST**3  # most of them early, one at the very end
        bias = torch.full((len(contents), 1, queries, columns), -torch.inf)
        bias[..., :_PAST].masked_fill_(torch.arange(_PAST) >= _PAST - past[:, None, None, None], 0.0)
        bias[..., _PAST : _PAST + queries] = torch.full((queries, queries), -torch.inf).triu(1)
        return tokens, started[:, None] + index, bias

    @torch.inference_mode()
    def _attended(
        self,
        rows: int,
        queries: int,
        column_counts: Sequence[int],
        columns: int,
        layer: int = 0,
        recorder: PassRecorder | None = None,
    ) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield the number of columns, the contents and the attention output, for each arrangement and number.

        On the device of `layer`; an output is valid until the next of its number of columns.
        """
        model, number, device = self._model, contents_of(rows), self._model.device_of_layer(layer)
        kind = torch.bfloat16 if model.precision == "bfloat16" else torch.float32
        asking = self._numbers((number, model.heads, queries, model.head_size)).to(device, kind)
        held = self._numbers((number, model.key_value_heads, columns, model.head_size)).to(device, model.cache_dtype)
        cache = KeyValueCache.allocate(model, rows, columns, layers=[layer])
        keys, values = cache.keys[0], cache.values[0]
        recorded, plain = RecordedPasses(recorder), RecordedPasses(None)

        def attend(some: int, query: Tensor, bias: Tensor) -> Tensor:
            mixed, _ = model.attention(None, query, keys[:, :, :some], values[:, :, :some], bias)
            return mixed

        asked = [(contents, recorded) for contents in arrangements(rows)]
        if recorder is not None and recorder.records:
            asked.append((arrangements(rows)[EVERY], plain))
        for contents, passes in asked:
            where = contents.to(device)
            keys[:, :, :columns] = held[where]
            values[:, :, :columns] = held[where].flip(2)
            for some in column_counts:
                bias = self._masks(number, queries, some).to(device)[where]
                yield some, contents, passes.run(some, partial(attend, some), asking[where], bias)

    def _masks(self, number: int, queries: int, visible: int) -> Tensor:
        """Return float32 masks of the columns that each content sees, the last ones: [number, 1, queries, visible]."""
        own = torch.arange(visible)[None] >= visible - self._pasts(number, visible)[:, None].clamp_min(1)
        return torch.where(own, 0.0, -torch.inf)[:, None, None].expand(number, 1, queries, visible)

    @staticmethod
    def _pasts(number: int, most: int) -> Tensor:
        """Return the length of each content, int64 [number]: one has all of `most`, the others vary, many are short."""
        pasts = (torch.arange(number) * 7919 % 97).square() * (most - 1) // 97**2
        pasts[SHORT], pasts[LONG] = min(5, most - 1), most
        return pasts

    def _numbers(self, shape: Iterable[int]) -> Tensor:
        """Return float32, the same for the same shape."""
        chance = torch.Generator().manual_seed(7)  # public, as `arrangements` says
        return (torch.rand(tuple(shape), generator=chance) * 4 - 2).to(self._model.device)


FEWEST = 8
"""Contents, also where there are fewer slots."""

SHORT, LONG = 0, 1
"""The contents that stand alone in all slots: an ordinary one, and the longest that there is."""

EVERY: Final = 2
"""Index of the arrangement with as many contents as there are slots, `SHORT` and `LONG` among them."""

_FEW, _ROUNDS_OF_FEW = 2, 6
_ROUNDS = 1
_FEW_OTHERS = 8


def contents_of(slots: int) -> int:
    """Return how many contents there are for a pass of so many rows."""
    return max(slots, FEWEST)


@cache
def arrangements(slots: int) -> tuple[Tensor, ...]:
    """Return arrangements of contents in slots: int64 [slots] each, deterministic for each number of slots.

    With few slots, 3 to 5 are made more often.
    """
    chance = torch.Generator().manual_seed(slots)  # what is tried is public, and is to be the same every time
    lengths = [torch.full((slots,), SHORT), torch.full((slots,), LONG)]
    for _ in range(_ROUNDS_OF_FEW if slots <= _FEW else _ROUNDS):
        lengths += _companies(slots, chance)
    lengths += [_piled(slots, others, chance) for others in sorted({1, max(1, slots // _FEW_OTHERS)})]
    return tuple(lengths)


def _companies(slots: int, chance: torch.Generator) -> Iterator[Tensor]:
    others = torch.randperm(contents_of(slots) - 2, generator=chance) + 2
    together = torch.cat([torch.tensor([SHORT, LONG]), others])[:slots]
    yield together
    shuffled = together[torch.randperm(slots, generator=chance)]
    yield shuffled
    copied = torch.randint(contents_of(slots), (slots,), generator=chance)
    stays = torch.arange(slots) % 2 == 0
    stays[shuffled == SHORT] = True
    yield torch.where(stays, shuffled, copied).roll(1)


def _piled(slots: int, others: int, chance: torch.Generator) -> Tensor:
    """Return an arrangement with one content in all but `others` slots, which hold different ones."""
    contents = torch.randperm(contents_of(slots), generator=chance)
    piled = torch.full((slots,), int(contents[0]))
    piled[torch.randperm(slots, generator=chance)[:others]] = contents[1 : others + 1]
    return piled


class FirstResults:
    """The first result of every content; each later result must equal it.

    Args:
        contents: how many there are.
    """

    def __init__(self, contents: int) -> None:
        self._recorded = torch.zeros(contents, dtype=torch.bool)
        self._first: Tensor | None = None
        self.holds = True

    def compare(self, contents: Tensor, results: Tensor) -> None:
        """The results of the slots, [slots, ...], and the content that stood in each of them."""
        rows, where = results.flatten(1), contents.to(results.device)
        if self._first is None:
            self._first = rows.new_zeros((len(self._recorded), rows.shape[1]))
        new = ~self._recorded[contents]
        self._first[where[new.to(where.device)]] = rows[new.to(where.device)]
        self._recorded[contents] = True
        # NaN is a result like any other: it must come out everywhere.
        self.holds &= torch.allclose(rows, self._first[where], rtol=0.0, atol=0.0, equal_nan=True)
