"""`dp_labels`: the distribution of private units over the request's labels, and the release's distance from it."""

from collections.abc import Callable

import numpy as np

from models_db.errors import UsageError
from tasks.evaluation.charged.estimates import NOISE_INTERVAL, EstimateRequest, NoisyHistogramEstimate, UnitText, shares
from tasks.evaluation.core.embedded_texts import figure
from tasks.evaluation.core.subject import EvaluationInput
from tasks.values.results import MetricResult, MetricValue

NAME = "dp_labels"


class LabelEstimate:
    """One bin for each declared label. A unit with several of them enters one, by key (PRIVACY §3)."""

    by_label = True

    def bins(self, request: EstimateRequest) -> int:
        """Return the number of labels.

        Raises:
            NoLabels: the request declares none.
        """
        if not request.labels:
            raise UsageError(
                f"`{NAME}` counts units by label, and the request declares no labels.",
                f"Declare `parameters.labels: [...]`, or leave `{NAME}` out of `evaluation`.",
                code="NoLabels",
            )
        return len(request.labels)

    def places(self, subject: EvaluationInput, request: EstimateRequest) -> Callable[[UnitText], int | None]:
        """Return the number of the unit's label."""
        return lambda unit: unit.label

    def result(
        self, subject: EvaluationInput, request: EstimateRequest, noisy: NoisyHistogramEstimate | None
    ) -> MetricResult:
        """Return the noisy share of each label, and the total variation distance from the released texts' labels."""
        counts = np.array([sum(text.label == label for text in subject.texts) for label in request.labels], np.int64)
        values: dict[str, MetricValue] = figure("total_variation", None, None)
        note = "not measured"
        if noisy is not None:
            distance = noisy.total_variation(counts)
            values = figure("total_variation", *distance)
            proportions = shares(noisy.counts.astype(np.float64)[None])[0]
            largest = int(proportions.argmax())
            note = (
                f"{proportions[largest]:.0%} of the units enter {request.labels[largest]!r}; distance {distance[0]:.2f}"
            )
            for number, share in enumerate(proportions, 1):
                values[f"share_{number}"] = f"{share:.4f}"
        return MetricResult(
            name=NAME,
            exposure="charged",
            values=values,
            source="noisy histogram: Canonne, Kamath, Steinke, arXiv 2004.00010; total variation distance",
            method="units in each declared label, in their order, by a charged noisy histogram; half the sum of"
            f" absolute differences between their shares and those of the released texts; {NOISE_INTERVAL}",
            line=note,
        )
