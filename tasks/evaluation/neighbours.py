"""Metrics of neighbours among embeddings: nearest documents, BERTScore, self-similarity, precision and recall."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.evaluation import intervals
from tasks.evaluation.evaluation_input import (
    MOST,
    READ,
    EvaluationInput,
    MatchedTexts,
    ReleaseAndCorpus,
    blocks,
    embedder_of,
    figure,
    points,
    released_texts,
    sides,
)
from tasks.evaluation.intervals import wilson
from tasks.text.public_models import Embedder, Pieces, Points
from tasks.values.results import MetricResult, MetricValue, rounded


def proximity(subject: EvaluationInput) -> MetricResult:
    """Cosine with the nearest document, over texts. INTERNAL: it reads private documents. Null without either."""
    texts = sides(subject)
    cosines = nearest(texts)[1] if texts else np.empty(0)
    values: dict[str, MetricValue] = {
        "texts": len(cosines),
        "documents": len(texts.documents) if texts else 0,
        **figure("mean", float(cosines.mean()) if len(cosines) else None, intervals.of_mean(cosines)),
        **figure(
            "median",
            float(np.median(cosines)) if len(cosines) else None,
            intervals.of_statistic(len(cosines), lambda picks: float(np.median(cosines[picks]))),
        ),
        "max": rounded(float(cosines.max()) if len(cosines) else None, 4),
    }
    return MetricResult(
        name="proximity",
        exposure="internal",
        values=values,
        source="URANIA, section 5.1 and table 2 (embedding space proximity)",
        method=f"{texts.embedder if texts else 'embeddings'}; cosine of each text with its nearest document; {READ};"
        f" {intervals.BOOTSTRAP}",
        line=f"nearest document at cosine {values['mean']} on average, {values['max']} at most"
        if texts
        else "nothing to compare",
    )


def nearest(texts: ReleaseAndCorpus) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the index of the nearest document of each text, int64 [n], and its cosine, float64 [n] in [-1, 1]."""
    which, cosines = np.empty(len(texts.texts), np.int64), np.empty(len(texts.texts))
    for some, block in blocks(texts.released, texts.private):
        which[some] = block.argmax(1)
        cosines[some] = block.max(1)
    return which, np.clip(cosines, -1.0, 1.0)


_PAIRS_AT_ONCE = 64


def bert_score(subject: EvaluationInput) -> MetricResult:
    """Precision, recall and F1 over word pieces. INTERNAL: it reads private documents. Null without either side."""
    texts = sides(subject)
    scores = _scores(texts, embedder_of(subject)) if texts else np.empty((0, 3))
    values: dict[str, MetricValue] = {"texts": len(scores), "documents": len(texts.documents) if texts else 0}
    for name, column in zip(("precision", "recall", "f1"), scores.T, strict=True):
        values |= figure(name, float(column.mean()) if texts else None, intervals.of_mean(column))
    return MetricResult(
        name="bert_score",
        exposure="internal",
        values=values,
        source="Zhang et al., 'BERTScore: Evaluating Text Generation with BERT', ICLR 2020, section 3",
        method=f"{texts.embedder if texts else 'embeddings'}, its last layer, no weights by rarity, no rescaling; each"
        f" text with the document whose embedding is nearest; {READ}; mean over texts; {intervals.BOOTSTRAP}",
        line=f"F1 {values['f1']} with the nearest document" if texts else "nothing to compare",
    )


def _scores(inputs: ReleaseAndCorpus, embed: Embedder) -> NDArray[np.float64]:
    """Return float64 [n, 3]: precision, recall and F1 of each text with its nearest document."""
    which, _ = nearest(inputs)
    scores = []
    for start in range(0, len(inputs.texts), _PAIRS_AT_ONCE):
        indices = range(start, min(start + _PAIRS_AT_ONCE, len(inputs.texts)))
        paired = list(dict.fromkeys(which[indices].tolist()))
        documents = dict(zip(paired, embed.pieces([inputs.documents[index] for index in paired]), strict=True))
        texts = embed.pieces([inputs.texts[index] for index in indices])
        scores += [bert_scores(text, documents[int(which[index])]) for text, index in zip(texts, indices, strict=True)]
    return np.array(scores)


