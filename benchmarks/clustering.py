"""Private clusterers against k-means that is not: cost, time, and how many clusters survive, on real and made points.

    python -m benchmarks.clustering --cache FOLDER --embed          # once: points of all corpora, about half an hour
    python -m benchmarks.clustering --cache FOLDER --data sentences # 100,000 x 384, sentences of all corpora
    python -m benchmarks.clustering --cache FOLDER --data units     # 3,470 x 384, conversations and prompts
    python -m benchmarks.clustering --cache FOLDER --data planted   # 100,000 x 384, 64 topics that are known
    python -m benchmarks.clustering --cache FOLDER --data foreign   # the same, topics that no public point knows of

Cost is the mean squared distance to the nearest centre, as a multiple of what scikit-learn's KMeans (one start,
k-means++) reaches; "of the gain" is the same from one centre (0 %) to KMeans (100 %). A cluster survives whose noisy
size, counted with the noise of a tenth of the clustering's rho on top, is at least tau. A cluster of KMeans is found
if a surviving one's members have their mean within a cosine of 0.8 of its centre. Time is processor time of drawing and
of computing the centres, as a multiple of KMeans.fit's in the same process. Epsilons stand for rho_of(epsilon, 1e-6),
all of it for the clustering. Set OMP_NUM_THREADS=1.
"""

import argparse
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import numpy as np
from numpy.typing import NDArray

from tasks.accounting.zcdp import rho_of
from tasks.analysis.clustering.centres import Centroids
from tasks.analysis.clustering.parameters import ClusterSettings
from tasks.analysis.clustering.registry import clusterer_for
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.counts.noisy_histogram import calibrate_histogram
from tasks.text.public_topics import PUBLIC_TOPICS

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
DELTA = "1e-6"
EPSILONS = ("0.5", "1", "2", "4", "10")
SENTENCES = 100_000
SHORTEST, LONGEST = 20, 400
SPLIT = re.compile(r"(?<=[.!?])\s+|\n+")
SIZES_SHARE = 10
CLOSE = 0.8
# What a point of the planted mixture is made of: topic and noise, normalised. KMeans then leaves a cost of 0.80 at
# k = 64, and 0.77 on the sentences.
TOPIC, NOISE = 0.45, 0.89

Points = NDArray[np.float32]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True, help="where the points are kept")
    parser.add_argument("--embed", action="store_true", help="make them, and stop")
    parser.add_argument("--data", choices=["sentences", "units", "planted", "foreign"], default="sentences")
    parser.add_argument("--clusters", type=int, default=64)
    parser.add_argument("--least", type=int, help="tau; a third of an average cluster where it is not given")
    parser.add_argument("--repeats", type=int, default=1, help="draws of each cell: their mean is shown")
    parser.add_argument("--epsilons", nargs="+", default=EPSILONS)
    parser.add_argument("--methods", nargs="+", default=["anchored", "anchored:2", "lsh_tree", "lloyd"])
    arguments = parser.parse_args()
    if arguments.embed:
        embed(arguments.cache)
    else:
        measure(arguments)


def embed(cache: Path) -> None:
    """Points of the public topics, of the units, and of 100,000 sentences."""
    from tasks.inference.embeddings.encoder import load_embedder

    cache.mkdir(parents=True, exist_ok=True)
    embedder = load_embedder()
    for name, texts in (("topics", list(PUBLIC_TOPICS)), ("units", list(units())), ("sentences", sentences())):
        if not (cache / f"{name}.npy").exists():
            np.save(cache / f"{name}.npy", np.concatenate([embedder(part) for part in parts(texts)]))
        print(f"{name}: {len(texts)}", flush=True)


def units() -> Iterator[str]:
    """Prompts one by one, conversations by their tree."""
    for name in ("dolly_prompts", "user_prompts_open"):
        yield from (row["text"] for row in rows(DATA / f"{name}.jsonl"))
    trees: dict[str, list[str]] = {}
    for row in rows(DATA / "oasst_en100.jsonl"):
        trees.setdefault(row["tree"], []).append(row["text"])
    yield from ("\n\n".join(texts) for texts in trees.values())


def sentences() -> list[str]:
    """A public choice of different sentences of all corpora."""
    found: dict[str, None] = {}
    for path in sorted(DATA.glob("*.jsonl")):
        for row in rows(path):
            pieces = (piece.strip() for piece in SPLIT.split(row["text"]))
            found.update((piece[:LONGEST], None) for piece in pieces if len(piece) >= SHORTEST)
    every = list(found)
    return [every[place] for place in sorted(np.random.default_rng(0).permutation(len(every))[:SENTENCES])]


def rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def parts(texts: list[str]) -> Iterator[list[str]]:
    yield from (texts[start : start + 4000] for start in range(0, len(texts), 4000))


