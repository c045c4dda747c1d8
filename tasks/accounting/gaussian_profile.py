"""Privacy profile of composed discrete Gaussian noise: the smallest epsilon at a delta, from the noise's own losses.

`tasks.accounting.zcdp` converts a rho, whatever mechanism it is of. Where every mechanism is discrete Gaussian noise
the losses themselves are known, and the same noise has a smaller epsilon. docs/proofs/gaussian-composition.md has the
theorems; here is what is computed. H(epsilon) is the least delta at epsilon, the hockey-stick divergence.

Coordinates that one unit moves by exactly 1, n of them in all, with noise of scale sigma. The loss is that of n pairs
(X, X + 1), X discrete Gaussian: (n + 2 W) / (2 sigma^2), W the sum of n such X. The law of W is a convolution of
integers (rounded up, in units of 2^-160) on the integers.

Integer vectors of squared L2 norm at most s, all draws together, with noise of scale sigma on every coordinate; and
coordinates as above where sigma is large. Let r^2 < sigma^2, and t = 2 q / (1 - q) with q = exp(-2 pi^2 r^2). Rounding
y ~ N(f, sigma^2 - r^2) to an integer x with probability proportional to exp(-(x - y)^2 / (2 r^2)) gives the discrete
Gaussian around the integer f up to factors of 1/(1 + t) and 1/(1 - t) in every point, by Poisson's summation formula.
So with c coordinates that differ, H(epsilon) is at most (1 + t)^c times the continuous Gaussian's at
epsilon - c ln((1 + t)/(1 - t)), for mu^2 = s / (sigma^2 - r^2). An integer vector differs in at most s coordinates.

Several sigmas. Each law on the integers is carried over to one grid of losses: an atom between two points of the grid
is split over them so that both of its probabilities, with the unit and without it, stay what they are. Joining the two
again is post-processing, so the split pair dominates (as in Doroshenko et al., arXiv 2207.04380). Then laws are
convolved, and H(epsilon) is the sum over their atoms l of the probability times the Gaussian's H(epsilon - l).

The search for epsilon runs in doubles. What is returned is checked in exact integers and 50 digits, so it depends on no
processor: the smallest multiple of 10^-6 whose H, rounded up, is at most delta.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, repeat
from typing import Any, TypeAlias

from mpmath.ctx_mp import MPContext

from tasks.accounting.rounding import enclose, iv, lower, upper

EPSILON_PLACES = 6
LARGEST_EPSILON = 100
"""Above it no figure is computed: nothing is promised there in any case."""
LEAST_DELTA = Fraction(1, 10**30)
"""Below it no figure is computed: roundings leave H at 10^-40 or more at every epsilon, so none might ever pass."""
BITS = 160
ONE = 1 << BITS
"""Probabilities are integers in units of 2^-160, rounded up."""
TAIL = 14
"""Standard deviations at which a law is cut: e^-98 of it lies beyond, which is counted as an infinite loss."""
FINEST_SIGMA = 64
"""From here on noise on coordinates counts as a rounded continuous Gaussian: mu^2 grows by 2/sigma^2 of itself."""
MOST_POINTS = 4096
MOST_SCALES = 16
"""Different scales that get laws of their own: a stored record cannot make verification compute without end."""
GRID_SHARE = 64
"""A grid has at least this many points to a standard deviation of the loss."""
_ERROR = Fraction(1, 10**40)
"""More than all roundings of 50 digits in one H."""
_LEAST_TAIL = 1e-300
"""Beside a larger tail e^epsilon is a finite double; the search in doubles takes a smaller one as 0."""
Number: TypeAlias = Any  # mpmath ships no types
_mp = MPContext()  # our own context: mpmath's global one is shared mutable state
_mp.dps = 50


@dataclass(frozen=True)
class GaussianNoise:
    """Discrete Gaussian noise of one scale on every coordinate of integers, in all draws of a mechanism together.

    Attributes:
        sigma: its scale.
        ones: how many coordinates one unit moves by exactly 1, at most.
        square: by what squared L2 norm one unit moves integer vectors, at most; beside `ones`.
    """

    sigma: Fraction
    ones: int = 0
    square: int = 0

    def __post_init__(self) -> None:
        if self.sigma <= 0 or min(self.ones, self.square) < 0 or not self.ones + self.square:
            raise ValueError(f"this is no noise on anything: {self}")


def composed_epsilon(noises: Sequence[GaussianNoise], delta: Fraction) -> Decimal | None:
    """Return the smallest epsilon at `delta` of mechanisms with these noises, run on the same units; rounded up.

    Queries may depend on earlier outputs, the noises must not. None where the noise is too coarse or of too many scales
    for a figure, where delta is below `LEAST_DELTA`, and where the figure would be above `LARGEST_EPSILON`.

    >>> composed_epsilon([GaussianNoise(Fraction(13, 10) * 2**20, square=2**40)], Fraction(1, 10**7))
    Decimal('3.992655')
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta is above 0 and below 1, not {delta}")
    if delta < LEAST_DELTA:
        return None
    by_sigma = {noise.sigma: (0, 0) for noise in noises}
    for noise in noises:
        ones, square = by_sigma[noise.sigma]
        by_sigma[noise.sigma] = (ones + noise.ones, square + noise.square)
    return _composed_epsilon(tuple(sorted((sigma, *moved) for sigma, moved in by_sigma.items())), delta)


