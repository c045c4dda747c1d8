"""Sections of a report from the ledger: balances, warnings, decisions, and metrics of earlier releases."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR

from sqlalchemy.orm import Session

from flows.approvals.review import Review
from flows.approvals.review_input import RecordedDecision, RequestReviewInput
from models_db.policies.policy import EffectiveRules
from models_db.services import artifacts
from models_db.services.audit.stored_text import request_body, stored_object
from models_db.services.queries import lists
from models_db.tables import Artifact, Request
from models_db.values.amounts import Amount
from tasks.accounting.lifetime_claims import BudgetFacts, shares_of_cap
from tasks.common.published_values import format_percent, format_small, number
from tasks.evaluation.policy_bounds import overridden_bounds
from tasks.release.sections import Samples, Section, Summary
from tasks.reporting.release_sections import figures
from tasks.reporting.report_parts import AudienceFact, Budget, Decision, Gate, Point, ReportPart
from tasks.values.results import MetricResult

SECTIONS_SHOWN_ELSEWHERE = (
    "Files to publish",
    "Evaluation",
    "Privacy cost",
    "Privacy claim",
    "Lifetime budget",
    "Mechanisms",
    "Content of the release",
    "Who",
)
"""Titles, or their beginnings, of the sections of a review that a report shows in another form."""

PLOTTED_METRICS = ("perplexity.perplexity", "distinct.distinct_2", "records.valid_share", "length.words_mean")
"""Figures of the quality of releases, beside those that the policy bounds."""


def ledger_parts(
    inputs: RequestReviewInput, review: Review, spent: Amount, earlier_decisions: Sequence[RecordedDecision]
) -> Iterator[ReportPart | Section]:
    """Yield budget, warnings, decisions and the gate.

    Args:
        spent: the spending of the release, in all its attempts.
        earlier_decisions: the decisions at the spend gate.
    """
    yield budget_part(inputs.budget.facts, spent)
    for section in review.sections:
        if not isinstance(section, Summary | Samples) and not section.title.startswith(SECTIONS_SHOWN_ELSEWHERE):
            yield section
    yield from (_decision_fact("spend", decision) for decision in earlier_decisions)
    yield from (_decision_fact("publish", decision) for decision in inputs.given)
    yield _gate_fact(inputs, review)


def budget_part(budget: BudgetFacts, release: Amount) -> Budget:
    """Return the balance with the share of one release."""
    cap, spent, held = budget.cap, budget.spent, budget.balance.held
    before = Amount(max(spent.rho - release.rho, 0), max(spent.delta - release.delta, 0))
    shares = shares_of_cap(budget.balance, before, release, held, spent)
    left, percents = format_percent(shares[0], ROUND_FLOOR), tuple(map(format_percent, shares[1:]))
    return Budget(
        delta_cap=format_small(budget.claim.delta),
        cap=cap.rho_text,
        before=before.rho_text,
        release=release.rho_text,
        held=held.rho_text,
        after=spent.rho_text,
        before_percent=percents[0],
        release_percent=percents[1],
        held_percent=percents[2],
        left_percent=left,
        used_percent=percents[3],
        epsilon_cap=budget.claim.epsilon,
        epsilon_before=budget.epsilon_of(before),
        epsilon_after=budget.epsilon_spent,
        fails=_failure_figures(spent, cap) if spent.delta else None,
    )


def earlier_points(session: Session, artifact: Artifact, required: Sequence[str]) -> Iterator[AudienceFact]:
    """Yield metrics of the releases of the same dataset beside their epsilon, from the newest artifact of each request.

    Args:
        required: names (metric.figure) that the policy bounds.
    """
    own = session.get_one(Request, artifact.request_id)
    for release in lists.released_metrics(session, own.dataset_id):
        if request_body(release.request)["epsilon"] is None:
            continue
        measurements = Measurements(release.request, release.state, this=release.request.id == own.id)
        for result in _newest_by_metric(release.results):
            yield from measurements.points(result, {*required, *PLOTTED_METRICS})


@dataclass(frozen=True)
class Measurements:
    """The measurements of one release for the plot of privacy and utility."""

    request: Request
    state: str
    this: bool

    def points(self, result: MetricResult, names: Collection[str]) -> Iterator[AudienceFact]:
        """Yield the figures of a metric that are in `names` (metric.figure), as points with the metric's exposure."""
        body = request_body(self.request)
        for figure in figures(result.name, result.values):
            if f"{result.name}.{figure.name}" in names and number(figure.value) is not None:
                ends = (None if number(end) is None else str(end) for end in (figure.low, figure.high))
                yield AudienceFact(
                    result.exposure,
                    Point(self.request.id, self.this, self.state, body["mechanism"], body["epsilon"],
                                result.name, figure.name, str(figure.value), *ends),
                )  # fmt: skip


def newest_results(session: Session, artifact: Artifact) -> list[MetricResult]:
    """Return the stored evaluations of an artifact, internal ones too, the newest of each metric."""
    return _newest_by_metric(evaluation.result for evaluation in artifacts.evaluations(session, artifact))


def _newest_by_metric(stored: Iterable[str]) -> list[MetricResult]:
    """Return the newest result of each metric, of results oldest first."""
    results = (MetricResult.from_json(stored_object(text, "result of an evaluation")) for text in stored)
    return list({result.name: result for result in results}.values())


def _decision_fact(gate: str, decision: RecordedDecision) -> Decision:
    return Decision(
        gate, decision.by, decision.decision, decision.reason, decision.counts, overridden_bounds(decision.reason)
    )


def _gate_fact(inputs: RequestReviewInput, review: Review) -> Gate:
    rules = inputs.policy.rules_for(inputs.dataset)
    commands = tuple(_gate_commands(inputs.number, review, rules)) if inputs.state == "produced" else ()
    return Gate(inputs.state, review.subject_digest, inputs.counted, inputs.needed, commands)


def _gate_commands(number: int, review: Review, rules: EffectiveRules) -> Iterator[str]:
    if not review.missed_bounds or rules.overrides:
        why = "override" if review.missed_bounds else "reason"
        yield f'almoner approve {number} --gate publish --{why} "..."'
    yield f'almoner reject {number} --gate publish --reason "..."'


def _failure_figures(spent: Amount, cap: Amount) -> str:
    spent_delta, cap_delta = format_small(spent.delta_text), format_small(cap.delta_text)
    return f"Mechanisms that can fail have spent {spent_delta} of the {cap_delta} of failure delta."
