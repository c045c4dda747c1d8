"""Embeddings of units: each row is a function of its own text, bit for bit (PRIVACY §4.2 point 1).

An embedder that reads texts of different lengths together lets each of them move the others' rows by rounding, about
1e-7: enough to tell that a unit is gone. So here a text is padded to the next of a few public lengths, which is a
function of that text alone, and read in passes that all have one public shape at that length, free places filled with
empty texts. That is enough where the machine's arithmetic treats every place of a pass alike. Whether it does is asked
once for every shape, with public texts: one of them in every place, all in one order, then half of them in other places
beside other neighbours. Where it does not, and with embedders that have no shapes, every text is read by itself.

Public texts have two encoders around an embedder: one that works out each text once (`CachedEmbedder`), and one that is
asked again after a temporary fault of the machine (`RetriedEmbedder`). A point is a function of its text, so a second
one is the first; nothing is drawn or charged by it. Private units are embedded without either
(`tasks.inference.embeddings.parallel`). Imports no torch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from models_db.values.untrusted_text import without_surrogates
from tasks.common.faults import retry
from tasks.common.progress import Progress
from tasks.text.public_models import Embedder, Pieces

LENGTHS = (8, 16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256, 384, 512)
"""Word pieces that texts are padded to, marks included; a text longer than the embedder's limit is cut there."""

PIECES = 512
"""Word pieces of a pass: 64 texts of 8 pieces, 2 of 256, and one of anything longer."""

Points = NDArray[np.float32]
"""float32 [n, d], rows of length 1."""

_PLAIN = ("river", "stone", "paper", "seven", "green", "north", "winter", "number", "water", "house")


def points_of(embed: Embedder, texts: Sequence[str], progress: Progress = lambda done, of: None) -> Points:
    """Return one row for each text, independent of the other texts and their order: float32 [n, d], of length 1.

    A text that cannot be embedded (its row is not finite, or of length 0) has the row of the empty text.

    Args:
        progress: called with the number of texts done and their total.
    """
    elsewhere = getattr(embed, "points_elsewhere", None)  # tasks.inference.embeddings.parallel
    if elsewhere is not None:
        rows_from_there: Points = elsewhere(texts, progress)
        return rows_from_there
    embed, readable = without_cache(embed), [without_surrogates(text) for text in texts]
    rows = np.concatenate([embed([""]), np.zeros((len(texts), _width(embed)), np.float32)])
    done = 0
    for some, points in _passes(embed, readable):
        rows[1 + np.array(some, int)] = points
        progress(done := done + len(some), len(texts))
    return _of_length_one(rows)[1:]


def _width(embed: Embedder) -> int:
    return int(embed([]).shape[1])


def _passes(embed: Any, texts: Sequence[str]) -> Iterator[tuple[list[int], Points]]:
    """Indices of some texts, and their rows."""
    if not getattr(embed, "shaped", False):
        yield from (([index], embed([text])) for index, text in enumerate(texts))
        return
    columns = [_padded(length, embed.most) for length in embed.lengths(texts)]
    for length in sorted(set(columns)):
        indices, places = [index for index, own in enumerate(columns) if own == length], _places(embed, length)
        for start in range(0, len(indices), places):
            some = indices[start : start + places]
            filled = [texts[index] for index in some] + [""] * (places - len(some))
            yield some, embed.rows_at(filled, length)[: len(some)]


def _padded(pieces: int, most: int) -> int:
    return next((length for length in LENGTHS if pieces <= length < most), most)


def _places(embed: Any, length: int) -> int:
    """Return the number of texts in a pass at that length: a full pass, or one if places differ on this machine."""
    places = max(1, PIECES // length)
    if places > 1 and (places, length) not in embed.alike:
        embed.alike[places, length] = places_alike(embed, places, length)
    return places if embed.alike.get((places, length), True) else 1


def places_alike(embed: Any, places: int, length: int) -> bool:
    """Return whether a text has the same row, bit for bit, in any place of a pass and beside any neighbours.

    Args:
        embed: a `TextEmbedder`, or what has its `rows_at`.
        places, length: the shape of the pass.
    """
    texts = [_public_text(number, length) for number in range(places)]
    alone = embed.rows_at([texts[0]] * places, length)
    others = [_public_text(number + places, length) for number in range(places)]
    straight = embed.rows_at(texts, length)
    mixed = [own if number % 2 else other for number, (own, other) in enumerate(zip(texts, others, strict=True))]
    kept = np.arange(places) % 2 == 1
    turned = embed.rows_at(mixed[::-1], length)[::-1]
    moved = np.roll(embed.rows_at([*mixed[1:], mixed[0]], length), 1, axis=0)
    same = (alone == straight[0]).all() and (turned[kept] == straight[kept]).all()
    return bool(same and (moved[kept] == straight[kept]).all())


def _public_text(number: int, length: int) -> str:
    """Plain words, some texts shorter than others and some longer than the pass, which cuts them."""
    words = length - 2 - number % 3 if number % 4 else length
    return " ".join(_PLAIN[(place * place + number * 7 + place // 3) % len(_PLAIN)] for place in range(max(1, words)))


def _of_length_one(rows: Points) -> Points:
    """Return the rows of length 1; one that has no direction takes that of the first, the empty text's."""
    # numpy adds the numbers of a row in an order of their own; BLAS may go by where a row lies in memory.
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt((rows.astype(np.float64) ** 2).sum(1))
    usable = np.isfinite(lengths) & (lengths > 0)
    if not usable[0]:  # not with any embedder that we know; a direction all the same
        rows[0], lengths[0] = np.eye(1, rows.shape[1], dtype=np.float32)[0], 1.0
    rows[~usable], lengths[~usable] = rows[0], lengths[0]
    return np.asarray(rows / lengths[:, None], np.float32)


@dataclass
class CachedEmbedder:
    """An embedder that works out each text once."""

    embed: Embedder
    _rows: dict[str, NDArray[np.float32]] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The embedder's own."""
        return self.embed.name

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return float32 [n, d]; equal texts have equal rows, bit for bit."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._rows]
        if missing:
            self._rows.update(zip(missing, self.embed(missing), strict=True))
        return np.stack([self._rows[text] for text in texts]) if texts else self.embed([])

    def pieces(self, texts: Sequence[str]) -> Sequence[Pieces]:
        """Return the embedder's own, worked out again: they are too many to keep."""
        return self.embed.pieces(texts)


def without_cache(embed: Embedder) -> Embedder:
    """Return an embedder that stores no text: for one private unit after the other."""
    return embed.embed if isinstance(embed, CachedEmbedder) else embed


EMBEDDING_STEP: Final = "embedding"


@dataclass(frozen=True)
class RetriedEmbedder:
    """An embedder of public texts: keywords, candidates, released values. Its rows are those of `embed`."""

    embed: Embedder

    @property
    def name(self) -> str:
        """The embedder's."""
        return self.embed.name

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return float32 [n, d]."""
        return retry(partial(self.embed, texts), EMBEDDING_STEP)

    def pieces(self, texts: Sequence[str]) -> Sequence[Pieces]:
        """Return the same pieces as the embedder."""
        return retry(partial(self.embed.pieces, texts), EMBEDDING_STEP)

    def points_elsewhere(self, texts: Sequence[str], progress: Progress) -> NDArray[np.float32]:
        """Return float32 [n, d], rows of length 1: asked for by `points_of`."""
        return retry(partial(points_of, self.embed, texts, progress), EMBEDDING_STEP)
