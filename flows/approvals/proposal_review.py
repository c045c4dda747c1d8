"""The question that a motion puts to stewards: a new cap, a standing authorisation, a retraction."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from flows.approvals.request_diff import fields
from flows.approvals.request_review import Budget, Given, Previous, Views, Whole
from flows.approvals.review import Grid, Lines, Matter, Section, Warnings
from flows.approvals.review_sections import decisions_so_far, mechanisms, small
from flows.audit.lifetime_claims import AuthorisationDiffers, growth, require_authorisation
from models_db.errors import Refused
from models_db.policies.policy import Policy
from models_db.services.catalogue.datasets import LifetimeClaim
from models_db.values.amounts import Amount
from models_db.values.canonical_json import digest
from models_db.values.events import PrivacyEvent
from models_db.values.gates import Gate
from tasks.accounting.lifetime_claims import AmountsDiffer, lifetime_epsilon, require_derived
from tasks.common.strict_model import Digest, Figure, Name, Strict
from tasks.release.record import Person, planned_events


class Motion(Strict):
    """All that a motion says, in the form its digest covers (`models_db.services.lifecycle.proposals.content_of`)."""

    motion: Literal["cap", "standing", "retraction"]
    dataset: Name
    reason: Annotated[str, Field(min_length=1)]
    nonce: Name
    expires_at: Name
    epsilon: Figure | None
    delta: Figure | None
    rho: Whole | None
    delta_fail: Whole | None
    delta_conversion: Whole | None
    runs: Annotated[int, Field(ge=1)] | None
    until: Name | None
    config_digest: Digest | None
    publication: int | None

    @property
    def amount(self) -> Amount:
        """The new cap, or the most that one run may cost."""
        return Amount(int(self.rho or 0), int(self.delta_fail or 0))

    @property
    def claim(self) -> LifetimeClaim:
        """The lifetime claim that a cap asks for."""
        return LifetimeClaim(str(self.epsilon), str(self.delta), int(self.delta_conversion or 0), self.amount)


class MotionQuestion(Strict):
    """A motion at its gate; `motion` is what is signed."""

    number: int = Field(ge=1)
    state: Name
    motion: dict[str, Any]
    configuration: dict[str, Any] | None
    proposer: Person
    policy: Policy
    stewards: tuple[Person, ...]
    given: tuple[Given, ...]
    counted: Annotated[int, Field(ge=0)]
    budget: Budget
    release: Previous | None
    """The release that would be retracted."""
    views: Views | None = None

    @model_validator(mode="after")
    def _has_its_configuration(self) -> "MotionQuestion":
        stated = self.motion.get("config_digest")
        if (None if self.configuration is None else digest(self.configuration)) != stated:
            raise ValueError("the configuration is not the one that the motion names")
        return self

    @property
    def events(self) -> list[PrivacyEvent]:
        """The mechanisms of one run under a standing authorisation."""
        return planned_events(self.configuration) if self.configuration is not None else []

    @property
    def says(self) -> Motion:
        """The motion in its closed format.

        Raises:
            ValidationError: it does not follow it.
        """
        return Motion.model_validate(self.motion)


def at_motion(question: MotionQuestion, viewer: str | None) -> Matter:
    """A motion, ready to be shown and signed."""
    says = question.says
    effect = {"cap": _cap, "standing": _standing, "retraction": _retraction}[says.motion]
    return Matter(
        number=question.number,
        gate=Gate.MOTION,
        dataset=says.dataset,
        state=question.state,
        subject_digest=digest(question.motion),
        policy=question.policy,
        sections=(*_doubts(question, viewer), *effect(question, says), *_background(question, says)),
        stewards=question.stewards,
        refusal=_refusal(question),
    )


def _refusal(question: MotionQuestion) -> Refused | None:
    """Why it can only be rejected: its amounts, or those of the claim in force, do not follow from their text."""
    says = question.says
    try:
        if says.motion == "cap":
            require_derived(f"Motion {question.number}", says.claim)
        elif says.motion == "standing":
            require_authorisation(question.number, says.amount, question.configuration or {})
    except (AmountsDiffer, AuthorisationDiffers) as differs:
        return differs
    return None if says.motion == "retraction" else question.budget.refusal(says.dataset)


def _doubts(question: MotionQuestion, viewer: str | None) -> Iterator[Section]:
    refusal = _refusal(question)
    lines = [
        text
        for holds, text in (
            (viewer == question.proposer.public_key, "You proposed this motion yourself."),
            (any(one.decision == "reject" for one in question.given), "A steward has rejected it."),
            (_raises(question), "It RAISES what the dataset may ever lose; every later card discloses that."),
            (question.says.motion == "cap", _growth(question)),
            (refusal is not None, f"It can only be rejected: {refusal.name}. {refusal.message}" if refusal else ""),
        )
        if holds
    ]
    lines += [question.views.sentence] if question.views else []
    if lines:
        yield Warnings(tuple(lines), signed=False)


def _growth(question: MotionQuestion) -> str:
    """By what factor a cap would change the budget, in words."""
    says = question.says
    return growth(question.budget.claim, says.claim) if says.motion == "cap" else ""


def _raises(question: MotionQuestion) -> bool:
    says = question.says
    return says.motion == "cap" and not says.amount.fits(question.budget.cap)


def _cap(question: MotionQuestion, says: Motion) -> Iterator[Section]:
    budget, conversion = question.budget, int(says.delta_conversion or 0)
    spent_now = lifetime_epsilon(budget.spent, int(budget.delta_conversion))
    rows = (
        ("epsilon, lifetime", budget.epsilon_cap, says.epsilon or "-"),
        ("delta, lifetime", small(budget.delta_cap), small(says.delta or "0")),
        ("rho", small(budget.cap.rho_text), small(says.amount.rho_text)),
        ("failure delta", small(budget.cap.delta_text), small(says.amount.delta_text)),
        ("epsilon spent so far", spent_now, lifetime_epsilon(budget.spent, conversion) if conversion else "-"),
    )
    yield Grid(f"Lifetime claim of {says.dataset}", ("", "now, says the ledger", "with this motion"), rows)


def _standing(question: MotionQuestion, says: Motion) -> Iterator[Section]:
    budget, runs, one = question.budget, says.runs or 0, says.amount
    unit, together = int(budget.delta_conversion), one * runs
    most = (
        ("one run", f"rho at most {small(one.rho_text)}, failure delta at most {small(one.delta_text)}"),
        ("runs", f"at most {runs}, until {(says.until or '')[:10]}"),
        ("all runs together", f"rho at most {small(together.rho_text)}"),
    )
    yield Lines("Runs without a decision each time", most)
    rows = (
        ("before", lifetime_epsilon(budget.spent, unit), small(budget.spent.rho_text)),
        ("after all runs", lifetime_epsilon(budget.spent + together, unit), small((budget.spent + together).rho_text)),
        ("cap", budget.epsilon_cap, small(budget.cap.rho_text)),
    )
    title = f"Lifetime budget of {says.dataset}, all releases together at delta {small(budget.delta_cap)}"
    yield Grid(title, ("", "epsilon", "rho"), rows, signed=False)
    yield Lines("The one configuration that may be run", tuple(fields(question.configuration or {})))
    yield mechanisms(question.events)


def _retraction(question: MotionQuestion, says: Motion) -> Iterator[Section]:
    release = question.release
    yield Lines(
        "What is called back",
        (
            ("publication", str(says.publication)),
            ("consequence", "later bundles name it as revoked; what it spent stays spent"),
        ),
    )
    if release is not None:
        body = release.request
        yield Lines(
            f"Release {release.number} ({release.state})",
            tuple((name, str(body.get(name))) for name in ("kind", "mechanism", "epsilon", "delta")),
            signed=False,
        )


def _background(question: MotionQuestion, says: Motion) -> Iterator[Section]:
    policy, needed = question.policy, question.policy.rules_for(says.dataset).motion
    yield Lines("Why", (("reason", says.reason), ("open until", says.expires_at[:10])))
    yield Lines(
        "Who",
        (
            ("proposed by", question.proposer.name),
            *decisions_so_far(question.given, question.counted, needed),
            ("separate roles", "no" if policy.several_roles else "yes: nobody approves what they proposed"),
        ),
        signed=False,
    )
