"""Integer weights that fall like exp(-i step), and a proven bound on how fast they fall (PRIVACY §4.2 point 3).

One flat table would need 55 million entries; two short ones give the same weights. Write i = a 2^b + r. Then

    x_i = high_a low_r / 2^shift_a,     w_i = max(F, floor(x_i)),     w_i = F for every i >= end,

where `low_r` is exp(-r step) and high_a / 2^shift_a is exp(-a 2^b step), both rounded to 31 bits. So the product is
at most 2^62, every operation is on integers, and two machines cannot have different weights.

How fast they fall. Let A(D) be the supremum of ln(w_i / w_k) over all i and k with |i - k| <= D. `WeightTable.bound`
returns a number that is at least A(D), from the entries themselves:

1. x falls or stays with i: inside a row because `low` does, from row to row because construction checks it. So w
   falls or stays, too, and only i < k matters;
2. if k - i < D, then w_k >= w_(i+D), so only k = i + D matters. If i + D > end, then w_(i+D) = F = w_end and
   w_i <= w_(end-D), so only i + D <= end matters; and if D > end, then w_0 / F is all there is;
3. the floor and the rounding to integers cost a factor of at most 1 + 1/F. Where w_i = F the ratio is 1. Elsewhere
   w_i <= x_i; and w_k >= x_k F / (F+1), because either x_k < F = w_k, or w_k = floor(x_k) = n >= F and x_k < n + 1;
4. x_i / x_(i+D) is a ratio of two entries of `high` times a ratio of two entries of `low`. With D = p 2^b + q the
   rows are p apart, or p + 1 if r + q carries. In each case the largest ratio of either table bounds its factor;
5. those largest ratios are found in doubles. A quotient of two 31-bit integers is correctly rounded and scaling
   by 2^n is exact, so the true one is at most 1 + 2^-52 times as large; the logarithm is mpmath's, rounded outwards.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import islice

from tasks.accounting.rounding import enclose, iv, lower, upper

MANTISSA_BITS = 31
# Bits behind the point while the tables are built: the error of 2^13 products stays far below an entry's last bit.
_FIXED = 256
_BOUND_GRID = 2**60


@dataclass(frozen=True, eq=False)
class WeightTable:
    """The weights of one step; there is one object for each, so it is compared by identity.

    Attributes:
        high: row a's factor, 31 bits.
        shift: row a's right shift, 0 to 62.
        low: the factor of place r in a row, 31 bits.
        floor: F, the smallest weight.
    """

    high: tuple[int, ...]
    shift: tuple[int, ...]
    low: tuple[int, ...]
    floor: int

    def __post_init__(self) -> None:
        rows = zip(self.high, self.high[1:], self.shift, self.shift[1:], strict=False)
        # high_a low_last / 2^shift_a >= high_(a+1) low_0 / 2^shift_(a+1), in integers.
        falls = all(
            ours * self.low[-1] << after >= next_ * self.low[0] << before for ours, next_, before, after in rows
        )
        if not 0 <= min(self.shift) <= max(self.shift) <= 2 * MANTISSA_BITS:
            raise ArithmeticError("a shift is not among those that 64-bit integers have")
        if not falls or any(one < next_ for one, next_ in zip(self.low, self.low[1:], strict=False)):
            raise ArithmeticError("the weights do not fall")
        if self._raw(self.end) > self.floor:
            raise ArithmeticError("the weights end above their floor")

    @cached_property
    def low_bits(self) -> int:
        """b: a row has 2^b places."""
        return len(self.low).bit_length() - 1

    @cached_property
    def end(self) -> int:
        """The first place of the last row; from here on every weight is the floor."""
        return (len(self.high) - 1) << self.low_bits

    def weight(self, index: int) -> int:
        """w_i, for any i >= 0."""
        return max(self.floor, self._raw(min(index, self.end)))

    def bound(self, distance: int) -> Fraction:
        """Return an upper bound on ln(w_i / w_k) for all i, k at most `distance` apart; a multiple of 2^-60."""
        whole = Fraction(self.weight(0), self.floor)
        if distance >= self.end:
            return _log_above(whole)
        rows, places = divmod(distance, len(self.low))
        largest = self._fall_of_rows(rows) * _largest_ratio(self.low[: len(self.low) - places], self.low[places:])
        if places and rows + 1 < len(self.high):
            carried = _largest_ratio(self.low[len(self.low) - places :], self.low[:places])
            largest = max(largest, self._fall_of_rows(rows + 1) * carried)
        return _log_above(min(whole, largest * (1 + Fraction(1, self.floor))))

    def _fall_of_rows(self, rows: int) -> Fraction:
        """Return an upper bound on the factor between any row and the one `rows` below it."""
        ratios = (
            math.ldexp(above / below, after - before)
            for above, below, before, after in zip(
                self.high, self.high[rows:], self.shift, self.shift[rows:], strict=False
            )
        )
        return _rounded_up(max(ratios))

    def _raw(self, index: int) -> int:
        row, place = divmod(index, len(self.low))
        return (self.high[row] * self.low[place]) >> self.shift[row]


@lru_cache(maxsize=16)
def weight_table(step: Fraction, weight_bits: int, floor_bits: int) -> WeightTable:
    """w_i = 2^weight_bits exp(-i step), from 2^weight_bits down to 2^floor_bits.

    Args:
        step: nats from one weight to the next, 2^-24 to 1.
        weight_bits: at most 62.
        floor_bits: fewer than `weight_bits`.
    """
    if not Fraction(1, 2**24) <= step <= 1:
        raise ValueError(f"a table's step is 2^-24 to 1, not {step}")
    places = math.ceil((weight_bits - floor_bits) / step)  # ln 2 < 1
    low_bits = max(1, places.bit_length() // 2)
    low = [_mantissa(power, 0) for power in islice(_powers(step), 2**low_bits)]
    high, shift = [], []
    for power in _powers(step * 2**low_bits):
        exponent = _FIXED - (power - 1).bit_length()  # power / 2^_FIXED lies in (1/2, 1] / 2^exponent
        high.append(_mantissa(power, exponent))
        shift.append(exponent + 2 * MANTISSA_BITS - weight_bits)
        if high[-1] * low[0] >> shift[-1] <= 2**floor_bits:
            break
    return WeightTable(tuple(high), tuple(shift), tuple(low), 2**floor_bits)


def _powers(nats: Fraction) -> Iterator[int]:
    """exp(-k nats) for k = 0, 1, .. as integers over 2^256, a little too small by rounding."""
    ratio = math.floor(lower(iv.exp(-enclose(nats))) * 2**_FIXED)
    power = 2**_FIXED
    while True:
        yield power
        power = power * ratio >> _FIXED


def _mantissa(power: int, exponent: int) -> int:
    """power 2^exponent / 2^256, rounded to 31 bits."""
    return ((power << exponent + MANTISSA_BITS + 1 >> _FIXED) + 1) >> 1


def _largest_ratio(above: Sequence[int], below: Sequence[int]) -> Fraction:
    """Return an upper bound on the largest above / below, entry by entry."""
    return _rounded_up(max(one / other for one, other in zip(above, below, strict=True)))


def _rounded_up(quotient: float) -> Fraction:
    return Fraction(quotient) * (1 + Fraction(1, 2**52))


def _log_above(ratio: Fraction) -> Fraction:
    """Return an upper bound on ln(ratio), a multiple of 2^-60; no other rounding inside shows in it."""
    return Fraction(math.ceil(upper(iv.log(enclose(ratio))) * _BOUND_GRID), _BOUND_GRID)
