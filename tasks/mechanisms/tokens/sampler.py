"""Samplers of a token draw behind one interface: a table of integers, or OpenDP's noisy maximum.

Both draw P(v) ~ exp(k_v u / tau) from integer scores k_v of sensitivity S = C/g in units of u = g/B. What differs is
the mechanism, and so the event that is stored: OpenDP's is exact for any scores and is charged C^2 / (2 B^2 tau^2), the
table rounds its weights, is charged what its own entries can leak, and draws for all generations at once on the device
they are on. `DEFAULT`, what we recommend, is the table (docs/decisions/0016).

Other scores fit in by their unit: a blend (private mean + public) / 2 is a draw with 2B references, and so is a mean
drawn at temperature 2 tau.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, get_args

from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from tasks.accounting.rounding import Exact, exact
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.tokens import exponential_mechanism, integer_table
from tasks.mechanisms.tokens.exponential_mechanism import ExponentialMechanism
from tasks.mechanisms.tokens.integer_table import HEAD_ROOM_NATS, IntegerTableMechanism

if TYPE_CHECKING:
    from torch import Tensor

Kind: TypeAlias = Literal["table", "opendp"]
KINDS: tuple[Kind, ...] = get_args(Kind)
DEFAULT: Kind = "table"


class TokenMechanism(Protocol):
    """Interface of a token draw: its public parameters, the loss of a draw, and the draw."""

    @property
    def clip_steps(self) -> int:
        """S, the sensitivity of an integer score: C in grid steps."""

    @property
    def grid_exponent(self) -> int:
        """The grid is g = 2^-grid_exponent logits."""

    @property
    def clip_norm(self) -> Fraction:
        """C, in logits."""

    @property
    def references(self) -> int:
        """B, the public nominal number of rows; the unit of scores is g/B."""

    @property
    def temperature(self) -> Fraction:
        """tau."""

    @property
    def bounded_range(self) -> Fraction:
        """eta: how far the log-probability ratios of two neighbours can spread."""

    def loss(self) -> Amount:
        """Return the charge of one draw, eta^2 / 8."""

    def event(self, draws: int) -> PrivacyEvent:
        """`draws` draws in a row on the same rows."""

    def draw_each(self, scores: "Tensor", allowed: "Tensor", rng: RandomSource) -> "Tensor":
        """Draw one place for each generation: int64 [G, K] scores and bool [G, K] -> int64 [G], 0 to K - 1.

        Raises:
            ValueError: a generation without candidates.
        """


_FROM_EVENT: Mapping[str, Callable[[PrivacyEvent], TokenMechanism]] = {
    integer_table.MECHANISM: integer_table.IntegerTableMechanism.from_event,
    exponential_mechanism.MECHANISM: exponential_mechanism.ExponentialMechanism.from_event,
}

MECHANISMS: Final = frozenset(_FROM_EVENT)
"""Names of the mechanisms whose invocation is one draw of a token."""


def calibrate(
    kind: Kind,
    rho: int,
    draws: int,
    references: int,
    temperature: Exact,
    *,
    head_room_nats: int = HEAD_ROOM_NATS,
) -> TokenMechanism:
    """Return the draw of that kind with the largest clip norm whose `draws` draws cost at most `rho` (units of 1e-12).

    Args:
        head_room_nats: of the table alone: how far above the largest public score its weights may reach;
            `integer_table.WHOLE_TABLE_NATS` where every row is recentred and adds its S to some token.

    Raises:
        BudgetTooSmall: not even one step of clip norm is affordable.
        TokenDrawInvalid: draws, references or temperature is out of range.
    """
    if kind == "opendp":
        return exponential_mechanism.calibrate(rho, draws, references, temperature)
    return integer_table.calibrate(rho, draws, references, temperature, head_room_nats)


def from_event(event: PrivacyEvent) -> TokenMechanism:
    """Return the draw, of either kind, whose parameters `event` stores.

    Raises:
        KeyError, ValueError, TokenDrawInvalid: they are not a token draw's.
    """
    return _FROM_EVENT[event.mechanism](event)


def public_sampler(temperature: Exact, kind: Kind) -> TokenMechanism:
    """Return the exact softmax of public logits at that temperature: no private text has a part in it."""
    if kind == "opendp":
        return ExponentialMechanism(clip_steps=1, references=1, temperature=exact(temperature))
    return IntegerTableMechanism(clip_steps=1, references=1, temperature=exact(temperature), head_room=0)
