"""Sections of the review of a request: warnings, summary, cost, budget, content, change, policy, details."""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from flows.approvals.review import request_differences
from flows.approvals.review_input import RequestReviewInput, ReviewInput, UndecidableHere
from models_db.errors import AlmonerError
from models_db.policies.policy import EffectiveRules
from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from models_db.values.request_state import UNRUN_STATES, WAITS_AT, Gate
from models_db.values.standing_terms import BLOCKS_READ
from tasks.accounting.lifetime_claims import BudgetFacts, shares_of_cap
from tasks.common.published_values import format_share, format_small
from tasks.evaluation.policy_bounds import BoundCheck, OutsideBounds, missed
from tasks.planning.secret_assignment import CONDITION, asked_while_secret, while_secret
from tasks.pricing.request_warnings import influence_of_request, setting_warnings, units_behind
from tasks.release.approved_request import ApprovedRequest
from tasks.release.card_text import parameter_text
from tasks.release.claim import Claim, describe_guesses, describe_replace_one, release_weaknesses, undeclared_population
from tasks.release.record import Person, ReleaseRecord
from tasks.release.sections import WARNINGS, FieldList, Section, Summary, Table, Warnings
from tasks.values.results import MetricResult, ReleaseKind

NEARLY_SPENT = Decimal("0.8")
CHOSEN_TITLE = "Chosen by almoner: the author left these out"
DETAIL_FACTS = (
    "batches per block",
    "clipping",
    "draws per instalment",
    "reference tokens",
    "rho per draw",
    "temperature",
    "top k",
)
"""Facts of a plan that a screen may leave out; it shows every other one, so that nothing new is hidden by default."""


def spend_sections(inputs: RequestReviewInput, viewer: str | None, refusal: AlmonerError | None) -> tuple[Section, ...]:
    """Return the sections at the spend gate.

    Args:
        viewer: the reader's public key.
        refusal: why it can only be rejected (`RequestReviewInput.refusal`), if there is a reason.
    """
    return (
        *_warning_section(_request_warnings(inputs, viewer, refusal)),
        *_budget_warning(inputs),
        Summary("Summary", tuple(_spend_summary(inputs)), signed=False),
        *_price_section(inputs),
        *_cost_section(inputs),
        *_content_section(inputs),
        *_background_sections(inputs),
        *_detail_sections(inputs),
    )


def publish_sections(
    inputs: RequestReviewInput,
    viewer: str | None,
    refusal: AlmonerError | None,
    record: ReleaseRecord,
    metrics: tuple[MetricResult, ...],
    released: Section,
    files: dict[str, dict[str, str | int]],
    looked_for: str | None,
) -> tuple[Section, ...]:
    """Return the sections at the publish gate: the texts come first, because their price is paid; digests come last.

    Args:
        viewer, refusal: as of `spend_sections`.
        released: the section with samples of the texts, or with the insights.
        looked_for: the sentence about the doubts of all texts; None for insights.
    """
    doubts = [
        *_request_warnings(inputs, viewer, refusal),
        *_runner_warnings(record, viewer),
        *_bound_warnings(inputs, metrics),
    ]
    return (
        *_warning_section(doubts),
        *_budget_warning(inputs),
        Summary("Summary", (*_publish_summary(inputs, record), *([looked_for] if looked_for else [])), signed=False),
        released,
        _metric_rows(metrics),
        _further_reading(inputs.number, record),
        *_cost_section(inputs),
        *_content_section(inputs),
        *_background_sections(inputs),
        *_detail_sections(inputs),
        Table("Files to publish", ("file", "bytes", "sha256"), _file_rows(files), detail=True),
    )


def _further_reading(number: int, record: ReleaseRecord) -> FieldList:
    """Return the commands that show more of a draft than its review."""
    texts = (
        () if record.kind == ReleaseKind.INSIGHTS else (("every text, with doubts", f"almoner release texts {number}"),)
    )
    rows = (*texts, ("this review as one page, with plots", f"almoner report {number}"))
    return FieldList("Read before you decide", rows, signed=False)


