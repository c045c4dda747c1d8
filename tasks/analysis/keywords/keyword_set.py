"""Closed keyword set for descriptions of clusters: public, privately selected or both, refined to its size.

KwSet-TFIDF: candidate words of a unit by noisy document frequencies (URANIA, Alg. 5; PRIVACY §5). Each unit counts in
the number of units and in the document frequencies of at most w of its words, so the frequencies and n together are one
histogram to which a unit adds at most w + 1 bins. Then, all of it from the noisy table,

    n~ = max(n~, 1),   df~(v) = max(df~(v), 1),   idf(v) = max(0, ln(n~ / df~(v))),

and a unit's candidates are the k of its OWN words with the largest tf * idf, equal ones in the order of the alphabet.

The proof, step by step.

1. Which w words count is a function of the unit and of a fresh key that is drawn without looking at anything: an order
   of its words by HMAC. Words are integers 0 or 1 there, never shares of a whole: adding or removing a unit moves at
   most w + 1 counts by 1 each. (The paper scales a row of term counts down to an L1 norm. Then counts are fractions,
   integer noise on which has unbounded loss.) Given the key, the claim holds; and a mixture over keys that do not
   depend on the data satisfies what all of its parts satisfy.
2. The table has a bin for EVERY string there is, infinitely many, with independent noise in each. Two neighbours'
   tables differ in distribution in at most w + 1 bins; in all others they are the same product, which adds nothing to
   any divergence. So the whole table costs what w + 1 bins cost, and may be used by whatever comes next, adaptively.
3. Noise on a bin that nobody looks at need not be drawn: independent coordinates can be drawn in any order, late, or
   never, without changing the joint distribution of those that are looked at, if each is drawn once and remembered.
   Which bins are looked at are the words of the corpus, and that is private. It never leaves `TermWeights`: a
   unit's choice goes out, to another mechanism that is charged for each choice (`partition_selection`).
4. A choice reads the table and the unit's own words, nothing of any other unit. So in the selection, given the table,
   one unit more or less adds or removes at most k candidates. (If idf could be negative, or if a unit could be given
   words it does not have, an absent word would win in rows that do not mention it, and one person's word would be
   counted once for everybody.)

Steps 2 and 4 add up: rho of the histogram and of the selection, delta of the selection. The table is not written down:
as an infinite table it is a release like any other, but a file of the bins that were asked for lists the corpus' words.
So histogram and selection are drawn together (`StageBudget.release` of several numbers), and a run that dies between
the two has lost both.

Refinement of a released keyword set to its size by public means: noisy counts, a public model, or coverage. All of it
is post-processing of released values (URANIA, appendix C, Algorithms 5 and 6, last steps): it reads no corpus and
is not charged. For any answer of a model, the result is a part of the released set.

A unit proposes at most k candidates, by a function of that unit and of public or noisy values alone; a candidate is
released if enough units propose it, for all of the stage's delta (`gaussian_selection`: k / (2 sigma^2);
`partition_selection`: epsilon tanh(epsilon/2k); `weighted_selection`: G^2 / (2 sigma^2) in each of two rounds, and k
candidates in each). By default `tfidf` selects in weighted rounds and the others by Gaussian counts, or either by
`partition_selection` where that needs fewer units than Gaussian counts.

    public    the request's own words; nothing is read and nothing is charged
    model     a unit proposes the first k of its extracted keywords
    hybrid    as `model`, without keywords that public words cover; released ones join the public words. Extracted
              for each unit by itself: a keyword of a batch of units could not be attributed to a unit
    tfidf     a unit proposes k of its own single words by tf * idf, from noisy document frequencies

Public words fill the places that released ones leave, and at least half of the places belong to released ones, which
certainly occur in the corpus. A larger set is cut by noisy counts (those of `gaussian_selection`, the noisy sums of
`weighted_selection`, or else another histogram, k bins per unit), or by public means alone (`keywords.refine`). All
charged mechanisms are drawn together and stored as released keywords with their noisy numbers, nothing else:
candidates, document frequencies and unreleased keywords stay in memory. A run that dies in between has lost its payment
(`StageBudget.release`).

An empty corpus, or one in which no two units share a keyword, releases nothing: the set is then empty, or the public
words where there are some.
"""

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

