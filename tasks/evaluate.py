"""Evaluate: metrics of released texts; the internal ones also read the corpus."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tasks.common.progress import report
from tasks.corpus.store import Corpus
from tasks.evaluation.core.subject import EvaluationInput, ReleasedText, Scorer
from tasks.evaluation.model_based.in_context_learner import ModelLearner
from tasks.evaluation.model_based.model_judge import ModelJudge
from tasks.evaluation.registry import Metric, evaluate
from tasks.inference.embeddings.cached_encoder import CachedEmbedder
from tasks.inference.embeddings.encoder import EMBEDDER, load_embedder
from tasks.inference.engine.log_likelihood import log_likelihoods
from tasks.inference.loading.loading import require_pulled
from tasks.inference.network.language_model import LanguageModel
from tasks.prefect_task import private_task
from tasks.text.interfaces import Tagger
from tasks.text.tagger import load_tagger, require_tagger
from tasks.values.metric_result import MetricResult

SCORER = "smollm2-135m-instruct"
"""The public model that metrics compute with where a model behind an API has written the texts."""


def require_tools(metrics: Iterable[Metric]) -> None:
    """Check that what `metrics` compute with is on this machine, before anything is spent.

    Raises:
        ModelNotPulled: the embedder is not.
        TaggerChanged: the tagger is not, or is another.
    """
    if any("tagger" in metric.needs for metric in metrics):
        require_tagger()
    if any("embedder" in metric.needs for metric in metrics):
        require_pulled(EMBEDDER, "embedder")


@private_task
def evaluate_texts(
    metrics: Sequence[Metric],
    texts: Sequence[ReleasedText],
    model: LanguageModel | None,
    corpus: Corpus | None = None,
    schema: Mapping[str, Any] | None = None,
    charged: Callable[[Metric, EvaluationInput], MetricResult] | None = None,
    *,
    by_another: bool = False,
) -> tuple[MetricResult, ...]:
    """Compute `metrics` of `texts` under the public `model`; `corpus` only for internal ones (PRIVACY §7).

    `schema` is the public one that a release of records declares, `charged` draws charged metrics. The embedder is
    loaded only if a metric needs it. Without a model, the figures of metrics that need one are null.

    Args:
        by_another: the texts were written by a model behind an API, and not by `model`; the metrics say so.

    Raises:
        ModelNotPulled: the embedder is needed and not on this machine.
    """

    def documents() -> Iterable[str]:
        return corpus.texts() if corpus else ()

    needs = frozenset[str]().union(*(metric.needs for metric in metrics))
    has_labels = corpus is not None and corpus.label_field() is not None
    subject = EvaluationInput(
        texts,
        scorer(model) if model else None,
        documents if corpus else None,
        schema,
        embed=embedder(model) if "embedder" in needs else None,
        tag=tagger() if "tagger" in needs else None,
        judge=ModelJudge(model, partial(report, "judging")) if model else None,
        learn=ModelLearner(model, partial(report, "in context")) if model else None,
        labelled=corpus.labelled if corpus and has_labels else None,
    )
    if not by_another:
        return evaluate(metrics, subject, charged)
    return tuple(_with_another(metric, model, subject, charged) for metric in metrics)


def _with_another(
    metric: Metric,
    model: LanguageModel | None,
    subject: EvaluationInput,
    charged: Callable[[Metric, EvaluationInput], MetricResult] | None,
) -> MetricResult:
    """A metric of texts that `model` has not written."""
    if "model" not in metric.needs:
        return evaluate([metric], subject, charged)[0]
    if model is None:
        return not_measured(metric)
    found = evaluate([metric], subject, charged)[0]
    return replace(found, method=f"{found.method}; the public model is {model.name}, which has not written the texts")


def not_measured(metric: Metric) -> MetricResult:
    """A metric that needs a model, where none is at hand: what it says of no text at all."""
    nothing = EvaluationInput((), score=lambda texts: [], documents=lambda: ())
    return replace(metric.compute(nothing), line="not measured: no language model is on this machine")


def scorer(model: LanguageModel) -> Scorer:
    """The model's log-likelihoods; each text is scored once for all metrics, because that takes longest."""
    known: dict[str, tuple[float, int]] = {}

    def score(wanted: Sequence[str]) -> list[tuple[float, int]]:
        missing = [text for text in dict.fromkeys(wanted) if text not in known]
        if missing:
            found = log_likelihoods(model, missing, partial(report, "scoring"))
            known.update(zip(missing, found, strict=True))
        return [known[text] for text in wanted]

    return score


def embedder(model: LanguageModel | None) -> CachedEmbedder:
    """On the device of the language model, if there is one; its bar counts the texts that no metric before has read.

    Raises:
        ModelNotPulled: it is not on this machine.
    """
    return CachedEmbedder(
        load_embedder(device=str(model.device) if model else "auto", progress=partial(report, "embedding"))
    )


def tagger() -> Tagger:
    """The pinned tagger, which tells how far it is.

    Raises:
        TaggerChanged: it is not on this machine, or is another.
    """
    return load_tagger(partial(report, "tagging"))
