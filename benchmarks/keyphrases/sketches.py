"""Sketches of DP-KPS: how long a vocabulary takes to score, and whether building is linear and needs constant memory.

    python -m benchmarks.keyphrases.sketches  # 50,000 phrases, 1,000 frequencies (2,000 numbers), 384 dimensions
    python -m benchmarks.keyphrases.sketches --words 5000 --units 2000

Scoring is timed three ways, alternating in one process, best of the rounds: as it is (float32, in blocks), one product
of matrices of the same size alone (what nobody can save), and the features of the whole vocabulary in float64 at once
(the plain way). Building adds made-up points of units, eight phrases each, from a stream: processor time per unit, and
the most memory that Python and numpy held at once. Points are made up: what an embedder takes is not in it.
"""

import argparse
import time
import tracemalloc
from collections.abc import Callable, Iterator
from decimal import Decimal

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import numpy as np
from numpy.typing import NDArray

from tasks.mechanisms.vectors.kde_sketch import Chunk, calibrate_kde
from tasks.mechanisms.vectors.random_fourier_features import FourierFeatures, on_grid
from tasks.prompted_generation.keyphrases.phrase_sampling import Scorer

WIDTH, PHRASES, CHUNK = 384, 8, 64
RHO = 10**11

Singles = NDArray[np.float32]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=50_000)
    parser.add_argument("--features", type=int, default=1000)
    parser.add_argument("--labels", type=int, default=14)
    parser.add_argument("--units", type=int, default=8000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    kernel = FourierFeatures.of(WIDTH, asked.features, Decimal("0.5"))
    scoring(kernel, asked.words, asked.labels, asked.rounds)
    building(kernel, asked.units)


def made_up(rows: int, seed: int) -> Singles:
    drawn = np.random.default_rng(seed).standard_normal((rows, WIDTH), np.float32)
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True), np.float32)


def scoring(kernel: FourierFeatures, words: int, labels: int, rounds: int) -> None:
    vocabulary = made_up(words, 1)
    density = np.random.default_rng(2).standard_normal((labels, 2 * kernel.features))
    turns = np.ascontiguousarray(kernel.turns.T, np.float32)
    ways: dict[str, Callable[[], object]] = {
        "scores of all labels": lambda: Scorer(vocabulary, kernel).scores(density),
        "one product of that size": lambda: vocabulary @ turns,
        "float64, all at once": lambda: plain(vocabulary, kernel, density),
    }
    best = {name: (float("inf"), float("inf")) for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            began, used = time.perf_counter(), time.process_time()
            way()
            took = time.perf_counter() - began, time.process_time() - used
            best[name] = min(best[name], took)
    print(f"{words:,} phrases, {kernel.features:,} frequencies, {labels} labels; target: under 2 seconds on 2 cores")
    for name, (wall, processor) in best.items():
        print(f"| {name} | {wall:.2f} s | {processor:.2f} s of processor |")
    off = np.abs(Scorer(vocabulary, kernel).scores(density) - plain(vocabulary, kernel, density)).max()
    print(f"largest difference from float64: {off:.1e} of scores up to {np.abs(density).max():.1f} a number\n")


def plain(vocabulary: Singles, kernel: FourierFeatures, density: NDArray[np.float64]) -> NDArray[np.float64]:
    angles = vocabulary.astype(np.float64) @ kernel.turns.T * (2 * np.pi)
    found = np.cos(angles) @ density[:, : kernel.features].T + np.sin(angles) @ density[:, kernel.features :].T
    return np.asarray(found / np.sqrt(kernel.features))


def building(kernel: FourierFeatures, most: int) -> None:
    print("| units | processor ms per unit | most memory, MiB |\n| --- | --- | --- |")
    measured(kernel, CHUNK)  # whatever is made once
    for units in (most // 8, most // 4, most // 2, most):
        each, memory = measured(kernel, units)
        print(f"| {units:,} | {each * 1000:.3f} | {memory / 2**20:.1f} |")


def measured(kernel: FourierFeatures, units: int) -> tuple[float, int]:
    sketches = calibrate_kde(RHO, kernel.features, 1, 1)
    used = time.process_time()
    sketches.sums(stream(kernel, units))
    each = (time.process_time() - used) / units
    tracemalloc.start()
    sketches.sums(stream(kernel, units))
    _, memory = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return each, memory


def stream(kernel: FourierFeatures, units: int) -> Iterator[Chunk]:
    for start in range(0, units, CHUNK):
        some = min(CHUNK, units - start)
        steps = on_grid(made_up(some * PHRASES, start))
        vectors = kernel.of_phrases(steps, np.arange(0, some * PHRASES, PHRASES))
        yield np.zeros(some, np.int64), vectors[:, None]


if __name__ == "__main__":
    main()
