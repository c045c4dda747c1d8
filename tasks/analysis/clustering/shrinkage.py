"""Shrinkage of noisy cluster means by their known noise: empirical Bayes, post-processing.

A noisy sum over w units has noise of scale sigma / w on every coordinate of the mean. For a small cluster the noise
exceeds the signal, and centres that are mostly noise are nearest to no unit: clusters are lost. But the scale is
public and the same for all clusters, and the excess over it in many of them together is signal:

1. means lie near alpha times the expected position of the cluster, a public direction or an earlier mean; alpha is the
   value from 0 to 1 that fits all clusters best;
2. remainders are treated along public axes, in bands of 48. In each band the variance across clusters, less that of
   the noise, is the variance t of the signal; a remainder r with noise variance v becomes r t / (t + v) (James and
   Stein, 1961; Efron and Morris, JASA 1975);
3. the mean of all clusters is treated in the same way, as one cluster with little noise.

With little noise nothing changes. With much, clusters stay at their expected positions, at the length that fits best.
Where only few directions carry signal, only these move: no number of dimensions has to be chosen.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.mechanisms.vectors.fixed_point import Reals

_BAND = 48
_SMALL = 1e-3
"""Least variance of a mean's coordinate: clusters with less noise than that count equally."""


@dataclass(frozen=True)
class NoisyMeans:
    """Released sums and counts of one round.

    Attributes:
        sums: noisy sums, [c, d].
        sizes: the noisy number of units of each sum, at least 1, [c].
        sigma: the noise's scale on every coordinate of a sum.
    """

    sums: Reals
    sizes: Reals
    sigma: float

    def shrunk(self, expected: Reals, axes: Reals) -> Reals:
        """Return the means, [c, d], moved towards `expected`, [c, d], the more the noisier they are.

        Args:
            axes: a public orthonormal basis, [d, d], in columns.
        """
        total = self.sizes.sum()
        middle, middle_expected = self.sums.sum(axis=0) / total, self.sizes @ expected / total
        noise = (self.sigma / self.sizes) ** 2
        own = self.sums / self.sizes[:, None] - middle
        around = _shrink_towards(own, expected - middle_expected, noise, axes)
        noise_of_all = np.array([self.sigma**2 * len(self.sizes) / total**2])
        return np.asarray(around + _shrink_towards(middle[None], middle_expected[None], noise_of_all, axes), np.float64)


def _shrink_towards(means: Reals, expected: Reals, noise: Reals, axes: Reals) -> Reals:
    """Shrink means [c, d] with noise of variance `noise` [c] per coordinate towards alpha times `expected`."""
    weights = 1 / (noise + _SMALL)
    fitted = float(weights @ (means * expected).sum(axis=1))
    alpha = np.clip(fitted / max(float(weights @ (expected**2).sum(axis=1)), 1e-12), 0.0, 1.0)
    rest = (means - alpha * expected) @ axes
    kept = np.concatenate(
        [_shrink_band(rest[:, start : start + _BAND], noise) for start in range(0, rest.shape[1], _BAND)], axis=1
    )
    return np.asarray(alpha * expected + kept @ axes.T, np.float64)


def _shrink_band(rest: Reals, noise: Reals) -> NDArray[np.float64]:
    """Return remainders [c, b] times t / (t + v), t the variance of the signal estimated from all rows."""
    weights = (noise + _SMALL) ** -2
    signal = max(float(weights @ ((rest**2).mean(axis=1) - noise) / weights.sum()), 0.0)
    return rest * (signal / np.maximum(signal + noise, 1e-300))[:, None]
