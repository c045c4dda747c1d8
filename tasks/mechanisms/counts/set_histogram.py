"""A histogram to which each unit adds a bounded set of bins, with discrete noise in each: `SetHistogram` (PRIVACY §5).

Contribution bound of one unit: the first k different things it names count (PRIVACY §3, §5). Both `SetHistogram` and
`PartitionSelection` are charged for units that are in at most k counts, once in each. This is where that is made true,
unit by unit: nothing here looks at two units together.

Each unit adds 1 to at most k bins, different ones, chosen by a function of that unit and of public or released facts
alone; what it says twice counts once. Adding or removing a unit moves at most k counts by 1 each: sqrt(k) in L2, k in
L1. Independent noise goes into every bin, the empty ones included. Two kinds, both on the integers and through OpenDP:

    gaussian   discrete Gaussian of scale sigma: rho = k / (2 sigma^2)     (Canonne, Kamath, Steinke,
               arXiv 2004.00010, Theorem 14)
    laplace    discrete Laplace of scale b: each bin is epsilon/k-DP with epsilon = k/b, and only k bins differ, so
               rho = epsilon tanh(epsilon / (2k))                          (`independent_coordinates`)

The charge does not know the number of bins. So a set of bins may be open (`bins` None, say all tokens there could be):
noise on bins that are not queried need not be drawn, because each bin's noise is drawn by itself. The output must then
never reveal the queried bins: values made of the noisy counts may depend on the private data only through another
mechanism that is charged for it.

The same rho buys discrete Gaussian noise of half the variance where rho / k is small. Where it is large (above about
2) both are hardly ever anything but zero, and discrete Laplace noise is a little more often zero: `auto` takes the
smaller variance, and the event and the facts say which that was.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from typing import Literal, TypeAlias, TypeVar, get_args

from models_db.errors import UsageError
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json
from models_db.values.events import PrivacyEvent
from tasks.accounting import zcdp
from tasks.accounting.rounding import exact, float_above, float_below
from tasks.mechanisms.core.opendp import Measurement, check_pure_with_opendp, check_with_opendp, load_opendp
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.counts.noisy_count import (
    NoiseInvalid,
    check_sigma,
    gaussian_variance,
    laplace_variance,
    least_laplace_scale,
    least_scale,
    rounded_laplace,
    rounded_normal,
)

Item = TypeVar("Item", bound=Hashable)


def bound_contributions(items: Iterable[Item], most: int) -> tuple[Item, ...]:
    """Return the first `most` different items that one unit names, in its own order.

    Raises:
        ValueError: `most` is not positive.
    """
    if most < 1:
        raise ValueError(f"a unit counts for at least one item, not {most}")
    return tuple(islice(dict.fromkeys(items), most))


def count_units_by_item(units: Iterable[Iterable[Item]], most: int) -> Counter[Item]:
    """Return the number of units for every item; each unit counts for its first `most` different items."""
    return Counter(item for items in units for item in bound_contributions(items, most))


MECHANISM = "set_histogram"
MOST_BINS = 2**20
MOST_CONTRIBUTIONS = 2**16
OPEN = "open"
"""Name of an open set of bins in events."""

Noise: TypeAlias = Literal["gaussian", "laplace"]
NoiseChoice: TypeAlias = Literal["auto", "gaussian", "laplace"]
_NAMES: Mapping[str, str] = {"gaussian": "discrete Gaussian", "laplace": "discrete Laplace"}
_VARIANCES: Mapping[str, Callable[[float], float]] = {"gaussian": gaussian_variance, "laplace": laplace_variance}


@dataclass(frozen=True)
class SetHistogram:
    """Counts of units in bins, at most `contributions` bins a unit.

    Attributes:
        bins: how many there are, a public number; None for an open set of them.
        contributions: k, in how many of them one unit can be.
        noise: which noise every bin has.
        scale: sigma of the Gaussian or b of the Laplace, a multiple of 2^-20 up to 2^32.
    """

    bins: int | None
    contributions: int
    noise: Noise
    scale: Fraction

    def __post_init__(self) -> None:
        check_sigma(self.scale)
        if self.bins is not None and not 1 <= self.bins <= MOST_BINS:
            raise UsageError(
                f"A histogram has 1 to {MOST_BINS} bins, not {self.bins}.",
                "Ask for fewer.",
                {"bins": self.bins},
                code="BinsInvalid",
            )
        if not 1 <= self.contributions <= MOST_CONTRIBUTIONS:
            raise _contributions_invalid(self.contributions)

    @property
    def epsilon(self) -> Fraction:
        """Return k/b, the pure differential privacy loss of Laplace noise."""
        return self.contributions / self.scale

    def loss(self) -> Amount:
        """Return the charge of one histogram, rounded up."""
        if self.noise == "gaussian":
            return zcdp.gaussian_coordinates(self.contributions, self.scale)
        return zcdp.independent_coordinates(self.epsilon, self.contributions)

    def variance(self) -> float:
        """Return the variance of one bin's noise."""
        return _VARIANCES[self.noise](float(self.scale))

    def event(self, count: int = 1) -> PrivacyEvent:
        """`count` histograms of the same units.

        In dp-accounting's words as many Gaussian mechanisms of noise multiplier sigma / sqrt(k), or k times as many
        discrete Laplace mechanisms of sensitivity 1.
        """
        if count < 1:
            raise ValueError(f"an event has at least one histogram, not {count}")
        return PrivacyEvent(
            mechanism=MECHANISM,
            count=count,
            parameters={
                "bins": OPEN if self.bins is None else self.bins,
                "contributions": self.contributions,
                "noise": self.noise,
                "scale": str(self.scale),
            },
            loss=self.loss() * count,
            dp_event=self._dp_event(count),
        )

    @classmethod
    def from_event(cls, event: PrivacyEvent) -> "SetHistogram":
        """Return the histogram whose parameters `event` stores.

        Raises:
            KeyError, ValueError, UsageError: they are not a set histogram's.
        """
        bins, stored = event.parameters["bins"], event.parameters["noise"]
        if stored not in get_args(Noise):
            raise ValueError("no such noise")
        noise: Noise = "laplace" if stored == "laplace" else "gaussian"
        bin_count = None if bins == OPEN else int(bins)
        return cls(bin_count, int(event.parameters["contributions"]), noise, exact(event.parameters["scale"]))

    def draw(self, counts: Sequence[int], rng: RandomSource) -> list[int]:
        """Every count with noise of its own; some may be negative.

        Args:
            counts: numbers of units below 2^53, one for each bin; of an open set those bins that are needed, and no bin
                in two calls.
            rng: the operating system's, through OpenDP; any other source rounds floats, which is not private.

        Raises:
            ValueError: not as many counts as bins: an omitted bin would reveal that it is empty.
        """
        if self.bins is not None and len(counts) != self.bins:
            raise ValueError(f"{self.bins} bins need a count each, not {len(counts)}")
        if rng.kind != "os":
            rounded = rounded_normal if self.noise == "gaussian" else rounded_laplace
            return [count + rounded(float(self.scale), rng) for count in counts]
        return [int(value) for value in _measurement(replace(self, bins=None))(list(counts))] if counts else []

    def facts(self) -> Mapping[str, str]:
        """Return the noise and its standard deviation, and that of the other kind at the same rho; public."""
        other: Noise = "laplace" if self.noise == "gaussian" else "gaussian"
        spread = f"{_NAMES[self.noise]}, standard deviation {math.sqrt(self.variance()):.4g} units in each bin"
        try:
            would = calibrate_set_histogram(self.loss().rho, self.bins, self.contributions, other).variance()
        except NoiseInvalid:
            return {"noise": spread}
        return {"noise": f"{spread} ({_NAMES[other]} at this rho: {math.sqrt(would):.4g})"}

    def _dp_event(self, count: int) -> Json:
        if self.noise == "laplace":
            return zcdp.discrete_laplace_event(float_above(1 / self.scale), self.contributions * count)
        return zcdp.gaussian_event(_multiplier(self.scale, self.contributions), count)


