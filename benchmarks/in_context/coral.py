"""CORAL: source points moved so that their mean and covariance become those of a target's points.

    aligned = (source - m_S) (C_S + r I)^(-1/2) (C_T + r I)^(1/2) + m_T

B. Sun, J. Feng, K. Saenko, "Return of Frustratingly Easy Domain Adaptation", AAAI 2016, Algorithm 1: whiten the source
with its own covariance C_S, colour it again with the target's C_T; a ridge r keeps what has no variance finite. A
classifier learns from the aligned points and their labels, and is used on the target's points as they are.

Deep CORAL (Sun and Saenko, ECCV 2016 workshops) adds |C_S - C_T|_F^2 / 4d^2 of a layer's outputs to the loss of a
network that is trained. On fixed points and a linear classifier W only the logits are left to it, whose covariances
differ by W'(C_S - C_T) W (`tasks.evaluation.algorithms` minimises that). This is its counterpart in
closed form: between aligned points and the target's C_S = C_T, so that loss is zero for every W, and there is nothing
to weigh against accuracy.

What comes of it depends on all rows of the target. It is post-processing only where the target is public or was
released (PRIVACY §5), so a target says which of these it is, and a private one is refused.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from models_db.errors import Refused
from tasks.text.public_models import Points

RIDGE = 1.0
"""r in mean variances of a dimension. The paper adds 1 to features that were brought to variance 1."""

Domain = Literal["public", "released", "private"]

Matrix = NDArray[np.float64]


class TargetPrivate(Refused):
    """Points of private texts were to be aligned with."""

    def __init__(self) -> None:
        super().__init__(
            "Aligning with private points is no post-processing: what is learned would depend on them, uncharged.",
            "Align with points of public texts, or of texts that were released.",
            {"domain": "private"},
        )


@dataclass(frozen=True)
class Target:
    """What is aligned with.

    Attributes:
        points: [m, d], of any texts of the domain; labels are not needed.
        domain: what its texts are.

    Raises:
        TargetPrivate: they are private.
        ValueError: `domain` is none of those; there is no point; a number is not finite.
    """

    points: Points = field(repr=False)
    domain: Domain

    def __post_init__(self) -> None:
        if self.domain == "private":
            raise TargetPrivate
        if self.domain not in ("public", "released"):
            raise ValueError(f"a target is public or released, not {self.domain!r}")
        if _rows(self.points) == 0:
            raise ValueError("a target needs a point")


def align(source: Points, target: Target, ridge: float = RIDGE) -> Points:
    """The source's points with the target's mean and, but for the ridge, its covariance.

    With any ridge the aligned covariance is nowhere above C_T + r I. With a tiny one it is C_T if the source varies in
    every direction in which the target varies; no linear map makes variance where there is none.
    Points of one row, or of equal rows, have the covariance zero.

    Args:
        source: float64 [n, d], of any n, unlabelled.
        ridge: r, above zero, in units of the mean variance of a dimension over both sides.

    Returns:
        float64 [n, d]; a new array, rows no longer of length 1. Equal sides come out as they went in, up to rounding.

    Raises:
        ValueError: the widths differ, the ridge is not above zero, or a number is not finite.
    """
    if not (ridge > 0 and np.isfinite(ridge)):
        raise ValueError(f"a ridge is above zero, not {ridge}")
    if _rows(source) == 0:
        return np.array(source, np.float64)
    if source.shape[1] != target.points.shape[1]:
        raise ValueError(f"{source.shape[1]} dimensions cannot be aligned with {target.points.shape[1]}")
    own, wanted = covariance(source), covariance(target.points)
    centred, mean = source - source.mean(0), target.points.mean(0)
    least = ridge * float(np.trace(own) + np.trace(wanted)) / (2 * len(own))
    if least <= np.finfo(np.float64).tiny:  # nothing varies on either side: there is only the mean to move
        return np.asarray(centred + mean, np.float64)
    return np.asarray(centred @ _power(own, least, -0.5) @ _power(wanted, least, 0.5) + mean, np.float64)


def covariance(points: Points) -> Matrix:
    """float64 [d, d], divided by n - 1; of one row zero."""
    centred = points - points.mean(0)
    return np.asarray(centred.T @ centred / max(1, len(points) - 1), np.float64)


def _power(symmetric: Matrix, ridge: float, exponent: float) -> Matrix:
    """(C + ridge I)^exponent; eigenvalues of C that rounding has put below zero are zero."""
    values, vectors = np.linalg.eigh(symmetric)
    return np.asarray((vectors * (np.maximum(values, 0) + ridge) ** exponent) @ vectors.T, np.float64)


def _rows(points: Points) -> int:
    """How many there are.

    Raises:
        ValueError: they are no [n, d] of finite numbers.
    """
    if points.ndim != 2 or not np.isfinite(points).all():
        raise ValueError(f"points are rows of finite numbers, not an array of shape {points.shape}")
    return len(points)