from models_db.errors import AlmonerError, Refused
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json
from models_db.values.events import PrivacyEvent
from models_db.values.requests import file_invalid
from tasks.analysis.keywords.parameters import KeywordSettings
from tasks.corpus.keys import KEY_BYTES, keyed_hash
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.counts.noisy_count import NoiseInvalid
from tasks.mechanisms.counts.partition_selection import PartitionSelection, SelectionUnaffordable, calibrate_selection
from tasks.mechanisms.counts.set_histogram import SetHistogram, calibrate_set_histogram, count_units_by_item
from tasks.mechanisms.counts.threshold_selection import (
    USUAL_CANDIDATES,
    WEIGHT_STEPS,
    GaussianSelection,
    SelectionInRounds,
    WeightedSelection,
    calibrate_gaussian_selection,
    calibrate_rounds,
)
from tasks.text.words import near, normalise_keywords, roots, tokens_of
from tasks.values.results import Facets, StageBudget

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Bag = Mapping[str, int]
"""A unit's words with their counts."""


@dataclass(frozen=True)
class DocumentFrequencies:
    """Words of a corpus before anything is drawn; private.

    Attributes:
        bags: each unit's words.
        frequency: in how many units each word counts.
    """

    bags: Sequence[Bag] = field(repr=False)
    frequency: Mapping[str, int] = field(repr=False)


@dataclass(frozen=True)
class TermWeights:
    """Choice of each unit among its own words.

    Attributes:
        histogram: of n and the document frequencies, over an open set of bins.
        counted: w, of how many words a unit counts at most.
        chosen: k, how many a unit chooses at most.
        least: words of a lower noisy document frequency are passed over. They would hardly be selected, and would
            take the places of others: the rarest words have the largest idf.
    """

    histogram: SetHistogram
    counted: int
    chosen: int
    least: int

    def __post_init__(self) -> None:
        if self.histogram.contributions < self.counted + 1:
            raise ValueError(f"{self.counted} words and n are more bins than {self.histogram.contributions}")

    def count(self, facets: Sequence[Facets], rng: RandomSource) -> DocumentFrequencies:
        """Read the units' words; no noise is drawn, only a key."""
        key = rng.random_bytes(KEY_BYTES)
        bags: list[Bag] = [tokens_of(unit.text) for unit in facets]
        counting = (token for bag in bags for token in counting_words(bag, self.counted, key))
        return DocumentFrequencies(bags, Counter(counting))

    def choose(self, counted: DocumentFrequencies, rng: RandomSource) -> Iterator[tuple[str, ...]]:
        """Draw the needed part of the table, and choose for each unit at most k of its own words."""
        tokens = list({token: None for bag in counted.bags for token in bag})
        true_counts = [len(counted.bags), *(counted.frequency.get(token, 0) for token in tokens)]
        units, *noisy = self.histogram.draw(true_counts, rng)
        table = dict(zip(tokens, noisy, strict=True))
        for bag in counted.bags:
            yield best_words(bag, table, units, self.chosen, self.least)


def counting_words(bag: Bag, most: int, key: bytes) -> list[str]:
    """Return at most `most` of a unit's words, a function of the key and of that unit alone."""
    if len(bag) <= most:
        return list(bag)
    own = keyed_hash(key, "a unit's words", *sorted(bag))
    return sorted(bag, key=lambda token: keyed_hash(own, "order", token))[:most]


def best_words(bag: Bag, table: Mapping[str, int], units: int, most: int, least: int) -> tuple[str, ...]:
    """Return the words of a bag with the largest tf * idf, the best first.

    Args:
        table: noisy document frequencies of all its words.
        units: the noisy number of units.
        least: words of a lower noisy frequency are left out.
    """
    size = math.log(max(units, 1))
    weights = {
        token: count * max(0.0, size - math.log(max(table[token], 1)))
        for token, count in bag.items()
        if table[token] >= least
    }
    return tuple(sorted(weights, key=lambda token: (-weights[token], token))[:most])


Refine = Callable[[Sequence[str], int], list[str]]
"""(keywords, number) -> that number of them, the best first."""

Embed = Callable[[Sequence[str]], "NDArray[np.float32]"]
"""float32 [n, d], one row of unit length for each text."""

Write = Callable[[Sequence[str], Mapping[str, Any]], Sequence[Mapping[str, Any]]]
"""Prompts a public model: one record of a JSON schema for each prompt, an empty one where it gave none."""

BATCH: Final = 20
"""Keywords that the model sees at one time; it keeps at most half of them."""

KEEP_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "keep": {
            "type": "array",
            "items": {"type": "integer", "minimum": 1, "maximum": BATCH},
            "minItems": 1,
            "maxItems": BATCH // 2,
        }
    },
    "required": ["keep"],
    "additionalProperties": False,
}
"""Answers are numbers of the list, so a model cannot add words of its own."""

MOST_COVERED: Final = 8192
"""Most released keywords that coverage compares: the first in the order of the alphabet."""