def calibrate_set_histogram(
    rho: int, bins: int | None, contributions: int, noise: NoiseChoice = "auto"
) -> SetHistogram:
    """Return the histogram with the least noise that costs at most `rho` (units of 1e-12), within 0.1 %.

    Args:
        bins: how many, or None for an open set.
        contributions: k, the most bins of one unit.
        noise: `gaussian`, `laplace`, or `auto` for the one of smaller variance at this rho (the Gaussian where they are
            alike).

    Raises:
        NoiseInvalid: rho is not positive, or so small that the scale would pass 2^32.
        BinsInvalid, ContributionsInvalid: no such number of bins, or of bins of one unit.
    """
    kinds: Sequence[Noise] = ("gaussian", "laplace") if noise == "auto" else (noise,)
    candidates = [SetHistogram(bins, contributions, kind, _least_scale(rho, contributions, kind)) for kind in kinds]
    best = min(candidates, key=SetHistogram.variance)
    if not best.loss().fits(Amount(rho)):
        raise ArithmeticError(f"{best} costs more than {rho}")
    return best


def _least_scale(rho: int, contributions: int, noise: Noise) -> Fraction:
    if not 1 <= contributions <= MOST_CONTRIBUTIONS:
        raise _contributions_invalid(contributions)
    return (least_scale if noise == "gaussian" else least_laplace_scale)(rho, contributions)


def _multiplier(sigma: Fraction, contributions: int) -> float:
    """Return the largest double that is at most sigma / sqrt(k)."""
    multiplier = float_below(sigma) / math.sqrt(contributions)
    while Fraction(multiplier) ** 2 * contributions > sigma**2:
        multiplier = math.nextafter(multiplier, 0)
    return multiplier


@lru_cache(maxsize=64)
def _measurement(histogram: SetHistogram) -> Measurement:
    """OpenDP's noise on a vector of any length, once its own map has confirmed our charge."""
    dp = load_opendp()
    scale, domain = float(histogram.scale), dp.vector_domain(dp.atom_domain(T="i64"))
    if histogram.noise == "gaussian":
        gaussian = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale)
        return check_with_opendp(gaussian, math.sqrt(histogram.contributions), histogram.loss())
    laplace = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)
    return check_pure_with_opendp(laplace, histogram.contributions, histogram.epsilon)


def _contributions_invalid(contributions: int) -> UsageError:
    return UsageError(
        f"A unit is in at most 1 to {MOST_CONTRIBUTIONS} bins, not {contributions}.",
        "Say in how many bins, or for how many candidates, one unit may count.",
        {"contributions": contributions},
        code="ContributionsInvalid",
    )
