"""Strength of a promise in words: warnings on a weak epsilon or delta, and the rate of right guesses.

The limits are conventions and not theorems. Epsilon 8 lets a guess at even odds be right in 99.97 % of cases, and delta
should be far below 1/n, because a delta of 1/n allows the release of one whole record (Near and Darais, NIST SP
800-226, 2025, sections 2.2 and 2.3).
"""

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Final

from models_db.errors import UsageError
from tasks.common.number_format import format_small, round_up
from tasks.common.strict_model import figure
from tasks.release.claim import ReplaceOne, guessing_bounds

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
