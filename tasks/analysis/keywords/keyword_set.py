"""The closed set of keywords that clusters are described with: public, selected, or both (URANIA, section 4.1).

A unit proposes at most k candidates, by a function of that unit and of public or noisy things alone; a candidate is
released if enough units propose it (`partition_selection`: epsilon tanh(epsilon/2k), and all of the stage's delta).

    public    the request's own words; nothing is read and nothing is charged
    model     a unit proposes the first k keywords that the extractor found in it
    hybrid    of those, the first k that say more than the public words do; what is released joins the public words.
              Extracted for each unit by itself: a keyword of a batch of units would be nobody's contribution
    tfidf     a unit proposes k of its own single words by tf * idf, from noisy document frequencies (`tfidf`)

Public words fill what room the released ones leave, and at least half of it belongs to these: somebody said what was
released, and of a public word that is only hoped. Too many released ones are cut by noisy counts of them (another
histogram, k bins a unit), or by public means alone (`keywords.refine`). All that is charged is drawn together and
written down as released keywords with their noisy counts, nothing else: candidates, document frequencies and what was
not released stay in memory. A run that dies in between has lost what it paid (`StageBudget.release`).

An empty corpus, or one in which no two people say the same, releases nothing: the set is then empty, or the public
words where there are some.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, cast

from models_db.errors import AlmonerError, Refused
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json
from models_db.values.events import PrivacyEvent
from tasks.analysis.keywords.parameters import KeywordSettings
from tasks.analysis.keywords.refine import Refine, by_counts
from tasks.analysis.keywords.tfidf import TermWeights
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.counts.contribution_bound import count_units_by_item
from tasks.mechanisms.counts.partition_selection import PartitionSelection, calibrate_selection
from tasks.mechanisms.counts.set_histogram import SetHistogram, calibrate_set_histogram
from tasks.text.keyword_normalisation import near, normalise_keywords, roots
from tasks.values.insight import Facets, StageBudget

_MOST_READ = 50
"""Of a unit's keywords so many are looked at, whatever an extractor hands over."""

Candidates = Sequence[tuple[str, ...]]
"""Each unit's own, different ones, the best first."""


class CandidateSource(Protocol):
    """How units come by their candidates, in the two steps of a release."""

    def prepare(self, facets: Sequence[Facets], rng: RandomSource) -> Callable[[], Candidates]:
        """Read the units; the function that is returned draws what noise it takes and gives the candidates."""


@dataclass(frozen=True)
class OwnKeywords:
    """Candidates are the keywords that were extracted, without those that public ones make unnecessary.

    Attributes:
        most: k.
        public: the roots of the public words.
    """

    most: int
    public: tuple[frozenset[str], ...] = ()

    def prepare(self, facets: Sequence[Facets], rng: RandomSource) -> Callable[[], Candidates]:
        """Nothing is drawn: each unit's candidates are its own."""
        found = [self.of(unit) for unit in facets]
        return lambda: found

    def of(self, unit: Facets) -> tuple[str, ...]:
        """One unit's candidates."""
        spelt = normalise_keywords(unit.keywords, _MOST_READ)
        return tuple(keyword for keyword in spelt if not near(keyword, self.public))[: self.most]


@dataclass(frozen=True)
class OwnWords:
    """Candidates are single words, by noisy document frequencies."""

    weights: TermWeights

    def prepare(self, facets: Sequence[Facets], rng: RandomSource) -> Callable[[], Candidates]:
        """Document frequencies are counted now and noised when they are needed."""
        counted = self.weights.count(facets, rng)
        return lambda: list(self.weights.choose(counted, rng))


@dataclass(frozen=True)
class PrivateSelection:
    """What is charged: proposals, their selection, and counts of what was selected."""

    proposing: CandidateSource
    selection: PartitionSelection
    counting: SetHistogram | None

    @property
    def mechanisms(self) -> tuple[SetHistogram | PartitionSelection, ...]:
        """In the order in which they are charged."""
        frequency = (self.proposing.weights.histogram,) if isinstance(self.proposing, OwnWords) else ()
        return (*frequency, self.selection, *((self.counting,) if self.counting else ()))

    def release(self, candidates: Candidates, rng: RandomSource) -> Json:
        """What is written down: the released keywords in their order, and their noisy counts where they are bought."""
        counts = count_units_by_item(candidates, self.selection.contributions)
        kept = sorted(self.selection.keep(counts, rng))
        noisy = self.counting.draw([counts[keyword] for keyword in kept], rng) if self.counting else None
        return {"keywords": kept, "counts": noisy}


