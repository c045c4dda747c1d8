"""Stages of keyphrase seeding that a budget buys: a seed vocabulary, and sketches of the units' phrases (PRIVACY §5).

Seed vocabulary of texts: public, counted among public words, or privately selected from units (PRIVACY §5).

    public    the request's own words; nothing is read and nothing is charged
    counted   a unit votes for the words nearest to its first k phrases; a histogram with k bins a unit
              (`set_histogram`), of which the largest counts are kept
    private   a unit proposes its first k phrases, and what enough units propose is released: the keyword set of
              insights (`analysis.keywords.keyword_set`: partition selection, and noisy counts where it came out too
              large)

A charged vocabulary is one step: released words, in the order of the alphabet, without unreleased ones.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from models_db.errors import AlmonerError, Refused
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json
from models_db.values.events import PrivacyEvent
from tasks.analysis.keywords.expected_keywords import expected_keywords
from tasks.analysis.keywords.keyword_set import KeywordSet, even_chance, keyword_set_for
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.counts.set_histogram import SetHistogram, bound_contributions, calibrate_set_histogram
from tasks.mechanisms.vectors.kde_sketch import KdeSketches, calibrate_kde
from tasks.systems.keyphrase_seeding.parameters import TOPICS_FROM, KeyphraseParameters, VocabularySettings
from tasks.values.results import KEYWORDS, Facets, StageBudget

if TYPE_CHECKING:
    from tasks.text.interfaces import Embedder


Phrases = Iterator[list[tuple[str, ...]]]
"""Chunks of units: each unit's own phrases, the best first."""


@dataclass(frozen=True)
class Vocabulary:
    """A planned vocabulary, and the way to draw it.

    Attributes:
        selecting: the selection of a private vocabulary; None for others.
        counting: the histogram of a counted vocabulary; None for others.
    """

    settings: VocabularySettings
    selecting: KeywordSet | None = None
    counting: SetHistogram | None = None

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """The charged events, in order; none for a public vocabulary."""
        if self.selecting is not None:
            return self.selecting.events
        return (self.counting.event(),) if self.counting is not None else ()

    @property
    def facts(self) -> Mapping[str, str]:
        """The public parameters, for people."""
        settings = self.settings
        if self.selecting is not None:
            released_facts = {name: value for name, value in self.selecting.facts.items() if name != "keyword set"}
            sentence = f"selected from the units, at most {settings.size} phrases; if fewer, also the {TOPICS_FROM}"
            return {"vocabulary": sentence, **released_facts}
        words = f"{len(settings.words)} public phrases" + (f" ({settings.words_from})" if settings.words_from else "")
        if self.counting is None:
            return {"vocabulary": words}
        votes = f"at most {settings.per_unit} of a unit; {self.counting.facts()['noise']}"
        return {"vocabulary": f"the {settings.size} most frequent of {words}", "votes for phrases": votes}

    def expected(self, population: int | None) -> Mapping[str, str]:
        """Return the expected size of a selected vocabulary for so many declared units; empty for other methods."""
        return expected_keywords(self.selecting.selecting, population) if self.selecting is not None else {}

    @property
    def needed(self) -> str | None:
        """The number of units that a phrase needs, in words; None if nothing is selected."""
        if self.selecting is not None and self.selecting.selecting is not None:
            return even_chance(self.selecting.selecting.selection)
        if self.counting is not None:
            return f"if {2 * self.counting.variance() ** 0.5:.1f} units more vote for it than for others"
        return None

    def draw(
        self, budget: StageBudget, units: Callable[[], Phrases], rng: RandomSource, embed: "Embedder"
    ) -> list[str]:
        """Draw the vocabulary, in the order of the alphabet; empty if nothing could be released.

        Args:
            budget: pays for `events`.
            units: reads all units; called after everything is paid for, and never for a public vocabulary.
            embed: determines the public words nearest to a unit's phrases.
        """
        if self.selecting is not None:
            return self.selecting.draw(budget, lambda: _as_facets(units()), rng)
        if self.counting is None:
            return sorted(self.settings.words)
        votes = _Votes(self.settings, embed)
        counting = self.counting
        released = budget.release(
            0, lambda: votes.counts(units()), lambda counts: votes.kept(counting.draw(counts, rng))
        )
        return cast("list[str]", released)


