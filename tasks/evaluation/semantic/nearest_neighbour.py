"""Distance of each released text to its nearest private document, by meaning."""

import numpy as np
from numpy.typing import NDArray

from tasks.evaluation.core import bootstrap
from tasks.evaluation.core.embedded_texts import READ, ReleaseAndCorpus, blocks, figure, sides
from tasks.evaluation.core.subject import EvaluationInput
from tasks.values.results import MetricResult, MetricValue, rounded


def proximity(subject: EvaluationInput) -> MetricResult:
    """Cosine with the nearest document, over texts. INTERNAL: it reads private documents. Null without either."""
    texts = sides(subject)
    cosines = nearest(texts)[1] if texts else np.empty(0)
    values: dict[str, MetricValue] = {
        "texts": len(cosines),
        "documents": len(texts.documents) if texts else 0,
        **figure("mean", float(cosines.mean()) if len(cosines) else None, bootstrap.of_mean(cosines)),
        **figure(
            "median",
            float(np.median(cosines)) if len(cosines) else None,
            bootstrap.of_statistic(len(cosines), lambda picks: float(np.median(cosines[picks]))),
        ),
        "max": rounded(float(cosines.max()) if len(cosines) else None, 4),
    }
    return MetricResult(
        name="proximity",
        exposure="internal",
        values=values,
        source="URANIA, section 5.1 and table 2 (embedding space proximity)",
        method=f"{texts.embedder if texts else 'embeddings'}; cosine of each text with its nearest document; {READ};"
        f" {bootstrap.METHOD}",
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