def _spend_summary(inputs: RequestReviewInput) -> Iterator[str]:
    request, facts = inputs.approved_request, inputs.approved_request.plan.facts
    number = f": {facts['samples']} texts" if "samples" in facts else ""
    yield _state_sentence(inputs, Gate.SPEND)
    yield f"It asks for a release of kind {request.kind} by {request.mechanism} with {request.model.name}{number}."
    if (behind := units_behind(inputs.request)) is not None:
        yield behind
    yield from (rehearsal.sentence for rehearsal in inputs.rehearsals)


def _price_section(inputs: RequestReviewInput) -> Iterator[Section]:
    """Yield what it costs and leaves, for those who may see the balance."""
    if inputs.state in UNRUN_STATES:
        sentence = inputs.budget.facts.cost_sentence(inputs.dataset, inputs.loss, affordable=_is_affordable(inputs))
        yield Summary("Price", (sentence,), signed=False, audience="steward")


def _publish_summary(inputs: RequestReviewInput, record: ReleaseRecord) -> Iterator[str]:
    yield _state_sentence(inputs, Gate.PUBLISH)
    yield "Its cost is paid. After approval its files may leave this home, and copies cannot be called back."


def _state_sentence(inputs: RequestReviewInput, gate: Gate) -> str:
    if inputs.state not in WAITS_AT[gate]:
        return f"Request {inputs.number} is {inputs.state}."
    noun = "approval" if inputs.needed == 1 else "approvals"
    return f"Request {inputs.number} is {inputs.state}: {inputs.counted} of {inputs.needed} {noun} at the {gate} gate."


def _warning_section(doubts: Iterable[str]) -> Iterator[Warnings]:
    lines = tuple(doubts)
    if lines:
        yield Warnings(WARNINGS, lines, signed=False)


def _request_warnings(inputs: RequestReviewInput, viewer: str | None, refusal: AlmonerError | None) -> Iterator[str]:
    yield from content_warnings(inputs.request, inputs.claim, inputs.loss)
    yield from _viewer_warnings(inputs, viewer)
    if any(one.decision == "reject" and one.counts for one in inputs.given):
        yield "A steward has rejected it."
    if inputs.state in UNRUN_STATES:
        yield from _obstacles(inputs)
    if refusal is not None and (inputs.state in UNRUN_STATES or inputs.charged_rho is not None):
        here = "It cannot be approved here" if isinstance(refusal, UndecidableHere) else "It can only be rejected"
        yield f"{here}: {refusal.code}. {refusal.message}"
    if inputs.views is not None:
        yield inputs.views.sentence
    yield from inputs.notices


def _obstacles(inputs: RequestReviewInput) -> Iterator[str]:
    """Yield why a request that has not been run could not be run now."""
    if inputs.expired:
        yield "The request has expired; it can no longer be run."
    if inputs.passes_limit:
        yield "The policy's `lifetime_while_secret` does not allow this now: the run would be refused."
    elif not _is_affordable(inputs):
        yield "The dataset cannot pay for this now: the run would be refused."


def content_warnings(request: Mapping[str, Any], claim: Claim | None, loss: Amount) -> Iterator[str]:
    """Yield what is weak in the promise of a canonical request, or of a standing authorisation's, and in its settings.

    Args:
        claim, loss: its claim, None without protection, and its cost.
    """
    population = request.get("population")
    if claim is None:
        yield "There is NO privacy claim: the dataset is marked public."
    else:
        yield from release_weaknesses(claim.epsilon, claim.delta, population)
        if population is not None and Decimal(claim.delta) * population >= 1:
            yield "Delta is not below 1/(declared population): such a claim would allow a whole record to be released."
        if population is None and loss != Amount():
            yield undeclared_population(claim.delta)
    yield from setting_warnings(request)


def _viewer_warnings(inputs: RequestReviewInput, viewer: str | None) -> Iterator[str]:
    if viewer == inputs.requester.public_key:
        yield "You requested this release yourself."
    if names_by_key(inputs.stewards).get(viewer or "") in {one.by for one in inputs.given if one.counts}:
        yield "You have decided on this already."


