"""Fixed-point coordinates of units' points, and their exact assignment to a centre or side of a plane (PRIVACY §4.2).

Where a unit goes may depend on that unit and on released values alone, bit for bit. A matrix product in floating point
breaks that: how a row's products are added up depends on how many rows there are and where it stands. So a point is a
vector of integers of norm at most 2^20, a centre one of norm at most 2^21: every product, and every sum of some of
them, is an integer below 2^43 in size, which float64 holds exactly. Nothing is ever rounded, so no order of adding can
matter, and the fastest product of the machine may be used.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

STEPS = 2**20
"""The largest norm of a point, in steps; a point of length 1 has it. It is the grid of `calibrate_mean` for that clip
norm, so that clipping a point again leaves it as it is."""

_EXPONENT = 20
_LONGEST = 2.0  # of a centre
_ROWS_AT_ONCE = 2**12  # for the cache; any number gives the same bits

Points = NDArray[np.float32]
Reals = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True)
class GridPoints:
    """Points on the grid.

    Attributes:
        steps: int32 [n, d], of L2 norm at most 2^20; zeros where a row was not finite.
        usable: bool [n], whether the row was finite.
    """

    steps: NDArray[np.int32]
    usable: NDArray[np.bool_]

    @classmethod
    def of(cls, points: Points) -> "GridPoints":
        """Return float32 [n, d], each row by itself: longer ones are brought down to length 1."""
        import torch

        from tasks.mechanisms.vectors.clipping import clip_vectors

        steps = np.zeros(points.shape, np.int32)
        usable = np.ones(len(points), np.bool_)
        for block in _blocks(len(points)):
            rows = np.ascontiguousarray(points[block], np.float32)
            steps[block] = clip_vectors(torch.from_numpy(rows), STEPS, _EXPONENT).numpy()
            usable[block] = np.isfinite(rows).all(axis=1)
        return cls(steps, usable)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def values(self) -> Points:
        """The points again, as float32 [n, d], exactly."""
        return np.ldexp(self.steps.astype(np.float32), -_EXPONENT)

    def nearest(self, centres: Reals) -> Places:
        """Return the nearest centre of each point, the first of equally near ones: int64 [n].

        Args:
            centres: [c, d] with c at least 1; rounded to the grid, and brought down to length 2 where they are longer.
        """
        on_grid = _rounded(centres)
        squares = (on_grid**2).sum(axis=1)
        indices = np.zeros(len(self), np.int64)
        for block in _blocks(len(self)):
            # |x - c|^2 without |x|^2, which is the same for all centres: integers below 2^44.
            indices[block] = (squares - 2.0 * (self.steps[block].astype(np.float64) @ on_grid.T)).argmin(axis=1)
        return indices

    def sides(self, planes: Reals) -> NDArray[np.bool_]:
        """Return whether a point lies on or above each plane through the origin: bool [n, p].

        Args:
            planes: their normals, [p, d] of length 1.
        """
        normals = _rounded(planes)
        bits = np.zeros((len(self), len(normals)), np.bool_)
        for block in _blocks(len(self)):
            bits[block] = self.steps[block].astype(np.float64) @ normals.T >= 0
        return bits


def _rounded(vectors: Reals) -> Reals:
    """Return public vectors as integers in float64; values that are not finite become zero."""
    finite = np.where(np.isfinite(vectors), vectors, 0.0)
    lengths = np.sqrt((finite**2).sum(axis=1, keepdims=True))
    within = finite * np.minimum(1.0, _LONGEST / np.maximum(lengths, 1e-300))
    return np.asarray(np.trunc(within * STEPS), np.float64)


def _blocks(rows: int) -> list[slice]:
    return [slice(start, start + _ROWS_AT_ONCE) for start in range(0, rows, _ROWS_AT_ONCE)]
