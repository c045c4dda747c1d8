"""Allocation of a release's texts to its labels: equal, or proportional to a noisy histogram.

Equal and proportional allocation are those of stratified sampling (Cochran, "Sampling Techniques", 3rd edition, 1977,
section 5.5). Equal allocation follows from the request. For a proportional one the run buys one noisy histogram of the
units by label, and everything else here is a function of the noisy counts and of public numbers.

**Sensitivity.** A unit is counted under one label at most, the one that its rows are read under: which of those that
its documents carry is chosen by a keyed hash of its own id (`BatchSplit.labels_of`), so no other unit can move it, and
a unit with none of them is in no bin. Adding or removing a unit moves one count by 1
(`tasks.mechanisms.counts.noisy_histogram`), whatever the number of its documents and labels.

**Draws after the histogram.** For any value of the histogram the texts and the batches of each label are fixed numbers,
and a unit is in one batch of its label in its block, by its own id and these numbers alone. So it moves the draws of at
most one text, as with equal allocation: the release is one histogram, then draws that cost the same whichever labels
they have, composed adaptively (Bun, Steinke, arXiv 1605.02065, Lemma 2.3). The price does not depend on the counts.

**Systems without batches**: the texts of key phrases are made of released
values alone, so the counts decide how many of them each label has, and read nothing. In private evolution they decide
how many candidates each label has. A unit still casts one vote in a round, and the number of all candidates is fixed by
the request, so the histogram of a round is the same whatever the counts say.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from models_db.errors import UsageError
from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from models_db.values.requests import ExactDecimal, RequestModel, format_decimal
from tasks.accounting.rounding import decimal_above
from tasks.mechanisms.counts.noisy_count import NoisyCount
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram, calibrate_histogram
from tasks.planning.labels_and_groups import PartParameters

LABEL_COUNTS = "label_counts"
"""Released figure: the noisy number of units of each label, in the order of the request's labels."""
BATCHES_PER_LABEL = "batches_per_label"
"""Released figure: into how many batches the units of each label in a block are split, in the same order."""
DEVIATION: Final = "deviation of a label's count"
"""Fact of a plan: the scale of the noise on the number of units of a label."""


class LabelAllocation(RequestModel):
    """How texts are allocated to labels, where not equally.

    Attributes:
        method: `proportional` to noisy numbers of units.
        share: the part of the rho of the mechanism that buys the histogram.
        minimum: the least number of texts of a label, also of one that no unit has.
    """

    method: Literal["proportional"]
    share: Annotated[ExactDecimal, Field(gt=0, le=Decimal("0.5"))] = Decimal("0.02")
    minimum: Annotated[int, Field(ge=1)] = 1


class LabelAllocationParameters(PartParameters):
    """`label_allocation` in a system's `parameters:`; None allocates equally."""

    label_allocation: LabelAllocation | None = None

    @model_validator(mode="after")
    def _has_labels_to_allocate_to(self) -> Self:
        if self.label_allocation is not None and len(self.labels) < 2:
            raise AllocationWithoutLabels(len(self.labels))
        return self


def allocate(texts: int, weights: Sequence[Fraction | int], minimum: int = 1) -> tuple[int, ...]:
    """Return how many texts each label gets: in proportion to the weights, by largest remainders.

    A label whose quota is below `minimum` gets `minimum`, and the others share what is left. Ties go to the label that
    comes first. Arithmetic is exact, so that a verifier gets the same numbers. Without any weight all are equal.

    Args:
        weights: one for each label, none negative.

    Raises:
        TooFewTextsForLabels: `texts` does not suffice for the minimum of every label.

    >>> allocate(10, [70, 20, 9, 1])
    (6, 2, 1, 1)
    """
    if texts < minimum * len(weights):
        raise TooFewTextsForLabels(texts, len(weights), minimum)
    weights = weights if any(weights) else [1] * len(weights)
    allocated, free = [minimum] * len(weights), list(range(len(weights)))
    while free:
        rest, total = texts - minimum * (len(weights) - len(free)), sum(Fraction(weights[label]) for label in free)
        quotas = {label: rest * weights[label] / total for label in free}
        above = [label for label in free if quotas[label] >= minimum]
        if len(above) == len(free):
            for label, quota in quotas.items():
                allocated[label] = int(quota)
            missing = texts - sum(allocated)
            for label in sorted(free, key=lambda label: allocated[label] - quotas[label])[:missing]:
                allocated[label] += 1
            break
        free = above
    return tuple(allocated)


def nearest_counts(noisy: Sequence[int]) -> tuple[Fraction, ...]:
    """Return the numbers nearest to noisy counts that are not negative and have the same sum; zeros if that is below 1.

    One level is taken off all, and what falls below 0 is none (Duchi et al., "Efficient Projections onto the l1-Ball",
    ICML 2008, section 3). To set negative counts to 0 alone would leave the noise of other empty labels as units.

    >>> nearest_counts([10, 3, -1])
    (Fraction(19, 2), Fraction(5, 2), Fraction(0, 1))
    """
    total = sum(noisy)
    if total < 1:
        return (Fraction(0),) * len(noisy)
    level, taken = Fraction(0), 0
    for number, count in enumerate(sorted(noisy, reverse=True), 1):
        taken += count
        if count <= Fraction(taken - total, number):
            break
        level = Fraction(taken - total, number)
    return tuple(max(count - level, Fraction(0)) for count in noisy)