def _budget_warning(inputs: RequestReviewInput) -> Iterator[Warnings]:
    """Yield a warning if the budget is nearly spent, for those who may see the balance."""
    if (share := _spent_share_after(inputs)) > NEARLY_SPENT:
        line = f"With it, {format_share(share)} of the lifetime budget is used up; it is never refilled."
        yield Warnings("Look twice at the budget", (line,), signed=False, audience="steward")


def _runner_warnings(record: ReleaseRecord, viewer: str | None) -> Iterator[str]:
    if viewer == record.people.runner.public_key:
        yield "You ran this release yourself."


def missed_bounds(inputs: RequestReviewInput, metrics: tuple[MetricResult, ...]) -> tuple[BoundCheck, ...]:
    """Return the bounds of the policy that a release misses; internal metrics do not count."""
    required = inputs.policy.rules_for(inputs.dataset).required
    return missed(required, {one.name: one for one in metrics if one.exposure != "internal"})


def _bound_warnings(inputs: RequestReviewInput, metrics: tuple[MetricResult, ...]) -> Iterator[str]:
    outside = missed_bounds(inputs, metrics)
    if not outside:
        return
    overridable = inputs.policy.rules_for(inputs.dataset).overrides
    choice = (
        "It can be rejected, or approved with --override, which is recorded and published with the release."
        if overridable
        else "It can only be rejected: the policy forbids overrides of its bounds."
    )
    yield f"{OutsideBounds(inputs.number, outside).message} {choice}"


def _cost_section(inputs: RequestReviewInput) -> tuple[Section, ...]:
    claim = inputs.claim
    return (
        FieldList("Privacy cost" if claim else "Privacy claim", tuple(_claim_rows(inputs, claim))),
        _lifetime_section(inputs),
    )


def _claim_rows(inputs: RequestReviewInput, claim: Claim | None) -> Iterator[tuple[str, str]]:
    request = inputs.approved_request
    if claim is None:
        yield "privacy", "none is claimed"
        return
    other = claim.replace_one
    yield "this release", f"epsilon {claim.epsilon} at delta {format_small(claim.delta)} (rho {claim.rho})"
    if claim.secret_assignment is not None:
        end = inputs.secrecy_end
        yield "while secret", while_secret(claim.secret_assignment, None if end is None else end.sentence)
    if request.epsilon_while_secret is not None:
        yield "asked for", asked_while_secret(request.epsilon_while_secret)
    yield "privacy unit", f"{request.unit}: all records with one {request.unit} count as one"
    yield "relation", f"one unit more or less ({request.relation})"
    yield "replace one", f"{describe_replace_one(other)}, one unit exchanged for another"
    if inputs.loss != Amount():
        _, right = claim.guessing_bounds
        yield "at worst", f"a guess whether a unit is in the data is right {describe_guesses(right)}"
    yield "blocks", f"{_blocks_read(request)} may be read, and each is charged"
    if inputs.charged_rho is not None:
        yield "charged", f"rho {inputs.charged_rho} on each block, which is the whole plan"
    yield "no refund", "spent budget stays spent, even if the texts are rejected"


def _blocks_read(request: ApprovedRequest) -> str:
    """Return the blocks that a request names, by cohort where the dataset has several."""
    if request.cohorts is None:
        return f"{len(request.plan.blocks)} of {request.blocks}"
    return f"{len(request.plan.blocks)}, {request.plan.facts.get(BLOCKS_READ, 'of some cohorts')},"


def _lifetime_section(inputs: RequestReviewInput) -> Table:
    budget, after, share = inputs.budget.facts, _claim_after_release(inputs), format_share(_spent_share_after(inputs))
    rows = [_balance_row("after" if inputs.state in UNRUN_STATES else "spent", budget, after)]
    if inputs.state in UNRUN_STATES:
        rows.insert(0, _balance_row("before", budget, budget.spent))
    held = budget.balance.held
    if held != Amount():
        rows.append(("held by runs", "", held.rho_text, format_small(held.delta_text)))
    rows.append(("cap", budget.claim.epsilon, budget.cap.rho_text, format_small(budget.cap.delta_text)))
    used = f"{share} used afterwards" if inputs.state in UNRUN_STATES else f"{share} used; nothing more is charged"
    part = inputs.approved_request.cohorts is not None
    whose = f"{inputs.dataset}, of the blocks it reads" if part else inputs.dataset
    return Table(
        f"Lifetime budget of {whose}, all releases together at delta {format_small(budget.claim.delta)}: {used}",
        ("", "epsilon", "rho", "failure delta"),
        tuple(rows),
        signed=False,
        audience="steward",
    )


