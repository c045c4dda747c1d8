"""Token draw by a table of integer weights: exact, and for many generations at once (PRIVACY §4.2 point 3).

Integer weights that fall like exp(-i step), and a proven bound on how fast they fall (PRIVACY §4.2 point 3). One flat
table would need 55 million entries; two short ones give the same weights. Write i = a 2^b + r. Then

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

Token draw by an integer table: exact, and for many generations at once (PRIVACY §4.2 point 3). Scores live on an
integer grid. Row i's clipped vector is q_i in {-S, .., S}^V, S = C/g with grid g = 2^-20, and the score of candidate v
is the integer k_v = round(phi_pub,v / u) + sum_i q_i,v in units of u = g/B: no division, so no rounding depends on the
sum. The ideal draw is P(v) ~ exp(k_v u / tau). With a public top U and a table of integer weights w
(`tasks.mechanisms.tokens.integer_table`) it is

    j_v = max(0, U - k_v),     P(v) = w(j_v >> t) / sum of w(j_v' >> t) over the candidates,

drawn with a uniform integer below the sum. U is the largest public score plus a declared head-room: above it scores
SATURATE. The table's step 2^t u / tau is at most 2^-20, so the weights are exp((k_v - U) u / tau) to one part in a
million, down to e^-26 of the largest.

Why a draw costs A^2 / 2. A is a bound on |ln w_i - ln w_k| for places at most D = ceil(S / 2^t) apart, proven from the
very integers that are drawn with. Fix the prefix and everything public; let the batches differ by one unit.

1. Candidates, phi_pub, U and the table are functions of the prefix and of public data, so both sides have them equal.
   The other rows' q are functions of their own row alone (row isolation, `tasks.mechanisms.tokens.utility_scores`), and
   an absent row adds exactly zero: k_v differs by exactly q_i,v, by at most S in each entry, in either direction.
2. Neither saturation at U, nor the cut at the table's end, nor keeping scores inside 64 bits lets two scores move
   further apart: x -> max(0, U - x) and x -> min(x, end) are 1-Lipschitz. And i >> t moves by at most D.
3. So every weight moves by a factor between e^-A and e^A, the floor and every rounding of the table included. Tokens
   may move in opposite directions: ln(P(v)/P'(v)) spans a range of at most eta = 2A over v, as the sums cancel in it.
4. The draw is of bounded range eta, so it is eta^2/8 = A^2/2-zCDP (`tasks.accounting.zcdp.bounded_range`),
   adaptively composable with anything. In exact arithmetic A were C / (B tau), and the charge C^2 / (2 B^2 tau^2).

Other scores fit in by their unit: a blend (private mean + public) / 2 is a draw with 2B references, and so is a mean
drawn at temperature 2 tau.

The sums and the search are exact: weights are at most 2^62, and are added in two halves of 31 bits, neither of which
can overflow 64 bits with fewer than 2^31 candidates. Nothing that is summed or drawn is a float.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from models_db.errors import Refused, UsageError
from models_db.values.amounts import RHO_UNIT, Amount
from models_db.values.events import PrivacyEvent
from tasks.accounting import zcdp
from tasks.accounting.rounding import Exact, charge_rounded_up, enclose, exact, iv, lower, upper
from tasks.mechanisms.core.rng import RandomSource, uniform_below_each

if TYPE_CHECKING:
    import torch
    from torch import Tensor


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


MECHANISM = "integer_draw"
GRID_EXPONENT = 20
# 2^31 grid steps are a clip norm of 2048, where clipping has long stopped to matter; with it, 2^31 rows
# cannot overflow a 64-bit sum.
LARGEST_CLIP_STEPS = 2**31 - 1
LARGEST_REFERENCES = 2**20
WEIGHT_BITS = 62
FLOOR_BITS = 24
# How much of the table's 26 nats head-room may take: above the likeliest token of a public prompt, and where every row
# is recentred, so that B rows that agree on a token do add up to B S.
HEAD_ROOM_NATS = 8
WHOLE_TABLE_NATS = 26
# Steps of the table are at most 2^-20 nats.
_STEP_BITS = 20
_LARGEST_HEAD_ROOM = 2**52
_HALF = 31
_LOW_HALF = 2**_HALF - 1
# How many scores are worked on at once: 8 MiB for each tensor on the way on a CPU, whose caches it suits.
_SCORES_AT_ONCE = {"cpu": 2**18, "cuda": 2**24}


@dataclass(frozen=True)
class IntegerTableMechanism:
    """One kind of token draw by an integer table.

    Attributes:
        clip_steps: S, the sensitivity of an integer score: the clip norm C in grid steps of 2^-grid_exponent.
        references: B, the public nominal number of rows; a score's unit is u = 2^-grid_exponent / B.
        temperature: tau, exact.
        head_room: how far above the largest public score U lies, in units u.
        grid_exponent: the grid is 2^-grid_exponent logits, at most 2^-16.
        weight_bits: the largest weight is 2^weight_bits.
        floor_bits: the smallest weight is 2^floor_bits, at least 2^20.
    """

    clip_steps: int
    references: int
    temperature: Fraction
    head_room: int
    grid_exponent: int = GRID_EXPONENT
    weight_bits: int = WEIGHT_BITS
    floor_bits: int = FLOOR_BITS

    def __post_init__(self) -> None:
        _check_public(self.references, self.temperature)
        if not 1 <= self.clip_steps <= LARGEST_CLIP_STEPS:
            raise token_draw_invalid(f"The clip norm must be 1 to 2^31 - 1 grid steps, not {self.clip_steps}.")
        if not 16 <= self.grid_exponent <= 24:
            raise token_draw_invalid(f"The grid must be 2^-16 to 2^-24 logits, not 2^-{self.grid_exponent}.")
        if not 0 <= self.head_room <= _LARGEST_HEAD_ROOM:
            raise token_draw_invalid(f"The head-room must be 0 to 2^52 units, not {self.head_room}.")
        if not 20 <= self.floor_bits < self.weight_bits <= 62:
            raise token_draw_invalid(
                f"Weights must lie between 2^20 and 2^62, not from 2^{self.floor_bits} to 2^{self.weight_bits}."
            )

    @property
    def clip_norm(self) -> Fraction:
        """C, in logits."""
        return Fraction(self.clip_steps, 2**self.grid_exponent)

    @cached_property
    def stride(self) -> int:
        """t: 2^t units of score share a weight."""
        return _stride(self._units_per_nat)

    @property
    def distance(self) -> int:
        """D = ceil(S / 2^t): how many places of the table one unit can move a score."""
        return -(-self.clip_steps >> self.stride)

    @cached_property
    def table(self) -> WeightTable:
        """The weights; built once for all draws that share them."""
        return weight_table(2**self.stride / self._units_per_nat, self.weight_bits, self.floor_bits)

    @cached_property
    def fall(self) -> Fraction:
        """A: at least the largest |ln w_i - ln w_k| at that distance. In exact arithmetic it were C / (B tau)."""
        return self.table.bound(self.distance)

    @property
    def bounded_range(self) -> Fraction:
        """eta = 2A: how far the log-probability ratios of two neighbours can spread."""
        return 2 * self.fall

    def loss(self) -> Amount:
        """Return the charge of one draw, A^2 / 2, rounded up to a whole unit."""
        return charge_rounded_up(self.fall**2 / 2)

    def event(self, draws: int) -> PrivacyEvent:
        """`draws` draws in a row on the same rows, the one that yields the end of the text included."""
        if draws < 1:
            raise ValueError(f"an event has at least one draw, not {draws}")
        loss = self.loss()
        return PrivacyEvent(
            mechanism=MECHANISM,
            count=draws,
            parameters={
                "clip_steps": self.clip_steps,
                "grid_exponent": self.grid_exponent,
                "references": self.references,
                "temperature": str(self.temperature),
                "head_room": self.head_room,
                "weight_bits": self.weight_bits,
                "floor_bits": self.floor_bits,
                "eta": str(self.bounded_range),
            },
            loss=loss * draws,
            dp_event=zcdp.zcdp_event(loss.rho, draws),
        )

    @classmethod
    def from_event(cls, event: PrivacyEvent) -> "IntegerTableMechanism":
        """Return the draw whose parameters `event` stores.

        Raises:
            KeyError, ValueError, TokenDrawInvalid: they are not an integer draw's.
        """
        whole = ("clip_steps", "references", "head_room", "grid_exponent", "weight_bits", "floor_bits")
        return cls(
            temperature=exact(event.parameters["temperature"]), **{name: int(event.parameters[name]) for name in whole}
        )

    def draw_each(self, scores: "Tensor", allowed: "Tensor", rng: RandomSource) -> "Tensor":
        """Draw one place for each generation, on the scores' device; the host is asked for numbers once a part.

        Args:
            scores: int64 [G, K] in units of u, relative to the largest public score; any value.
            allowed: bool [G, K], false where there is no candidate.
            rng: any source; only the operating system's protects.

        Returns:
            Places, 0 to K - 1: int64 [G] on that device.

        Raises:
            TypeError: scores that are not int64.
            ValueError: a generation without candidates.
        """
        if str(scores.dtype) != "torch.int64":
            raise TypeError(f"an integer draw needs int64 scores, not {scores.dtype}")
        import torch

        return torch.cat([_places(self._weights(*part), rng) for part in _parts(scores, allowed)])

    def _weights(self, scores: "Tensor", allowed: "Tensor") -> "Tensor":
        """w(max(0, U - k) >> t), and 0 if there is no candidate: int64 [G, K]."""
        table = _on_device(self.table, scores.device)
        below = self.head_room - scores.clamp(min=-(2**62), max=self.head_room)
        index = (below >> self.stride).clamp_(max=table.end)
        row, place = index >> table.low_bits, index & ((1 << table.low_bits) - 1)
        weights = _gather(table.high, row).mul_(_gather(table.low, place)) >> _gather(table.shift, row)
        return weights.clamp_(min=table.floor).masked_fill_(~allowed, 0)

    @property
    def _units_per_nat(self) -> Fraction:
        """tau / u."""
        return self.temperature * (self.references << self.grid_exponent)


def calibrate(
    rho: int, draws: int, references: int, temperature: Exact, head_room_nats: int = HEAD_ROOM_NATS
) -> IntegerTableMechanism:
    """Return the integer draw with the largest clip norm whose `draws` draws cost at most `rho` (units of 1e-12).

    C / (B tau) is a multiple of the table's step, which is at most 2^-20, and 2^-23 smaller than an ideal table's.
    The head-room is what B rows that agree can add to a token, B S units, but at most `head_room_nats`;
    `WHOLE_TABLE_NATS` where every row is recentred and adds its S to some token.

    Raises:
        BudgetTooSmall: not even one step of clip norm is affordable.
        TokenDrawInvalid: draws, references or temperature is out of range.
    """
    if draws < 1:
        raise token_draw_invalid(f"A text takes at least one draw, not {draws}.")
    tau = exact(temperature)
    _check_public(references, tau)
    units_per_nat = tau * (references << GRID_EXPONENT)
    stride = _stride(units_per_nat)
    # A^2 / 2 <= rho / T, and A is D steps and a fraction of one: the guess is at most one too many.
    most = Fraction(math.isqrt(2 * (rho // draws) * RHO_UNIT), RHO_UNIT)
    guess = min(math.floor(most * units_per_nat), LARGEST_CLIP_STEPS) >> stride
    # The first of these fits where the budget covers all that the table can ever leak.
    for distance in (LARGEST_CLIP_STEPS >> stride, *range(guess, max(guess - 3, 0), -1)):
        steps = distance << stride
        room = min(references * steps, math.floor(head_room_nats * units_per_nat))
        mechanism = IntegerTableMechanism(steps, references, tau, room)
        if (mechanism.loss() * draws).fits(Amount(rho)):
            return mechanism
    raise budget_too_small(draws, references)


def public_sampler(temperature: Exact) -> IntegerTableMechanism:
    """Return the exact softmax of public logits at that temperature: no private text has a part in it.

    Raises:
        TokenDrawInvalid: the temperature is out of range.
    """
    return IntegerTableMechanism(clip_steps=1, references=1, temperature=exact(temperature), head_room=0)


def _stride(units_per_nat: Fraction) -> int:
    """Return the largest t for which 2^t units are at most 2^-20 nats; 0 if one unit is more."""
    return max(0, math.floor(units_per_nat).bit_length() - 1 - _STEP_BITS)


class _DeviceTable(NamedTuple):
    high: "Tensor"
    shift: "Tensor"
    low: "Tensor"
    low_bits: int
    end: int
    floor: int


@lru_cache(maxsize=16)
def _on_device(table: WeightTable, device: "torch.device") -> _DeviceTable:
    import torch

    high, shift, low = (
        torch.tensor(entries, dtype=torch.int64, device=device) for entries in (table.high, table.shift, table.low)
    )
    return _DeviceTable(high, shift, low, table.low_bits, table.end, table.floor)


def _gather(entries: "Tensor", index: "Tensor") -> "Tensor":
    """entries[index], by the call that takes a third of the time."""
    return entries.index_select(0, index.flatten()).view_as(index)


def _parts(scores: "Tensor", allowed: "Tensor") -> Iterator[tuple["Tensor", "Tensor"]]:
    """A few generations at a time, so that memory does not grow with their number."""
    at_once = max(1, _SCORES_AT_ONCE.get(scores.device.type, 2**18) // max(1, scores.shape[1]))
    for start in range(0, max(1, len(scores)), at_once):
        yield scores[start : start + at_once], allowed[start : start + at_once]


def _places(weights: "Tensor", rng: RandomSource) -> "Tensor":
    """Draw one place for each row with probability weight / sum: int64 [G, K], below 2^62 + 1 -> int64 [G]."""
    import torch

    upper, lower = (weights >> _HALF).cumsum(1), (weights & _LOW_HALF).cumsum(1)
    upper += lower >> _HALF
    lower &= _LOW_HALF
    # The last column is the sum; there is none where there is no candidate at all.
    last = torch.stack([sums[:, -1:].sum(1) for sums in (upper, lower)], 1)
    totals = [(high << _HALF) + low for high, low in last.tolist()]
    if not all(totals):
        raise ValueError("a draw needs at least one candidate")
    drawn = uniform_below_each(totals, rng)
    targets = weights.new_tensor([(number >> _HALF, number & _LOW_HALF) for number in drawn]).reshape(-1, 2)
    high, low = targets[:, :1], targets[:, 1:]
    # The first place whose running sum exceeds the number: as many places as do not come before it.
    before: Tensor = ((upper < high) | ((upper == high) & (lower <= low))).sum(1)
    return before


def _check_public(references: int, temperature: Fraction) -> None:
    """Refuse a number of references or a temperature that no token draw takes.

    Raises:
        TokenDrawInvalid: one of them is out of range.
    """
    if not 1 <= references <= LARGEST_REFERENCES:
        raise token_draw_invalid(f"The number of references must be 1 to 2^20, not {references}.")
    if not Fraction(1, 1000) <= temperature <= 1000:
        raise token_draw_invalid(f"The temperature must be 0.001 to 1000, not {temperature}.")


def token_draw_invalid(message: str) -> UsageError:
    """Return the error of a parameter of the token draw that is out of range."""
    return UsageError(message, "Correct the parameters of the request.", code="TokenDrawInvalid")


def budget_too_small(draws: int, references: int) -> Refused:
    """Return the error of a budget that buys no clip norm at all."""
    return Refused(
        f"The budget is too small for {draws} draws with {references} references: the clip norm is zero.",
        "Ask for a larger epsilon, fewer new tokens, or more references.",
        {"draws": draws, "references": references},
        code="BudgetTooSmall",
    )
