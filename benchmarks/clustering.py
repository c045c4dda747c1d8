"""Private clusterers against k-means that is not: cost, time, and how many clusters survive, on real and made points.

    python -m benchmarks.clustering --cache FOLDER --embed          # once: points of all corpora, about ten minutes
    python -m benchmarks.clustering --cache FOLDER --data sentences # 20,000 x 384, sentences of all corpora
    python -m benchmarks.clustering --cache FOLDER --data units     # 3,470 x 384, conversations and prompts
    python -m benchmarks.clustering --cache FOLDER --data planted   # 100,000 x 384, 64 topics that are known
    python -m benchmarks.clustering --cache FOLDER --data foreign   # the same, topics that no public point knows of

Cost is the mean squared distance to the nearest centre, as a multiple of what scikit-learn's KMeans (one start,
k-means++) reaches; "of the gain" is the same from one centre (0 %) to KMeans (100 %). A cluster survives whose noisy
size, counted with the noise of a tenth of the clustering's rho on top, is at least tau. A cluster of KMeans is found
if a surviving one's members have their mean within a cosine of 0.8 of its centre. Time is processor time of drawing and
of computing the centres, as a multiple of KMeans.fit's in the same process. The control, `public points alone`, has the
centres of the public topics' own k-means: what is known without any unit. Epsilons stand for rho_of(epsilon, 1e-6),
all of it for the clustering. Set OMP_NUM_THREADS=1.
"""

import argparse
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import numpy as np
from numpy.typing import NDArray

from benchmarks.common.json_lines import DATA, append_lines
from tasks.accounting.zcdp import rho_of
from tasks.analysis.clustering.centres import Centroids
from tasks.analysis.clustering.parameters import ClusterSettings
from tasks.analysis.clustering.registry import clusterer_for
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.counts.noisy_histogram import calibrate_histogram
from tasks.text.public_topics import PUBLIC_TOPICS

DELTA = "1e-6"
EPSILONS = ("0.5", "1", "2", "4", "10")
PLANTED, SENTENCES = 100_000, 20_000
SHORTEST, LONGEST = 20, 400
SPLIT = re.compile(r"(?<=[.!?])\s+|\n+")
SIZES_SHARE = 10
CLOSE = 0.8
KMEANS, PUBLIC_POINTS = "KMeans", "public points alone"
METHODS = ("anchored", "anchored:2", "anchored:3", "lsh_tree", "lloyd", PUBLIC_POINTS)
"""Clusterers in the order of the tables; the last is the control, which reads no unit."""
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
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--out", type=Path, help="JSON lines to which each draw is appended")
    arguments = parser.parse_args()
    if arguments.embed:
        embed(arguments.cache)
    else:
        measure(arguments)


def embed(cache: Path) -> None:
    """Points of the public topics, of the units, and of the sentences."""
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
    of = generator.integers(0, topics, PLANTED)
    noise = unit(generator.normal(size=(PLANTED, public.shape[1])))
    return unit(TOPIC * centres[of] + NOISE * noise).astype(np.float32)


def unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float64)


def measure(arguments: argparse.Namespace) -> None:
    """Draw every cell, keep each draw if `--out` is given, and print the table."""
    points, public = load(arguments), np.load(arguments.cache / "topics.npy")
    lines = []
    for line in drawn(points, public, arguments):
        lines.append(line)
        print(line, flush=True)
        if arguments.out:
            append_lines(arguments.out, [line])
    print("\n".join(table(lines, arguments.data, arguments.clusters)))