def _balance_row(name: str, budget: BudgetFacts, amount: Amount) -> tuple[str, ...]:
    return name, budget.epsilon_of(amount), amount.rho_text, format_small(amount.delta_text)


def mechanism_rows(events: list[PrivacyEvent]) -> Table:
    """Return the charged mechanisms, their counts and their parameters."""
    rows = tuple(
        (
            event.mechanism,
            str(event.count),
            event.loss.rho_text + (f", delta {format_small(event.loss.delta_text)}" if event.loss.delta else ""),
            ", ".join(f"{name} {value}" for name, value in event.parameters.items()),
        )
        for event in events
    )
    columns = ("mechanism", "times", "rho", "parameters")
    return Table("Mechanisms", columns, rows, empty="None: nothing is charged.", detail=True)


def _content_section(inputs: RequestReviewInput) -> tuple[Section, ...]:
    request, dataset = inputs.approved_request, inputs.approved_request.dataset
    rows = (
        ("kind", f"{request.kind}, by {request.mechanism}"),
        ("dataset", f"{dataset.name}, version {dataset.version}" + ("" if request.governed else " (marked public)")),
        ("model", str(request.model)),
        ("prompt", request.prompt.description),
        *((f"prompt: {name}", text) for name, text in request.prompt.wording.items()),
        *((f"declared: {name}", _field_value(value)) for name, value in (request.public_metadata or {}).items()),
        ("evaluation", ", ".join(request.evaluation) or "none"),
        *((("embedder of metrics", str(embedder)),) if (embedder := request.evaluation_embedder) else ()),
        *((name, value) for name, value in request.plan.facts.items() if name not in DETAIL_FACTS),
        *((("influence", influence.sentence),) if (influence := influence_of_request(inputs.request)) else ()),
    )
    return (
        FieldList("Content of the release", rows),
        *_choice_sections(request),
        *_group_sections(inputs),
        *_rehearsal_sections(inputs),
        _difference_section(inputs),
    )


def _rehearsal_sections(inputs: RequestReviewInput) -> Iterator[Table]:
    """Yield the figures of each rehearsal on public data."""
    for one in inputs.rehearsals:
        rows = tuple((m.name, m.public_only, m.request, m.non_private, m.way) for m in one.result.metrics)
        title = f"Rehearsal on {one.result.twin.name}, public: {one.result.extent}"
        columns = ("metric", "public model", "this request", "no privacy", "share of the way")
        yield Table(title, columns, rows, signed=False, empty="Nothing could be measured.")


def _choice_sections(request: ApprovedRequest) -> Iterator[Table]:
    """Yield the parameters that almoner chose, because the request's author left them out."""
    if request.choices:
        rows = tuple(
            (name, parameter_text(request.parameters[name]), reason) for name, reason in request.choices.items()
        )
        yield Table(CHOSEN_TITLE, ("parameter", "value", "reason"), rows)


def _detail_sections(inputs: RequestReviewInput) -> Iterator[Section]:
    request = inputs.approved_request
    rows = (
        *((name, value) for name, value in request.plan.facts.items() if name in DETAIL_FACTS),
        *((("prompt: SHA-256 of its token ids", request.prompt_sha256),) if request.prompt_sha256 else ()),
        ("policy: SHA-256", inputs.request["policy"]),
    )
    yield mechanism_rows(inputs.events)
    yield FieldList("Content of the release, in detail", rows, detail=True)


def _group_sections(inputs: RequestReviewInput) -> Iterator[Table]:
    """Yield the groups of a request for summaries, one text each, with the description of the group in the prompt."""
    if groups := inputs.approved_request.groups:
        rows = tuple((group.id, group.shown) for group in groups)
        yield Table("Groups to summarise: one text for each group", ("group", "description in the prompt"), rows)