def texts_per_label(allocation: LabelAllocation, noisy: Sequence[int], samples: int) -> tuple[int, ...]:
    """Return how many texts each label gets by the noisy counts of its units.

    Raises:
        TooFewTextsForLabels: as `allocate`.
    """
    return allocate(samples, nearest_counts(noisy), allocation.minimum)


def histogram_of(parameters: LabelAllocationParameters, amount: Amount | None, system: str) -> NoisyHistogram | None:
    """Return the histogram that the allocation's share of an amount buys; None for an equal allocation.

    Args:
        amount: of the whole mechanism; None if the release charges nothing.
        system: its name.

    Raises:
        AllocationNeedsClaim, AllocationShareTooSmall: it buys none.
    """
    allocation = parameters.label_allocation
    if allocation is None:
        return None
    if amount is None:
        raise AllocationNeedsClaim(system)
    rho = int(Fraction(allocation.share) * amount.rho)
    if rho < 1:
        raise AllocationShareTooSmall(allocation.share)
    return calibrate_histogram(rho, len(parameters.labels))


def rho_beside(histogram: NoisyHistogram | None, amount: Amount) -> int:
    """Return the rho (units of 1e-12) of an amount that a histogram of the units by label leaves."""
    return amount.rho - (histogram.loss().rho if histogram else 0)


def counting_events(histogram: NoisyHistogram | None) -> tuple[PrivacyEvent, ...]:
    """Return the charged events of a histogram, which come first in a plan: one, or none of an equal allocation."""
    return () if histogram is None else (histogram.event(),)


def allocation_facts(parameters: LabelAllocationParameters, histogram: NoisyHistogram | None) -> dict[str, str]:
    """Return the facts about a proportional allocation that a plan shows; none about an equal one."""
    if histogram is None or parameters.label_allocation is None:
        return {}
    least = parameters.label_allocation.minimum
    return {
        "texts per label": "proportional to a noisy histogram of the units by label"
        f" ({noise_text(histogram.noise)}), at least {least}",
        DEVIATION: format_decimal(decimal_above(histogram.noise.sigma, 6)),
    }


def noise_text(count: NoisyCount) -> str:
    """Return the noise of a count and its cost, for people."""
    return f"sigma {format(decimal_above(count.sigma, 1), 'f')}, rho {count.loss().rho_text}"


def format_counts(counts: Sequence[int]) -> str:
    """Return whole numbers as a released figure.

    >>> format_counts([812, 97, -3])
    '812, 97, -3'
    """
    return ", ".join(map(str, counts))


def parse_counts(figure: str) -> tuple[int, ...]:
    """Read the form of `format_counts`.

    Raises:
        ValueError: another form.
    """
    counts = tuple(map(int, figure.split(", ")))
    if format_counts(counts) != figure:
        raise ValueError("not whole numbers in their one form")
    return counts


def allocation_of(parameters: object) -> LabelAllocation | None:
    """Return how a system's parameters allocate texts to labels; None if equally, or without labels."""
    return parameters.label_allocation if isinstance(parameters, LabelAllocationParameters) else None


def allocation_of_request(parameters: Mapping[str, object]) -> LabelAllocation | None:
    """Return the same of the stored `parameters` of a request.

    Raises:
        ValueError: they are not in their stored form.
    """
    stored = parameters.get("label_allocation")
    return None if stored is None else LabelAllocation.model_validate(stored)


class AllocationWithoutLabels(UsageError):
    """A proportional allocation to fewer than two labels."""

    def __init__(self, labels: int) -> None:
        super().__init__(
            f"`label_allocation` shares texts out among labels, and the request declares {labels or 'none'}.",
            "Declare at least two: `parameters.labels: [...]`; or leave `label_allocation` out.",
            {"labels": labels},
        )


class AllocationNeedsClaim(UsageError):
    """A proportional allocation by a mechanism that charges nothing."""

    def __init__(self, mechanism: str) -> None:
        super().__init__(
            f"`label_allocation` buys a histogram of the units, and {mechanism!r} has no budget to pay for it.",
            "Leave `label_allocation` out, or choose a private mechanism with an epsilon and a delta.",
            {"mechanism": mechanism},
        )


class AllocationShareTooSmall(UsageError):
    """A share of rho that buys no histogram."""

    def __init__(self, share: Decimal) -> None:
        super().__init__(
            f"A share of {share} of this release's rho buys no histogram of its labels.",
            "Raise `label_allocation.share` or epsilon.",
            {"share": str(share)},
        )


class TooFewTextsForLabels(UsageError):
    """Fewer texts than the labels have at least."""

    def __init__(self, texts: int, labels: int, minimum: int) -> None:
        super().__init__(
            f"{texts} texts cannot give each of {labels} labels at least {minimum}.",
            f"Ask for at least {labels * minimum} texts, lower `label_allocation.minimum`, or declare fewer labels.",
            {"texts": texts, "labels": labels, "minimum": minimum},
        )