@lru_cache(maxsize=256)
def _composed_epsilon(noises: tuple[tuple[Fraction, int, int], ...], delta: Fraction) -> Decimal | None:
    profile = _profile(noises)
    return None if profile is None else profile.epsilon(delta)


@dataclass(frozen=True)
class _Law:
    """The law of a loss under one of two neighbouring inputs, or a bound on it: no probability is below the true one.

    Attributes:
        step, start: the loss of atom i is start + i step.
        weights: the probability of each atom, in units of 2^-160.
        infinite: the probability of an infinite loss.
    """

    step: Fraction
    start: Fraction
    weights: tuple[int, ...]
    infinite: int

    def atoms(self) -> Iterator[tuple[Fraction, int]]:
        """Yield each loss with its probability."""
        return zip(accumulate(repeat(self.step), initial=self.start), self.weights, strict=False)

    def composed(self, other: "_Law") -> "_Law":
        """Return the law of the sum of two losses on the same grid."""
        ours, theirs = sum(self.weights) + self.infinite, sum(other.weights) + other.infinite
        return _Law(
            self.step,
            self.start + other.start,
            _convolved(self.weights, other.weights),
            _up(self.infinite * theirs + other.infinite * ours),
        )

    def cut(self, low: int, high: int) -> "_Law":
        """Return the law with atoms `low` to `high` alone: lower losses become the lowest, higher ones infinite."""
        low, high = max(low, 0), min(high, len(self.weights) - 1)
        inside = list(self.weights[low : high + 1])
        inside[0] += sum(self.weights[:low])
        infinite = self.infinite + sum(self.weights[high + 1 :])
        return _Law(self.step, self.start + low * self.step, tuple(inside), infinite)

    def split(self, step: Fraction) -> "_Law":
        """Return a law on the multiples of `step` that dominates this one: atoms keep both their probabilities."""
        first = math.floor(self.start / step)
        last = math.floor((self.start + (len(self.weights) - 1) * self.step) / step) + 1
        weights, whole = [0] * (last - first + 1), 1 - iv.exp(enclose(-step))
        for loss, weight in self.atoms():
            place = math.floor(loss / step)
            share = (1 - iv.exp(enclose(place * step - loss))) / whole if loss != place * step else iv.mpf(0)
            weights[place - first] += math.ceil(weight * upper(1 - share))
            weights[place - first + 1] += math.ceil(weight * upper(share))
        return _Law(step, first * step, tuple(weights), self.infinite)