def planted(cache: Path, topics: int, *, near: bool) -> Points:
    """100,000 points around `topics` directions, each half a public topic's and half its own, or all its own."""
    generator = np.random.default_rng(1)
    public = np.load(cache / "topics.npy").astype(np.float64)
    own = unit(generator.normal(size=(topics, public.shape[1])))
    centres = unit(own + near * public[generator.permutation(len(public))[:topics]])
    of = generator.integers(0, topics, SENTENCES)
    noise = unit(generator.normal(size=(SENTENCES, public.shape[1])))
    return unit(TOPIC * centres[of] + NOISE * noise).astype(np.float32)


def unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float64)


def measure(arguments: argparse.Namespace) -> None:
    """Print one table."""
    points, public = load(arguments), np.load(arguments.cache / "topics.npy")
    k = arguments.clusters
    least = arguments.least or len(points) // (3 * k)
    reference, spent, rounds = k_means(points, k)
    other = k_means(points, k, start=1)[0]
    again = near_by(points, other.assign(points), np.arange(k), reference)
    cost, alone = cost_of(points, reference), float(((points - points.mean(axis=0)) ** 2).sum(axis=1).mean())
    sizes = np.bincount(reference.assign(points), minlength=k)
    print(
        f"{arguments.data}: {points.shape[0]} x {points.shape[1]}, k = {k}, tau = {least}, {len(public)} public points"
    )
    print(
        f"KMeans: cost {cost:.4f}, {rounds} rounds, {spent:.1f} s of processor time, {(sizes >= least).sum()} survive,"
        f" {again} are found by KMeans with another start;"
        f" one centre alone costs {alone / cost:.3f} times as much\n"
    )
    print("| clusterer | epsilon | cost | of the gain | survive | centres | found | time |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for written in arguments.methods:
        for epsilon in arguments.epsilons:
            drawn = [
                drawn_once(points, public, written, epsilon, k, least, reference) for _ in range(arguments.repeats)
            ]
            mean = {name: float(np.mean([one[name] for one in drawn])) for name in drawn[0]}
            gain = 100 * (alone - mean["cost"]) / (alone - cost)
            print(
                f"| {written} | {epsilon} | {mean['cost'] / cost:.3f} | {gain:.0f} % | {mean['alive']:.0f} |"
                f" {mean['centres']:.0f} | {mean['found']:.0f} | {mean['seconds'] / spent:.2f} |",
                flush=True,
            )


def load(arguments: argparse.Namespace) -> Points:
    if arguments.data in ("planted", "foreign"):
        return planted(arguments.cache, arguments.clusters, near=arguments.data == "planted")
    found: Points = np.load(arguments.cache / f"{arguments.data}.npy")
    return found


def k_means(points: Points, k: int, start: int = 0) -> tuple[Centroids, float, int]:
    """scikit-learn's, one start; the processor time of its fit, and its rounds."""
    from sklearn.cluster import KMeans

    started = time.process_time()
    fitted = KMeans(k, n_init=1, random_state=start).fit(points)
    return Centroids(fitted.cluster_centers_.astype(np.float32)), time.process_time() - started, int(fitted.n_iter_)


def drawn_once(
    points: Points, public: Points, written: str, epsilon: str, k: int, least: int, reference: Centroids
) -> dict[str, float]:
    """One draw: cost, survivors by noisy size, centres, how many of the reference's clusters are found, and seconds."""
    method, _, rounds = written.partition(":")
    settings = ClusterSettings.model_validate(
        {"method": method, "count": k, **({"rounds": int(rounds)} if rounds else {})}
    )
    rho = rho_of(epsilon, DELTA)
    clusterer = clusterer_for(settings, rho)
    started = time.process_time()
    centres = clusterer.centres(clusterer.draw(points, public, OS_RANDOM), public)
    seconds = time.process_time() - started
    places = centres.assign(points)
    sizes = np.bincount(places, minlength=len(centres))
    noisy = np.array(calibrate_histogram(rho // SIZES_SHARE, len(sizes)).draw(sizes.tolist(), OS_RANDOM))
    alive = np.flatnonzero(noisy >= least)
    return {
        "cost": cost_of(points, centres),
        "alive": len(alive),
        "centres": len(centres),
        "found": near_by(points, places, alive, reference),
        "seconds": seconds,
    }


def near_by(points: Points, places: NDArray[np.int64], alive: NDArray[np.int64], reference: Centroids) -> int:
    """How many of the reference's centres have a surviving cluster whose members' mean points where they do (0.8)."""
    inside = [place for place in alive if (places == place).any()]
    if not inside:
        return 0
    means = unit(np.stack([points[places == place].mean(axis=0) for place in inside]).astype(np.float64))
    return int(((unit(reference.vectors.astype(np.float64)) @ means.T).max(axis=1) >= CLOSE).sum())


def cost_of(points: Points, centres: Centroids) -> float:
    """The mean squared distance to the nearest centre."""
    total = 0.0
    for start in range(0, len(points), 10_000):
        rows = points[start : start + 10_000].astype(np.float64)
        total += float(((rows - centres.vectors[centres.assign(points[start : start + 10_000])]) ** 2).sum())
    return total / len(points)


if __name__ == "__main__":
    main()
