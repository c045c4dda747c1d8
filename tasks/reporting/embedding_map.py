"""Map of texts on a plane: the two directions in which their embeddings differ most."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from tasks.analysis.clustering.kmeans import k_means, nearest_centre
from tasks.reporting.release_sections import Text
from tasks.reporting.report_parts import Map, TextCluster
from tasks.text.public_models import Embedder, Points
from tasks.text.words import STOP_WORDS, plain_words

LEAST: Final = 3
"""Least number of texts for a map."""
MOST: Final = 500
"""Most texts that are embedded: the first ones."""
_TEXTS_OF_CLUSTER: Final = 4
"""Texts for each cluster, on average, at least."""
_MOST_CLUSTERS: Final = 5
_WORDS: Final = 3
_LEAST_WITH_WORD: Final = 2
"""Texts of a cluster that have its word, at least."""


def text_map(texts: Sequence[Text], embed: Embedder) -> Map | None:
    """Return the principal components of the released texts' embeddings (Pearson, Philosophical Magazine 2, 1901).

    Post-processing of released texts: it costs nothing and reads nothing else. None if all texts are one point.
    """
    embedded_texts = texts[:MOST]
    rows = np.asarray(embed([text.text for text in embedded_texts]), dtype=np.float64)
    centred = rows - rows.mean(axis=0)
    _, scales, directions = np.linalg.svd(centred, full_matrices=False)
    variance = float((scales**2).sum())
    if not variance > 1e-12 or len(scales) < 2:
        return None
    plane = centred @ (directions[:2] * _signs(directions[:2])).T
    points = tuple((f"{x:.4f}", f"{y:.4f}") for x, y in plane.tolist())
    explained = f"{100 * float((scales[:2] ** 2).sum()) / variance:.0f}"
    labels = tuple(text.label for text in embedded_texts if text.label is not None)
    labels = labels if len(labels) == len(embedded_texts) else ()
    clusters = tuple(_clusters([text.text for text in embedded_texts], plane))
    return Map(embed.name, explained, len(embedded_texts), points, labels, clusters)


def _clusters(texts: Sequence[str], plane: Points) -> Iterator[TextCluster]:
    """Yield clusters of points of the plane, the largest first, each with words that set its texts apart.

    A word's weight is the share of the cluster's texts that have it, less the share of the others.

    Args:
        plane: float64 [n, 2].
    """
    count = min(_MOST_CLUSTERS, len(texts) // _TEXTS_OF_CLUSTER)
    if count < 2:
        return
    centres = k_means(plane, count, seed=0)
    nearest = nearest_centre(plane, centres)
    words = [{w for w in plain_words(text) if w not in STOP_WORDS and len(w) > 2 and w.isalpha()} for text in texts]
    everywhere = Counter(word for of_text in words for word in of_text)
    sizes = np.bincount(nearest, minlength=count)
    for cluster in np.argsort(-sizes, kind="stable").tolist():
        size = int(sizes[cluster])
        here = Counter(word for number in np.flatnonzero(nearest == cluster) for word in words[number])
        others = max(1, len(texts) - size)
        weights = {word: found / size - (everywhere[word] - found) / others for word, found in here.items()}
        fit = [word for word, weight in weights.items() if weight > 0 and here[word] >= _LEAST_WITH_WORD]
        best = tuple(sorted(fit, key=lambda word: (-weights[word], word))[:_WORDS])
        if best:
            yield TextCluster(best, size, f"{centres[cluster, 0]:.4f}", f"{centres[cluster, 1]:.4f}")


def _signs(
    directions: np.ndarray[tuple[int, int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return float64 [2, 1]: a direction and its opposite are one, so the largest entry of each is made positive."""
    largest = np.abs(directions).argmax(axis=1)
    signs: np.ndarray[tuple[int, int], np.dtype[np.float64]] = np.sign(directions[np.arange(len(directions)), largest])[
        :, None
    ]
    return signs