@dataclass(frozen=True)
class _Profile:
    """H of a composition: a law of losses, and a continuous Gaussian of mu, whose square is exact.

    Attributes:
        factor, shift: (1 + t)^c and c ln((1 + t)/(1 - t)), rounded up.
    """

    law: _Law
    mu_square: Fraction
    factor: Fraction
    shift: Fraction

    def epsilon(self, delta: Fraction) -> Decimal | None:
        """Return the smallest multiple of 10^-6 at which H is at most `delta`; None above `LARGEST_EPSILON`."""
        unit, found = 10**EPSILON_PLACES, self._search(float(delta))
        if found is None or self.law.infinite >= delta * ONE:
            return None
        steps = math.ceil(found * unit)
        while steps and self.delta(Fraction(steps - 1, unit)) <= delta:
            steps -= 1
        while self.delta(Fraction(steps, unit)) > delta:
            steps += 1
        return Decimal(f"{steps}e-{EPSILON_PLACES}")

    def delta(self, epsilon: Fraction) -> Fraction:
        """Return H(epsilon), rounded up."""
        at = epsilon - self.shift
        total = _mp.mpf(0)
        if self.mu_square:
            mu = _mp.sqrt(_mp.mpf(self.mu_square.numerator) / self.mu_square.denominator)
            for loss, weight in self.law.atoms():
                if weight:
                    total += weight * _gaussian_delta(_decimal(at - loss), mu)
        else:
            ratio, excess = _mp.exp(_decimal(-self.law.step)), None
            for loss, weight in self.law.atoms():  # e^(epsilon - loss) falls by one factor from atom to atom
                if loss > at:
                    excess = _mp.exp(_decimal(at - loss)) if excess is None else excess * ratio
                    total += weight * (1 - excess)
        finite = Fraction(int(_mp.ceil(total)), ONE)
        return self.factor * (finite + Fraction(self.law.infinite, ONE)) + _ERROR

    def _search(self, delta: float) -> float | None:
        """Return where H is about `delta`, in doubles; 0 where it is below that everywhere, None above the largest."""
        mu = math.sqrt(self.mu_square)
        atoms = [(float(loss), weight / ONE) for loss, weight in self.law.atoms()]

        def excess(epsilon: float) -> float:
            total = math.fsum(weight * _float_delta(epsilon - loss, mu) for loss, weight in atoms)
            return float(self.factor) * (total + self.law.infinite / ONE) - delta

        low, high = 0.0, float(LARGEST_EPSILON)
        if excess(high) > 0:
            return None
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if excess(middle) > 0 else (low, middle)
        return high


def _profile(noises: Sequence[tuple[Fraction, int, int]]) -> _Profile | None:
    laws: list[_Law] = []
    mu_square, factor, shift = Fraction(0), Fraction(1), Fraction(0)
    # mu^2, the variance of the loss and twice its mean: from here on most losses are above the largest epsilon.
    whole = sum(((ones + square) / sigma**2 for sigma, ones, square in noises), Fraction(0))
    if whole >= 4 * LARGEST_EPSILON:
        return None
    for sigma, ones, square in noises:
        if ones and sigma < FINEST_SIGMA and (half := _half_width(sigma, ones)) <= MOST_POINTS:
            laws.append(_law_of_ones(sigma, ones, half))
            ones = 0
        if ones + square:
            smoothed = _smoothed(sigma, ones + square)
            if smoothed is None:
                return None
            mu_square, factor, shift = mu_square + smoothed[0], factor * smoothed[1], shift + smoothed[2]
    if len(laws) > MOST_SCALES:
        return None
    if not laws:
        law = _Law(Fraction(1), Fraction(0), (ONE,), 0)
    elif len(laws) == 1 and not mu_square:
        law = laws[0]
    else:
        law = _on_one_grid(laws, whole)
    return _Profile(law, mu_square, factor, shift)


def _on_one_grid(laws: Sequence[_Law], mu_square: Fraction) -> _Law:
    """Return the composition of laws of different steps, on a grid for a loss of variance about `mu_square`."""
    # frexp is exact, and so is the root's rounding: the grid, and with it the figure, is the same everywhere.
    step = Fraction(2) ** (math.frexp(math.sqrt(mu_square) / GRID_SHARE)[1] - 1)
    first, *others = (law.split(step) for law in laws)
    for other in others:
        first = first.composed(other)
    return first


def _smoothed(sigma: Fraction, square: int) -> tuple[Fraction, Fraction, Fraction] | None:
    """Return mu^2, (1 + t)^c and c ln((1 + t)/(1 - t)) for at most c = `square` coordinates that differ.

    r^2 is a whole number with c t <= 2^-30: 2 pi^2 is above 28 bits. None where sigma^2 is not above it.
    """
    r_square = math.ceil(Fraction(31 + square.bit_length(), 28))
    if sigma**2 <= r_square:
        return None
    q = iv.exp(-2 * iv.pi**2 * r_square)
    t = 2 * q / (1 - q)
    return (
        square / (sigma**2 - r_square),
        upper(iv.exp(square * iv.log(1 + t))),
        upper(square * (iv.log(1 + t) - iv.log(1 - t))),
    )


