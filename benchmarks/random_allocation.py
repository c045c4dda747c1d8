"""What a secret assignment would be worth: the figures of docs/proofs/secret-assignment.md, each from two sources.

    python -m benchmarks.random_allocation     four tables, in Markdown; about a minute

The proven figures come from `tasks.accounting.random_allocation`. The others are numerical: batches whose draws are
one Gaussian each, sensitivity 1, sigma^2 = 1/(2 rho). Then a likelihood ratio is log-normal, and the law of the mean
of N independent ones is found by a discrete Fourier transform: no orders, no moments, no inequality. The Gaussian has
the largest moments that rho-zCDP allows, at every order, so what the proof loses against it is lost by the proof.

The last table says what the add bound of the account in orders costs: the same account by `second_moment_divergence`,
which is proven on the page and not in use.
"""

import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from models_db.values.amounts import RENYI_ORDERS, RenyiCurve
from tasks.accounting.random_allocation import RandomAllocation, allocation_figures
from tasks.accounting.renyi_account import allocation_curve, curve_epsilon
from tasks.accounting.zcdp import epsilon_of, rho_of

DELTA = "1e-5"
CLAIMS = ("1", "4", "10")
TEXTS = (8, 32, 100, 1000)
POINTS = 2**21
REACH = 4
"""How many times the largest ratio the grid goes, so that no likely sum is folded back by the transform."""
TAIL = 6.5
"""Standard deviations of a logarithm after which nothing is counted: 4e-11 of a law."""

Floats = NDArray[np.float64]
Direction = Literal["remove", "add"]
DIRECTIONS: tuple[Direction, Direction] = ("remove", "add")


