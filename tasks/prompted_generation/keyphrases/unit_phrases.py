"""The keyphrases of units, and what each adds to the sketches. Private, all of it.

Units are read in chunks of one public size, and nothing of a chunk outlives it: memory does not grow with their number.
A unit's phrases, their order and its vectors are functions of that unit and of public things alone, bit for bit. One of
which no phrase is found adds zero.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tasks.analysis.facets.extractor import Extractor
from tasks.analysis.facets.parameters import FacetField, FacetSettings
from tasks.corpus.identity.keys import keyed_hash
from tasks.corpus.store import UnitDocuments
from tasks.inference.embeddings.unit_embeddings import points_of
from tasks.mechanisms.vectors.kde_sketch import Chunk
from tasks.mechanisms.vectors.random_fourier_features import FourierFeatures, on_grid
from tasks.prompted_generation.keyphrases.parameters import MOST_PHRASES, KeyphraseParameters
from tasks.text.interfaces import Embedder
from tasks.text.keyword_normalisation import LONGEST, normalise_keywords
from tasks.values.insight import KEYWORDS, SUMMARY, Facets

if TYPE_CHECKING:
    from tasks.generation.decoding.run_context import RunContext

UNITS_AT_ONCE, NUMBERS_AT_ONCE = 64, 2**22
"""How much is worked on together: units, and numbers of their features, if one unit alone has not more. Public, both;
sketches may be a thousand times as large as they are by default, and whoever runs out of memory has paid."""

Unit = tuple[int, UnitDocuments]
"""The number of its label, and its documents."""


def facets_of(wanted: KeyphraseParameters) -> FacetSettings:
    """What is extracted: key phrases, and the beginning of the text, which ranks them."""
    fields = (
        FacetField(name=KEYWORDS, about="key phrases", most_items=MOST_PHRASES, most_characters=LONGEST),
        FacetField(name=SUMMARY, about="the beginning", kind="text"),
    )
    return FacetSettings(extractor=wanted.extractor, fields=fields, examples=(), phrase_words=wanted.phrase_words)


@dataclass(frozen=True)
class PhraseReader:
    """Finds the phrases of units, and their vectors.

    Attributes:
        extract: finds candidates.
        embed: gives phrases their points.
    """

    wanted: KeyphraseParameters
    bench: "RunContext"
    extract: Extractor
    embed: Embedder

    def phrases(self) -> Iterator[list[tuple[str, ...]]]:
        """Each unit's phrases, the best first, some units at a time."""
        for chunk in self._chunks("vocabulary", UNITS_AT_ONCE):
            yield self._phrases_of(chunk)

    def vectors(self, kernel: FourierFeatures) -> Iterator[Chunk]:
        """What each unit adds, some units at a time; those that add nothing are left out."""
        numbers = 2 * kernel.features * self.wanted.phrases_per_unit
        for chunk in self._chunks("sketches", max(1, min(UNITS_AT_ONCE, NUMBERS_AT_ONCE // numbers))):
            found = self._phrases_of(chunk)
            kept = [(unit, own) for unit, own in zip(chunk, found, strict=True) if own]
            if kept:
                yield np.array([label for (label, _), _ in kept]), self._vectors_of(kept, kernel)

    def _chunks(self, what: str, at_once: int) -> Iterator[list[Unit]]:
        bench, done = self.bench, 0
        units = bench.corpus.each(bench.scheme, bench.scheme_id, self.wanted.labels)
        total, told = bench.corpus.unit_count(), bench.in_tenths(f"units for the {what}")
        while chunk := list(islice(units, at_once)):
            yield chunk
            done += len(chunk)
            told(done, total)

    def _phrases_of(self, chunk: Sequence[Unit]) -> list[tuple[str, ...]]:
        facets = self.extract([unit.text for _, unit in chunk])
        found = [normalise_keywords(own.keywords, MOST_PHRASES) for own in facets]
        if self.wanted.ranked_by == "embedding":
            found = self._ranked(facets, found)
        return [own[: self.wanted.phrases_per_unit] for own in found]

    def _ranked(self, facets: Sequence[Facets], found: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
        """Each unit's phrases, those nearest to the unit's own point first; equally near ones as they were."""
        texts = [text for own, phrases in zip(facets, found, strict=True) for text in (own.summary, *phrases)]
        steps, start, ranked = on_grid(points_of(self.embed, texts)), 0, []
        for phrases in found:
            own = steps[start : start + 1 + len(phrases)]
            near = (own[1:] * own[0]).sum(axis=1).tolist()  # integers: exact in any order
            ranked.append(tuple(phrases[place] for place in sorted(range(len(phrases)), key=lambda p: -near[p])))
            start += len(own)
        return ranked

    def _vectors_of(self, kept: Sequence[tuple[Unit, tuple[str, ...]]], kernel: FourierFeatures) -> NDArray[np.float32]:
        """float32 [units, positions, 2D]."""
        lengths = [len(own) for _, own in kept]
        first = np.cumsum([0, *lengths[:-1]])
        if self.wanted.sequences == "independent":
            texts = [phrase for _, own in kept for phrase in own]
            return kernel.of_phrases(on_grid(points_of(self.embed, texts)), first)[:, None]
        texts = [phrase for (_, unit), own in kept for phrase in self._in_keyed_order(unit.unit, own)]
        steps = on_grid(points_of(self.embed, texts))
        return _together(steps, first, np.array(lengths), kernel, self.wanted.positions)

    def _in_keyed_order(self, unit: str, phrases: Sequence[str]) -> list[str]:
        """So that which phrases come first is not a matter of how good they are."""
        key, name = self.bench.scheme.key, self.bench.scheme_id
        return sorted(phrases, key=lambda phrase: keyed_hash(key, "keyphrases", name, unit, phrase))


def _together(
    steps: NDArray[np.int64],
    first: NDArray[np.int64],
    lengths: NDArray[np.int64],
    kernel: FourierFeatures,
    positions: int,
) -> NDArray[np.float32]:
    """At each position j the features of each unit's first j phrases; zero for a unit that has not so many."""
    found = np.zeros((len(first), positions, 2 * kernel.features), np.float32)
    sums = np.zeros((len(first), steps.shape[1]), np.int64)
    for position in range(positions):
        enough = lengths > position
        sums[enough] += steps[first[enough] + position]
        if enough.any():
            found[enough, position] = kernel.of_together(sums[enough], position + 1)
    return found
