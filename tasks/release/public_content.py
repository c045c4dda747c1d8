"""Public content of a release: the only input of its generated files, and the one place that admits metrics."""

from collections.abc import Sequence
from dataclasses import dataclass

from models_db.errors import Refused
from tasks.common.files import FileTable
from tasks.release.record import ReleaseRecord
from tasks.values.insight import Insight
from tasks.values.metric_result import MetricResult


@dataclass(frozen=True)
class PublicContent:
    """A release as readers of its bundle know it: every generated file is a function of this, and of nothing else.

    Attributes:
        record: its record, which holds public and charged values only.
        metrics: its measurements; none of them is internal on governed data.
        data: digests and sizes of the files with the texts.
        texts: the texts themselves, each with its label; None where none was declared.
        insights: in a release of insights, the nodes that its texts describe, in the same order.

    Raises:
        UnpublishableMetric: a metric reads governed data without protection.
    """

    record: ReleaseRecord
    metrics: tuple[MetricResult, ...]
    data: FileTable
    texts: tuple[tuple[str, str | None], ...] = ()
    insights: tuple[Insight, ...] = ()

    def __post_init__(self) -> None:
        refuse_internal(self.metrics, self.record)


def refuse_internal(metrics: Sequence[MetricResult], record: ReleaseRecord) -> None:
    """Check that no metric reads governed data without protection.

    Raises:
        UnpublishableMetric: one does.
    """
    for metric in metrics:
        if record.dataset.governed and metric.exposure == "internal":
            raise Refused(
                f"The metric {metric.name!r} reads private data unprotected and may not be part of a release.",
                "Leave it out; after the publish decision `almoner evaluate --internal` computes it for the stewards.",
                {"metric": metric.name},
                code="UnpublishableMetric",
            )
