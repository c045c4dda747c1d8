"""Multinomial logistic regression on points, plain or with Deep CORAL's loss."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.text.interfaces import Points

CORAL_WEIGHT = 1.0
_STEPS = 500

Classes = NDArray[np.int64]
"""int64 [n], each below the number of classes."""


@dataclass(frozen=True)
class Softmax:
    """A linear classifier.

    Attributes:
        weights: float64 [d, k].
        offsets: float64 [k].
    """

    weights: NDArray[np.float64]
    offsets: NDArray[np.float64]

    def __call__(self, points: Points) -> Classes:
        """Return the likeliest class of each point."""
        return np.asarray((points @ self.weights + self.offsets).argmax(1), np.int64)


def fit(points: Points, classes: Classes, count: int, target: Points | None = None) -> Softmax:
    """Return the minimum of the mean log-loss plus |W|^2 / 2n, as scikit-learn's LogisticRegression with C = 1.

    Args:
        points: [n, d], what is learned from.
        classes: [n], each below `count`.
        target: [m, d] without labels, at least two rows: add the CORAL loss between the logits of `points` and these,
            |C_S - C_T|_F^2 / 4k^2, with weight 1 (Sun and Saenko, "Deep CORAL", ECCV 2016 workshops, equations 1 and
            6; there too the loss stands at the classifier's layer). The encoder below it stays as it is.
    """
    from scipy.optimize import minimize  # slow to import, and registries are read by every request
    from scipy.special import log_softmax

    width = points.shape[1]
    gap = None if target is None else np.cov(points.T) - np.cov(target.T)
    one_hot = np.eye(count)[classes]

    def loss(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights, offsets = flat[: width * count].reshape(width, count), flat[width * count :]
        logs = log_softmax(points @ weights + offsets, axis=1)
        errors = (np.exp(logs) - one_hot) / len(points)
        value = float((weights**2).sum() / 2 - (one_hot * logs).sum()) / len(points)
        slope = points.T @ errors + weights / len(points)
        if gap is not None:
            pulled = gap @ weights
            apart = weights.T @ pulled
            value += CORAL_WEIGHT * float((apart**2).sum()) / (4 * count**2)
            slope += CORAL_WEIGHT * pulled @ apart / count**2
        return value, np.concatenate([slope.ravel(), errors.sum(0)])

    start = np.zeros((width + 1) * count)
    solution = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS, "gtol": 1e-7}).x
    return Softmax(solution[: width * count].reshape(width, count), solution[width * count :])


def macro_f1(true: Classes, predicted: Classes, count: int) -> float:
    """Return the mean F1 over `count` classes; a class that is neither present nor predicted has 0."""
    table = np.bincount(true * count + predicted, minlength=count * count).reshape(count, count)
    sums = table.sum(0) + table.sum(1)
    return float((2 * np.diag(table) / np.maximum(sums, 1)).mean())
