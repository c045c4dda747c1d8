"""Charged metrics of a release: a share of its rho, split evenly, each metric one noisy histogram (PRIVACY §7).

They are priced with the request, armed one by one after the texts, and written down as soon as they are drawn. One
whose run died while it was drawn is lost: it was paid once, and may not be drawn twice. So is one that was drawn for
other texts: a run that goes on has those again that are drawn with the budget, but what a model writes at no charge, of
released phrases say, it may write anew.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, cast

import numpy as np

from models_db.errors import UsageError
from models_db.services.lifecycle.ledger import InvocationPlan
from models_db.values.canonical_json import Json
from tasks.corpus.identity.keys import length_prefixed
from tasks.evaluation.charged.estimates import EstimateRequest, NoisyHistogramEstimate, UnitText, counted
from tasks.evaluation.core.subject import EvaluationInput
from tasks.evaluation.registry import Metric
from tasks.generation.decoding.release_steps import StepLost
from tasks.generation.decoding.run_context import RunContext
from tasks.mechanisms.counts.noisy_count import calibrate_count
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram
from tasks.planning.extension import extended_of
from tasks.values.metric_result import MetricResult
from tasks.values.plan import Generator, Plan, PlanInputs


def plan_with_metrics(system: Generator[Any], ask: PlanInputs, metrics: Sequence[Metric], share: Decimal) -> Plan:
    """The system's plan with what charged metrics leave of the amount, and theirs behind it.

    Raises:
        ChargedMetricNeedsClaim: the release has no budget to take it from.
        ChargedMetricOfExtension: it extends a release, and reads nothing.
        ShareTooSmall: the share buys nothing.
        UsageError: the request lacks what a metric is about.
        Refused: as `Generator.plan`.
    """
    estimates = [metric.estimate for metric in metrics if metric.estimate is not None]
    if not estimates:
        return system.plan(ask)
    if extended_of(ask.parameters) is not None:
        raise ChargedMetricOfExtension(next(metric.name for metric in metrics if metric.estimate is not None))
    if ask.amount is None:
        raise ChargedMetricNeedsClaim(next(metric.name for metric in metrics if metric.estimate is not None))
    each = int(Fraction(share) * ask.amount.rho) // len(estimates)
    if each < 1:
        raise ShareTooSmall(share, len(estimates))
    noise = calibrate_count(each)  # its price is a histogram's, however many bins it has
    kept = noise.loss() * len(estimates)
    plan = system.plan(replace(ask, amount=ask.amount - kept))
    asked = EstimateRequest(plan.samples, tuple(getattr(ask.parameters, "labels", ())))
    histograms = [NoisyHistogram(found.bins(asked), noise) for found in estimates]
    facts = {"charged metrics": f"rho {kept.rho_text} together, {noise.loss().rho_text} each"}
    return replace(
        plan,
        measuring=tuple(InvocationPlan(one.event(), (one.loss(),)) for one in histograms),
        facts={**plan.facts, **facts},
    )


@dataclass(frozen=True)
class Measuring:
    """Draws the charged metrics of a run.

    Attributes:
        charged: their names, in the order of the plan.
        labels: the public label set.
        bench: arms, and has corpus, partition, randomness and what earlier attempts have released.
    """

    plan: Plan
    charged: tuple[str, ...]
    labels: tuple[str, ...]
    bench: RunContext

    def __call__(self, metric: Metric, subject: EvaluationInput) -> MetricResult:
        """The result of a charged metric: drawn here, or before; null if it was lost, or was drawn for other texts."""
        if metric.estimate is None:
            raise ValueError(f"{metric.name!r} is not charged")
        asked = EstimateRequest(self.plan.samples, self.labels)
        position = self.charged.index(metric.name)
        estimate, place = metric.estimate, metric.estimate.places(subject, asked)  # public; what it lacks costs nothing
        histogram = NoisyHistogram.from_event(self.plan.measuring[position].event)
        measured = digest_of(subject)

        def counts() -> list[int]:
            return counted(self._units(estimate.by_label), place, histogram.bins)

        def figures(units: list[int]) -> Json:
            drawn = np.array(histogram.draw(units, self.bench.rng), np.int64)
            result = estimate.result(subject, asked, NoisyHistogramEstimate(drawn, float(histogram.noise.sigma)))
            return {"texts": measured, "result": result.to_json()}

        try:
            released = self.bench.release(metric.name, [len(self.plan.invocations) + position], counts, figures)
        except StepLost:
            return estimate.result(subject, asked, None)
        kept = cast("Mapping[str, Any]", released)
        if kept["texts"] != measured:
            return estimate.result(subject, asked, None)
        return MetricResult.from_json(kept["result"])

    def _units(self, by_label: bool) -> Iterator[UnitText]:
        """Every unit of every block, each under at most one label."""
        bench, labels = self.bench, self.labels if by_label else ()
        places = [(block, label, 0) for block in self.plan.blocks for label in range(max(1, len(labels)))]
        batches = bench.corpus.batches(bench.scheme, bench.scheme_id, 1, places, labels)
        for done, ((_, label, _), units) in enumerate(batches.items(), 1):
            for unit in units:
                yield UnitText(unit.text, label if labels else None)
            # By blocks, of which there is a public number: how many units there are is nobody's business.
            bench.progress("charged metrics", done, len(batches))


def digest_of(subject: EvaluationInput) -> str:
    """Names the texts that a metric was drawn for, in their order: SHA-256, 64 hexadecimal digits."""
    found = hashlib.sha256()
    for each in subject.texts:
        found.update(length_prefixed(each.text.encode("utf-8", "surrogatepass")))
    return found.hexdigest()


class ChargedMetricNeedsClaim(UsageError):
    """A charged metric in a release that charges nothing."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The metric {name!r} is paid out of the release's budget, and this release has none.",
            "Leave it out of `evaluation`, or choose a private mechanism with an epsilon and a delta.",
            {"metric": name},
        )


class ChargedMetricOfExtension(UsageError):
    """A charged metric in a release that is made of released values.

    It would read the corpus, which such a release may not; and what is left for the mechanisms would not be what the
    parent has paid for them.
    """

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The metric {name!r} reads the corpus and is paid for, and a release that extends another does neither.",
            "Leave it out of `evaluation`.",
            {"metric": name},
        )


class ShareTooSmall(UsageError):
    """The share for charged metrics is nothing."""

    def __init__(self, share: Decimal, metrics: int) -> None:
        super().__init__(
            f"A share of {share} of this release's rho buys nothing for {metrics} charged metrics.",
            "Raise `evaluation_share` or epsilon, or ask for fewer charged metrics.",
            {"share": str(share), "metrics": metrics},
        )
