"""What a release of Gaussian noise alone claims beside its requested epsilon: the epsilon of the noise's own losses.

It is as unconditional as the requested one and holds at the same delta, for this release alone. No limit, budget or
guard refers to it: an account adds up rho, whose sum is a valid filter (decision 0138).
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from models_db.values.amounts import DELTA_UNIT, total_amount
from models_db.values.events import PrivacyEvent
from tasks.accounting.gaussian_profile import LARGEST_EPSILON, composed_epsilon
from tasks.accounting.zcdp import epsilon_of
from tasks.common.number_format import round_up
from tasks.common.strict_model import Figure, Strict, figure
from tasks.mechanisms.gaussian_noise import gaussian_noises

METHOD: Final = "loss distributions of discrete Gaussian noise, composed: docs/proofs/gaussian-composition.md"
"""How the figure follows from the events, as the record states it."""
BASIS: Final = "by the exact losses of its Gaussian noise"


class GaussianClaim(Strict):
    """Claim of a release whose only noise is discrete Gaussian, at the delta of the requested claim.

    Attributes:
        epsilon: below what rho implies for any mechanism, rounded up to six places.
        method: the theorem behind it.
    """

    epsilon: Figure
    method: str


def state_gaussian_claim(events: Sequence[PrivacyEvent], delta: Fraction) -> GaussianClaim | None:
    """Return the figure of these events at `delta`, their failure probabilities included.

    None where an event is another mechanism, where nothing is charged, and where the figure is not below the one that
    rho implies.

    Raises:
        KeyError, ValueError, UsageError: the parameters of an event are not its mechanism's.
        InvalidTarget: the failure probabilities leave nothing of delta.
    """
    noises, spent = gaussian_noises(events), total_amount([event.loss for event in events])
    if not noises or not spent.rho:
        return None
    left = delta - Fraction(spent.delta, DELTA_UNIT)
    implied = epsilon_of(spent.rho, left)
    epsilon = composed_epsilon(noises, left) if implied <= LARGEST_EPSILON else None
    if epsilon is None or epsilon >= implied:
        return None
    return GaussianClaim(epsilon=figure(epsilon), method=METHOD)


def by_gaussian_noise(claim: GaussianClaim) -> str:
    """Return the figure in words, rounded up, to stand beside the requested one of the same release."""
    return f"epsilon {round_up(claim.epsilon)} at the same delta, {BASIS}"
