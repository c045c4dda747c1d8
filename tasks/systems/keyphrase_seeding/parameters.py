"""Parameters of a keyphrase seeding request (DP-KPS, arXiv 2502.13193), all of them public; prompts about phrases.

Nothing here imports a model.

Prompts for texts about phrases. Small models ignore phrases that follow another instruction, so in the default wording
the phrases come first, and the description of the texts after them. The wording of a request or of a preset stays
unchanged, and the phrases follow it.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from models_db.values.canonical_json import Json
from models_db.values.requests import ExactDecimal, RequestModel, TextLine
from tasks.analysis.keywords.parameters import KeywordSettings, with_words_from_file
from tasks.inference.prompt_spec import DEFAULT_WORDING, PromptSpec
from tasks.mechanisms.vectors.kde_sketch import MOST_FEATURES
from tasks.planning.labels_and_groups import PartParameters
from tasks.planning.shared_parameters import Extended
from tasks.text.public_topics import PUBLIC_TOPICS
from tasks.text.public_topics import digest as topics_digest
from tasks.text.words import normalise_keyword

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
