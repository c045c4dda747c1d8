"""Parameters of keyphrase seeding (DP-KPS, arXiv 2502.13193), all public, and the stages that a budget buys.

Nothing here imports a model.

*Prompts* for texts about phrases. Small models ignore phrases that follow another instruction, so in the default
wording the phrases come first, and the description of the texts after them. The wording of a request or of a preset
stays unchanged, and the phrases follow it.

*Stages* are a seed vocabulary, and sketches of the units' phrases (PRIVACY §5). The vocabulary is public, counted among
public words, or privately selected from units:

    public    the request's own words; nothing is read and nothing is charged
    counted   a unit votes for the words nearest to its first k phrases; a histogram with k bins a unit
              (`SetHistogram`), of which the largest counts are kept
    private   a unit proposes its first k phrases, and what enough units propose is released: the keyword set of
              insights (`analysis.keywords.keyword_set`: partition selection, and noisy counts where it came out too
              large)

A charged vocabulary is one step: released words, in the order of the alphabet, without unreleased ones.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, model_validator

from models_db.errors import AlmonerError, Refused
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json
from models_db.values.events import PrivacyEvent
from models_db.values.requests import ExactDecimal, RequestModel, TextLine
from tasks.analysis.keywords.expected_keywords import expected_keywords
from tasks.analysis.keywords.keyword_set import KeywordSet, even_chance, keyword_set_for
from tasks.analysis.keywords.parameters import KeywordSettings, with_words_from_file
from tasks.inference.prompt_spec import DEFAULT_WORDING, PromptSpec
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.counts.set_histogram import SetHistogram, bound_contributions, calibrate_set_histogram
from tasks.mechanisms.vectors.kde_sketch import MOST_FEATURES, KdeSketches, calibrate_kde
from tasks.planning.layout import PartParameters
from tasks.planning.shared_parameters import Extended
from tasks.text.public_topics import PUBLIC_TOPICS
from tasks.text.public_topics import digest as topics_digest
from tasks.text.words import normalise_keyword
from tasks.values.results import KEYWORDS, Facets, StageBudget

if TYPE_CHECKING:
    from tasks.text.public_models import Embedder


Weight = Annotated[ExactDecimal, Field(gt=0, le=1000)]

Background = Literal["labels", "median", "none"]

MOST_PHRASES = 20
"""Most phrases of a unit, and of a text."""

MOST_WORDS = 50_000
"""Most words of a public vocabulary."""

MOST_SELECTED = 2000
"""Most words of a selected or counted vocabulary."""

TOPICS_FROM = f"built-in list of topics, SHA-256 {topics_digest()}"


def _spelt(words: tuple[str, ...]) -> tuple[str, ...]:
    keywords = {keyword: None for word in words if (keyword := normalise_keyword(word)) is not None}
    if words and not keywords:
        raise ValueError("no phrase can be made of these words")
    return tuple(keywords)


class VocabularySettings(RequestModel):
    """Settings of the phrases from which texts are seeded.

    Attributes:
        method: `public` uses `words` unchanged, and nothing is charged; `counted` keeps those of `words` nearest to
            most units' phrases, by noisy counts; `private` has no words and selects phrases that enough units share.
        size: most phrases of `counted` and `private`.
        per_unit: most counts, or selections, in which a unit takes part.
        counting_share: the part of the stage's rho that ranks a selected vocabulary larger than `size`.
        words: the public phrases; the built-in list of topics by default.
        words_from: the source of `words`, for people.
    """

    method: Literal["public", "counted", "private"] = "private"
    size: Annotated[int, Field(ge=1, le=MOST_SELECTED)] = 500
    per_unit: Annotated[int, Field(ge=1, le=MOST_PHRASES)] = 5
    counting_share: Annotated[ExactDecimal, Field(gt=0, le=Decimal("0.5"))] = Decimal("0.1")
    words: Annotated[tuple[str, ...], Field(max_length=MOST_WORDS), AfterValidator(_spelt)] = ()
    words_from: TextLine | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.method == "private" and (self.words or self.words_from):
            raise ValueError("a private vocabulary has no `words`; `counted` selects among public ones")
        if self.method != "private" and not self.words:
            raise ValueError(f"the method {self.method} needs `words`")
        return self

    @property
    def charged(self) -> bool:
        """Return whether drawing the vocabulary reads private text."""
        return self.method != "public"

    @property
    def selected(self) -> KeywordSettings:
        """Return the same settings in the form of a keyword set's."""
        return KeywordSettings(
            method="model", size=self.size, per_unit=self.per_unit, counting_share=self.counting_share
        )


