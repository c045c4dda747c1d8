"""What a steward reads before deciding on a request: warnings, cost, budget, content, change, policy, in this order."""

from collections.abc import Iterable, Iterator
from decimal import ROUND_CEILING, Decimal

from flows.approvals.request_diff import differences
from flows.approvals.request_review import Budget, Given, Question
from flows.approvals.review import Grid, Lines, Section, Warnings
from models_db.errors import Refused, UsageError
from models_db.policies.policy import EffectiveRules
from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from models_db.values.gates import Gate
from models_db.values.request_state import UNRUN
from models_db.values.standing_terms import BLOCKS_READ
from tasks.accounting.lifetime_claims import lifetime_epsilon
from tasks.common.strict_model import figure
from tasks.evaluation.policy_bounds import Outcome, OutsideBounds, missed
from tasks.release.approved_request import ApprovedRequest
from tasks.release.claim import Claim
from tasks.release.record import Person, ReleaseRecord
from tasks.release.wording.card_text import bounds
from tasks.values.metric_result import MetricResult

NEARLY_SPENT = Decimal("0.8")


def spend_sections(question: Question, viewer: str | None) -> tuple[Section, ...]:
    """The sections at the spend gate; `viewer` is the public key of whoever looks."""
    return (
        *_warned(_doubts(question, viewer)),
        *_cost(question),
        *_content(question),
        *_background(question, Gate.SPEND),
    )


def publish_sections(
    question: Question,
    viewer: str | None,
    record: ReleaseRecord,
    metrics: tuple[MetricResult, ...],
    released: Section,
    files: dict[str, dict[str, str | int]],
) -> tuple[Section, ...]:
    """The sections at the publish gate: what would leave comes first, since its price is paid.

    Args:
        released: some of the texts, or the insights.
    """
    doubts = [*_doubts(question, viewer), *_runner_doubts(record, viewer), *_bound_doubts(question, metrics)]
    return (
        *_warned(doubts),
        Grid("What would leave", ("file", "bytes", "sha256"), _file_rows(files)),
        _measured(metrics),
        released,
        Lines("Report", (("all of this as one page, with plots", f"almoner report {question.number}"),), signed=False),
        *_cost(question),
        *_content(question),
        *_background(question, Gate.PUBLISH),
    )


def _warned(doubts: Iterable[str]) -> Iterator[Warnings]:
    lines = tuple(doubts)
    if lines:
        yield Warnings(lines, signed=False)


def _doubts(question: Question, viewer: str | None) -> Iterator[str]:
    yield from _doubts_of_viewer(question, viewer)
    if any(one.decision == "reject" and one.counts for one in question.given):
        yield "A steward has rejected it."
    if question.expired:
        yield "The request has expired; it can no longer be run."
    if refusal := question.budget.refusal(question.dataset):
        yield f"It can only be rejected: {refusal.name}. {refusal.message}"
    yield from _doubts_of_budget(question)
    if _at_least_one_over_population(question):
        yield "Delta is not below 1/(declared population): such a claim would allow a whole record to be released."
    if question.views is not None:
        yield question.views.sentence
    yield from question.notices
    yield from _plan_doubts(question)


def _doubts_of_viewer(question: Question, viewer: str | None) -> Iterator[str]:
    if viewer == question.requester.public_key:
        yield "You asked for this release yourself."
    if names_of(question.stewards).get(viewer or "") in {one.by for one in question.given if one.counts}:
        yield "You have decided on this already."


def _doubts_of_budget(question: Question) -> Iterator[str]:
    share = _share_after(question)
    if question.claim is None:
        yield "There is NO privacy claim: the dataset is marked public."
    if not _affordable(question):
        yield "The dataset cannot pay for this now: the run would be refused."
    if share > NEARLY_SPENT:
        yield f"With it, {_percent(share)} of the lifetime budget is gone; it never comes back."


def _plan_doubts(question: Question) -> Iterator[str]:
    try:
        question.asked.require_planned()
    except (Refused, UsageError) as other:
        yield f"The plan has changed: {other.message} A run would be refused."


def _runner_doubts(record: ReleaseRecord, viewer: str | None) -> Iterator[str]:
    if viewer == record.people.runner.public_key:
        yield "You ran this release yourself."


def missed_by(question: Question, metrics: tuple[MetricResult, ...]) -> tuple[Outcome, ...]:
    """The bounds of the policy that a release does not keep; internal metrics are not looked at."""
    required = question.policy.rules_for(question.dataset).required
    return missed(required, {one.name: one for one in metrics if one.exposure != "internal"})