def refiner_for(settings: KeywordSettings, write: Write | None = None, embed: Embed | None = None) -> Refine | None:
    """Return the refinement of the settings; None for noisy counts, which are drawn with the set.

    Raises:
        FileInvalid: the model or the embedder that it needs is missing.
    """
    if settings.ranking == "counts":
        return None
    tool = {"model": write and by_model(write), "coverage": embed and by_coverage(embed)}[settings.ranking]
    if tool is None:
        problem = f"keywords.ranking: {settings.ranking} is not available here"
        raise file_invalid("`parameters`", [problem], "docs/keywords.md")
    return tool


def by_counts(keywords: Sequence[str], counts: Sequence[int]) -> Refine:
    """Keep the most frequent by their noisy counts; equal ones in the order of the alphabet."""
    noisy = dict(zip(keywords, counts, strict=True))
    return lambda some, most: sorted(some, key=lambda keyword: (-noisy[keyword], keyword))[:most]


def by_model(write: Write) -> Refine:
    """Keep the choices of a public model, batch by batch, until at most the requested number is left.

    A model that is shown thousands of words keeps those it read last. So it is shown BATCH at a time, in the order of
    the alphabet, and keeps at most half; the kept words are mixed into new batches by taking every n-th one.
    In the round that would leave too few, passed-over words fill the places, in the order of the alphabet.
    """

    def refine(keywords: Sequence[str], most: int) -> list[str]:
        remaining = sorted(keywords)
        while len(remaining) > most:
            kept = _refine_once(write, remaining)
            if len(kept) <= most:
                passed_over = sorted(set(remaining) - set(kept))
                return kept + passed_over[: most - len(kept)]
            remaining = kept
        return remaining

    return refine


def _refine_once(write: Write, keywords: Sequence[str]) -> list[str]:
    """Return the kept words of each batch; the first half of a batch without an answer."""
    count = -(-len(keywords) // BATCH)
    batches = [keywords[start::count] for start in range(count)]
    answers = write([keep_prompt(batch) for batch in batches], KEEP_SCHEMA)
    return list(
        itertools.chain(*(_keywords_to_keep(batch, answer) for batch, answer in zip(batches, answers, strict=True)))
    )


def keep_prompt(batch: Sequence[str]) -> str:
    """Return the prompt for one batch (after URANIA, G.5, in our words)."""
    numbered = "\n".join(f"{number}. {keyword}" for number, keyword in enumerate(batch, 1))
    return (
        "These keywords are shared by many people in a large collection of texts. They will be used to say what the"
        f" texts are about.\n\n{numbered}\n\nChoose at most {len(batch) // 2 or 1} of them: those that name a topic"
        " clearly. Leave out words that fit any topic, and of two words for one thing take one. Answer with their"
        " numbers."
    )


def _keywords_to_keep(batch: Sequence[str], answer: Mapping[str, Any]) -> list[str]:
    half = max(1, len(batch) // 2)
    numbers = answer.get("keep")
    listed_numbers = numbers if isinstance(numbers, list) else []
    chosen = [batch[n - 1] for n in listed_numbers if type(n) is int and 1 <= n <= len(batch)]
    return list(dict.fromkeys(chosen))[:half] or list(batch[:half])


def by_coverage(embed: Embed) -> Refine:
    """Keep keywords that represent all others: each step takes the one that brings most others closer to a taken one.

    Greedy facility location over cosines (Nemhauser, Wolsey, Fisher, Mathematical Programming 14, 1978: within
    1 - 1/e of the best), with Minoux's postponed updates (1978). Unlike farthest points it does not begin with
    outliers.
    """

    def refine(keywords: Sequence[str], most: int) -> list[str]:
        covered = sorted(keywords)[:MOST_COVERED]
        return [covered[index] for index in representatives(embed(covered), most)] if covered else []

    return refine


def representatives(points: "NDArray[np.float32]", most: int) -> list[int]:
    """Return rows of float32 [n, d], unit length, that represent the others, in the order in which they were taken."""
    import numpy as np  # settings and plans import this file, and need no arrays

    similarity = np.maximum(points @ points.T, 0)
    best = np.zeros(len(points), np.float32)
    gains = [(-float(gain), index) for index, gain in enumerate(similarity.sum(1))]
    heapq.heapify(gains)
    taken: list[int] = []
    while gains and len(taken) < most:
        _, index = heapq.heappop(gains)
        gain = float(np.maximum(similarity[index] - best, 0).sum())  # it can only have decreased
        if gains and gain < -gains[0][0]:
            heapq.heappush(gains, (-gain, index))
            continue
        taken.append(index)
        best = np.maximum(best, similarity[index])
    return taken


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
            f"scale {float(each.sigma) / WEIGHT_STEPS:.4g}, threshold {each.threshold / WEIGHT_STEPS:.4g}"
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
