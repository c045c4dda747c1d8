"""Plain-language claim: sentences that need no mathematics, with the promises of the card."""

import re
from decimal import Decimal
from typing import Final

from tasks.common.number_format import format_small
from tasks.common.strict_model import figure
from tasks.planning.secret_assignment import while_secret
from tasks.release import claim as claims
from tasks.release.promise_strength import describe_guesses, describe_replace_one, release_weaknesses
from tasks.release.record import Lifetime, ReleaseRecord, SecondOpinion, UnprotectedFigures
from tasks.release.wording import card_text
from tasks.reporting.report_parts import Claim, NoClaim

_SAYABLE: Final = Decimal(1_000_000)
RELATION: Final = "one unit more or less"


def claim_part(record: ReleaseRecord, ended: str | None = None) -> Claim | NoClaim:
    """Return the section on the release's promise, or on why there is none.

    Args:
        ended: the sentence on the end of what it claims while its assignment is secret; None while that lasts.
    """
    claim = record.claim
    if claim is None:
        return NoClaim((card_text.NO_CLAIM, card_text.PUBLIC_DATA))
    times, right = (None, None) if claim.charges_nothing else _bounds(claim)
    return Claim(
        protects=protects(record),
        sentences=(*_sentences(claim, times, right), *_extends(record)),
        epsilon=claim.epsilon,
        while_secret=while_secret(claim.secret_assignment, ended) if claim.secret_assignment else None,
        delta=format_small(claim.delta),
        rho=claim.rho,
        delta_fail=format_small(claim.delta_fail),
        relation=RELATION,
        replace_one=describe_replace_one(claim.replace_one),
        times=times,
        right=right,
        guesses=describe_guesses(Decimal(right)) if right else None,
        weaknesses=_weaknesses(record),
        conversion=claim.conversion,
        lifetime=_lifetime(record.lifetime, record.unprotected_figures) if record.lifetime else None,
        second_opinion=_opinion(record.second_opinion) if record.second_opinion else None,
        not_promised=limits(record),
    )


def _weaknesses(record: ReleaseRecord) -> tuple[str, ...]:
    claim = record.claim
    if claim is None or claim.charges_nothing:
        return ()
    return release_weaknesses(claim.epsilon, claim.delta, record.population)


def _extends(record: ReleaseRecord) -> list[str]:
    return [card_text.EXTENDS.format(release=record.parent)] if record.parent else []


def protects(record: ReleaseRecord) -> str:
    """Return the sentence on whose presence in the data is hidden."""
    name, unit = record.dataset.name, record.dataset.unit
    if unit == "record":
        return f"Each single record of {name}: whether it is in the data at all."
    return (
        f"Everybody in {name}, as identified by its field {unit}: all records with one {unit} count as one, however"
        " many they are, and whether they are in the data at all stays hidden."
    )


def limits(record: ReleaseRecord) -> tuple[tuple[str, str], ...]:
    """Return the card's points that are not protected, each as its emphasised words and the rest."""
    points = " ".join(card_text.limits_section(record.declared.texts_published).split()).split(" - ")[1:]
    return tuple(_headed(point) for point in points)


def _headed(point: str) -> tuple[str, str]:
    match = re.match(r"\*\*(.+?)\*\*(.*)", point)
    return (match[1], match[2]) if match else ("", point)


def _bounds(claim: claims.Claim) -> tuple[str, str]:
    factor, right = claim.guessing_bounds
    return (figure(factor) if factor < _SAYABLE else "more than a million"), figure(right)


_UNTOUCHED: Final = "No private text was used for it: without the dataset it would have come out the same way."
_FINDING: Final = (
    "Take somebody who knows every other record and reads all of this release. Any finding that they can make in it is"
    " at most {times} times as likely with one unit in the data as without it, and the other way round, up to an"
    " additional probability of {delta}."
)
_GUESSING: Final = (
    "Asked to guess at even odds whether a unit is in the data, they are right {guesses}; a coin toss gives 50 %. This"
    " is the ceiling for the worst case, not an estimate."
)
_EXCHANGING: Final = "If one unit is exchanged for another instead of added or removed, the same release has {figures}."


def _sentences(claim: claims.Claim, times: str | None, right: str | None) -> list[str]:
    if times is None or right is None:
        return [_UNTOUCHED]
    other = claim.replace_one
    return [
        _FINDING.format(times=times, delta=format_small(claim.delta)),
        _GUESSING.format(guesses=describe_guesses(Decimal(right))),
        _EXCHANGING.format(figures=describe_replace_one(other)),
        card_text.BEFOREHAND,
    ]


def _lifetime(lifetime: Lifetime, figures: UnprotectedFigures | None) -> str:
    together = " Several datasets share this budget." if lifetime.shared else ""
    condition = f" {card_text.unprotected_figures(figures.since, figures.people).replace('**', '')}" if figures else ""
    return (
        f"Everything ever run on the dataset, this release included, is together (epsilon {lifetime.epsilon}, delta"
        f" {format_small(lifetime.delta)})-differentially private; a ledger refuses any release that would exceed"
        f" that.{together}{condition}"
    )


def _opinion(opinion: SecondOpinion) -> str:
    return (
        f"{opinion.library} ({opinion.accountant} accountant), from the stored events alone: epsilon {opinion.epsilon}"
        f" at delta {format_small(opinion.delta)}. {card_text.OPINION}"
    )
