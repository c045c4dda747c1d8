"""Claim of a release: stated from its events before data is touched, and stated again by verification."""

from collections.abc import Sequence
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction

from models_db.errors import Refused
from models_db.values.amounts import DELTA_UNIT, Amount
from models_db.values.events import PrivacyEvent
from tasks.accounting.rounding import Exact, decimal_above, enclose, exact, iv, terminating, upper
from tasks.accounting.zcdp import DELTA_PLACES, epsilon_of
from tasks.common.strict_model import Figure, Strict, figure
from tasks.mechanisms.core.post_processing import loss_paid_by_parent
from tasks.mechanisms.replace_one import replace_one_losses
from tasks.planning.secret_assignment import SecretAssignment, state_secret_assignment
from tasks.values.plan import BatchAssignment

CONVERSION = (
    "rho-zCDP to (epsilon, delta) at delta minus delta_fail: Canonne, Kamath, Steinke, arXiv 2004.00010, Proposition 12"
)

_EXACT = Context(prec=30, rounding=ROUND_CEILING, Emax=10**7, Emin=-(10**7))
_SHOWN = Context(prec=4, rounding=ROUND_CEILING, Emax=10**7, Emin=-(10**7))


class ReplaceOne(Strict):
    """Claim of the same release under the replace-one relation; `rho` is null if the loss is not pure zCDP."""

    epsilon: Figure
    delta: Figure
    rho: Figure | None


class Claim(Strict):
    """Privacy claim of a release, fixed before data is read (PRIVACY §1).

    Attributes:
        epsilon, delta: as requested, for this release alone, under add-or-remove-one.
        rho: the zCDP charge behind it, the sum over the events.
        delta_fail: the events' failure probabilities, a part of delta.
        replace_one: the figure for replacing one unit.
        conversion: the formula from rho to epsilon.
        secret_assignment: the figure while the assignment of units to texts is secret, beside the requested one, which
            holds against anybody; None where nothing is claimed for it.
    """

    epsilon: Figure
    delta: Figure
    rho: Figure
    delta_fail: Figure
    replace_one: ReplaceOne
    conversion: str
    secret_assignment: SecretAssignment | None

    @property
    def charges_nothing(self) -> bool:
        """Return whether the release used no private text."""
        return self.rho == self.delta_fail == "0"

    @property
    def guessing_bounds(self) -> tuple[Decimal, Decimal]:
        """Return the bounds of the function `guessing_bounds` for this claim."""
        return guessing_bounds(Decimal(self.epsilon), Decimal(self.delta))


def state_claim(
    events: Sequence[PrivacyEvent], epsilon: Exact, delta: Exact, assignment: BatchAssignment | None = None
) -> Claim:
    """Return the claim (epsilon, delta) of a release that invokes `events`; both 0 where nothing is charged.

    A release that extends another claims what its parent does: read alone, it is about the same units.

    Args:
        assignment: the split of the plan, if the release states what it claims while its assignment is secret.

    Raises:
        ClaimTooSmall: the events cost more than (epsilon, delta).
    """
    spent = loss_paid_by_parent(events)
    claimed_epsilon, claimed_delta = exact(epsilon), exact(delta)
    if Fraction(implied_epsilon(spent, claimed_delta)) > claimed_epsilon:
        raise ClaimTooSmall(figure(terminating(claimed_epsilon)), figure(terminating(claimed_delta)))
    return Claim(
        epsilon=figure(terminating(claimed_epsilon)),
        delta=figure(terminating(claimed_delta)),
        rho=figure(Decimal(spent.rho_text)),
        delta_fail=figure(Decimal(spent.delta_text)),
        replace_one=_replace_one(events, spent, claimed_epsilon, claimed_delta),
        conversion=CONVERSION,
        secret_assignment=state_secret_assignment(events, assignment, claimed_delta),
    )


def require_within_claim(asked: str | None, secret: SecretAssignment | None) -> None:
    """Check that a release claims no more while its assignment is secret than its request asks for.

    Args:
        asked: `epsilon_while_secret` of a stored request; None where it does not ask by that.
        secret: the figure that follows from its plan; None where there is none.

    Raises:
        SecretClaimTooSmall: it claims more, or nothing of the kind.
    """
    if asked is not None and (secret is None or Decimal(secret.epsilon) > Decimal(asked)):
        raise SecretClaimTooSmall(asked)


def implied_epsilon(spent: Amount, delta: Fraction) -> Decimal:
    """Return the smallest epsilon that `spent` implies at `delta`, rounded up; 0 where nothing is spent.

    Raises:
        InvalidTarget: the failure probabilities leave nothing of delta.
    """
    if spent == Amount():
        return Decimal(0)
    return epsilon_of(spent.rho, delta - Fraction(spent.delta, DELTA_UNIT))


def _replace_one(events: Sequence[PrivacyEvent], spent: Amount, epsilon: Fraction, delta: Fraction) -> ReplaceOne:
    """Return the replace-one figures of these events, at each mechanism's factor (`tasks.mechanisms.replace_one`)."""
    if not spent.delta:
        rho = replace_one_losses(events)
        return ReplaceOne(
            epsilon=figure(implied_epsilon(rho, delta)),
            delta=figure(terminating(delta)),
            rho=figure(Decimal(rho.rho_text)),
        )
    # Removing and adding, the definition applied twice: (2 epsilon, (1 + e^epsilon) delta), PRIVACY §1.
    doubled = min(upper((1 + iv.exp(enclose(epsilon))) * enclose(delta)), Fraction(1))
    return ReplaceOne(
        epsilon=figure(terminating(2 * epsilon)), delta=figure(decimal_above(doubled, DELTA_PLACES)), rho=None
    )


def guessing_bounds(epsilon: Decimal, delta: Decimal) -> tuple[Decimal, Decimal]:
    """Return e^epsilon and the best rate (percent) of guessing membership at even odds, both rounded up to four digits.

    Prices, reviews, plans, cards and reports all show this rate.

    Kairouz, Oh, Viswanath, ICML 2015: the two error rates of any test satisfy a + e^epsilon b >= 1 - delta and
    e^epsilon a + b >= 1 - delta, so (a + b)/2 >= (1 - delta)/(1 + e^epsilon).
    """
    factor = _EXACT.exp(epsilon)
    wrong = (1 - delta) / (1 + factor.next_plus(_EXACT))  # rounded by the default context: 28 digits
    return _SHOWN.plus(factor), min(_SHOWN.plus(100 * (1 - wrong)), Decimal(100))


class ClaimTooSmall(Refused):
    """A release would cost more than it claims."""

    def __init__(self, epsilon: str, delta: str) -> None:
        super().__init__(
            f"The planned mechanisms cost more than epsilon {epsilon} at delta {delta}.",
            "Request a larger epsilon, or less output.",
            {"epsilon": epsilon, "delta": delta},
        )


class SecretClaimTooSmall(ClaimTooSmall):
    """A release would cost more while its assignment is secret than its request asks for, or states nothing of it."""

    def __init__(self, asked: str) -> None:
        Refused.__init__(
            self,
            f"The planned mechanisms cost more than epsilon {asked} while the assignment is secret.",
            "The request was not priced by this almoner. Submit it again.",
            {"epsilon_while_secret": asked},
        )
