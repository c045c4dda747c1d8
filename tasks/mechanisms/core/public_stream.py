"""Public random stream: the same numbers on every machine, from SHA-256 of a label and a counter.

Planes that split points, and the draws of k-means on what has been released, have to be random and not secret. They
protect nobody; noise comes from `tasks.mechanisms.core.rng` alone.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray


class HashStream:
    """A stream of public random numbers that its label determines."""

    def __init__(self, label: str) -> None:
        self._label = hashlib.sha256(label.encode()).digest()
        self._counter = 0

    def uniforms(self, count: int) -> NDArray[np.float64]:
        """Numbers in (0, 1), float64 [count], multiples of 2^-53 and half of one."""
        blocks = -(-count // 4)
        text = b"".join(self._block() for _ in range(blocks))
        words = np.frombuffer(text, "<u8")[:count] >> np.uint64(11)
        return (words.astype(np.float64) + 0.5) * 2.0**-53

    def normals(self, rows: int, columns: int) -> NDArray[np.float64]:
        """Standard normal numbers, float64 [rows, columns], by Box and Muller."""
        count = rows * columns
        first, second = self.uniforms(2 * count).reshape(2, count)
        drawn = np.sqrt(-2 * np.log(first)) * np.cos(2 * np.pi * second)
        return np.asarray(drawn.reshape(rows, columns), np.float64)

    def directions(self, rows: int, columns: int) -> NDArray[np.float64]:
        """Vectors of length 1, evenly spread over the sphere: float64 [rows, columns]."""
        drawn = self.normals(rows, columns)
        return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True), np.float64)

    def chosen(self, weights: NDArray[np.float64]) -> int:
        """Return a place, with probability in proportion to its weight; the sum of the weights is positive."""
        reached = np.cumsum(weights)
        place = int(np.searchsorted(reached, self.uniforms(1)[0] * reached[-1], side="right"))
        return min(place, len(weights) - 1)

    def _block(self) -> bytes:
        self._counter += 1
        return hashlib.sha256(self._label + self._counter.to_bytes(8, "big")).digest()
