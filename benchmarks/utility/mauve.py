"""MAUVE of drawn texts against real ones, with intervals that need no second clustering.

Clusters, frontier and embedder are those of the metric `mauve`, and so is the idea of the interval: texts are drawn
anew while clusters stay, because copies of one text would share a cluster and tell sides apart by that alone. Sides
that are compared share clusters and draws of real texts, so that their difference is paired.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import numpy as np

from benchmarks.utility.texts import SEED
from tasks.analysis.clustering.kmeans import k_means, nearest_centre, principal
from tasks.evaluation.algorithms import frontier_area, plain_histogram
from tasks.evaluation.evaluation_input import points
from tasks.inference.embeddings.encoder import EMBEDDER, load_embedder
from tasks.inference.embeddings.unit_embeddings import CachedEmbedder

Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
Embed: TypeAlias = Callable[[Sequence[str]], Floats]

TEXTS_PER_CLUSTER = 8
"""Of one drawn side; the metric itself has 20, for releases larger than these."""
SCALE = 5.0
"""Of the divergence, as in Pillutla et al.; the metric's 0.9 would show all of these between 0.9 and 1."""
CLUSTERINGS, ROUNDS = 10, 200


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95 % interval.

    Attributes:
        drawn: float64 [CLUSTERINGS * ROUNDS], the figure of texts drawn anew, moved to lie about `value`: what is drawn
            from a sample scatters twice, and so lies lower than the sample's own figure.
    """

    value: float
    drawn: Floats

    @property
    def shown(self) -> list[float]:
        """The value and the ends of its interval."""
        return [self.value, *(float(end) for end in np.quantile(self.drawn, (0.025, 0.975)))]

    def less(self, other: "Estimate") -> "Estimate":
        """The difference; paired where both were measured together."""
        return Estimate(self.value - other.value, self.drawn - other.drawn)


def mean(estimates: Sequence[Estimate]) -> Estimate:
    """Of independent estimates."""
    values, drawn = [each.value for each in estimates], [each.drawn for each in estimates]
    return Estimate(float(np.mean(values)), np.mean(drawn, axis=0))


def embedder(name: str = EMBEDDER) -> Embed:
    """A pulled embedder, the registry's if none is named; each text is embedded once."""
    remembering = CachedEmbedder(load_embedder(name))
    return lambda texts: points(remembering, texts)


def measured_together(
    embed: Embed, sides: Mapping[str, Sequence[str]], real: Sequence[str], seed: int = SEED
) -> dict[str, Estimate]:
    """MAUVE of each side against `real`, all of them in the same clusters and against the same draws of real texts."""
    features = [embed(real), *(embed(texts) for texts in sides.values())]
    buckets = max(2, min(map(len, features)) // TEXTS_PER_CLUSTER)
    values: dict[str, list[float]] = {name: [] for name in sides}
    drawn: dict[str, list[Floats]] = {name: [] for name in sides}
    source = np.random.default_rng(seed)
    for clustering in range(CLUSTERINGS):
        counts = histograms(features, buckets, clustering)
        true, true_drawn = plain_histogram(counts[0]), anew(counts[0], source)
        for name, own in zip(sides, counts[1:], strict=True):
            values[name].append(float(frontier_area(true, plain_histogram(own), SCALE)))
            again = frontier_area(true_drawn, anew(own, source), SCALE)
            drawn[name].append(again - again.mean())
    return {name: _estimate(values[name], drawn[name]) for name in sides}


def _estimate(values: Sequence[float], moved: Sequence[Floats]) -> Estimate:
    value = float(np.mean(values))
    return Estimate(value, value + np.concatenate(moved))


def histograms(features: Sequence[Floats], buckets: int, seed: int) -> list[Any]:
    """Each side's counts, int64 [buckets], in clusters of all sides together."""
    together = principal(np.concatenate(features), 0.9)
    labels = nearest_centre(together, k_means(together, buckets, seed))
    ends = np.cumsum([len(side) for side in features])[:-1]
    return [np.bincount(side, minlength=buckets) for side in np.split(labels, ends)]


def anew(counts: Any, source: np.random.Generator) -> Floats:
    """float64 [ROUNDS, buckets]: shares of as many texts, drawn with replacement."""
    total = int(counts.sum())
    return np.asarray(source.multinomial(total, counts / total, size=ROUNDS) / total, np.float64)
