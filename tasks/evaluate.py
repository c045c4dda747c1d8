"""Evaluate: metrics of released texts; the internal ones also read the corpus."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tasks.corpus.store import Corpus
from tasks.evaluation.registry import Metric, evaluate
from tasks.evaluation.results import MetricResult
from tasks.evaluation.subject import ReleasedText, Subject
from tasks.inference.language_model import LanguageModel
from tasks.inference.scoring import log_likelihoods
from tasks.progress import report
from tasks.shell import private_task


@private_task
def evaluate_texts(
    metrics: Sequence[Metric],
    texts: Sequence[ReleasedText],
    model: LanguageModel,
    corpus: Corpus | None = None,
    schema: Mapping[str, Any] | None = None,
) -> tuple[MetricResult, ...]:
    """Compute `metrics` of `texts` under the public `model`; `corpus` only for internal ones (PRIVACY §7).

    `schema` is the public one that a release of records declares.
    """

    def score(wanted: Sequence[str]) -> Sequence[tuple[float, int]]:
        return log_likelihoods(model, wanted, lambda done, total: report("scoring", done, total))

    def documents() -> Iterable[str]:
        return corpus.texts() if corpus else ()

    has_labels = corpus is not None and corpus.label_field() is not None
    subject = Subject(
        texts,
        score,
        documents if corpus else None,
        schema,
        labelled=corpus.labelled if corpus and has_labels else None,
    )
    return evaluate(metrics, subject)
