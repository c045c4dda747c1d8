"""Registry of metrics by the name requests use, those of extensions included, and which a request may name."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias, get_args

from models_db.errors import Refused, UsageError
from tasks.common import extensions
from tasks.common.faults import retry
from tasks.evaluation import charged as dp_length
from tasks.evaluation import charged as labels
from tasks.evaluation import coverage
from tasks.evaluation.charged import Estimate, EstimateRequest
from tasks.evaluation.contamination import contamination
from tasks.evaluation.distributions import frechet, mauve, topics, train_on_synthetic
from tasks.evaluation.evaluation_input import EvaluationInput
from tasks.evaluation.in_context.accuracy import in_context
from tasks.evaluation.lexical import distinct, entities, length, length_gap, placeholder_leak, records
from tasks.evaluation.model_based import judge, judge_preference, perplexity, perplexity_gap
from tasks.evaluation.neighbours import bert_score, precision_recall, proximity, self_similarity
from tasks.evaluation.overlap import jaccard, rouge, verbatim_overlap
from tasks.values.results import Exposure, MetricResult

Need: TypeAlias = Literal["model", "conversation", "embedder", "tagger"]
"""Model or tool that a metric needs beside texts; it is loaded only if a metric of the request needs it.

`conversation` is the model, prompted by its chat template.
"""


@dataclass(frozen=True)
class Metric:
    """A metric, before it is computed.

    Attributes:
        name: its stable name.
        exposure: what its result will be marked.
        compute: the computation.
        needs: the public tools it computes with.
        estimate: of a charged metric, how it is priced and drawn.
    """

    name: str
    exposure: Exposure
    compute: Callable[[EvaluationInput], MetricResult]
    needs: frozenset[Need] = frozenset()
    estimate: Estimate | None = None

    @classmethod
    def charged(cls, name: str, estimate: Estimate, needs: frozenset[Need] = frozenset()) -> "Metric":
        """Return a charged metric; without its mechanism all its figures are null."""
        return cls(
            name, "charged", lambda subject: estimate.result(subject, EstimateRequest(0, ()), None), needs, estimate
        )


_MODEL: frozenset[Need] = frozenset({"model"})
_CONVERSATION: frozenset[Need] = frozenset({"model", "conversation"})
_TAGGER: frozenset[Need] = frozenset({"tagger"})
_EMBEDDER: frozenset[Need] = frozenset({"embedder"})


def _of_extensions() -> Iterator[tuple[str, Metric]]:
    for name, metric in extensions.load(extensions.METRICS).items():
        if not isinstance(metric, Metric) or metric.name != name:
            raise extensions.unfit(extensions.METRICS, name, "it is not a metric of that name")
        if reason := _unfitness(metric):
            raise extensions.unfit(extensions.METRICS, name, reason)
        yield name, metric


def _unfitness(metric: Metric) -> str:
    """Return why a metric of an extension cannot be used; empty if it can.

    What is not marked `internal` is shown at the gates and published, so a mark of another spelling must not pass.
    """
    if metric.exposure not in get_args(Exposure):
        return f"its exposure is none of {', '.join(get_args(Exposure))}"
    if (metric.exposure == "charged") is (metric.estimate is None):
        return "it is charged without an estimate, or has an estimate and is not charged"
    if metric.estimate is not None and not _is_estimate(metric.estimate):
        return "its estimate lacks by_label, bins, places or result"
    if not callable(metric.compute):
        return "what it computes with is no function"
    if not (isinstance(metric.needs, frozenset) and metric.needs <= set(get_args(Need))):
        return f"it needs something else than {', '.join(get_args(Need))}"
    return ""


def _is_estimate(estimate: object) -> bool:
    functions = (getattr(estimate, name, None) for name in ("bins", "places", "result"))
    return isinstance(getattr(estimate, "by_label", None), bool) and all(map(callable, functions))


_OWN: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("length", "public", length),
        Metric("distinct", "public", distinct),
        Metric("records", "public", records),
        Metric("placeholder_leak", "public", placeholder_leak),
        Metric("perplexity", "public", perplexity, _MODEL),
        Metric.charged(coverage.NAME, coverage.CoverageEstimate(), _EMBEDDER),
        Metric.charged(labels.LABELS, labels.LabelEstimate()),
        Metric.charged(dp_length.LENGTH, dp_length.LengthEstimate()),
        Metric("in_context", "internal", in_context, _MODEL),
        Metric("verbatim_overlap", "internal", verbatim_overlap),
        Metric("entities", "public", entities, _TAGGER),
        Metric("judge", "public", judge, _CONVERSATION),
        Metric("judge_preference", "internal", judge_preference, _CONVERSATION),
        Metric("jaccard", "internal", jaccard, _TAGGER),
        Metric("length_gap", "internal", length_gap),
        Metric("rouge", "internal", rouge),
        Metric("perplexity_gap", "internal", perplexity_gap, _MODEL),
        Metric("contamination", "internal", contamination, _MODEL),
        Metric("self_similarity", "public", self_similarity, _EMBEDDER),
        Metric("mauve", "internal", mauve, _EMBEDDER),
        Metric("frechet", "internal", frechet, _EMBEDDER),
        Metric("precision_recall", "internal", precision_recall, _EMBEDDER),
        Metric("proximity", "internal", proximity, _EMBEDDER),
        Metric("bert_score", "internal", bert_score, _EMBEDDER),
        Metric("topics", "internal", topics, _EMBEDDER),
        Metric("train_on_synthetic", "internal", train_on_synthetic, _EMBEDDER),
    )
}
METRICS = extensions.Registry(_OWN, _of_extensions)


def requested(names: Iterable[str], *, governed: bool) -> tuple[Metric, ...]:
    """Return the metrics a request asks for, in its order, each once.

    Raises:
        UnknownMetric: there is none of that name.
        InternalMetric: it reads private data unprotected, and the dataset is governed: a publish decision that has
            seen its result would not be differentially private (PRIVACY §7).
    """
    metrics = []
    for name in dict.fromkeys(names):
        if name not in METRICS:
            raise UnknownMetric(name)
        if governed and METRICS[name].exposure == "internal":
            raise _internal_metric(name)
        metrics.append(METRICS[name])
    return tuple(metrics)


def needs_embedder(metrics: Iterable[Metric]) -> bool:
    """Return whether some metric compares texts as points."""
    return any("embedder" in metric.needs for metric in metrics)


def evaluate(
    metrics: Iterable[Metric],
    subject: EvaluationInput,
    charged: Callable[[Metric, EvaluationInput], MetricResult] | None = None,
) -> tuple[MetricResult, ...]:
    """Compute `metrics`; one that costs nothing is computed anew after a temporary fault, a charged one never.

    No text, or only empty texts, is no error: the figures that cannot be measured are null.

    Args:
        charged: draws a charged metric, which is paid for; without it their figures are null.

    Raises:
        ValueError: the subject lacks the model, or the documents, that a metric needs.
    """
    results: list[MetricResult] = []
    for metric in metrics:
        if charged and metric.estimate:
            results.append(charged(metric, subject))
        else:
            results.append(retry(partial(metric.compute, subject), metric.name))
    return tuple(results)


def names(*exposures: Exposure) -> list[str]:
    """Names of the metrics with one of these exposures."""
    return [name for name, metric in METRICS.items() if metric.exposure in exposures]


class UnknownMetric(UsageError):
    """No metric of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"There is no metric named {name!r}.",
            f"Metrics for requests: {', '.join(names('public', 'charged'))}; after the publish decision also"
            f" {', '.join(names('internal'))}.",
            {"metric": name, "known": list(METRICS)},
        )


def _internal_metric(name: str) -> Refused:
    return Refused(
        f"The metric {name!r} reads private data unprotected; a request on governed data may not ask for it.",
        f"Ask for {', '.join(names('public', 'charged'))}; run `almoner evaluate --internal` once the publish"
        " decision is recorded.",
        {"metric": name, "allowed": names("public", "charged")},
        code="InternalMetric",
    )
