"""Claim of a release: stated from its events before data is touched, and stated again by verification; its strength.

Strength of a promise in words: warnings on a weak epsilon or delta, and the rate of right guesses. The limits are
conventions and not theorems. Epsilon 8 lets a guess at even odds be right in 99.97 % of cases, and delta should be far
below 1/n, because a delta of 1/n allows the release of one whole record (Near and Darais, NIST SP 800-226, 2025,
sections 2.2 and 2.3).
"""

from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Final

from models_db.errors import Refused, UsageError
from models_db.values.amounts import DELTA_UNIT, Amount
from models_db.values.events import PrivacyEvent
from tasks.accounting.rounding import Exact, decimal_above, enclose, exact, iv, terminating, upper
from tasks.accounting.zcdp import DELTA_PLACES, epsilon_of
from tasks.common.published_values import Figure, Strict, figure, format_small, round_up
from tasks.mechanisms.core.uncharged import loss_paid_by_parent
from tasks.mechanisms.registry import replace_one_losses
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
    """Return the replace-one figures of these events, at each mechanism's factor (`tasks.mechanisms.registry`)."""
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


WEAK_RELEASE_EPSILON: Final = Decimal(8)
WEAK_LIFETIME_EPSILON: Final = Decimal(10)
WEAK_DELTA: Final = Decimal("1e-4")
"""Largest delta without a warning where no population is declared."""
PEOPLE_FACTOR: Final = 100
"""Delta should be at most 1/(100 n) for n declared people."""
ALWAYS_RIGHT: Final = Decimal("99.99")
"""Above this percentage a bound on right guesses excludes nothing that matters."""
CERTAIN_EPSILON: Final = Decimal(100)
"""Least epsilon with a bound on correct guesses of 100 % to 40 digits."""
VACUOUS_DELTA: Final = Decimal("0.01")
"""Least delta at which a pair of epsilon and delta is meaningless."""

_TWO_DIGITS_UP = Context(prec=2, rounding=ROUND_CEILING)
_ONE_DIGIT_DOWN = Context(prec=1, rounding=ROUND_FLOOR)


def describe_guesses(right_percent: Decimal) -> str:
    """Return an upper bound on right guesses (`Claim.guessing_bounds`) as the end of a sentence; never "100 %".

    >>> describe_guesses(Decimal("98.21"))
    'in at most 98.21 % of cases'
    >>> describe_guesses(Decimal(100))
    'in nearly every case'
    """
    return "in nearly every case" if right_percent > ALWAYS_RIGHT else f"in {format_guesses(right_percent)} of cases"


def format_guesses(right_percent: Decimal) -> str:
    """Return the same bound for a table: `at most 98.21 %`, or `nearly always`."""
    return "nearly always" if right_percent > ALWAYS_RIGHT else f"at most {figure(right_percent)} %"


def describe_replace_one(other: ReplaceOne, *, exact: bool = False) -> str:
    """Return the replace-one figures as text: rounded up, or to the last digit where `exact` is asked."""
    delta = Decimal(other.delta)
    if delta >= VACUOUS_DELTA:
        return f"no useful promise: delta would be {figure(_TWO_DIGITS_UP.plus(delta))}"
    if exact:
        return f"epsilon {other.epsilon} at delta {other.delta}"
    return f"epsilon {round_up(other.epsilon)} at delta {format_small(figure(_TWO_DIGITS_UP.plus(delta)))}"


def describe_promise(epsilon: str, delta: str, unit: str) -> str:
    """Return what a claim means for whoever guesses whether a unit is in the data.

    >>> describe_promise("4", "1e-7", "patient_id")
    'a guess whether a unit (patient_id) is in the data is right in at most 98.21 % of cases; a coin toss in 50 %'
    """
    _, right = guessing_bounds(min(Decimal(epsilon), CERTAIN_EPSILON), Decimal(delta))
    return f"a guess whether a unit ({unit}) is in the data is right {describe_guesses(right)}; a coin toss in 50 %"


def lifetime_weaknesses(epsilon: str, delta: str, population: int | None) -> tuple[str, ...]:
    """Return a warning for each weakness of a lifetime claim; empty where there is none."""
    return _weaknesses(Decimal(epsilon), Decimal(delta), population, WEAK_LIFETIME_EPSILON)


def release_weaknesses(epsilon: str, delta: str, population: int | None) -> tuple[str, ...]:
    """Return a warning for each weakness of the claim of one release; empty where there is none."""
    return _weaknesses(Decimal(epsilon), Decimal(delta), population, WEAK_RELEASE_EPSILON)


def _weaknesses(epsilon: Decimal, delta: Decimal, population: int | None, limit: Decimal) -> tuple[str, ...]:
    found = []
    if epsilon > limit:
        _, right = guessing_bounds(min(epsilon, CERTAIN_EPSILON), delta)
        found.append(
            f"WEAK PROMISE: at epsilon {figure(epsilon)}, somebody who knows all other records could tell whether one"
            f" unit is in the data {describe_guesses(right)} (a coin toss: 50 %; epsilon 1: 73.11 %)."
        )
    largest = (
        WEAK_DELTA if population is None else _ONE_DIGIT_DOWN.divide(Decimal(1), Decimal(PEOPLE_FACTOR * population))
    )
    if delta > largest:
        people = "an undeclared number of" if population is None else f"{population:,}"
        found.append(
            f"WEAK PROMISE: with delta {format_small(figure(delta))} the promise may fail altogether with that"
            f" probability; for {people} people take at most {format_small(figure(largest))}."
        )
    return tuple(found)


def undeclared_population(delta: str) -> str:
    """Return the sentence for a claim whose population nobody has declared: for how many people its delta is small.

    >>> undeclared_population("1e-7")
    'No population is declared: delta 1e-7 is small enough for at most 100,000 people (delta at most 1/(100 n)).'
    """
    people = int(1 / (PEOPLE_FACTOR * Fraction(delta)))
    return (
        f"No population is declared: delta {format_small(delta)} is small enough for at most {people:,} people"
        f" (delta at most 1/({PEOPLE_FACTOR} n))."
    )


def require_accepted(weaknesses: tuple[str, ...], *, accepted: bool) -> None:
    """Check that a weak promise was accepted in so many words.

    Raises:
        WeakPromise: it was not.
    """
    if weaknesses and not accepted:
        raise UsageError(
            " ".join(weaknesses),
            "Nothing was done. Take a smaller epsilon or delta, or repeat the command with --accept-weak-promise.",
            {"weaknesses": list(weaknesses)},
            code="WeakPromise",
        )