def _field_value(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _difference_section(inputs: RequestReviewInput) -> Table:
    previous, columns = inputs.previous, ("field", "then", "now")
    if previous is None:
        return Table("Difference", columns, (), signed=False, empty=f"This is the first release of {inputs.dataset}.")
    return Table(
        f"Difference to release {previous.number} ({previous.state})",
        columns,
        request_differences(previous.request, inputs.request),
        signed=False,
        empty="The two requests are the same.",
    )


def _background_sections(inputs: RequestReviewInput) -> tuple[Section, ...]:
    policy, rules = inputs.policy, inputs.policy.rules_for(inputs.dataset)
    rows = (
        ("separate roles", "no: one person may request, approve and run" if policy.several_roles else
         "yes: nobody approves a release that they requested or ran"),
        ("approvals needed", f"{rules.spend} to spend, {rules.publish} to publish"),
        *_policy_limits(rules),
    )  # fmt: skip
    return (
        FieldList("Policy of the request", rows),
        FieldList("Who", tuple(_people_section(inputs)), signed=False),
    )


def _policy_limits(rules: EffectiveRules) -> Iterator[tuple[str, str]]:
    if rules.release is not None:
        yield (
            "one release",
            f"epsilon at most {rules.release.epsilon_max}, delta at most {format_small(str(rules.release.delta_max))}",
        )
        if (secret := rules.release.epsilon_while_secret_max) is not None:
            yield "one release while secret", f"epsilon at most {secret} {CONDITION}"
    if rules.delta_below_population:
        yield "delta", "below 1/(declared population)"
    for what, allowed in (("mechanisms", rules.mechanisms), ("models", rules.models)):
        if allowed is not None:
            yield what, ", ".join(allowed)
    for metric, figures in rules.required.items():
        yield f"must have {metric}", "; ".join(f"{name} {bound}" for name, bound in figures.items()) or "measured"


def _people_section(inputs: RequestReviewInput) -> Iterator[tuple[str, str]]:
    yield "requested by", inputs.requester.name
    yield from decision_rows(inputs)


def decision_rows(inputs: ReviewInput) -> Iterator[tuple[str, str]]:
    """Yield the number of approvals so far, and each decision."""
    yield "approved so far", f"{inputs.counted} of {inputs.needed}"
    for one in inputs.given:
        word = {"approve": "approved", "reject": "rejected"}.get(one.decision, one.decision)
        yield one.by, f"{word}{'' if one.counts else ' (no longer counts)'}: {one.reason}"


def _metric_rows(metrics: tuple[MetricResult, ...]) -> Table:
    rows = tuple((one.name, one.line, one.exposure) for one in metrics if one.exposure != "internal")
    return Table("Evaluation", ("metric", "result", "data used"), rows, empty="Nothing was measured.")


def _file_rows(files: dict[str, dict[str, str | int]]) -> tuple[tuple[str, ...], ...]:
    return tuple((name, str(entry["bytes"]), str(entry["sha256"])) for name, entry in sorted(files.items()))


def _claim_after_release(inputs: RequestReviewInput) -> Amount:
    return inputs.budget.facts.spent + _loss_to_come(inputs)


def _loss_to_come(inputs: RequestReviewInput) -> Amount:
    return inputs.loss if inputs.state in UNRUN_STATES else Amount()


def _is_affordable(inputs: RequestReviewInput) -> bool:
    return inputs.loss.fits(inputs.budget.facts.balance.remaining) and not inputs.passes_limit


def _spent_share_after(inputs: RequestReviewInput) -> Decimal:
    """Return the spent share of the cap after the request."""
    balance, loss = inputs.budget.facts.balance, _loss_to_come(inputs)
    return shares_of_cap(balance, _claim_after_release(inputs), loss=loss)[1]


def names_by_key(people: tuple[Person, ...]) -> dict[str, str]:
    """Map public keys to names."""
    return {person.public_key: person.name for person in people}