def drawn(points: Points, public: Points, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a line for KMeans, for each draw of each clusterer, and for the control, which reads no unit."""
    k = arguments.clusters
    least = arguments.least or len(points) // (3 * k)
    reference, spent, rounds = k_means(points, k)
    other = k_means(points, k, start=1)[0]
    sizes = np.bincount(reference.assign(points), minlength=k)
    about = {"data": arguments.data, "points": len(points), "clusters": k, "least": least}
    yield about | {
        "clusterer": KMEANS, "epsilon": None, "trial": 0, "cost": round(cost_of(points, reference), 6),
        "one_centre": round(float(((points - points.mean(axis=0)) ** 2).sum(axis=1).mean()), 6), "rounds": rounds,
        "survive": int((sizes >= least).sum()), "centres": k, "seconds": round(spent, 4),
        "found": near_by(points, other.assign(points), np.arange(k), reference),
    }  # fmt: skip
    for trial in range(arguments.repeats):
        for written in arguments.methods:
            for epsilon in arguments.epsilons if written != PUBLIC_POINTS else [None]:
                figures = drawn_once(points, public, written, epsilon, k, least, reference, trial)
                yield about | {"clusterer": written, "epsilon": epsilon, "trial": trial, **figures}


def table(lines: Sequence[Mapping[str, Any]], data: str, clusters: int) -> Iterator[str]:
    """Yield the rows of one table of docs/clustering.md: means over draws, and of three or more the least and most."""
    own = [line for line in lines if (line["data"], line["clusters"]) == (data, clusters)]
    kmeans = next(line for line in own if line["clusterer"] == KMEANS)
    yield "| clusterer | epsilon | cost | gain | survive | centres | found | time |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    order = dict.fromkeys((line["clusterer"], line["epsilon"]) for line in own if line["clusterer"] != KMEANS)
    for clusterer, epsilon in sorted(order, key=lambda cell: (_place(cell[0]), float(cell[1] or 0))):
        draws = [line for line in own if (line["clusterer"], line["epsilon"]) == (clusterer, epsilon)]
        cost = _mean(draws, "cost")
        gain = 100 * (kmeans["one_centre"] - cost) / (kmeans["one_centre"] - kmeans["cost"])
        named = clusterer if clusterer == PUBLIC_POINTS else f"`{clusterer.partition(':')[0]}`"
        named += f", {rounds} rounds" if (rounds := clusterer.partition(":")[2]) else ""
        yield " | ".join([
            f"| {named}", epsilon or "-", f"{cost / kmeans['cost']:.3f}", f"{gain:.0f} %", _spread(draws, "survive"),
            f"{_mean(draws, 'centres'):.0f}", _spread(draws, "found"),
            f"{_mean(draws, 'seconds') / kmeans['seconds']:.2f} |",
        ])  # fmt: skip


def _place(clusterer: str) -> int:
    return METHODS.index(clusterer) if clusterer in METHODS else len(METHODS)


def _mean(draws: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(np.mean([draw[name] for draw in draws]))


def _spread(draws: Sequence[Mapping[str, Any]], name: str) -> str:
    values = [draw[name] for draw in draws]
    mean = f"{np.mean(values):.0f}"
    return mean if len(values) < 3 or min(values) == max(values) else f"{mean} ({min(values)} to {max(values)})"


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
    points: Points,
    public: Points,
    written: str,
    epsilon: str | None,
    k: int,
    least: int,
    reference: Centroids,
    trial: int,
) -> dict[str, Any]:
    """One draw: cost, survivors by noisy size, centres, how many of the reference's clusters are found, and seconds.

    The control takes the centres of the public points' own clusters, and exact sizes.
    """
    started = time.process_time()
    if epsilon is None:
        centres = k_means(public, k, start=trial)[0]
    else:
        centres = private_centres(points, public, written, rho_of(epsilon, DELTA), k)
    seconds = time.process_time() - started
    places = centres.assign(points)
    sizes = np.bincount(places, minlength=len(centres))
    if epsilon is not None:
        rho = rho_of(epsilon, DELTA) // SIZES_SHARE
        sizes = np.array(calibrate_histogram(rho, len(sizes)).draw(sizes.tolist(), OS_RANDOM))
    alive = np.flatnonzero(sizes >= least)
    return {
        "cost": round(cost_of(points, centres), 6),
        "survive": len(alive),
        "centres": len(centres),
        "found": near_by(points, places, alive, reference),
        "seconds": round(seconds, 4),
    }


def private_centres(points: Points, public: Points, written: str, rho: int, k: int) -> Centroids:
    """The centres of one private draw; `METHOD:N` has N rounds."""
    method, _, rounds = written.partition(":")
    settings = ClusterSettings.model_validate(
        {"method": method, "count": k, **({"rounds": int(rounds)} if rounds else {})}
    )
    clusterer = clusterer_for(settings, rho)
    return clusterer.centres(clusterer.draw(points, public, OS_RANDOM), public)


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
