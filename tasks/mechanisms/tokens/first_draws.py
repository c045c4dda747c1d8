"""Two prices within one text: its first n draws are made by one token mechanism, all later ones by another.

An outline is drawn first, at a share of the budget of its own, and the sections under it with the rest.

**Loss.** Let rho_1 be the loss of one draw of the first mechanism and rho_2 that of the other, each for any released
tokens before it (PRIVACY §4.1). A unit is in one batch, by a keyed hash of its own id, and a batch makes one text; its
outline and its sections read the same rows. Number the draws of a batch 0 to T - 1, those that an interruption has lost
included: a draw that is made or lost uses up its number, and no later draw of the batch, of any attempt, has a number
that is as low (docs/decisions/0023). Which mechanism makes a draw is a function of its number alone: the first if it is
below n, else the other. So whatever the tokens are, a batch meets the first mechanism at most n times and the other at
most T - n times. What a draw is conditioned on beside its rows (the outline, the heading of the section, the tokens
before it) was released or is public. By adaptive composition of zCDP (Bun, Steinke, arXiv 1605.02065, Lemma 2.3) the
text costs at most

    n rho_1 + (T - n) rho_2,

the sum over outline and sections within a batch. Other batches do not have the unit, so over batches it is the largest,
not the sum (parallel composition): all texts together cost that amount. A unit that is read for m groups costs m times
as much. Both terms are planned, held and charged as invocations of their own, exactly; an instalment of the second is
armed only when the first is armed whole.

Where an outline ends is a function of released tokens, and it decides no price: if its last title is drawn before draw
n, the first section goes on with the first mechanism. So nothing that was paid for the outline is lost, and no other
number has to be kept. The audit (tests/statistical/test_outline_audit.py) catches twins: an outline that nobody paid
for, and parts that each have the whole budget.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from tasks.accounting.rounding import Exact
from tasks.mechanisms.tokens import sampler
from tasks.mechanisms.tokens.sampler import Kind, TokenMechanism


@dataclass(frozen=True)
class FirstDraws:
    """The first draws of each text, and the mechanism that makes them.

    Attributes:
        count: n.
        mechanism: of draws 0 to n - 1.
    """

    count: int
    mechanism: TokenMechanism

    def split(self, numbers: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the places in `numbers`, numbers of draws within their batches, of first draws and of later ones."""
        first = [place for place, number in enumerate(numbers) if number < self.count]
        return first, [place for place, number in enumerate(numbers) if number >= self.count]


def calibrate_both(
    kind: Kind,
    rho: int,
    share: Fraction,
    first: int,
    later: int,
    references: int,
    temperature: Exact,
) -> tuple[TokenMechanism, TokenMechanism]:
    """Return the mechanisms of the first and of the later draws, each with the largest clip norm that is affordable.

    Args:
        rho: for all draws together, in units of 1e-12.
        share: the part of it that buys the first draws; what rounding leaves of it goes to the later ones.
        first, later: how many draws there are of each, as often as a unit is read.

    Raises:
        BudgetTooSmall: one of them affords not even one step of clip norm.
    """
    outline = sampler.calibrate(kind, int(share * rho), first, references, temperature)
    remaining = rho - outline.event(first).loss.rho
    return outline, sampler.calibrate(kind, remaining, later, references, temperature)
