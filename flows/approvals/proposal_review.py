"""Reviews of proposals: a new cap, a standing authorisation, a retraction."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from flows.approvals.review import Review, flatten_fields
from flows.approvals.review_input import DigitText, PreviousRelease, ReviewInput
from flows.approvals.review_sections import CHOSEN_TITLE, content_warnings, decision_rows, mechanism_rows
from flows.audit.lifetime_claims import AuthorisationDiffers, growth_in_words, require_authorisation
from models_db.errors import Refused
from models_db.services.datasets import LifetimeClaim
from models_db.values.amounts import Amount
from models_db.values.canonical_json import digest
from models_db.values.events import PrivacyEvent
from models_db.values.request_state import Gate
from tasks.accounting.lifetime_claims import AmountsDiffer, lifetime_epsilon, require_derived
from tasks.common.published_values import Digest, Figure, Name, Strict, format_small
from tasks.release.card_text import parameter_text
from tasks.release.record import Person, claim_of_plan, planned_events
from tasks.release.sections import WARNINGS, FieldList, Section, Table, Warnings


class ProposalContent(Strict):
    """The content of a proposal as its digest covers it (`models_db.services.proposals.content_of`)."""

    proposal: Literal["cap", "standing", "retraction"]
    dataset: Name
    reason: Annotated[str, Field(min_length=1)]
    nonce: Name
    expires_at: Name
    epsilon: Figure | None
    delta: Figure | None
    rho: DigitText | None
    delta_fail: DigitText | None
    delta_conversion: DigitText | None
    runs: Annotated[int, Field(ge=1)] | None
    until: Name | None
    config_digest: Digest | None
    publication: int | None

    @property
    def amount(self) -> Amount:
        """Return the new cap, or the most that one run may cost."""
        return Amount(int(self.rho or 0), int(self.delta_fail or 0))

    @property
    def claim(self) -> LifetimeClaim:
        """Return the proposed lifetime claim."""
        return LifetimeClaim(str(self.epsilon), str(self.delta), int(self.delta_conversion or 0), self.amount)


class ProposalReviewInput(ReviewInput):
    """A proposal at its gate; the signature covers `proposal`."""

    proposal: dict[str, Any]
    configuration: dict[str, Any] | None
    choices: dict[str, str] = Field(default_factory=dict)
    """Parameters of the configuration that almoner chose, each with its reason."""
    proposer: Person
    release: PreviousRelease | None
    """The release to be retracted."""

    @model_validator(mode="after")
    def _has_its_configuration(self) -> "ProposalReviewInput":
        stated = self.proposal.get("config_digest")
        if (None if self.configuration is None else digest(self.configuration)) != stated:
            raise ValueError("the configuration is not the one that the proposal names")
        return self

    @property
    def events(self) -> list[PrivacyEvent]:
        """Return the mechanisms of one run under a standing authorisation."""
        return planned_events(self.configuration) if self.configuration is not None else []

    @property
    def content(self) -> ProposalContent:
        """Parse the proposal into its closed format.

        Raises:
            ValidationError: it is in another format.
        """
        return ProposalContent.model_validate(self.proposal)


def build_proposal_review(inputs: ProposalReviewInput, viewer: str | None) -> Review:
    """Build the review of a proposal, ready to be shown and signed."""
    content = inputs.content
    effect = {"cap": _cap_sections, "standing": _standing_sections, "retraction": _retraction_sections}[
        content.proposal
    ]
    return Review(
        number=inputs.number,
        gate=Gate.PROPOSAL,
        dataset=content.dataset,
        state=inputs.state,
        subject_digest=digest(inputs.proposal),
        policy=inputs.policy,
        sections=(
            *_proposal_warnings(inputs, viewer),
            *effect(inputs, content),
            *_proposal_background(inputs, content),
        ),
        stewards=inputs.stewards,
        refusal=_reason_not_approvable(inputs),
    )


def _reason_not_approvable(inputs: ProposalReviewInput) -> Refused | None:
    """Return why a proposal can only be rejected: its amounts, or those of the claim in force, differ from the text."""
    content = inputs.content
    try:
        if content.proposal == "cap":
            require_derived(f"Proposal {inputs.number}", content.claim)
        elif content.proposal == "standing":
            require_authorisation(inputs.number, content.amount, inputs.configuration or {})
    except (AmountsDiffer, AuthorisationDiffers) as differs:
        return differs
    return None if content.proposal == "retraction" else inputs.budget.refusal(content.dataset)


def _proposal_warnings(inputs: ProposalReviewInput, viewer: str | None) -> Iterator[Section]:
    refusal = _reason_not_approvable(inputs)
    lines = [
        text
        for holds, text in (
            (viewer == inputs.proposer.public_key, "You made this proposal yourself."),
            (any(one.decision == "reject" for one in inputs.given), "A steward has rejected it."),
            (_raises_cap(inputs), "It RAISES the most the dataset may ever lose; every later card discloses that."),
            (inputs.content.proposal == "cap", _growth_in_words(inputs)),
            (refusal is not None, f"It can only be rejected: {refusal.code}. {refusal.message}" if refusal else ""),
        )
        if holds
    ]
    if (configuration := inputs.configuration) is not None and refusal is None:  # no steward decides on its runs
        lines += content_warnings(configuration, claim_of_plan(inputs.events, configuration), inputs.content.amount)
    lines += [inputs.views.sentence] if inputs.views else []
    if lines:
        yield Warnings(WARNINGS, tuple(lines), signed=False)


def _growth_in_words(inputs: ProposalReviewInput) -> str:
    """Return the factor by which a cap would change the budget, in words."""
    content = inputs.content
    return growth_in_words(inputs.budget.facts.claim, content.claim) if content.proposal == "cap" else ""


def _raises_cap(inputs: ProposalReviewInput) -> bool:
    content = inputs.content
    return content.proposal == "cap" and not content.amount.fits(inputs.budget.facts.cap)


def _cap_sections(inputs: ProposalReviewInput, content: ProposalContent) -> Iterator[Section]:
    budget, claim, conversion = inputs.budget.facts, inputs.budget.facts.claim, int(content.delta_conversion or 0)
    spent_then = lifetime_epsilon(budget.spent, conversion) if conversion else "-"
    rows = (
        ("epsilon, lifetime", claim.epsilon, content.epsilon or "-"),
        ("delta, lifetime", format_small(claim.delta), format_small(content.delta or "0")),
        ("rho", format_small(budget.cap.rho_text), format_small(content.amount.rho_text)),
        ("failure delta", format_small(budget.cap.delta_text), format_small(content.amount.delta_text)),
    )
    columns = ("", "now, in the ledger", "with this proposal")
    yield Table(f"Lifetime claim of {content.dataset}", columns, rows)
    spent = ("epsilon spent so far", budget.epsilon_spent, spent_then)
    yield Table("Spent", columns, (spent,), signed=False, audience="steward")


def _standing_sections(inputs: ProposalReviewInput, content: ProposalContent) -> Iterator[Section]:
    budget, runs, one = inputs.budget.facts, content.runs or 0, content.amount
    together = one * runs
    after = budget.spent + together
    most = (
        ("one run", f"rho at most {format_small(one.rho_text)}, failure delta at most {format_small(one.delta_text)}"),
        ("runs", f"at most {runs}, until {(content.until or '')[:10]}"),
        ("all runs together", f"rho at most {format_small(together.rho_text)}"),
    )
    yield FieldList("Runs without a decision each time", most)
    rows = (
        ("before", budget.epsilon_spent, format_small(budget.spent.rho_text)),
        ("after all runs", budget.epsilon_of(after), format_small(after.rho_text)),
        ("cap", budget.claim.epsilon, format_small(budget.cap.rho_text)),
    )
    title = f"Lifetime budget of {content.dataset}, all releases together at delta {format_small(budget.claim.delta)}"
    yield Table(title, ("", "epsilon", "rho"), rows, signed=False, audience="steward")
    yield FieldList("The one configuration that may be run", tuple(flatten_fields(inputs.configuration or {})))
    yield from _choice_sections(inputs)
    yield mechanism_rows(inputs.events)


def _choice_sections(inputs: ProposalReviewInput) -> Iterator[Table]:
    """Yield the parameters that almoner chose, because the proposal's author left them out; the values are signed."""
    parameters = (inputs.configuration or {}).get("parameters", {})
    rows = tuple((name, parameter_text(parameters.get(name, "-")), reason) for name, reason in inputs.choices.items())
    if rows:
        yield Table(CHOSEN_TITLE, ("parameter", "value", "reason"), rows, signed=False)


def _retraction_sections(inputs: ProposalReviewInput, content: ProposalContent) -> Iterator[Section]:
    release = inputs.release
    yield FieldList(
        "Release to be retracted",
        (
            ("publication", str(content.publication)),
            ("consequence", "later bundles name it as revoked; its budget stays spent"),
        ),
    )
    if release is not None:
        body = release.request
        yield FieldList(
            f"Release {release.number} ({release.state})",
            tuple((name, str(body.get(name))) for name in ("kind", "mechanism", "epsilon", "delta")),
            signed=False,
        )


def _proposal_background(inputs: ProposalReviewInput, content: ProposalContent) -> Iterator[Section]:
    yield FieldList("Why", (("reason", content.reason), ("open until", content.expires_at[:10])))
    yield FieldList(
        "Who",
        (
            ("proposed by", inputs.proposer.name),
            *decision_rows(inputs),
            ("separate roles", "no" if inputs.policy.several_roles else "yes: nobody approves what they proposed"),
        ),
        signed=False,
    )
