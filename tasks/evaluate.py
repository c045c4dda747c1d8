"""Evaluation of drawn texts: selects those to publish, and computes metrics; internal ones also read the corpus."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tasks.common.faults import retry
from tasks.common.progress import report
from tasks.corpus.store import SHARDS, Corpus
from tasks.evaluation.evaluation_input import EvaluationInput, ReleasedText, Scorer
from tasks.evaluation.in_context.learner import ModelJudge, ModelLearner
from tasks.evaluation.registry import Metric, evaluate, needs_embedder
from tasks.evaluation.sharded_documents import ShardedDocuments
from tasks.inference.embeddings.encoder import EMBEDDER, load_embedder
from tasks.inference.embeddings.unit_embeddings import CachedEmbedder
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.likelihood import log_likelihoods
from tasks.inference.loading.load_model import require_pulled
from tasks.prefect_task import private_task
from tasks.text.public_models import Tagger, load_tagger, require_tagger
from tasks.values.results import MetricResult
from tasks.workers.pool import Runner

SCORER = "smollm2-135m-instruct"
"""The public model that metrics compute with where a model behind an API has written the texts."""


def require_tools(metrics: Sequence[Metric], embedder: str = EMBEDDER) -> None:
    """Check that this machine has the models that `metrics` compute with, before anything is spent.

    Raises:
        ModelNotPulled: the embedder is missing.
        TaggerChanged: the tagger is missing, or is another one.
    """
    if any("tagger" in metric.needs for metric in metrics):
        require_tagger()
    if needs_embedder(metrics):
        require_pulled(embedder, "embedder")


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
    embedder_name: str = EMBEDDER,
    workers: int = 1,
    runner: Runner | None = None,
) -> tuple[MetricResult, ...]:
    """Compute `metrics` of `texts` under the public `model`; `corpus` only for internal ones (PRIVACY §7).

    `schema` is the public schema that a release of records declares, `charged` draws charged metrics. The embedder is
    loaded only if a metric needs it. Without a model, the values of metrics that need one are null.

    Args:
        by_another: the texts were written by a model behind an API, and not by `model`; the metrics say so.
        embedder_name: the embedder of metrics that need one, as requests write it.
        workers: how many workers of `runner` read the corpus, for metrics that read all of it.
        runner: starts them; None if this process reads by itself.

    Raises:
        ModelNotPulled: the embedder is needed and is not on this machine.
    """

    def documents() -> Iterable[str]:
        return corpus.texts() if corpus else ()

    needs = frozenset[str]().union(*(metric.needs for metric in metrics))
    has_labels = corpus is not None and corpus.has_labels
    subject = EvaluationInput(
        texts,
        scorer(model) if model else None,
        documents if corpus else None,
        schema,
        embed=embedder(model, embedder_name) if "embedder" in needs else None,
        tag=tagger() if "tagger" in needs else None,
        judge=ModelJudge(model, partial(report, "judging")) if model else None,
        learn=ModelLearner(model, partial(report, "in context")) if model else None,
        labelled=corpus.labelled if corpus and has_labels else None,
        by_shard=_by_shard(corpus, runner, workers) if corpus and runner else None,
    )
    if not by_another:
        return evaluate(metrics, subject, charged)
    return tuple(_with_another(metric, model, subject, charged) for metric in metrics)


def _by_shard(corpus: Corpus, runner: Runner, workers: int) -> ShardedDocuments:
    return ShardedDocuments(runner, workers, SHARDS, corpus.shard_texts, partial(report, "reading the corpus"))


def _with_another(
    metric: Metric,
    model: LanguageModel | None,
    subject: EvaluationInput,
    charged: Callable[[Metric, EvaluationInput], MetricResult] | None,
) -> MetricResult:
    """Compute a metric of texts that another model than `model` has written, and say so in its method."""
    if "model" not in metric.needs:
        return evaluate([metric], subject, charged)[0]
    if model is None:
        return not_measured(metric)
    result = evaluate([metric], subject, charged)[0]
    return replace(result, method=f"{result.method}; the public model is {model.name}, which has not written the texts")


def not_measured(metric: Metric) -> MetricResult:
    """Return the result of a metric whose model is missing: its values for an empty set of texts."""
    no_texts = EvaluationInput((), score=lambda texts: [], documents=lambda: ())
    return replace(metric.compute(no_texts), line="not measured: no language model is on this machine")


def scorer(model: LanguageModel) -> Scorer:
    """Return a scorer of log-likelihoods under `model`; it scores each text once for all metrics, the slowest step."""
    scores: dict[str, tuple[float, int]] = {}

    def score(texts: Sequence[str]) -> list[tuple[float, int]]:
        new_texts = [text for text in dict.fromkeys(texts) if text not in scores]
        if new_texts:
            new_scores = log_likelihoods(model, new_texts, partial(report, "scoring"))
            scores.update(zip(new_texts, new_scores, strict=True))
        return [scores[text] for text in texts]

    return score


def embedder(model: LanguageModel | None, name: str = EMBEDDER) -> CachedEmbedder:
    """Load an embedder on the language model's device, if there is one; its progress counts texts not embedded before.

    Raises:
        ModelNotPulled: the embedder is not on this machine.
    """
    device = str(model.device) if model else "auto"
    load = partial(load_embedder, name, device=device, progress=partial(report, "embedding"))
    return CachedEmbedder(retry(load, "loading the embedder"))


def tagger() -> Tagger:
    """Load the pinned tagger, which reports its progress.

    Raises:
        TaggerChanged: it is not on this machine, or is another one.
    """
    return retry(partial(load_tagger, partial(report, "tagging")), "loading the tagger")
