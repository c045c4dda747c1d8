"""Inference engine: next-token logits of every row of live generations, each with a public prompt and private rows.

    session = Engine(model).session(sizes, places)
    session.enter(number, public, private, references)   # whenever a place is free
    while drawing:
        scores = session.public_logits()              # [L, V]: candidates are chosen from these alone
        rows = session.private_logits(candidates)     # [rows, K]: of those candidates
        session.advance(tokens)                       # what was drawn; session.leave(number) for who has ended

Row isolation (PRIVACY §4.2 point 1): public rows have passes of their own; private rows are read in chunks of one
public shape, filled up with null rows. More private rows than expected make more chunks, never another shape.

Opening a session: every refusal happens here, before anything is armed or any private text is read. What a session may
do on its way is known from public numbers: the rows of a pass, every number of columns that a step may read, every
block of a prompt, every width of a product. The device is asked about all of it (`isolation`). Where it does not keep
rows apart, fewer rows of a pass and other kernels are tried (`_tries`), at last one row at a time, which has no
neighbours: slow, but what was approved can be written. Memory for one generation is taken once and given back.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tasks.inference.engine.attention import aligned
from tasks.inference.engine.isolation import IsolationCheck, RowsNotIsolated
from tasks.inference.engine.language_model import KeyValueCache, LanguageModel, head_widths, head_widths_by_row
from tasks.inference.engine.memory import is_out_of_memory, not_enough_memory, spread_budget
from tasks.inference.engine.recorded_passes import PassRecorder
from tasks.inference.engine.rows import blocks, prefill_shape, visible_counts
from tasks.inference.engine.session import Session
from tasks.inference.engine.shapes import Sizes, public_rows_per_chunk, rows_per_chunk, smaller_chunk


class Engine:
    """A model, ready to decode many generations at once.

    Args:
        model: the language model.
        chunk_rows: private rows per pass, a multiple of a prefill pass's rows; chosen from public numbers if not given.
        memory: bytes for keys and values; `spread_budget` if not given. It is measured here and now, because an
            engine is made before any private text is loaded, which would take memory too.
        recorder: of passes; that of the model's device if not given.
    """

    def __init__(
        self,
        model: LanguageModel,
        chunk_rows: int | None = None,
        memory: int | None = None,
        recorder: PassRecorder | None = None,
    ) -> None:
        if chunk_rows is not None and (chunk_rows < 1 or chunk_rows % prefill_shape(model.device)[0]):
            raise ValueError(f"{chunk_rows} rows cannot be read {prefill_shape(model.device)[0]} at a time")
        self.model = model
        self.isolation = IsolationCheck(model, recorder)
        self.memory = spread_budget(model.layer_devices or (model.device,)) if memory is None else memory
        self._chunk_rows = chunk_rows

    def session(self, sizes: Sizes, places: int, drawn: Iterable[int] = (), interruptions: int = 0) -> Session:
        """Return a session without any generation yet, on a device that was asked about all it may do (`opening`).

        Args:
            sizes: public sizes that hold for every generation that will enter.
            places: the most generations that are live at once; fewer where memory does not hold them.
            drawn: how many tokens generations bring that go on from an earlier attempt.
            interruptions: how many attempts there were before. After each of them half as many generations are live at
                once, whatever it ended by: so memory is found in the end, and nothing but their number decides the
                shapes in which a release goes on.

        Raises:
            ContextTooLong: the sizes exceed the model's positions.
            RowsNotIsolated: this device cannot keep rows apart.
            NotEnoughMemory: not even one generation fits.
        """
        if places < 1:
            raise ValueError(f"a session needs a place, not {places}")
        sizes.check_fits(self.model)

        def smaller(room: SessionSize) -> SessionSize:
            if room.places > 1:
                return SessionSize(room.places // 2, self._rows(room.places // 2, sizes))
            return SessionSize(1, min(room.rows, smaller_chunk(room.rows, self.model.device)))

        room = SessionSize(places, self._rows(places, sizes))
        for _ in range(interruptions):
            room = smaller(room)
        opening = SessionOpening(self.model, self.isolation, sizes, tuple(sorted({0, *drawn})))
        room = opening.find_size(room, smaller)
        return Session(self.model, self.isolation, sizes, room.places, room.rows)

    def _rows(self, places: int, sizes: Sizes) -> int:
        return self._chunk_rows or rows_per_chunk(places, sizes.references, self.model.device)


@dataclass(frozen=True)
class SessionSize:
    """Number of live generations, and of private rows in a pass."""

    places: int
    rows: int


@dataclass(frozen=True)
class SessionOpening:
    """Search for the size of a session on this device.

    Attributes:
        drawn: numbers of tokens that resumed generations have already drawn.
        only_prompts: True if nothing is drawn after the prompts (`hidden_states`).
    """

    model: LanguageModel
    isolation: IsolationCheck
    sizes: Sizes
    drawn: tuple[int, ...] = (0,)
    only_prompts: bool = False

    def find_size(self, room: SessionSize, smaller: Callable[[SessionSize], SessionSize]) -> SessionSize:
        """Return `room`, or a smaller size if this device lacks the memory or does not isolate so many rows.

        The result depends on nothing private: no text has been read yet.

        Raises:
            RowsNotIsolated: not even one row alone is computed to the same bits twice.
            NotEnoughMemory: there is no smaller one.
        """
        while True:
            try:
                size = SessionSize(room.places, self.isolated_rows(room.rows))
                self._take_memory(size)
                return size
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
            if smaller(room) == room:
                raise not_enough_memory(self.model.device_name)
            room = smaller(room)

    def isolated_rows(self, rows: int) -> int:
        """Return how many private rows a pass may have, at most `rows`.

        Raises:
            RowsNotIsolated: as `room`.
        """
        if not self.sizes.segment:
            return rows  # public rows need no isolation from each other
        refusal: RowsNotIsolated | None = None
        for some in _tries(self.model, rows):
            try:
                self._ask_all(some)
                return some
            except RowsNotIsolated as error:
                refusal = refusal or error
        raise refusal or ValueError(f"a pass has rows, not {rows}")

    def _ask_all(self, rows: int) -> None:
        """Ask the device about all passes; once more about all of them if it has given up replays meanwhile."""
        recorder = self.isolation.recorder
        records = recorder.records
        self._ask(rows)
        if records and not recorder.records:
            self.isolation.forget()
            self._ask(rows)

    def _ask(self, rows: int) -> None:
        height, width = prefill_shape(self.model.device)
        height = min(height, rows)
        for drawn in self.drawn:
            segment, prefix = self.sizes.segment + drawn, self.sizes.prefix
            for block in blocks(segment, width):
                shape = block.stop - block.start, aligned(prefix + block.stop), aligned(prefix + segment)
                self.isolation.before_pass(height, *shape)
        if not self.only_prompts:
            self._ask_steps(rows)

    def _ask_steps(self, rows: int) -> None:
        """Passes over one token of each row (`ring.Clock.visible_columns`), and the head."""
        columns, prompt = aligned(self.sizes.private_columns), self.sizes.prefix + self.sizes.segment
        self.isolation.layers(rows, 1)
        self.isolation.attention(rows, 1, visible_counts(prompt + 1, columns, self.model.device), columns)
        self.isolation.head(rows)
        for width in head_widths(self.model.vocabulary):
            self.isolation.candidates(rows, width)
        for width in head_widths_by_row(self.model.device):
            self.isolation.candidates_by_row(rows, width)

    def _take_memory(self, room: SessionSize) -> None:
        """Allocate the minimum for one generation: a pass of private rows, a prompt, and the public rows."""
        model, sizes = self.model, self.sizes
        shapes = [(public_rows_per_chunk(room.places, model.device), sizes.public_columns)]
        if sizes.segment:
            height = min(prefill_shape(model.device)[0], room.rows)
            shapes.append((height, sizes.prefix + sizes.segment + max(self.drawn)))
        if sizes.segment and not self.only_prompts:
            shapes.append((room.rows, sizes.private_columns))
        for cache in [KeyValueCache.allocate(model, *shape) for shape in shapes if shape[1]]:
            cache.clear()  # an operating system gives memory when it is written to


def _tries(model: LanguageModel, rows: int) -> Iterator[int]:
    """Yield the rows of a pass to try, the fastest first. On the way the model goes over to its other kernels.

    On a CPU: fewer rows of a pass, the same with the next kernels, then fewer rows than a pass over a prompt has. On
    CUDA: all rows with each of the kernels, then fewer rows with the last of them.
    """
    height, chunks = prefill_shape(model.device)[0], [rows]
    while chunks[-1] > height:
        chunks.append(smaller_chunk(chunks[-1], model.device))
    for_each = len(chunks) if model.kernel_order.fewer_rows_first else 1
    yield from chunks[:for_each]
    while model.use_next_kernels():
        yield from chunks[:for_each]
    yield from chunks[for_each:]
    few = chunks[-1]
    while few > 1:
        few //= 2
        yield few