def bert_scores(candidate: Pieces, reference: Pieces) -> Sequence[float]:
    """Precision, recall and F1 of a pair, equations of section 3.

    The marks around a text may be matched but have no weight of their own, as in the package bert-score. A text
    without a piece has three zeros.
    """
    (candidate_rows, candidate_own), (reference_rows, reference_own) = candidate, reference
    if not candidate_own.any() or not reference_own.any():
        return 0.0, 0.0, 0.0
    cosines = candidate_rows.astype(np.float64) @ reference_rows.astype(np.float64).T
    precision = float(cosines.max(1)[candidate_own].mean())
    recall = float(cosines.max(0)[reference_own].mean())
    total = precision + recall
    return precision, recall, 2 * precision * recall / total if total > 0 else 0.0


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
        f" intervals: of the mean {intervals.BOOTSTRAP}, pairs of a text with itself left out; of the share a score"
        " interval",
        line=f"mean cosine of two texts {values['mean']}" if embed else "fewer than two texts",
    )


def _interval(rows: Points) -> tuple[float, float] | None:
    return intervals.of_statistic(len(rows), lambda picks: _mean(rows, picks))


def _mean(rows: Points, picks: intervals.Picks) -> float:
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


NEAREST = 3
"""k of precision and recall, as Kynkäänniemi et al. recommend."""

NEAREST_DENSE = 5
"""k of density and coverage, as Naeem et al. recommend."""

Distances = NDArray[np.float64]


def precision_recall(subject: EvaluationInput) -> MetricResult:
    """Compare as many texts as documents. INTERNAL: it reads private documents. Null below six on either side."""
    texts = sides(subject)
    matched = texts.matched() if texts else None
    count = len(matched.released) if matched else 0
    values: dict[str, MetricValue] = {"texts": count, "documents": count}
    values |= _measure(matched) if matched and count > NEAREST_DENSE else _null_figures()
    summary = f"precision {values['precision']}, recall {values['recall']}, coverage {values['coverage']}"
    return MetricResult(
        name="precision_recall",
        exposure="internal",
        values=values,
        source="Kynkäänniemi et al., 'Improved Precision and Recall Metric for Assessing Generative Models', NeurIPS"
        " 2019, section 2; density and coverage: Naeem et al., 'Reliable Fidelity and Diversity Metrics for Generative"
        " Models', ICML 2020, section 3",
        method=f"{texts.embedder if texts else 'embeddings'}; as many texts as documents, {READ}; balls around each"
        f" point up to its k-th nearest of its own side, k = {NEAREST}, for density and coverage {NEAREST_DENSE}; 95 %"
        " intervals: score intervals of shares, for density a bootstrap over texts, all with the balls as they are",
        line="nothing to compare" if values["precision"] is None else summary,
    )


def _measure(matched: MatchedTexts) -> dict[str, MetricValue]:
    from scipy.spatial.distance import cdist  # slow to import, and registries are read by every request

    across = cdist(matched.released, matched.private)
    private, released = (cdist(side, side) for side in (matched.private, matched.released))
    inside = across <= radii(private, NEAREST)
    around = across <= radii(released, NEAREST)[:, None]
    dense = across <= radii(private, NEAREST_DENSE)
    density = dense.sum(1) / NEAREST_DENSE
    return {
        **_share("precision", inside.any(1)),
        **_share("recall", around.any(0)),
        **figure("density", float(density.mean()), intervals.of_mean(density)),
        **_share("coverage", dense.any(0)),
    }


def radii(own: Distances, nearest: int) -> Distances:
    """Return float64 [n]: how far each point's `nearest`-th neighbour on its own side is, itself not counted."""
    return np.asarray(np.partition(own, nearest, axis=1)[:, nearest], np.float64)


def _share(name: str, hits: NDArray[np.bool_]) -> dict[str, MetricValue]:
    return figure(name, float(hits.mean()), wilson(int(hits.sum()), len(hits)))


def _null_figures() -> dict[str, MetricValue]:
    return {key: None for name in ("precision", "recall", "density", "coverage") for key in figure(name, None, None)}