def _bound_doubts(question: Question, metrics: tuple[MetricResult, ...]) -> Iterator[str]:
    outside = missed_by(question, metrics)
    if not outside:
        return
    overridable = question.policy.rules_for(question.dataset).overrides
    choice = (
        "It can be rejected or, on the record and named in what is published, approved all the same: --override."
        if overridable
        else "It can only be rejected: the policy lets nobody override its bounds."
    )
    yield f"{OutsideBounds(question.number, outside).message} {choice}"


def _cost(question: Question) -> tuple[Section, ...]:
    claim = question.claim
    return (
        Lines("What it costs" if claim else "What it claims", tuple(_claim_rows(question, claim))),
        _lifetime(question),
        mechanisms(question.events),
    )


def _claim_rows(question: Question, claim: Claim | None) -> Iterator[tuple[str, str]]:
    asked = question.asked
    if claim is None:
        yield "privacy", "none is claimed"
        return
    other = claim.replace_one
    yield "this release", f"epsilon {claim.epsilon} at delta {small(claim.delta)} (rho {claim.rho})"
    yield "privacy unit", f"{asked.unit}: all records with one {asked.unit} count as one"
    yield "relation", f"one unit more or less ({asked.relation})"
    yield "replace one", f"epsilon {_up(other.epsilon)} at delta {small(other.delta)}, one unit exchanged for another"
    if question.loss != Amount():
        _, right = bounds(Decimal(claim.epsilon), Decimal(claim.delta))
        yield "at worst", f"who must guess whether a unit is in the data is right in at most {figure(right)} % of cases"
    if asked.scope is not None:
        yield "envelope", f"it draws on {asked.scope!r}, which is reserved for such requests"
    yield "blocks", f"{_blocks_read(asked)} may be read, and each is charged"
    yield "no refund", "what is spent stays spent, whatever becomes of the texts"


def _blocks_read(asked: ApprovedRequest) -> str:
    """Which blocks a request names, of a dataset with several cohorts by those."""
    if asked.cohorts is None:
        return f"{len(asked.plan.blocks)} of {asked.blocks}"
    return f"{len(asked.plan.blocks)}, {asked.plan.facts.get(BLOCKS_READ, 'of some cohorts')},"


def _lifetime(question: Question) -> Grid:
    budget, after, share = question.budget, _after(question), _percent(_share_after(question))
    rows = [_balance_row("after" if question.state in UNRUN else "spent", budget, after)]
    if question.state in UNRUN:
        rows.insert(0, _balance_row("before", budget, budget.spent))
    if budget.held != Amount():
        rows.append(("held by runs", "", _rho(budget.held), _fail(budget.held)))
    rows.append(("cap", budget.epsilon_cap, _rho(budget.cap), _fail(budget.cap)))
    used = f"{share} used afterwards" if question.state in UNRUN else f"{share} used; nothing more is charged"
    asked = question.asked
    part = asked.rotate_over is not None or asked.cohorts is not None
    whose = f"{question.dataset}, of the blocks it reads" if part else question.dataset
    return Grid(
        f"Lifetime budget of {whose}, all releases together at delta {small(budget.delta_cap)}: {used}",
        ("", "epsilon", "rho", "failure delta"),
        tuple(rows),
        signed=False,
    )


def _balance_row(name: str, budget: Budget, amount: Amount) -> tuple[str, ...]:
    return name, lifetime_epsilon(amount, int(budget.delta_conversion)), _rho(amount), _fail(amount)


def mechanisms(events: list[PrivacyEvent]) -> Grid:
    """What is charged, how often, with which parameters."""
    rows = tuple(
        (
            event.mechanism,
            str(event.count),
            _rho(event.loss) + (f", delta {_fail(event.loss)}" if event.loss.delta else ""),
            ", ".join(f"{name} {value}" for name, value in event.parameters.items()),
        )
        for event in events
    )
    return Grid("Mechanisms", ("mechanism", "times", "rho", "parameters"), rows, empty="None: nothing is charged.")


def _content(question: Question) -> tuple[Section, ...]:
    asked, dataset = question.asked, question.asked.dataset
    rows = (
        ("kind", f"{asked.kind}, by {asked.mechanism}"),
        ("dataset", f"{dataset.name}, version {dataset.version}" + ("" if asked.governed else " (marked public)")),
        ("model", f"{asked.model.name} ({asked.model.licence}), revision {asked.model.revision}"),
        ("prompt", asked.prompt.description),
        *((f"prompt: {name}", text) for name, text in asked.prompt.templates.items()),
        *((f"declared: {name}", _said(value)) for name, value in (asked.public_metadata or {}).items()),
        ("evaluation", ", ".join(asked.evaluation) or "none"),
        *((name, value) for name, value in asked.plan.facts.items()),
    )
    return Lines("What is made", rows), *_groups(question), _difference(question)


def _groups(question: Question) -> Iterator[Grid]:
    """Of summaries, what they are about: each group gets a text, and the model is told these words of it."""
    if groups := question.asked.groups:
        rows = tuple((group.id, group.shown) for group in groups)
        yield Grid("What is summarised: one text for each group", ("group", "as the model is told of it"), rows)


