"""Charged metrics of a release: a share of its rho, split evenly, each metric one noisy histogram (PRIVACY §7).

They are priced with the request, armed one by one after the texts, and stored as soon as they are drawn. A metric is
lost if the run died while it was drawn: it was paid once, and may not be drawn twice. It is also lost if it was drawn
for other texts: a resumed run has the texts again that were drawn with the budget, but a model may write anew the texts
that cost nothing, those made from released phrases for example.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any, cast

import numpy as np

from models_db.errors import UsageError
from models_db.services.budget import InvocationPlan
from models_db.values.canonical_json import Json
from tasks.common.extensions import is_of_extension
from tasks.common.faults import retry
from tasks.corpus.keys import length_prefixed
from tasks.decoding.run_context import RunContext, StepLost
from tasks.evaluation.charged import EstimateRequest, NoisyHistogramEstimate, UnitText, counted
from tasks.evaluation.evaluation_input import EvaluationInput
from tasks.evaluation.registry import Metric
from tasks.mechanisms.counts.noisy_count import calibrate_count
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram
from tasks.planning.shared_parameters import extended_of
from tasks.systems.base import System
from tasks.values.plan import Plan, PlanInputs
from tasks.values.results import MetricResult


def plan_with_metrics(
    system: System,
    ask: PlanInputs,
    metrics: Sequence[Metric],
    share: Decimal,
) -> Plan:
    """Return the system's plan for the amount that charged metrics leave, followed by the plan of the metrics.

    Args:

    Raises:
        ChargedMetricNeedsClaim: the release has no budget to pay for it.
        ChargedMetricOfFurtherTexts: the release extends another one and reads nothing.
        ShareTooSmall: the share buys nothing.
        UsageError: the request lacks what a metric is about.
        Refused: as `System.plan`.
    """
    estimates = [metric.estimate for metric in metrics if metric.estimate is not None]
    if not estimates:
        return _plan(system, ask)
    if extended_of(ask.parameters) is not None:
        raise _charged_metric_of_further_texts(next(metric.name for metric in metrics if metric.estimate is not None))
    if ask.amount is None:
        raise _charged_metric_needs_claim(next(metric.name for metric in metrics if metric.estimate is not None))
    share_of_each = int(Fraction(share) * ask.amount.rho) // len(estimates)
    if share_of_each < 1:
        raise _share_too_small(share, len(estimates))
    noise = calibrate_count(share_of_each)  # its price is a histogram's, however many bins it has
    charge = noise.loss() * len(estimates)
    plan = _plan(system, replace(ask, amount=ask.amount - charge))
    estimate_request = EstimateRequest(plan.samples, tuple(getattr(ask.parameters, "labels", ())))
    histograms = [NoisyHistogram(estimate.bins(estimate_request), noise) for estimate in estimates]
    facts = {"charged metrics": f"rho {charge.rho_text} together, {noise.loss().rho_text} each"}
    return replace(
        plan,
        measuring=tuple(InvocationPlan(histogram.event(), (histogram.loss(),)) for histogram in histograms),
        facts={**plan.facts, **facts},
    )


def _plan(system: System, ask: PlanInputs) -> Plan:
    """Return a system's plan; that of an extension states no split whose assignment is secret.

    The claim for it rests on what was read of two systems (decision 0100, condition 4). A subclass of one of them, with
    a rule or a split of its own, would inherit the claim and not what it rests on (decision 0132).
    """
    plan = system.plan(ask)
    return replace(plan, assignment=None) if is_of_extension(system.name) else plan


@dataclass(frozen=True)
class Measuring:
    """Draws the charged metrics of a run.

    Attributes:
        charged: their names, in the order of the plan.
        labels: the public label set.
        context: arms, and has corpus, partition, randomness and what earlier attempts have released.
    """

    plan: Plan
    charged: tuple[str, ...]
    labels: tuple[str, ...]
    context: RunContext

    def __call__(self, metric: Metric, subject: EvaluationInput) -> MetricResult:
        """Draw a charged metric or load its stored result; null if it was lost or was drawn for other texts.

        What is armed is drawn once, and never begun anew after a fault.
        """
        if metric.estimate is None:
            raise ValueError(f"{metric.name!r} is not charged")
        estimate_request = EstimateRequest(self.plan.samples, self.labels)
        position = self.charged.index(metric.name)
        estimate = metric.estimate
        # Released texts alone, before anything is armed: what it lacks costs nothing, and it may be done again.
        place = retry(partial(estimate.places, subject, estimate_request), metric.name)
        histogram = NoisyHistogram.from_event(self.plan.measuring[position].event)
        measured = digest_of(subject)

        def counts() -> list[int]:
            return counted(self._units(estimate.by_label), place, histogram.bins)

        def figures(units: list[int]) -> Json:
            noisy = np.array(histogram.draw(units, self.context.rng), np.int64)
            result = estimate.result(
                subject, estimate_request, NoisyHistogramEstimate(noisy, float(histogram.noise.sigma))
            )
            return {"texts": measured, "result": result.to_json()}

        try:
            released = self.context.release(metric.name, [len(self.plan.invocations) + position], counts, figures)
        except StepLost:
            return estimate.result(subject, estimate_request, None)
        stored = cast("Mapping[str, Any]", released)
        if stored["texts"] != measured:
            return estimate.result(subject, estimate_request, None)
        return MetricResult.from_json(stored["result"])

    def _units(self, by_label: bool) -> Iterator[UnitText]:
        """Yield every unit of every block, each under at most one label."""
        context, labels = self.context, self.labels if by_label else ()
        places = [(block, label, 0) for block in self.plan.blocks for label in range(max(1, len(labels)))]
        batches = context.corpus.batches(context.scheme, context.split, 1, places, labels)
        for done, ((_, label, _), units) in enumerate(batches.items(), 1):
            for unit in units:
                yield UnitText(unit.text, label if labels else None)
            # Progress counts blocks, whose number is public; the number of units is private.
            context.progress("charged metrics", done, len(batches))


def digest_of(subject: EvaluationInput) -> str:
    """Return the digest of the texts that a metric is drawn for, in their order: SHA-256, 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for text in subject.texts:
        digest.update(length_prefixed(text.text.encode("utf-8", "surrogatepass")))
    return digest.hexdigest()


def _charged_metric_needs_claim(name: str) -> UsageError:
    return UsageError(
        f"The metric {name!r} is paid out of the release's budget, and this release has none.",
        "Leave it out of `evaluation`, or choose a private mechanism with an epsilon and a delta.",
        {"metric": name},
        code="ChargedMetricNeedsClaim",
    )


def _charged_metric_of_further_texts(name: str) -> UsageError:
    return UsageError(
        f"The metric {name!r} reads the corpus and is paid for, and a release that extends another does neither.",
        "Leave it out of `evaluation`.",
        {"metric": name},
        code="ChargedMetricOfFurtherTexts",
    )


def _share_too_small(share: Decimal, metrics: int) -> UsageError:
    return UsageError(
        f"A share of {share} of this release's rho buys nothing for {metrics} charged metrics.",
        "Raise `evaluation_share` or epsilon, or ask for fewer charged metrics.",
        {"share": str(share), "metrics": metrics},
        code="ShareTooSmall",
    )
