"""Mechanism: how many units have each of some public words, with discrete Gaussian noise.

A unit adds 1 to the count of each word that its texts have, so adding or removing it moves at most k of k counts by 1:
sqrt(k) in L2. That is almoner's set histogram; only the name is another, to show how a mechanism of one's own is
recomputed from its stored event.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.counts import set_histogram
from tasks.mechanisms.counts.set_histogram import SetHistogram, calibrate_set_histogram

MECHANISM = "laboratory.word_histogram"


@dataclass(frozen=True)
class WordHistogram:
    """Noisy counts of `words` words; loss and draw are side by side."""

    histogram: SetHistogram

    @classmethod
    def calibrated(cls, amount: Amount, words: int) -> "WordHistogram":
        """Return the histogram with the least noise that `amount` buys.

        Raises:
            NoiseInvalid: it buys nothing.
        """
        return cls(calibrate_set_histogram(amount.rho, words, words, "gaussian"))

    def event(self) -> PrivacyEvent:
        """Return the stored event: k / (2 sigma^2) of rho."""
        return replace(self.histogram.event(), mechanism=MECHANISM)

    def draw(self, counts: Sequence[int], rng: RandomSource) -> tuple[int, ...]:
        """Return `counts` with noise in each."""
        return tuple(self.histogram.draw(counts, rng))


def rebuild(event: PrivacyEvent) -> PrivacyEvent:
    """Make an event anew from the parameters of a stored one; `verify-release` compares the two."""
    stored = replace(event, mechanism=set_histogram.MECHANISM)
    return WordHistogram(SetHistogram.from_event(stored)).event()
