"""What a release claims while the assignment of units to its batches is secret, beside its unconditional claim.

The second figure is a computational promise of its own kind (docs/privacy-guarantee.md): it ends where the split gets
out, and the unconditional epsilon holds then as before. No cap refers to it, and no screen, file or JSON output has it
without the unconditional one (decision 0132).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Final

from pydantic import Field

from models_db.values.amounts import Amount, RenyiCurve, total_amount
from models_db.values.events import PrivacyEvent
from tasks.accounting.random_allocation import RandomAllocation, allocation_figures, claims_at_most, summed_epsilon
from tasks.accounting.renyi_account import allocation_curve
from tasks.common.published_values import Figure, Strict, figure, round_up
from tasks.mechanisms.tokens import integer_table
from tasks.values.plan import BatchAssignment

METHOD: Final = (
    "Renyi orders of the mean likelihood ratio over batches, each direction converted on its own:"
    " docs/proofs/secret-assignment.md"
)
"""How the figure follows from the losses, as the record states it."""
CONDITION: Final = "while the assignment of units to texts is secret"
DESTROYED: Final = "its key is destroyed after the draws"


class SecretAssignment(Strict):
    """Claim of a release while its assignment is secret, at the delta of the unconditional claim.

    It holds against readers of bounded means who do not know in which batch the unit is.

    Attributes:
        epsilon: the larger of `remove` and `add`; never above what the events imply unconditionally.
        remove, add: the epsilon of either direction.
        batches: N, into how many batches the units of a label in a block are split, or fewer.
        read: M, how many of them make a text, at most.
        rho: zCDP of all draws that read one batch.
        rho_other: zCDP of all other mechanisms of the release, which do not read the assignment.
        method: the theorem behind it.
    """

    epsilon: Figure
    remove: Figure
    add: Figure
    batches: Annotated[int, Field(ge=2)]
    read: Annotated[int, Field(ge=1)]
    rho: Figure
    rho_other: Figure
    method: str


def state_secret_assignment(
    events: Sequence[PrivacyEvent], assignment: BatchAssignment | None, delta: Fraction
) -> SecretAssignment | None:
    """Return the figure of these events at `delta`.

    None without an assignment, without a draw that reads a batch, and where a mechanism may fail with a probability.
    """
    allocation = _allocation(events, assignment)
    if allocation is None:
        return None
    figures = allocation_figures(allocation, delta)
    return SecretAssignment(
        epsilon=figure(figures.epsilon),
        remove=figure(figures.remove),
        add=figure(figures.add),
        batches=allocation.batches,
        read=allocation.read,
        rho=_rho(Amount(allocation.rho)),
        rho_other=_rho(Amount(allocation.other)),
        method=METHOD,
    )


def costs_at_most(
    events: Sequence[PrivacyEvent], assignment: BatchAssignment | None, epsilon: Decimal, delta: Fraction
) -> bool | None:
    """Return whether the figure of these events is at most `epsilon`; None where nothing is claimed."""
    allocation = _allocation(events, assignment)
    return None if allocation is None else claims_at_most(allocation, epsilon, delta)


def _allocation(events: Sequence[PrivacyEvent], assignment: BatchAssignment | None) -> RandomAllocation | None:
    """Return the losses of these events by whether they read the assignment; None where nothing is claimed for it."""
    draws = total_amount([event.loss for event in events if event.mechanism == integer_table.MECHANISM])
    whole = total_amount([event.loss for event in events])
    if assignment is None or whole.delta or not draws.rho:
        return None
    return RandomAllocation(draws.rho, assignment.batches, assignment.read, (whole - draws).rho)


def assignment_of_plan(plan: Mapping[str, Any]) -> BatchAssignment | None:
    """Return the sizes of the split that a stored plan states; None where it states none.

    Raises:
        KeyError, TypeError, ValueError: they are not sizes of a split.
    """
    stored = plan.get("assignment")
    if stored is None:
        return None
    sizes = (stored["batches"], stored["read"])
    if set(stored) != {"batches", "read"} or not all(type(size) is int for size in sizes):
        raise ValueError("the sizes of a split are two whole numbers")
    return BatchAssignment(*sizes)


def curve_of_plan(plan: Mapping[str, Any]) -> RenyiCurve:
    """Return what a stored plan is charged in Rényi orders on each block: its rho, unless its assignment is secret.

    Of the losses, its instalments count, which may be rounded up from those of its events.

    Raises:
        KeyError, TypeError, ValueError: it is no plan.
    """
    draws = whole = Amount()
    for invocation in plan["invocations"]:
        paid = total_amount([Amount(int(part["rho"]), int(part["delta"])) for part in invocation["instalments"]])
        whole += paid
        draws += paid if invocation["event"]["mechanism"] == integer_table.MECHANISM else Amount()
    assignment = assignment_of_plan(plan)
    if assignment is None or whole.delta or not draws.rho:
        return RenyiCurve.of_rho(whole.rho)
    return allocation_curve(RandomAllocation(draws.rho, assignment.batches, assignment.read, whole.rho - draws.rho))


@dataclass(frozen=True)
class SpentOnBlock:
    """What a block of an account has spent, in units of 1e-12 of rho.

    Attributes:
        rho: all of it.
        draws: the part that draws of token spent for releases whose assignment is secret, by the sizes of their split.
    """

    rho: int
    draws: tuple[tuple[BatchAssignment, int], ...]


def epsilon_of_account(blocks: Collection[SpentOnBlock], delta: Fraction) -> Decimal:
    """Return the epsilon of all that was ever run on an account, while the assignments of its releases are secret.

    The largest of its blocks, because a unit is in one. What has no secret assignment counts with its whole rho. It is
    derived when it is shown and stored nowhere; no limit refers to it (decision 0132).
    """
    return max((_epsilon_of_block(block, delta) for block in set(blocks)), default=Decimal(0))


def _epsilon_of_block(block: SpentOnBlock, delta: Fraction) -> Decimal:
    allocations = [RandomAllocation(rho, sizes.batches, sizes.read) for sizes, rho in block.draws]
    return summed_epsilon(allocations, block.rho - sum(rho for _, rho in block.draws), delta)


def shown_epsilon(secret: SecretAssignment) -> str:
    """Return the figure as people read it, rounded up."""
    return round_up(secret.epsilon)


def asked_while_secret(epsilon: str) -> str:
    """Return what a request asks for that is calibrated to its claim while the assignment is secret, in words."""
    return (
        f"epsilon at most {epsilon} {CONDITION}; the unconditional epsilon follows from it, and is what a leak leaves"
    )


def while_secret(secret: SecretAssignment, ended: str | None = None) -> str:
    """Return the second figure in words, to stand beside the unconditional one of the same release.

    Args:
        ended: the sentence on its end, which is then said in its place; None while the assignment is secret.
    """
    return ended or f"epsilon {shown_epsilon(secret)} at the same delta, {CONDITION} ({DESTROYED})"


def _rho(amount: Amount) -> str:
    return figure(Decimal(amount.rho_text))