def _said(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _difference(question: Question) -> Grid:
    previous, columns = question.previous, ("field", "then", "now")
    if previous is None:
        return Grid("Difference", columns, (), signed=False, empty=f"This is the first release of {question.dataset}.")
    return Grid(
        f"Difference to release {previous.number} ({previous.state})",
        columns,
        differences(previous.request, question.request),
        signed=False,
        empty="It asks for exactly the same.",
    )


def _background(question: Question, gate: str) -> tuple[Section, ...]:
    policy, rules = question.policy, question.policy.rules_for(question.dataset)
    needed = rules.spend if gate is Gate.SPEND else rules.publish
    rows = (
        ("separate roles", "no: one person may ask, approve and run" if policy.several_roles else
         "yes: nobody approves what they asked for or ran"),
        ("approvals needed", f"{rules.spend} to spend, {rules.publish} to publish"),
        *_limits(rules),
        ("digest", question.request["policy"]),
    )  # fmt: skip
    return (
        Lines("Policy it was asked under", rows),
        Lines("Who", tuple(_people(question, needed)), signed=False),
    )


def _limits(rules: EffectiveRules) -> Iterator[tuple[str, str]]:
    if rules.release is not None:
        yield (
            "one release",
            f"epsilon at most {rules.release.epsilon_max}, delta at most {small(str(rules.release.delta_max))}",
        )
    if rules.delta_below_population:
        yield "delta", "below 1/(declared population)"
    for what, allowed in (("mechanisms", rules.mechanisms), ("models", rules.models)):
        if allowed is not None:
            yield what, ", ".join(allowed)
    for metric, figures in rules.required.items():
        yield f"must have {metric}", "; ".join(f"{name} {bound}" for name, bound in figures.items()) or "measured"
    if rules.pacing is not None:
        yield "pacing", f"{rules.pacing.share} of the lifetime budget in one {rules.pacing.every}"


def _people(question: Question, needed: int) -> Iterator[tuple[str, str]]:
    yield "asked for by", question.requester.name
    yield from decisions_so_far(question.given, question.counted, needed)


def decisions_so_far(given: Iterable[Given], counted: int, needed: int) -> Iterator[tuple[str, str]]:
    """Who has decided what, and how many approvals are still needed."""
    yield "approved so far", f"{counted} of {needed}"
    for one in given:
        word = {"approve": "approved", "reject": "rejected"}.get(one.decision, one.decision)
        yield one.by, f"{word}{'' if one.counts else ' (no longer counts)'}: {one.reason}"


def _measured(metrics: tuple[MetricResult, ...]) -> Grid:
    rows = tuple((one.name, one.line, one.exposure) for one in metrics if one.exposure != "internal")
    return Grid("Evaluation", ("metric", "result", "data used"), rows, empty="Nothing was measured.")


def _file_rows(files: dict[str, dict[str, str | int]]) -> tuple[tuple[str, ...], ...]:
    return tuple((name, str(entry["bytes"]), str(entry["sha256"])) for name, entry in sorted(files.items()))


def _after(question: Question) -> Amount:
    spent = question.budget.spent
    return spent + question.loss if question.state in UNRUN else spent


def _affordable(question: Question) -> bool:
    held = question.budget.held if question.state in UNRUN else Amount()
    return (_after(question) + held).fits(question.budget.cap)


def _share_after(question: Question) -> Decimal:
    """How much of the cap is gone afterwards, of rho or of the failure probability, whichever is more."""
    after, cap = _after(question), question.budget.cap
    return max(Decimal(part) / whole if whole else Decimal(0)
               for part, whole in ((after.rho, cap.rho), (after.delta, cap.delta)))  # fmt: skip


def _at_least_one_over_population(question: Question) -> bool:
    asked = question.asked
    return asked.population is not None and asked.delta is not None and Decimal(asked.delta) * asked.population >= 1


def _percent(share: Decimal) -> str:
    return f"{(share * 100).quantize(Decimal('0.1'), ROUND_CEILING)} %"


def _up(epsilon: str) -> str:
    return figure(Decimal(epsilon).quantize(Decimal("0.0001"), ROUND_CEILING))


def _rho(amount: Amount) -> str:
    return figure(Decimal(amount.rho_text))


def _fail(amount: Amount) -> str:
    return small(amount.delta_text)


def small(value: str) -> str:
    """A decimal as people write small ones: 1e-7."""
    number = Decimal(value).normalize()
    return f"{number:e}".replace("e-0", "e-") if 0 < number < Decimal("0.001") else figure(number)


def names_of(people: tuple[Person, ...]) -> dict[str, str]:
    """{public key: name}"""
    return {person.public_key: person.name for person in people}
