"""The vocabulary that texts are seeded with: public, counted among public words, or selected from units (PRIVACY §5).

    public    the request's own words; nothing is read and nothing is charged
    counted   a unit votes for the words nearest to its first k phrases; a histogram with k bins a unit
              (`set_histogram`), of which the largest counts are kept
    private   a unit proposes its first k phrases, and what enough units propose is released: the keyword set of
              insights (`analysis.keywords.keyword_set`: partition selection, and noisy counts where it came out too
              large)

Whatever is charged is one step: released words, in the order of the alphabet, with nothing that was not kept.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from models_db.errors import AlmonerError, Refused
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json
from models_db.values.events import PrivacyEvent
from tasks.analysis.keywords.keyword_set import KeywordSet, even_count, keyword_set_for
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.counts.contribution_bound import bound_contributions
from tasks.mechanisms.counts.set_histogram import SetHistogram, calibrate_set_histogram
from tasks.prompted_generation.keyphrases.parameters import TOPICS_FROM, VocabularySettings
from tasks.values.insight import KEYWORDS, Facets, StageBudget

if TYPE_CHECKING:
    from tasks.text.interfaces import Embedder

Phrases = Iterator[list[tuple[str, ...]]]
"""Some units at a time: each one's own phrases, the best first."""


@dataclass(frozen=True)
class Vocabulary:
    """A vocabulary as it is planned, and the way to make it.

    Attributes:
        selecting: of a private one; None for others.
        counting: of a counted one; None for others.
    """

    settings: VocabularySettings
    selecting: KeywordSet | None = None
    counting: SetHistogram | None = None

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """What is charged, in order; none for a public one."""
        if self.selecting is not None:
            return self.selecting.events
        return (self.counting.event(),) if self.counting is not None else ()

    @property
    def facts(self) -> Mapping[str, str]:
        """Its public parameters, for people."""
        wanted = self.settings
        if self.selecting is not None:
            known = {name: value for name, value in self.selecting.facts.items() if name != "keyword set"}
            said = f"selected from the units, at most {wanted.size} phrases; if fewer, also the {TOPICS_FROM}"
            return {"vocabulary": said, **known}
        words = f"{len(wanted.words)} public phrases" + (f" ({wanted.words_from})" if wanted.words_from else "")
        if self.counting is None:
            return {"vocabulary": words}
        votes = f"at most {wanted.per_unit} of a unit; {self.counting.facts()['noise']}"
        return {"vocabulary": f"the {wanted.size} most frequent of {words}", "votes for phrases": votes}

    @property
    def needed(self) -> str | None:
        """How many units a phrase needs, in words; None where nothing is selected."""
        if self.selecting is not None and self.selecting.selecting is not None:
            return f"where {even_count(self.selecting.selecting.selection)} units propose it"
        if self.counting is not None:
            return f"if {2 * self.counting.variance() ** 0.5:.1f} units more vote for it than for others"
        return None

    def draw(self, purse: StageBudget, units: Callable[[], Phrases], rng: RandomSource, embed: "Embedder") -> list[str]:
        """The vocabulary in the order of the alphabet; empty if nothing could be released.

        Args:
            purse: pays for `events`.
            units: reads all units; called after everything is paid for, and never for a public vocabulary.
            embed: says which public words are near to a unit's phrases.
        """
        if self.selecting is not None:
            return self.selecting.draw(purse, lambda: _as_facets(units()), rng)
        if self.counting is None:
            return sorted(self.settings.words)
        votes = _Votes(self.settings, embed)
        counting = self.counting
        released = purse.release(
            0, lambda: votes.counts(units()), lambda counts: votes.kept(counting.draw(counts, rng))
        )
        return cast("list[str]", released)


def vocabulary_for(settings: VocabularySettings, amount: Amount) -> Vocabulary:
    """The vocabulary that `amount` buys; a public one takes nothing of it.

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
        raise VocabularyBudgetTooSmall(amount, problem.message) from None
    return Vocabulary(settings, counting=histogram)


@dataclass(frozen=True)
class _Votes:
    """Which public words units come near to."""

    settings: VocabularySettings
    embed: "Embedder"

    def counts(self, units: Phrases) -> list[int]:
        """How many units vote for each word. PRIVATE."""
        from tasks.inference.embeddings.unit_embeddings import points_of

        words = points_of(self.embed, self.settings.words).astype(np.float64)
        counts = np.zeros(len(words), np.int64)
        for some in units:
            for voted in self._voted(some, words):
                counts[list(bound_contributions(voted, self.settings.per_unit))] += 1
        found: list[int] = counts.tolist()
        return found

    def _voted(self, some: Sequence[tuple[str, ...]], words: NDArray[np.float64]) -> list[list[int]]:
        """The different words nearest to each unit's first k phrases, each a function of that unit, bit for bit."""
        from tasks.inference.embeddings.unit_embeddings import points_of
        from tasks.mechanisms.vectors.fixed_point import GridPoints

        first = [phrases[: self.settings.per_unit] for phrases in some]
        flat = [phrase for phrases in first for phrase in phrases]
        nearest = iter(GridPoints.of(points_of(self.embed, flat)).nearest(words).tolist())
        return [sorted({next(nearest) for _ in phrases}) for phrases in first]

    def kept(self, noisy: Sequence[int]) -> Json:
        """The words of the largest noisy counts; equal ones by the order of the public list."""
        order = sorted(range(len(noisy)), key=lambda place: -noisy[place])
        words: list[Any] = sorted(self.settings.words[place] for place in order[: self.settings.size])
        return words


def _as_facets(units: Phrases) -> list[Facets]:
    return [Facets({KEYWORDS: phrases}) for some in units for phrases in some]


class VocabularyBudgetTooSmall(Refused):
    """What a vocabulary gets of the budget buys nothing."""

    def __init__(self, amount: Amount, reason: str) -> None:
        super().__init__(
            f"The budget of the vocabulary (rho {amount.rho_text}) is too small: {reason.rstrip('.')}.",
            "Give it a larger share, let units vote less often (`per_unit`), or take `method: public`.",
            {"rho": str(amount.rho)},
        )
