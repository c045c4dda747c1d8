"""Inference engine: next-token logits of every row of live generations, each with a public prompt and private rows.

    session = Engine(model).session(sizes, places)
    session.enter(number, public, private, references)   # whenever a place is free
    while drawing:
        scores = session.public_logits()              # [L, V]: candidates are chosen from these alone
        rows = session.private_logits(candidates)     # [rows, K]: of those candidates
        session.advance(tokens)                       # what was drawn; session.leave(number) for who has ended

Row isolation (PRIVACY §4.2 point 1): public rows have passes of their own; private rows are read in chunks of one
public shape, filled up with null rows. More private rows than expected make more chunks, never another shape.
"""

from collections.abc import Iterable

from tasks.inference.engine.memory import spread_budget
from tasks.inference.engine.open_session import SessionOpening, SessionSize
from tasks.inference.engine.row_batch import prefill_shape
from tasks.inference.engine.session import Session
from tasks.inference.engine.shapes import Sizes, rows_per_chunk, smaller_chunk
from tasks.inference.isolation.check import IsolationCheck
from tasks.inference.network.language_model import LanguageModel
from tasks.inference.network.recorded_passes import PassRecorder


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
