"""Stages of keyphrase seeding that a budget buys: a vocabulary, and sketches of the units' phrases."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from tasks.mechanisms.vectors.kde_sketch import KdeSketches, calibrate_kde
from tasks.systems.keyphrase_seeding.parameters import KeyphraseParameters
from tasks.systems.keyphrase_seeding.vocabulary import Vocabulary, vocabulary_for

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
