"""A histogram over public bins, with discrete Gaussian noise in each: `NoisyHistogram` (PRIVACY §2, §5).

A `SetHistogram` with one bin a unit, in the form that its events have been stored in since before sets of bins were
counted. Each unit is in at most one bin, by a function of that unit and of public facts alone, so the charge is one
noisy count's, 1 / (2 sigma^2), whatever the number of bins. Replacing a unit moves two counts: sensitivity sqrt(2), rho
twice as much.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from tasks.accounting.rounding import exact
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.counts.noisy_count import NoisyCount, calibrate_count
from tasks.mechanisms.counts.set_histogram import SetHistogram

MECHANISM = "noisy_histogram"


@dataclass(frozen=True)
class NoisyHistogram:
    """Counts of units in public bins, at most one bin a unit.

    Attributes:
        bins: how many there are, a public number.
        noise: what is added to each.
    """

    bins: int
    noise: NoisyCount

    def __post_init__(self) -> None:
        self._sets()  # refuses what is out of range

    def loss(self) -> Amount:
        """Return the charge of one histogram."""
        return self.noise.loss()

    def event(self, count: int = 1) -> PrivacyEvent:
        """`count` histograms of the same units; in dp-accounting's words as many Gaussian mechanisms."""
        one = self.noise.event(count)
        return PrivacyEvent(
            mechanism=MECHANISM,
            count=one.count,
            parameters={**one.parameters, "bins": self.bins},
            loss=one.loss,
            dp_event=one.dp_event,
        )

    @classmethod
    def from_event(cls, event: PrivacyEvent) -> "NoisyHistogram":
        """Return the histogram whose parameters `event` stores.

        Raises:
            KeyError, ValueError, NoiseInvalid, BinsInvalid: they are not a noisy histogram's.
        """
        return cls(int(event.parameters["bins"]), NoisyCount(exact(event.parameters["sigma"])))

    def draw(self, counts: Sequence[int], rng: RandomSource) -> list[int]:
        """Every count with noise of its own; some may be negative.

        Args:
            counts: one for each bin, below 2^53; a unit is in at most one of them.

        Raises:
            ValueError: not as many counts as bins: an omitted bin would reveal that it is empty.
        """
        return self._sets().draw(counts, rng)

    def _sets(self) -> SetHistogram:
        return SetHistogram(self.bins, 1, "gaussian", self.noise.sigma)


def calibrate_histogram(rho: int, bins: int) -> NoisyHistogram:
    """Return the histogram with the least noise that costs at most `rho` (units of 1e-12), within 0.1 %.

    Raises:
        NoiseInvalid: rho is not positive, or so small that sigma would pass 2^32.
        BinsInvalid: no such number of bins.
    """
    return NoisyHistogram(bins, calibrate_count(rho))
