"""Private keyphrases of units, and their contributions to the sketches.

Units are read in chunks of one public size, and no chunk is kept: memory does not grow with their number. A unit's
phrases, their order and its vectors are functions of that unit and of public values alone, bit for bit. A unit without
phrases adds zero.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tasks.analysis.facets.extractor import Extractor
from tasks.analysis.facets.facet_settings import FacetField, FacetSettings
from tasks.corpus.store import UnitDocuments
from tasks.inference.embeddings.unit_embeddings import points_of
from tasks.mechanisms.vectors.kde_sketch import Chunk
from tasks.mechanisms.vectors.random_fourier_features import FourierFeatures, on_grid
from tasks.systems.keyphrase_seeding.parameters import MOST_PHRASES, KeyphraseParameters
from tasks.text.interfaces import Embedder
from tasks.text.keyword_normalisation import LONGEST, normalise_keywords
from tasks.values.results import KEYWORDS, SUMMARY, Facets

if TYPE_CHECKING:
    from tasks.decoding.run_context import RunContext

UNITS_AT_ONCE, NUMBERS_AT_ONCE = 64, 2**22
"""Size of a chunk: units, and numbers of their features, unless one unit alone has more. Both are public; sketches may
be a thousand times as large as by default, and a run that exhausts memory has already paid."""

Unit = tuple[int, UnitDocuments]
"""The number of its label, and its documents."""


def facets_of(parameters: KeyphraseParameters) -> FacetSettings:
    """Return the settings of extraction: key phrases, and the beginning of the text, which ranks them."""
    fields = (
        FacetField(name=KEYWORDS, about="key phrases", most_items=MOST_PHRASES, most_characters=LONGEST),
        FacetField(name=SUMMARY, about="the beginning", kind="text"),
    )
    return FacetSettings(fields=fields, examples=(), phrase_words=parameters.phrase_words)


@dataclass(frozen=True)
class PhraseReader:
    """Reader of the phrases of units, and of their vectors.

    Attributes:
        extract: extracts candidates.
        embed: embeds phrases.
    """

    parameters: KeyphraseParameters
    bench: "RunContext"
    extract: Extractor
    embed: Embedder

    def phrases(self) -> Iterator[list[tuple[str, ...]]]:
        """Yield each unit's phrases, the best first, a chunk at a time."""
        for chunk in self._chunks("vocabulary", UNITS_AT_ONCE):
            yield self._phrases_of(chunk)

    def vectors(self, kernel: FourierFeatures) -> Iterator[Chunk]:
        """Yield each unit's contribution, a chunk at a time; units without phrases are left out."""
        numbers = 2 * kernel.features * self.parameters.phrases_per_unit
        for chunk in self._chunks("sketches", max(1, min(UNITS_AT_ONCE, NUMBERS_AT_ONCE // numbers))):
            phrases = self._phrases_of(chunk)
            nonempty = [(unit, own) for unit, own in zip(chunk, phrases, strict=True) if own]
            if nonempty:
                yield np.array([label for (label, _), _ in nonempty]), self._vectors_of(nonempty, kernel)

    def _chunks(self, stage: str, at_once: int) -> Iterator[list[Unit]]:
        return self.bench.unit_chunks(self.parameters.labels, at_once, f"units for the {stage}")

    def _phrases_of(self, chunk: Sequence[Unit]) -> list[tuple[str, ...]]:
        facets = self.extract([unit.text for _, unit in chunk])
        phrases = [normalise_keywords(own.keywords, MOST_PHRASES) for own in facets]
        if self.parameters.ranked_by == "embedding":
            phrases = self._ranked(facets, phrases)
        return [own[: self.parameters.phrases_per_unit] for own in phrases]

    def _ranked(self, facets: Sequence[Facets], phrase_lists: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
        """Sort each unit's phrases by closeness to the unit's own point; equally near ones keep their order."""
        texts = [text for own, phrases in zip(facets, phrase_lists, strict=True) for text in (own.summary, *phrases)]
        steps, start, ranked = on_grid(points_of(self.embed, texts)), 0, []
        for phrases in phrase_lists:
            own = steps[start : start + 1 + len(phrases)]
            closeness = (own[1:] * own[0]).sum(axis=1).tolist()  # integers: exact in any order
            ranked.append(tuple(phrases[place] for place in sorted(range(len(phrases)), key=lambda p: -closeness[p])))
            start += len(own)
        return ranked

    def _vectors_of(self, kept: Sequence[tuple[Unit, tuple[str, ...]]], kernel: FourierFeatures) -> NDArray[np.float32]:
        """Return the contributions of units, float32 [units, positions, 2D]."""
        lengths = [len(own) for _, own in kept]
        first = np.cumsum([0, *lengths[:-1]])
        if self.parameters.sequences == "independent":
            texts = [phrase for _, own in kept for phrase in own]
            return kernel.of_phrases(on_grid(points_of(self.embed, texts)), first)[:, None]
        texts = [phrase for (_, unit), own in kept for phrase in self._in_keyed_order(unit.unit, own)]
        steps = on_grid(points_of(self.embed, texts))
        return _together(steps, first, np.array(lengths), kernel, self.parameters.positions)

    def _in_keyed_order(self, unit: str, phrases: Sequence[str]) -> list[str]:
        """Order phrases by a key, so that their order does not depend on their rank."""
        return sorted(phrases, key=lambda phrase: self.bench.split.keyed_hash("keyphrases", unit, phrase))


def _together(
    steps: NDArray[np.int64],
    first: NDArray[np.int64],
    lengths: NDArray[np.int64],
    kernel: FourierFeatures,
    positions: int,
) -> NDArray[np.float32]:
    """Return at each position j the features of each unit's first j phrases; zero for a unit with fewer."""
    features = np.zeros((len(first), positions, 2 * kernel.features), np.float32)
    sums = np.zeros((len(first), steps.shape[1]), np.int64)
    for position in range(positions):
        enough = lengths > position
        sums[enough] += steps[first[enough] + position]
        if enough.any():
            features[enough, position] = kernel.of_together(sums[enough], position + 1)
    return features
