"""Privacy audit: many trials of a mechanism on neighbouring inputs, and their proof about its epsilon (PRIVACY §8)."""

from dataclasses import dataclass

from models_db.errors import UsageError
from tasks.auditing.audit_cases import AuditCase
from tasks.auditing.epsilon_lower_bound import EpsilonLowerBound, epsilon_lower_bound

TRIALS = 20_000
CONFIDENCE = 0.9999
FEWEST_TRIALS = 1000
"""Below this even a mechanism without any noise could not be told from an honest one at epsilon 1."""

_AT_ONCE = 500


@dataclass(frozen=True)
class MechanismAudit:
    """Result of the audit of one mechanism.

    Attributes:
        case: the audited mechanism, its inputs and its claim.
        bound: the lower bound on epsilon that the trials prove.
    """

    case: AuditCase
    bound: EpsilonLowerBound

    @property
    def holds(self) -> bool:
        """Return whether the bound is within the claim; with few trials a broken mechanism may pass, too."""
        return self.bound.epsilon <= self.case.epsilon


def audit(
    case: AuditCase,
    trials: int = TRIALS,
    confidence: float = CONFIDENCE,
) -> MechanismAudit:
    """Run `case`.

    Args:
        trials: on each of the two inputs; one half chooses the event, the other half tests it.
        confidence: one minus the probability that the bound is above the true epsilon.

    Raises:
        TooFewTrials: not even a mechanism without noise would be caught.
    """
    if trials < FEWEST_TRIALS:
        raise UsageError(
            f"{trials} trials cannot prove anything about an epsilon of 1.",
            f"Ask for at least {FEWEST_TRIALS}; the usual number is {TRIALS:,}.",
            {"trials": trials, "fewest": FEWEST_TRIALS},
            code="TooFewTrials",
        )
    outcomes: dict[bool, list[int]] = {True: [], False: []}
    for done in range(0, trials, _AT_ONCE):
        some = min(_AT_ONCE, trials - done)
        for present, sample in outcomes.items():
            sample += case.sample(present, some)
    bound = epsilon_lower_bound(outcomes[True], outcomes[False], float(case.delta), confidence)
    return MechanismAudit(case, bound)
