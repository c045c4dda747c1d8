"""Self-similarity of the released texts."""

import numpy as np

from tasks.evaluation.core import bootstrap
from tasks.evaluation.core.embedded_texts import MOST, blocks, embedder_of, figure, points, released_texts
from tasks.evaluation.core.intervals import wilson
from tasks.evaluation.core.subject import EvaluationInput
from tasks.text.interfaces import Points
from tasks.values.results import MetricResult, MetricValue

ALIKE = 0.95
"""The cosine from which two texts count as near-duplicates."""


def self_similarity(subject: EvaluationInput) -> MetricResult:
    """Measure the mean cosine of two different texts, and the share with a near-duplicate. Public: released texts only.

    Null below two texts.
    """
    texts = released_texts(subject)
    values: dict[str, MetricValue] = {
        "texts": len(texts),
        **figure("mean", None, None),
        **figure("near_duplicate", None, None),
    }
    embed = None
    if len(texts) > 1:
        embed = embedder_of(subject)
        rows = points(embed, texts)
        hits = int(np.count_nonzero(_highest_cosines(rows) >= ALIKE))
        values |= figure("mean", _mean(rows, np.arange(len(rows))), _interval(rows))
        values |= figure("near_duplicate", hits / len(rows), wilson(hits, len(rows)))
    return MetricResult(
        name="self_similarity",
        exposure="public",
        values=values,
        source="mean pairwise similarity as diversity: Zhu et al., 'Texygen', SIGIR 2018 (Self-BLEU), here by meaning"
        " as Tevet and Berant, 'Evaluating the Evaluation of Diversity', EACL 2021, section 5",
        method=f"{embed.name if embed else 'embeddings'}; at most {MOST} texts, sampled with a fixed ordinary random"
        f" start; mean cosine of all pairs; near-duplicates: texts with another at cosine {ALIKE} or more; 95 %"
        f" intervals: of the mean {bootstrap.METHOD}, pairs of a text with itself left out; of the share a score"
        " interval",
        line=f"mean cosine of two texts {values['mean']}" if embed else "fewer than two texts",
    )


def _interval(rows: Points) -> tuple[float, float] | None:
    return bootstrap.of_statistic(len(rows), lambda picks: _mean(rows, picks))


def _mean(rows: Points, picks: bootstrap.Picks) -> float:
    """Return the mean cosine of pairs of different texts among `picks`; NaN if all are the same text."""
    often = np.bincount(picks, minlength=len(rows)).astype(np.float64)
    total, same = float(((often @ rows) ** 2).sum()), float((often**2).sum())
    pairs = len(picks) ** 2 - same
    return (total - same) / pairs if pairs else float("nan")


def _highest_cosines(rows: Points) -> Points:
    """Return float64 [n]: each text's highest cosine with another text."""
    closest = np.empty(len(rows))
    for part, block in blocks(rows, rows):
        block[np.arange(len(block)), np.arange(part.start, part.stop)] = -1.0
        closest[part] = block.max(1)
    return closest
