"""Closed keyword set for descriptions of clusters: public, privately selected, or both (URANIA, section 4.1).

A unit proposes at most k candidates, by a function of that unit and of public or noisy values alone; a candidate is
released if enough units propose it, for all of the stage's delta (`gaussian_selection`: k / (2 sigma^2);
`partition_selection`: epsilon tanh(epsilon/2k); `weighted_selection`: G^2 / (2 sigma^2) in each of two rounds, and k
candidates in each). By default `tfidf` selects in weighted rounds and the others by Gaussian counts, or either by
`partition_selection` where that needs fewer units than Gaussian counts.

    public    the request's own words; nothing is read and nothing is charged
    model     a unit proposes the first k of its extracted keywords
    hybrid    as `model`, without keywords that public words cover; released ones join the public words. Extracted
              for each unit by itself: a keyword of a batch of units could not be attributed to a unit
    tfidf     a unit proposes k of its own single words by tf * idf, from noisy document frequencies (`tfidf`)

Public words fill the places that released ones leave, and at least half of the places belong to released ones, which
certainly occur in the corpus. A larger set is cut by noisy counts (those of `gaussian_selection`, the noisy sums of
`weighted_selection`, or else another histogram, k bins per unit), or by public means alone (`keywords.refine`). All
charged mechanisms are drawn together and stored as released keywords with their noisy numbers, nothing else:
candidates, document frequencies and unreleased keywords stay in memory. A run that dies in between has lost its payment
(`StageBudget.release`).

An empty corpus, or one in which no two units share a keyword, releases nothing: the set is then empty, or the public
words where there are some.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, TypeAlias, cast

from models_db.errors import AlmonerError, Refused
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json
from models_db.values.events import PrivacyEvent
from tasks.analysis.keywords.parameters import KeywordSettings
from tasks.analysis.keywords.refine import Refine, by_counts
from tasks.analysis.keywords.tfidf import TermWeights
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.counts.contribution_bound import count_units_by_item
from tasks.mechanisms.counts.gaussian_selection import GaussianSelection, calibrate_gaussian_selection
from tasks.mechanisms.counts.noisy_count import NoiseInvalid
from tasks.mechanisms.counts.partition_selection import PartitionSelection, SelectionUnaffordable, calibrate_selection
from tasks.mechanisms.counts.set_histogram import SetHistogram, calibrate_set_histogram
from tasks.mechanisms.counts.weighted_selection import (
    STEPS,
    USUAL_CANDIDATES,
    SelectionInRounds,
    WeightedSelection,
    calibrate_rounds,
)
from tasks.text.keyword_normalisation import near, normalise_keywords, roots
from tasks.values.results import Facets, StageBudget

_MOST_READ = 50
"""Most extracted keywords of a unit that are considered."""
_CANDIDATES, _CANDIDATES_OF_A_ROUND = 5, 10
"""k where a request does not say: of one selection, and of each of the weighted rounds."""

Selection: TypeAlias = GaussianSelection | PartitionSelection | SelectionInRounds

Candidates = Sequence[tuple[str, ...]]
"""Each unit's own candidates, without repeats, the best first."""


class CandidateSource(Protocol):
    """Source of the units' candidates, in the two steps of a release."""

    def prepare(self, facets: Sequence[Facets], rng: RandomSource) -> Callable[[], Candidates]:
        """Read the units; the returned function draws its noise and returns the candidates."""


@dataclass(frozen=True)
class OwnKeywords:
    """Source of candidates: the extracted keywords, without those that public words cover.

    Attributes:
        most: how many of a unit: k, or more where rounds free places.
        public: the roots of the public words.
    """

    most: int
    public: tuple[frozenset[str], ...] = ()

    def prepare(self, facets: Sequence[Facets], rng: RandomSource) -> Callable[[], Candidates]:
        """Read the units; nothing is drawn, because each unit's candidates depend on that unit alone."""
        candidates = [self.of(unit) for unit in facets]
        return lambda: candidates

    def of(self, unit: Facets) -> tuple[str, ...]:
        """Return one unit's candidates."""
        keywords = normalise_keywords(unit.keywords, _MOST_READ)
        return tuple(keyword for keyword in keywords if not near(keyword, self.public))[: self.most]


@dataclass(frozen=True)
class OwnWords:
    """Source of candidates: single words, by noisy document frequencies."""

    weights: TermWeights

    def prepare(self, facets: Sequence[Facets], rng: RandomSource) -> Callable[[], Candidates]:
        """Count document frequencies now; the returned function adds their noise."""
        counted = self.weights.count(facets, rng)
        return lambda: list(self.weights.choose(counted, rng))