class KeyphraseShares(RequestModel):
    """Shares of rho for the vocabulary and the sketches: the paper's epsilon_voc and epsilon_kde.

    A public vocabulary costs nothing, and its weight goes to the sketches.
    """

    vocabulary: Weight = Decimal("0.3")
    sketches: Weight = Decimal("0.7")

    def of(self, rho: int, *, charged: bool) -> tuple[int, int]:
        """Return the units of rho for the vocabulary and for the sketches, rounded down."""
        if not charged:
            return 0, rho
        weights = Fraction(self.vocabulary), Fraction(self.sketches)
        first, second = (int(rho * weight / sum(weights)) for weight in weights)
        return first, second


class KeyphraseParameters(PartParameters):
    """`parameters:` of a request.

    Attributes:
        samples: how many texts.
        references: n, the public, expected number of units of a label, by which sketches are divided.
        labels: the public label set; a unit is read under one of those that its documents carry.
        ranked_by: the order of a unit's phrases: that of RAKE, or by closeness to the unit's own point, as in
            KeyBERT.
        phrase_words: the longest phrase, in words.
        phrases_per_unit: L, most phrases of a unit that are used.
        vocabulary: the phrases from which texts are seeded.
        features: D, the frequencies of a sketch.
        bandwidth: h of the kernel exp(-|x - y|^2 / 2 h^2) between phrases' points, which have length 1.
        background: subtracted from scores before they count, because every phrase is near to many: the mean score
            of the same phrase over all `labels`, the `median` score of the vocabulary, or `none`; `auto` is `labels`
            where there are two or more, and else `median`.
        least_deviations: a remaining score below this many standard deviations of its noise counts as zero.
        strongest: most phrases of a label that count, by score; 0 for all. Never fewer than a text has, so that its
            phrases differ.
        sequences: `independent` draws each phrase of a text by itself; `iterative` draws each given those before it,
            from one sketch per position, which share rho evenly.
        phrases_per_text: number of phrases that seed a text.
        shares: of rho, by stage; a proportional allocation takes its share of all rho before them.
        delta_share: the part of delta for failures of the vocabulary selection.
        embedder: the public model that gives phrases their points.
        max_new_tokens, temperature, top_k: sampling of texts; nothing is charged for it.
        extends: the release whose released values are reused; then nothing is read and nothing is charged.
    """

    samples: Annotated[int, Field(ge=1, le=1_000_000)]
    references: Annotated[int, Field(ge=1, le=10**9)]
    ranked_by: Literal["extractor", "embedding"] = "extractor"
    phrase_words: Annotated[int, Field(ge=1, le=4)] = 2
    phrases_per_unit: Annotated[int, Field(ge=1, le=MOST_PHRASES)] = 8
    vocabulary: VocabularySettings = VocabularySettings()
    features: Annotated[int, Field(ge=1, le=MOST_FEATURES)] = 1000
    bandwidth: Annotated[ExactDecimal, Field(ge=Decimal("0.001"), le=1000)] = Decimal("0.5")
    background: Literal["auto", "labels", "median", "none"] = "auto"
    least_deviations: Annotated[ExactDecimal, Field(ge=0, le=10)] = Decimal(1)
    strongest: Annotated[int, Field(ge=0)] = 24
    sequences: Literal["independent", "iterative"] = "independent"
    phrases_per_text: Annotated[int, Field(ge=1, le=MOST_PHRASES)] = 4
    shares: KeyphraseShares = KeyphraseShares()
    delta_share: Annotated[ExactDecimal, Field(gt=0, lt=1)] = Decimal("0.1")
    embedder: Annotated[str, Field(min_length=1, max_length=200)] = "all-minilm-l6-v2"
    max_new_tokens: Annotated[int, Field(ge=1, le=100_000)] = 256
    temperature: Annotated[ExactDecimal, Field(gt=0, le=100)] = Decimal(1)
    top_k: Annotated[int, Field(ge=0)] = 0
    extends: Extended | None = None

    @model_validator(mode="after")
    def _long_enough(self) -> Self:
        if self.positions > self.phrases_per_unit:
            raise ValueError("iterative sequences are no longer than `phrases_per_unit`")
        if self.vocabulary.charged and self.vocabulary.per_unit > self.phrases_per_unit:
            raise ValueError("`vocabulary.per_unit` is at most `phrases_per_unit`")
        if self.background == "labels" and len(self.labels) < 2:
            raise ValueError("`background: labels` needs two labels")
        return self

    @property
    def subtracted(self) -> Background:
        """The effective background, with `auto` resolved."""
        if self.background == "auto":
            return "labels" if len(self.labels) > 1 else "median"
        return self.background

    @property
    def counting(self) -> int | None:
        """Most scores that count; None for all."""
        return max(self.strongest, self.phrases_per_text) if self.strongest else None

    @property
    def positions(self) -> int:
        """P, the number of sketches of a label."""
        return self.phrases_per_text if self.sequences == "iterative" else 1


