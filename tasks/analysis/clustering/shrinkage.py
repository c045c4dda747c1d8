"""Noisy means of clusters, made better by what is known of their noise: empirical Bayes, post-processing.

A noisy sum over w units has noise of scale sigma / w on every coordinate of the mean. Of a small cluster that is
more than there is to see, and nearest centres that are mostly noise attract nobody: clusters are lost. But the scale is
public, all clusters have it, and what exceeds it in many of them together is signal:

1. means lie near alpha times where the cluster was expected, a public direction or an earlier mean; alpha is what fits
   all clusters best, 0 to 1;
2. what remains is looked at along public axes, in bands of 48. In each band the variance across clusters, less the
   noise's, is the signal's, t; a remainder r with noise variance v becomes r t / (t + v) (James and Stein, 1961; Efron
   and Morris, JASA 1975);
3. the mean of all clusters is treated so, too, as one cluster with little noise.

With little noise nothing is changed. With much, clusters stay where they were expected, at the length that suits them.
Where the signal pays in few directions only, only these move: nobody has to say how many.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.mechanisms.vectors.fixed_point import Reals

_BAND = 48
_SMALL = 1e-3
"""Variance that a mean's coordinate has anyway: clusters with less noise than that count alike."""


@dataclass(frozen=True)
class NoisyMeans:
    """What a round has released.

    Attributes:
        sums: noisy sums, [c, d].
        sizes: how many units each is over, noisy and at least 1, [c].
        sigma: the noise's scale on every coordinate of a sum.
    """

    sums: Reals
    sizes: Reals
    sigma: float

    def shrunk(self, expected: Reals, axes: Reals) -> Reals:
        """Means, [c, d], brought nearer to what was `expected`, [c, d], the noisier they are.

        Args:
            axes: a public orthonormal basis, [d, d], a column each.
        """
        total = self.sizes.sum()
        middle, middle_expected = self.sums.sum(axis=0) / total, self.sizes @ expected / total
        noise = (self.sigma / self.sizes) ** 2
        own = self.sums / self.sizes[:, None] - middle
        around = _towards(own, expected - middle_expected, noise, axes)
        noise_of_all = np.array([self.sigma**2 * len(self.sizes) / total**2])
        return np.asarray(around + _towards(middle[None], middle_expected[None], noise_of_all, axes), np.float64)


def _towards(means: Reals, expected: Reals, noise: Reals, axes: Reals) -> Reals:
    """Each mean [c, d] with noise of variance `noise` [c] on every coordinate, towards alpha times `expected`."""
    weights = 1 / (noise + _SMALL)
    fitted = float(weights @ (means * expected).sum(axis=1))
    alpha = np.clip(fitted / max(float(weights @ (expected**2).sum(axis=1)), 1e-12), 0.0, 1.0)
    rest = (means - alpha * expected) @ axes
    kept = np.concatenate(
        [_band(rest[:, start : start + _BAND], noise) for start in range(0, rest.shape[1], _BAND)], axis=1
    )
    return np.asarray(alpha * expected + kept @ axes.T, np.float64)


def _band(rest: Reals, noise: Reals) -> NDArray[np.float64]:
    """Remainders [c, b] times t / (t + v), t the signal's variance as all rows together show it."""
    weights = (noise + _SMALL) ** -2
    signal = max(float(weights @ ((rest**2).mean(axis=1) - noise) / weights.sum()), 0.0)
    return rest * (signal / np.maximum(signal + noise, 1e-300))[:, None]