@dataclass(frozen=True)
class PrivateSelection:
    """Charged mechanisms: proposals, their selection, and counts of the selected keywords.

    Attributes:
        counting: None if the selection counts by itself, or where keywords are not ranked by counts.
    """

    proposing: CandidateSource
    selection: Selection
    counting: SetHistogram | None

    @property
    def mechanisms(self) -> tuple[SetHistogram | GaussianSelection | PartitionSelection | WeightedSelection, ...]:
        """The mechanisms in the order in which they are charged."""
        frequency = (self.proposing.weights.histogram,) if isinstance(self.proposing, OwnWords) else ()
        selections = self.selection.rounds if isinstance(self.selection, SelectionInRounds) else (self.selection,)
        return (*frequency, *selections, *((self.counting,) if self.counting else ()))

    def release(self, candidates: Candidates, rng: RandomSource) -> Json:
        """Draw and return the stored value: the released keywords in order, and what ranks them, if it was bought."""
        if isinstance(self.selection, SelectionInRounds):
            weighted = self.selection.release(candidates, rng)
            return {"keywords": list(weighted), "counts": list(weighted.values())}
        counts = count_units_by_item(candidates, self.selection.contributions)
        if isinstance(self.selection, GaussianSelection):
            released = self.selection.release(counts, rng)
            return {"keywords": list(released), "counts": list(released.values())}
        kept = sorted(self.selection.keep(counts, rng))
        noisy = self.counting.draw([counts[keyword] for keyword in kept], rng) if self.counting else None
        return {"keywords": kept, "counts": noisy}