def vocabulary_for(settings: VocabularySettings, amount: Amount) -> Vocabulary:
    """Return the vocabulary that `amount` buys; a public one costs nothing.

    Raises:
        KeywordBudgetTooSmall, VocabularyBudgetTooSmall: the amount is too small.
    """
    if settings.method == "private":
        return Vocabulary(settings, selecting=keyword_set_for(settings.selected, amount))
    if settings.method == "public":
        return Vocabulary(settings)
    try:
        histogram = calibrate_set_histogram(amount.rho, len(settings.words), settings.per_unit)
    except AlmonerError as problem:
        raise Refused(
            f"The budget of the vocabulary (rho {amount.rho_text}) is too small: {problem.message.rstrip('.')}.",
            "Give it a larger share, let units vote less often (`per_unit`), or use `method: public`.",
            {"rho": str(amount.rho)},
            code="VocabularyBudgetTooSmall",
        ) from None
    return Vocabulary(settings, counting=histogram)


@dataclass(frozen=True)
class _Votes:
    """Votes of units for public words near to their phrases."""

    settings: VocabularySettings
    embed: "Embedder"

    def counts(self, units: Phrases) -> list[int]:
        """Count the units that vote for each word. PRIVATE."""
        from tasks.inference.embeddings.unit_embeddings import RetriedEmbedder, points_of

        words = points_of(RetriedEmbedder(self.embed), self.settings.words).astype(np.float64)
        counts = np.zeros(len(words), np.int64)
        for chunk in units:
            for votes in self._voted(chunk, words):
                counts[list(bound_contributions(votes, self.settings.per_unit))] += 1
        result: list[int] = counts.tolist()
        return result

    def _voted(self, chunk: Sequence[tuple[str, ...]], words: NDArray[np.float64]) -> list[list[int]]:
        """Return the different words nearest to each unit's first k phrases, a function of that unit, bit for bit."""
        from tasks.inference.embeddings.unit_embeddings import points_of
        from tasks.mechanisms.vectors.fixed_point import GridPoints

        first = [phrases[: self.settings.per_unit] for phrases in chunk]
        flat = [phrase for phrases in first for phrase in phrases]
        nearest = iter(GridPoints.of(points_of(self.embed, flat)).nearest(words).tolist())
        return [sorted({next(nearest) for _ in phrases}) for phrases in first]

    def kept(self, noisy: Sequence[int]) -> Json:
        """Return the words of the largest noisy counts; equal ones by the order of the public list."""
        order = sorted(range(len(noisy)), key=lambda place: -noisy[place])
        words: list[Any] = sorted(self.settings.words[place] for place in order[: self.settings.size])
        return words


def _as_facets(units: Phrases) -> list[Facets]:
    return [Facets({KEYWORDS: phrases}) for some in units for phrases in some]


NAME: Final = "keyphrase_seeding"
"""The name of the system."""
SHARED = Fraction(1, 100)
"""The share of n units with a phrase, to whose score the noise of a score is compared."""


@dataclass(frozen=True)
class Stages:
    """The calibrated stages, in the order in which they are spent."""

    vocabulary: Vocabulary
    sketches: KdeSketches

    @classmethod
    def of(cls, parameters: KeyphraseParameters, amount: Amount) -> "Stages":
        """Calibrate the stages that cost at most `amount` together.

        Raises:
            KeywordBudgetTooSmall, VocabularyBudgetTooSmall, NoiseInvalid: a share of it buys nothing.
            SketchInvalid: sketches of so many features and labels are too large.
        """
        words, density = parameters.shares.of(amount.rho, charged=parameters.vocabulary.charged)
        vocabulary = vocabulary_for(parameters.vocabulary, Amount(words, amount.delta))
        labels = max(1, len(parameters.labels))
        return cls(vocabulary, calibrate_kde(density, parameters.features, labels, parameters.positions))

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """The charged events, in order."""
        return (*self.vocabulary.events, self.sketches.event())

    def noise(self, parameters: KeyphraseParameters) -> Fraction:
        """Return the standard deviation of a phrase's score; features have norm 1."""
        return self.sketches.sigma / parameters.references

    def relative(self, parameters: KeyphraseParameters) -> Fraction:
        """Return the noise relative to the score of a phrase that 1 % of n units have among their L, far from others.

        A unit's vector has length 1, so each of L phrases that lie apart has 1 / sqrt(L) of it.
        """
        root = Fraction(math.isqrt(parameters.phrases_per_unit * 10**12) + 1, 10**6)
        return self.noise(parameters) * root / SHARED
