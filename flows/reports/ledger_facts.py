"""What only the ledger can tell a report: balances, warnings, decisions, and how earlier releases measured."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from sqlalchemy.orm import Session

from flows.approvals.request_review import Budget, Given, Question
from flows.approvals.review import Grid, Lines, Matter, Section, Warnings
from models_db.policies.policy import EffectiveRules
from models_db.services.audit.stored_text import request_body, stored_object
from models_db.services.lifecycle import artifacts
from models_db.services.queries import history
from models_db.tables import Artifact, Request
from models_db.values.amounts import Amount
from tasks.accounting.lifetime_claims import lifetime_epsilon
from tasks.common.strict_model import figure
from tasks.evaluation.bound_override import overridden
from tasks.reporting import sections as parts
from tasks.reporting.audience_filter import Content, Fact
from tasks.reporting.number_format import number, small
from tasks.reporting.release_sections import figures
from tasks.values.metric_result import MetricResult

SHOWN_OTHERWISE = (
    "What would leave",
    "Evaluation",
    "What it costs",
    "What it claims",
    "Lifetime budget",
    "Mechanisms",
    "What is made",
    "Who",
    "Report",
)
"""Sections of the approval screen that a report has in a form of its own."""

PLOTTED = ("perplexity.perplexity", "distinct.distinct_2", "records.valid_share", "length.words_mean")
"""Figures that show how good releases are, beside those that the policy bounds."""


def ledger_parts(asked: Question, matter: Matter, spent: Amount, before: Sequence[Given]) -> Iterator[Content]:
    """Budget, warnings, decisions and the gate.

    Args:
        spent: what the release has, in all its attempts.
        before: the decisions at the spend gate.
    """
    yield budget_part(asked.budget, spent)
    yield from _of_sections(matter.sections)
    yield from (_decision("spend", one) for one in before)
    yield from (_decision("publish", one) for one in asked.given)
    yield _gate(asked, matter)


def budget_part(budget: Budget, release: Amount) -> parts.Budget:
    """The balance, with one release's part of it."""
    cap, spent, held = budget.cap, budget.spent, budget.held
    before = Amount(max(spent.rho - release.rho, 0), max(spent.delta - release.delta, 0))
    left = Amount(max(cap.rho - spent.rho - held.rho, 0))
    conversion = int(budget.delta_conversion)
    return parts.Budget(
        delta_cap=small(budget.delta_cap),
        cap=_rho(cap),
        before=_rho(before),
        release=_rho(release),
        held=_rho(held),
        after=_rho(spent),
        before_percent=_percent(before, cap),
        release_percent=_percent(release, cap),
        held_percent=_percent(held, cap),
        left_percent=_percent(left, cap, ROUND_FLOOR),
        used_percent=_percent(spent, cap),
        epsilon_cap=budget.epsilon_cap,
        epsilon_before=lifetime_epsilon(before, conversion),
        epsilon_after=lifetime_epsilon(spent, conversion),
        fails=_fails(spent, cap) if spent.delta else None,
    )


def earlier_points(session: Session, artifact: Artifact, required: Sequence[str]) -> Iterator[Fact]:
    """What the releases of the same dataset measured, beside their epsilon; the newest artifact of each request.

    Args:
        required: names (metric.figure) that the policy bounds.
    """
    own = session.get_one(Request, artifact.request_id)
    for one in history.released_metrics(session, own.dataset_id):
        if request_body(one.request)["epsilon"] is None:
            continue
        found = Measurements(one.request, one.state, this=one.request.id == own.id)
        for result in _newest(one.results):
            yield from found.points(result, {*required, *PLOTTED})


@dataclass(frozen=True)
class Measurements:
    """One release on the plot of privacy and utility."""

    request: Request
    state: str
    this: bool

    def points(self, result: MetricResult, wanted: Collection[str]) -> Iterator[Fact]:
        """The figures of a metric that are wanted (metric.figure), as points that keep the metric's exposure."""
        body = request_body(self.request)
        for one in figures(result.name, result.values):
            if f"{result.name}.{one.name}" in wanted and number(one.value) is not None:
                ends = (None if number(end) is None else str(end) for end in (one.low, one.high))
                yield Fact(
                    result.exposure,
                    parts.Point(self.request.id, self.this, self.state, body["mechanism"], body["epsilon"],
                                result.name, one.name, str(one.value), *ends),
                )  # fmt: skip


def newest_results(session: Session, artifact: Artifact) -> list[MetricResult]:
    """The stored evaluations of an artifact, internal ones too, the newest of each metric."""
    return _newest(one.result for one in artifacts.evaluations(session, artifact))


def _newest(stored: Iterable[str]) -> list[MetricResult]:
    """The newest of each metric, of results oldest first."""
    results = (MetricResult.from_json(stored_object(each, "result of an evaluation")) for each in stored)
    return list({result.name: result for result in results}.values())


def _of_sections(sections: Sequence[Section]) -> Iterator[Content]:
    for section in sections:
        match section:
            case Warnings(lines=lines):
                yield from map(parts.Warned, lines)
            case Lines(title=title, rows=rows) if not title.startswith(SHOWN_OTHERWISE):
                yield parts.Table(title, (), rows, "")
            case Grid(title=title, columns=columns, rows=rows, empty=empty) if not title.startswith(SHOWN_OTHERWISE):
                yield parts.Table(title, columns, rows, empty)


def _decision(gate: str, one: Given) -> parts.Decision:
    return parts.Decision(gate, one.by, None, one.decision, one.reason, one.counts, overridden(one.reason))


def _gate(asked: Question, matter: Matter) -> parts.Gate:
    rules = asked.policy.rules_for(asked.dataset)
    commands = tuple(_commands(asked.number, matter, rules)) if asked.state == "produced" else ()
    return parts.Gate(asked.state, matter.subject_digest, asked.counted, rules.publish, commands)


def _commands(number: int, matter: Matter, rules: EffectiveRules) -> Iterator[str]:
    if not matter.outside or rules.overrides:
        why = "override" if matter.outside else "reason"
        yield f'almoner approve {number} --gate publish --{why} "..."'
    yield f'almoner reject {number} --gate publish --reason "..."'


def _fails(spent: Amount, cap: Amount) -> str:
    return f"Mechanisms that can fail have spent {small(spent.delta_text)} of {small(cap.delta_text)} for that."


def _rho(amount: Amount) -> str:
    return figure(Decimal(amount.rho_text))


def _percent(part: Amount, cap: Amount, rounding: str = ROUND_CEILING) -> str:
    share = Decimal(part.rho) * 100 / cap.rho if cap.rho else Decimal(0)
    return figure(share.quantize(Decimal("0.1"), rounding))