def public_topics() -> dict[str, Json]:
    """Return the built-in topics as the words of a vocabulary."""
    return {"words": list(PUBLIC_TOPICS), "words_from": TOPICS_FROM}


def with_public_words(parameters: Mapping[str, Json]) -> dict[str, Json]:
    """Return the parameters with the words of a public vocabulary: those of a `file`, or the built-in topics.

    The stored request states everything that a plan depends on.

    Raises:
        WordsUnreadable, WordsInvalid: the file is missing, or not in its format.
    """
    settings = parameters.get("vocabulary")
    if not isinstance(settings, Mapping) or settings.get("method") not in ("public", "counted"):
        return dict(parameters)  # invalid values are reported by the settings' own validation
    vocabulary = with_words_from_file(dict(settings))
    if isinstance(vocabulary, Mapping) and not {"words", "file"} & set(vocabulary):
        vocabulary = {**vocabulary, **public_topics()}
    return {**parameters, "vocabulary": vocabulary}


ABOUT, CATEGORY = "Write a text about {phrases}.", " Its category is {label}."
BEHIND = "Mention all of these in it: {phrases}."
FACT = f"{ABOUT}{CATEGORY} (and the description). Behind words of the request's own, or a preset's: {BEHIND}"
"""The wording, as a fact of a plan."""


def seeded(prompt: PromptSpec, label: str | None, phrases: Sequence[str]) -> str:
    """Return the prompt for one text; without phrases, that of a public row.

    Args:
        label: public; None without declared labels.
        phrases: released phrases.
    """
    if not phrases:
        return prompt.fill("public", label)
    phrase_list = ", ".join(phrases)
    if prompt.public not in (DEFAULT_WORDING.public, DEFAULT_WORDING.labelled):
        return f"{prompt.fill('public', label)}\n\n{BEHIND.replace('{phrases}', phrase_list)}"
    category = CATEGORY.replace("{label}", label) if label is not None else ""
    return f"{ABOUT.replace('{phrases}', phrase_list)}{category}\n\n{prompt.description.strip()}"


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