def _half_width(sigma: Fraction, ones: int) -> int:
    """Return where the sum of `ones` discrete Gaussians is cut: `TAIL` standard deviations or a little more."""
    return TAIL * (math.isqrt(math.ceil(ones * sigma**2)) + 1)


def _law_of_ones(sigma: Fraction, ones: int, half: int) -> _Law:
    """Return the law of (n + 2 W) / (2 sigma^2), n = `ones`, by doubling along the binary digits of n."""

    def add(law: _Law, other: _Law, count: int) -> _Law:
        summed, width = law.composed(other), min(half, _half_width(sigma, count))
        middle = len(summed.weights) // 2
        return summed.cut(middle - width, middle + width)

    one = _law_of_one(sigma, half)
    law, count = one, 1
    for digit in bin(ones)[3:]:
        law, count = add(law, law, 2 * count), 2 * count
        if digit == "1":
            law, count = add(law, one, count + 1), count + 1
    return law


@lru_cache(maxsize=64)
def _law_of_one(sigma: Fraction, half: int) -> _Law:
    """Return the law for one coordinate, cut on either side, where at most exp(-m^2/(2 sigma^2)) lies (subgaussian)."""
    reach = min(half, _half_width(sigma, 1))
    ups, downs = [], []
    for x in range(reach + 1):
        value = iv.exp(enclose(-(x**2) / (2 * sigma**2)))
        ups.append(math.ceil(upper(value) * ONE))
        downs.append(math.floor(lower(value) * ONE))
    normaliser = downs[0] + 2 * sum(downs[1:])  # a part of the sum over all integers, so below it
    side = [-(-up * ONE // normaliser) for up in ups]
    beyond = math.ceil(upper(iv.exp(enclose(-((reach + 1) ** 2) / (2 * sigma**2)))) * ONE)
    weights = [*reversed(side[1:]), *side]
    weights[0] += beyond
    step = 1 / sigma**2
    return _Law(step, step / 2 - reach * step, tuple(weights), beyond)


def _convolved(ours: Sequence[int], theirs: Sequence[int]) -> tuple[int, ...]:
    """Return the convolution in units of 2^-160, rounded up: one product of two large integers (Kronecker)."""
    widest = max(ours).bit_length() + max(theirs).bit_length() + min(len(ours), len(theirs)).bit_length()
    slot = widest // 8 + 1
    one, other = (
        int.from_bytes(b"".join(weight.to_bytes(slot, "little") for weight in weights), "little")
        for weights in (ours, theirs)
    )
    length = len(ours) + len(theirs) - 1
    product = (one * other).to_bytes(slot * length, "little")
    return tuple(_up(int.from_bytes(product[slot * i : slot * (i + 1)], "little")) for i in range(length))


def _up(product: int) -> int:
    """Return a product of two probabilities as a probability, rounded up."""
    return -(-product >> BITS)


def _decimal(value: Fraction) -> Number:
    return _mp.mpf(value.numerator) / value.denominator


def _gaussian_delta(epsilon: Number, mu: Number) -> Number:
    """H of the continuous Gaussian (Balle and Wang, arXiv 1805.06530, Theorem 8), for any real epsilon."""
    root = _mp.sqrt(2)
    above = _mp.erfc((epsilon / mu - mu / 2) / root) / 2
    return above - _mp.exp(epsilon) * _mp.erfc((epsilon / mu + mu / 2) / root) / 2


def _float_delta(epsilon: float, mu: float) -> float:
    """`_gaussian_delta` in doubles, and its limit where mu is 0."""
    if not mu:
        return max(0.0, -math.expm1(min(epsilon, 0.0)))
    root = math.sqrt(2)
    tail = math.erfc((epsilon / mu + mu / 2) / root) / 2
    return math.erfc((epsilon / mu - mu / 2) / root) / 2 - (math.exp(epsilon) * tail if tail > _LEAST_TAIL else 0.0)