@dataclass(frozen=True)
class KeywordSet:
    """A keyword set as it is planned, and the way to make it.

    Attributes:
        selecting: what is charged; None for a public set.
    """

    settings: KeywordSettings
    selecting: PrivateSelection | None

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """What is charged, in order; none for a public set."""
        return tuple(each.event() for each in self.selecting.mechanisms) if self.selecting else ()

    @property
    def facts(self) -> Mapping[str, str]:
        """Its public parameters, for people."""
        wanted = self.settings
        words = {"public keywords": f"{len(wanted.words)}{_from(wanted)}"} if wanted.words else {}
        charged = _charged_facts(wanted, self.selecting) if self.selecting else {}
        return {"keyword set": f"{wanted.method}, at most {wanted.size} keywords", **words, **charged}

    def draw(
        self,
        purse: StageBudget,
        facets: Callable[[], Sequence[Facets]],
        rng: RandomSource,
        refine: Refine | None = None,
    ) -> list[str]:
        """The released keywords in the order of the alphabet, at most K; none if nothing could be released.

        Args:
            purse: pays for `events`, which are released together.
            facets: reads all units; called after everything is paid for, and never for a public set.
            refine: how a set that came out too large is cut, if not by counts (`keywords.refine.refiner_for`).

        Raises:
            ValueError: the settings rank otherwise than by counts, and there is no `refine`.
        """
        if self.selecting is not None and self.selecting.counting is None and refine is None:
            raise ValueError(f"a set ranked by {self.settings.ranking} needs something to rank it with")
        released = self._released(purse, facets, rng)
        keywords = cast(Sequence[str], released["keywords"])
        public = [word for word in self.settings.words if word not in set(keywords)]
        room = max(self.settings.size - len(public), (self.settings.size + 1) // 2)
        if len(keywords) > room:
            keywords = self._cut(purse, keywords, cast("Sequence[int] | None", released["counts"]), room, refine)
        return sorted([*keywords, *public[: self.settings.size - len(keywords)]])

    def _released(
        self, purse: StageBudget, facets: Callable[[], Sequence[Facets]], rng: RandomSource
    ) -> Mapping[str, Json]:
        if (selecting := self.selecting) is None:
            return {"keywords": [], "counts": []}
        released = purse.release(
            range(len(self.events)),
            lambda: selecting.proposing.prepare(facets(), rng),
            lambda candidates: selecting.release(candidates(), rng),
        )
        return cast("Mapping[str, Json]", released)

    def _cut(
        self,
        purse: StageBudget,
        keywords: Sequence[str],
        counts: Sequence[int] | None,
        room: int,
        refine: Refine | None,
    ) -> Sequence[str]:
        """So many of the released keywords. What a model makes of them is written down: it may not say so again."""
        if counts is not None:
            return by_counts(keywords, counts)(keywords, room)
        kept = purse.release((), lambda: refine(keywords, room) if refine else [], list)
        # Of another release than this one, if the ledger alone was put back and the set was drawn again, nothing is.
        return [keyword for keyword in cast("Sequence[str]", kept) if keyword in set(keywords)]


def keyword_set_for(settings: KeywordSettings, amount: Amount) -> KeywordSet:
    """The keyword set that `amount` buys; a public one takes nothing of it.

    Raises:
        KeywordBudgetTooSmall: the amount is too small for one of its mechanisms.
    """
    if not settings.charged:
        return KeywordSet(settings, None)
    try:
        return KeywordSet(settings, _selecting(settings, amount))
    except AlmonerError as problem:
        raise KeywordBudgetTooSmall(settings, amount, problem.message) from None


def _selecting(settings: KeywordSettings, amount: Amount) -> PrivateSelection:
    frequencies = int(amount.rho * Fraction(settings.frequency_share)) if settings.method == "tfidf" else 0
    counts = int(amount.rho * Fraction(settings.counting_share)) if settings.ranking == "counts" else 0
    rest = Amount(amount.rho - frequencies - counts, amount.delta)
    selection = calibrate_selection(rest, settings.per_unit)
    counting = calibrate_set_histogram(counts, None, settings.per_unit) if settings.ranking == "counts" else None
    return PrivateSelection(_proposing(settings, frequencies, even_count(selection)), selection, counting)


def _proposing(settings: KeywordSettings, frequency_rho: int, even: int) -> CandidateSource:
    if settings.method != "tfidf":
        return OwnKeywords(settings.per_unit, tuple(roots(word) for word in settings.words))
    histogram = calibrate_set_histogram(frequency_rho, None, settings.tokens_per_unit + 1)
    least = even if settings.only_common else 0
    return OwnWords(TermWeights(histogram, settings.tokens_per_unit, settings.per_unit, least))


def even_count(selection: PartitionSelection) -> int:
    """About how many units have to propose a candidate that is released as likely as not.

    Where the growth of the probability turns (Desfontaines et al., PoPETS 2022, Theorem 1), in closed form: PyDP, which
    knows it to the unit, takes longer to load than a request takes to be priced.
    """
    k = selection.contributions
    each, failing = float(selection.epsilon) / k, -math.expm1(math.log1p(-float(selection.delta)) / k)
    return 1 + int(math.log((math.expm1(each) + 2 * failing) / ((math.exp(each) + 1) * failing)) / each)


def _from(settings: KeywordSettings) -> str:
    return f" ({settings.words_from})" if settings.words_from else ""


def _charged_facts(settings: KeywordSettings, selecting: PrivateSelection) -> Mapping[str, str]:
    selection, k = selecting.selection, settings.per_unit
    found = {
        "keyword candidates per unit k": str(k),
        "a keyword is as likely as not": f"where {even_count(selection)} units propose it",
    }
    if isinstance(selecting.proposing, OwnWords):
        weights = selecting.proposing.weights
        found["document frequencies"] = f"at most w = {weights.counted} words a unit; {_noise(weights.histogram)}"
    found["larger sets are cut"] = _ranked(settings, selecting.counting)
    return found


def _ranked(settings: KeywordSettings, counting: SetHistogram | None) -> str:
    if counting is not None:
        return f"by noisy counts; {_noise(counting)}"
    return "by the public model" if settings.ranking == "model" else "so that the rest is well represented"


def _noise(histogram: SetHistogram) -> str:
    return histogram.facts()["noise"]


class KeywordBudgetTooSmall(Refused):
    """What a keyword set gets of the budget buys nothing."""

    def __init__(self, settings: KeywordSettings, amount: Amount, reason: str) -> None:
        super().__init__(
            f"The budget of the keyword set (rho {amount.rho_text}, delta {amount.delta_text}) is too small for"
            f" {settings.method!r}: {reason.rstrip('.')}.",
            "Give it a larger share, choose fewer candidates per unit, or take `method: public`.",
            {"method": settings.method, "rho": str(amount.rho), "delta": str(amount.delta)},
        )
