"""BERTScore of each released text with its nearest private document."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.evaluation.core import bootstrap
from tasks.evaluation.core.embedded_texts import READ, ReleaseAndCorpus, embedder_of, figure, sides
from tasks.evaluation.core.subject import EvaluationInput
from tasks.evaluation.semantic.nearest_neighbour import nearest
from tasks.text.interfaces import Embedder, Pieces
from tasks.values.results import MetricResult, MetricValue

_PAIRS_AT_ONCE = 64


def bert_score(subject: EvaluationInput) -> MetricResult:
    """Precision, recall and F1 over word pieces. INTERNAL: it reads private documents. Null without either side."""
    texts = sides(subject)
    scores = _scores(texts, embedder_of(subject)) if texts else np.empty((0, 3))
    values: dict[str, MetricValue] = {"texts": len(scores), "documents": len(texts.documents) if texts else 0}
    for name, column in zip(("precision", "recall", "f1"), scores.T, strict=True):
        values |= figure(name, float(column.mean()) if texts else None, bootstrap.of_mean(column))
    return MetricResult(
        name="bert_score",
        exposure="internal",
        values=values,
        source="Zhang et al., 'BERTScore: Evaluating Text Generation with BERT', ICLR 2020, section 3",
        method=f"{texts.embedder if texts else 'embeddings'}, its last layer, no weights by rarity, no rescaling; each"
        f" text with the document whose embedding is nearest; {READ}; mean over texts; {bootstrap.METHOD}",
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
        scores += [score(text, documents[int(which[index])]) for text, index in zip(texts, indices, strict=True)]
    return np.array(scores)


def score(candidate: Pieces, reference: Pieces) -> Sequence[float]:
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
