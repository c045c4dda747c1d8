"""Lower bound on epsilon from one release, where a key had decided by chance which units it may read.

Steinke, Nasr and Jagielski, "Privacy Auditing with One (1) Training Run", NeurIPS 2023, theorem 5.2, with units of the
corpus in place of canaries and guesses of "was read" alone. Each of m units is read with a public probability p, and
independently, because a keyed hash of its own id decides. From the release, and from the texts of all units, somebody
names units that he believes were read: r of them, of which v were.

If the release is (epsilon, delta)-DP, then v is at most as large as a count of r tosses that succeed with q / (1 - q)
= e^epsilon p / (1 - p), but for an event of probability at most m p delta:

* Fix unit i and the units before it, let P and Q be the distributions of the release with it and without it. P is the
  sum of P' <= e^epsilon Q and of a rest of mass at most delta. A release that comes from the rest is flagged.
* Given the release and the units before i, the probability that i was read and did not flag is at most
  p P' / (p P' + (1 - p) Q) <= q. So, unit by unit in any order, the reads that were named and did not flag are
  dominated by r tosses of q; which units are named is a function of the release.
* The expected number of flags is at most m p delta, and so is the probability that there is any.

So the largest q that v of r tosses rule out at failure alpha - m p delta (Clopper and Pearson, exact) gives a bound
on epsilon that is wrong with probability at most alpha. Whoever read nothing of the units has q = p.
"""

import math
from dataclasses import dataclass

from tasks.auditing.epsilon_lower_bound import clopper_pearson_lower


@dataclass(frozen=True)
class OneRunBound:
    """What a number of right guesses proves.

    Attributes:
        epsilon: the release's epsilon at delta is at least this, with the confidence that was asked for; 0 if the
            guesses prove nothing.
        p_value: the probability of so many right ones, or more, if the release had nothing of any unit.
    """

    epsilon: float
    p_value: float


def one_run_bound(right: int, guesses: int, chance: float, slack: float, confidence: float = 0.95) -> OneRunBound:
    """Return what `right` of `guesses` named units prove.

    Args:
        chance: p, the public probability that a unit is read.
        slack: m p delta: units, times the chance, times the delta of the claim.
        confidence: one minus the probability that the bound is above the true epsilon.

    Raises:
        ValueError: more right ones than guesses, or a chance or confidence outside (0, 1), or a negative slack.

    >>> round(one_run_bound(right=38, guesses=40, chance=0.5, slack=0.001).epsilon, 2)
    1.74
    """
    if not (0 <= right <= guesses and 0 < chance < 1 and 0 < confidence < 1 and slack >= 0):
        raise ValueError(f"{right} of {guesses} right at chance {chance}, slack {slack}, confidence {confidence}")
    failure = 1 - confidence - slack
    proved = clopper_pearson_lower(right, guesses, failure) if failure > 0 else 0.0
    epsilon = _log_odds(proved) - _log_odds(chance) if 0 < proved < 1 else 0.0
    return OneRunBound(max(0.0, epsilon), _at_least(right, guesses, chance))


def _log_odds(probability: float) -> float:
    return math.log(probability / (1 - probability))


def _at_least(right: int, guesses: int, chance: float) -> float:
    """Return the probability of `right` successes or more: the regularised incomplete beta function."""
    from scipy.special import betainc

    return 1.0 if right == 0 else float(betainc(right, guesses - right + 1, chance))
