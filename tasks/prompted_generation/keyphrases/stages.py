"""What a budget buys of keyphrase seeding: a vocabulary, and sketches of what units speak of."""

import math
from dataclasses import dataclass
from fractions import Fraction

from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from tasks.mechanisms.vectors.kde_sketch import KdeSketches, calibrate_kde
from tasks.planning.batches import BatchLayout
from tasks.prompted_generation.keyphrases.parameters import KeyphraseParameters
from tasks.prompted_generation.keyphrases.vocabulary import Vocabulary, vocabulary_for

SHARED = Fraction(1, 100)
"""The noise of a score is told in relation to what a phrase scores that so many of n units have."""


@dataclass(frozen=True)
class Stages:
    """What the budget buys, in the order in which it is spent."""

    vocabulary: Vocabulary
    sketches: KdeSketches

    @classmethod
    def of(cls, wanted: KeyphraseParameters, amount: Amount) -> "Stages":
        """The stages that cost at most `amount` together.

        Raises:
            KeywordBudgetTooSmall, VocabularyBudgetTooSmall, NoiseInvalid: some share of it buys nothing.
            SketchInvalid: sketches of so many features and labels are too large.
        """
        words, density = wanted.shares.of(amount.rho, charged=wanted.vocabulary.charged)
        vocabulary = vocabulary_for(wanted.vocabulary, Amount(words, amount.delta))
        labels = max(1, len(wanted.labels))
        return cls(vocabulary, calibrate_kde(density, wanted.features, labels, wanted.positions))

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """What is charged, in order."""
        return (*self.vocabulary.events, self.sketches.event())

    def noise(self, wanted: KeyphraseParameters) -> Fraction:
        """The standard deviation of what a phrase scores; features have norm 1."""
        return self.sketches.sigma / wanted.references

    def relative(self, wanted: KeyphraseParameters) -> Fraction:
        """The same in relation to the score of a phrase that is one of the L of 1 % of n units, and far from others.

        A unit's vector has length 1, so each of L phrases that lie apart has 1 / sqrt(L) of it.
        """
        root = Fraction(math.isqrt(wanted.phrases_per_unit * 10**12) + 1, 10**6)
        return self.noise(wanted) * root / SHARED


def layout_of_texts(wanted: KeyphraseParameters) -> list[str | None]:
    """The label of every text, in their public order.

    Raises:
        LabelWithoutSample: there are fewer texts than labels.
    """
    return _layout(wanted).labels_of_texts(wanted.labels)


def _layout(wanted: KeyphraseParameters) -> BatchLayout:
    """No text is made of a block, so there is one for all."""
    return BatchLayout(wanted.samples, 1, max(1, len(wanted.labels)))