class GaussianAllocation:
    """The mean likelihood ratio L of Gaussian batches, one of which has the unit or none, on a grid of their sum.

    Each ratio is rounded to the grid, to the side that makes delta an upper bound, or a lower one; what is not counted
    is below batches * 4e-11. For add, ratios above 100 batches are left out: such an L adds nothing to delta.

    Args:
        rho: zCDP of a batch: the logarithm of its ratio is normal, of mean -rho without the unit and +rho with it, of
            variance 2 rho.
        direction: "remove" is the law with the unit against the law without.
        points: of the grid.
    """

    def __init__(self, rho: float, batches: int, direction: Direction, *, upper: bool, points: int = POINTS) -> None:
        self._spread, self._points = float(np.sqrt(2 * rho)), points
        self._removes = direction == "remove"
        self._up = upper == self._removes  # delta rises with L for remove, and falls with it for add
        likely = batches + 12 * np.sqrt(batches * np.expm1(2 * rho))
        largest = likely + np.exp(rho + TAIL * self._spread) if self._removes else min(likely, 100 * batches)
        self._grid = np.arange(points // REACH) * (REACH * largest / points)
        absent, own = self._transform(-rho), self._transform(rho if self._removes else -rho)
        self._law = np.fft.irfft(own * absent ** (batches - 1), points)
        self._mean = np.arange(1, points) * (REACH * largest / points) / batches

    def delta(self, epsilon: float) -> float:
        """Return the least delta: with the unit E[(1 - e^epsilon/L)+], without it E[(1 - e^epsilon L)+]."""
        factors = np.exp(epsilon) * (1 / self._mean if self._removes else self._mean)
        at_zero = 0.0 if self._removes else self._law[0]
        return float(at_zero + self._law[1:] @ np.maximum(1 - factors, 0))

    def _transform(self, mean: float) -> NDArray[np.complex128]:
        """Return the transform of the law of one ratio."""
        with np.errstate(divide="ignore"):
            below = ndtr((np.log(self._grid) - mean) / self._spread)
        steps = np.diff(below)
        law = np.concatenate([[0.0], steps] if self._up else [steps, [0.0]])
        return np.fft.rfft(law, self._points)


def least_epsilon(delta_at: Callable[[float], float], delta: float) -> float:
    """Return the epsilon at which a falling delta reaches `delta`, to 1e-6; 0 if it starts below."""
    low, high = 0.0, 32.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if delta_at(middle) > delta else (low, middle)
    return high if low else 0.0


def affordable_rho(epsilon: str, batches: int) -> int:
    """Return the largest rho, to a part in 2^20, whose allocation to `batches` batches claims at most `epsilon`."""
    low, high = rho_of(epsilon, DELTA), rho_of(epsilon, DELTA) * 1000
    while high - low > low // 2**20:
        middle = (low + high) // 2
        fits = allocation_figures(RandomAllocation.whole(middle, batches), DELTA).epsilon <= Decimal(epsilon)
        low, high = (middle, high) if fits else (low, middle)
    return low


def second_moment_divergence(rho: float, batches: int, order: int) -> float:
    """Return a bound on the divergence for add of N batches that are all read, by the variance of their mean ratio.

    docs/proofs/secret-assignment.md, *A second bound for add*: with p = order - 1, V = (e^(2 rho) - 1)/N and any q > p
    and 0 < x < 1, E[L^-p] <= 1 + V (x^-p - 1 - p (1 - x))/(1 - x)^2 + x^(q-p) exp(q rho (1 + q/N)). The least over a
    grid of x; q is the best for each. In floating point, for comparison alone.
    """
    power, variance = order - 1, math.expm1(2 * rho) / batches
    moments = []
    for distance in np.geomspace(1e-3, 0.999, 400):
        depth = -math.log1p(-distance)
        other = max(power + 1e-9, batches * (depth - rho) / (2 * rho))
        slope = math.expm1(power * depth) - power * distance if power * depth < 700 else math.inf
        rest = (power - other) * depth + other * rho * (1 + other / batches)
        moments.append(1 + variance * slope / distance**2 + (math.exp(rest) if rest < 700 else math.inf))
    return math.log(min(moments)) / power


def account_table() -> Iterator[str]:
    """Yield Markdown: the epsilon of accounts of equal releases for remove, for add as charged, and by the variance."""
    yield "| claim of each today | texts | releases | remove | add, charged | add, by the second bound |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for claim, releases in (("1", 1), ("1", 10), ("1", 100), ("4", 10)):
        for texts in TEXTS:
            curve = allocation_curve(RandomAllocation.whole(rho_of(claim, DELTA), texts))
            rho = rho_of(claim, DELTA) / 1e12
            better = [
                min(charged, math.ceil(second_moment_divergence(rho, texts, order) / order * 1e12))
                for order, charged in zip(RENYI_ORDERS, curve.add, strict=True)
            ]
            shown = [
                curve_epsilon(RenyiCurve(*(tuple(releases * each for each in way) for way in ways)), DELTA)
                for ways in ((curve.remove, (0,) * 8), ((0,) * 8, curve.add), ((0,) * 8, better))
            ]
            yield f"| {claim} | {texts} | {releases} | {' | '.join(f'{each:.3f}' for each in shown)} |"


def figures_table() -> None:
    """Print remove and add for every claim and number of texts, proven and of Gaussians."""
    print("| claim today | batches | remove, proven | remove, Gaussian | add, proven | add, Gaussian | claim |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for claim in CLAIMS:
        for texts in TEXTS:
            rho = rho_of(claim, DELTA)
            proven = allocation_figures(RandomAllocation.whole(rho, texts), DELTA)
            remove, add = (
                least_epsilon(GaussianAllocation(rho / 1e12, texts, direction, upper=True).delta, float(DELTA))
                for direction in DIRECTIONS
            )
            print(
                f"| {claim} | {texts} | {proven.remove:.3f} | {remove:.3f} | {proven.add:.3f} | {add:.3f}"
                f" | {proven.epsilon:.3f} |"
            )


def unread_table() -> None:
    """Print the claims of 100 texts where the block has more batches than that."""
    print("| claim today | 100 batches | 1,000 batches | 10,000 batches |\n| --- | --- | --- | --- |")
    for claim in CLAIMS:
        row = [
            allocation_figures(RandomAllocation(rho_of(claim, DELTA), batches, 100), DELTA).epsilon
            for batches in (100, 1000, 10_000)
        ]
        print(f"| {claim} |" + "".join(f" {epsilon:.3f} |" for epsilon in row))


def clip_table() -> None:
    """Print by how much the clip norm could grow at an unchanged claim, and the epsilon of a public assignment then."""
    print("| claim |" + "".join(f" {texts} |" for texts in TEXTS) + "\n| --- |" + " --- |" * len(TEXTS))
    for claim in CLAIMS:
        afforded = [affordable_rho(claim, texts) for texts in TEXTS]
        cells = [f"{(rho / rho_of(claim, DELTA)) ** 0.5:.2f} ({epsilon_of(rho, DELTA):.1f})" for rho in afforded]
        print(f"| {claim} |" + "".join(f" {cell} |" for cell in cells))


if __name__ == "__main__":
    for table in (figures_table, unread_table, clip_table):
        table()
        print()
    print("\n".join(account_table()))