@dataclass(frozen=True)
class KeywordSet:
    """A planned keyword set, and the way to draw it.

    Attributes:
        selecting: the charged mechanisms; None for a public set.
    """

    settings: KeywordSettings
    selecting: PrivateSelection | None

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """The charged events, in order; none for a public set."""
        return tuple(mechanism.event() for mechanism in self.selecting.mechanisms) if self.selecting else ()

    @property
    def facts(self) -> Mapping[str, str]:
        """The public parameters, for people."""
        settings = self.settings
        words = {"public keywords": f"{len(settings.words)}{_source_note(settings)}"} if settings.words else {}
        charged = _charged_facts(settings, self.selecting) if self.selecting else {}
        return {"keyword set": f"{settings.method}, at most {settings.size} keywords", **words, **charged}

    def draw(
        self,
        budget: StageBudget,
        facets: Callable[[], Sequence[Facets]],
        rng: RandomSource,
        refine: Refine | None = None,
    ) -> list[str]:
        """Draw the keywords, in the order of the alphabet, at most K; none if nothing could be released.

        Args:
            budget: pays for `events`, which are released together.
            facets: reads all units; called after everything is paid for, and never for a public set.
            refine: how too large a set is cut, if not by counts (`keywords.refine.refiner_for`).

        Raises:
            ValueError: the settings do not rank by counts, and there is no `refine`.
        """
        if self.selecting is not None and self.settings.ranking != "counts" and refine is None:
            raise ValueError(f"a set ranked by {self.settings.ranking} needs a `refine` function")
        released = self._released(budget, facets, rng)
        keywords = cast(Sequence[str], released["keywords"])
        public = [word for word in self.settings.words if word not in set(keywords)]
        room = max(self.settings.size - len(public), (self.settings.size + 1) // 2)
        if len(keywords) > room:
            keywords = self._cut(budget, keywords, cast("Sequence[int] | None", released["counts"]), room, refine)
        return sorted([*keywords, *public[: self.settings.size - len(keywords)]])

    def _released(
        self, budget: StageBudget, facets: Callable[[], Sequence[Facets]], rng: RandomSource
    ) -> Mapping[str, Json]:
        if (selecting := self.selecting) is None:
            return {"keywords": [], "counts": []}
        released = budget.release(
            range(len(self.events)),
            lambda: selecting.proposing.prepare(facets(), rng),
            lambda candidates: selecting.release(candidates(), rng),
        )
        return cast("Mapping[str, Json]", released)

    def _cut(
        self,
        budget: StageBudget,
        keywords: Sequence[str],
        counts: Sequence[int] | None,
        room: int,
        refine: Refine | None,
    ) -> Sequence[str]:
        """Cut the released keywords to `room`. A model's choice is stored, because it may not be repeatable."""
        if counts is not None and self.settings.ranking == "counts":
            return by_counts(keywords, counts)(keywords, room)
        chosen = budget.release((), lambda: refine(keywords, room) if refine else [], list)
        # A stored choice of an earlier draw, after the ledger alone was restored, may name keywords of another set.
        return [keyword for keyword in cast("Sequence[str]", chosen) if keyword in set(keywords)]


def keyword_set_for(settings: KeywordSettings, amount: Amount) -> KeywordSet:
    """Return the keyword set that `amount` buys; a public one costs nothing.

    Raises:
        KeywordBudgetTooSmall: the amount is too small for one of its mechanisms.
    """
    if not settings.charged:
        return KeywordSet(settings, None)
    try:
        return KeywordSet(settings, _private_selection(settings, amount))
    except AlmonerError as problem:
        raise Refused(
            f"The budget of the keyword set (rho {amount.rho_text}, delta {amount.delta_text}) is too small for"
            f" {settings.method!r}: {problem.message.rstrip('.')}.",
            "Give it a larger share, choose fewer candidates per unit, or use `method: public`.",
            {"method": settings.method, "rho": str(amount.rho), "delta": str(amount.delta)},
            code="KeywordBudgetTooSmall",
        ) from None


def _private_selection(settings: KeywordSettings, amount: Amount) -> PrivateSelection:
    frequencies = int(amount.rho * Fraction(settings.frequency_share)) if settings.method == "tfidf" else 0
    selection, counting = _selection(settings, amount, Amount(amount.rho - frequencies, amount.delta))
    return PrivateSelection(_candidate_source(settings, frequencies, selection), selection, counting)


def _selection(settings: KeywordSettings, amount: Amount, rest: Amount) -> tuple[Selection, SetHistogram | None]:
    """Return the selection that `rest` buys, and the counts of its keywords where it does not count by itself.

    `auto` takes the geometric kind where it needs fewer units for a keyword than the Gaussian one. Elsewhere weighted
    rounds release more single words, and no more extracted keywords.
    """
    kind = settings.selection
    if kind == "truncated_geometric":
        return _geometric(settings, amount, rest)
    if kind != "weighted":
        gaussian = calibrate_gaussian_selection(rest, settings.per_unit or _CANDIDATES)
        if kind == "auto":
            with suppress(SelectionUnaffordable, NoiseInvalid):
                geometric, counting = _geometric(settings, amount, rest)
                if geometric.even_count() < gaussian.even_count():
                    return geometric, counting
        if kind == "gaussian" or settings.method != "tfidf":
            return gaussian, None
    return calibrate_rounds(rest, settings.per_unit or _CANDIDATES_OF_A_ROUND), None


def _geometric(settings: KeywordSettings, amount: Amount, rest: Amount) -> tuple[Selection, SetHistogram | None]:
    candidates = settings.per_unit or _CANDIDATES
    if settings.ranking != "counts":
        return calibrate_selection(rest, candidates), None
    counts = int(amount.rho * Fraction(settings.counting_share))
    selection = calibrate_selection(Amount(rest.rho - counts, rest.delta), candidates)
    return selection, calibrate_set_histogram(counts, None, candidates)


def _candidate_source(settings: KeywordSettings, frequency_rho: int, selection: Selection) -> CandidateSource:
    most = _MOST_READ if isinstance(selection, SelectionInRounds) else selection.contributions
    if settings.method != "tfidf":
        return OwnKeywords(most, tuple(roots(word) for word in settings.words))
    histogram = calibrate_set_histogram(frequency_rho, None, settings.tokens_per_unit + 1)
    least = selection.even_count() if settings.only_common else 0
    return OwnWords(TermWeights(histogram, settings.tokens_per_unit, most, least))


def _source_note(settings: KeywordSettings) -> str:
    return f" ({settings.words_from})" if settings.words_from else ""


def _charged_facts(settings: KeywordSettings, selecting: PrivateSelection) -> Mapping[str, str]:
    selection = selecting.selection
    facts = {
        "keyword candidates per unit k": str(selection.contributions),
        "a keyword is as likely as not": even_chance(selection),
        "selection": _noise_description(selection),
    }
    if isinstance(selecting.proposing, OwnWords):
        weights = selecting.proposing.weights
        facts["document frequencies"] = f"at most w = {weights.counted} words a unit; {_noise(weights.histogram)}"
    facts["larger sets are cut"] = _ranked(settings, selecting)
    return facts


def even_chance(selection: Selection) -> str:
    """Return, for people, how many units release a keyword as likely as not; public."""
    beside = ""
    if isinstance(selection, SelectionInRounds) and selection.contributions >= USUAL_CANDIDATES:
        beside = f", each beside {USUAL_CANDIDATES - 1} others"
    return f"where {selection.even_count()} units propose it{beside}"


def _noise_description(selection: Selection) -> str:
    if isinstance(selection, SelectionInRounds):
        rounds = "; ".join(
            f"scale {float(each.sigma) / STEPS:.4g}, threshold {each.threshold / STEPS:.4g}"
            for each in selection.rounds
        )
        return f"discrete Gaussian noise on sums of weights, in rounds: {rounds}"
    if isinstance(selection, GaussianSelection):
        return f"discrete Gaussian noise of scale {float(selection.sigma):.4g} units, threshold {selection.threshold}"
    return "truncated geometric"


def _ranked(settings: KeywordSettings, selecting: PrivateSelection) -> str:
    if settings.ranking == "counts":
        if counting := selecting.counting:
            return f"by noisy counts; {_noise(counting)}"
        sums = isinstance(selecting.selection, SelectionInRounds)
        return f"by the noisy {'sums' if sums else 'counts'} of the selection"
    return "by the public model" if settings.ranking == "model" else "so that the rest is well represented"


def _noise(histogram: SetHistogram) -> str:
    return histogram.facts()["noise"]
