"""Map of texts on a plane: the two directions in which their embeddings differ most."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from tasks.reporting.release_sections import Text
from tasks.reporting.sections import Map
from tasks.text.interfaces import Embedder

LEAST: Final = 3
"""Least number of texts for a map."""
MOST: Final = 500
"""Most texts that are embedded: the first ones."""


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
    return Map(embed.name, explained, len(embedded_texts), points, labels if len(labels) == len(embedded_texts) else ())


def _signs(
    directions: np.ndarray[tuple[int, int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return float64 [2, 1]: a direction and its opposite are one, so the largest entry of each is made positive."""
    largest = np.abs(directions).argmax(axis=1)
    signs: np.ndarray[tuple[int, int], np.dtype[np.float64]] = np.sign(directions[np.arange(len(directions)), largest])[
        :, None
    ]
    return signs
