"""Proposals: decisions of stewards other than releases: a new cap, a standing authorisation, a retraction.

A proposal is proposed, approved by m of n at the gate `proposal`, and takes effect with the approval that completes it.
Accounting computes what an epsilon costs, and accounting is a layer above these services; so they take the check of a
proposal's amounts as an argument, and without one they refuse to go on with anything that carries amounts.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.errors import Refused, UsageError
from models_db.services import budget, datasets, requests
from models_db.services.audit.chain import Actor
from models_db.services.audit.stored_text import configuration_of, request_body
from models_db.services.datasets import LifetimeClaim
from models_db.tables import (
    AppliedProposal,
    Approval,
    Artifact,
    Dataset,
    PolicyVersion,
    Proposal,
    Publication,
    Request,
    Transition,
)
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json, digest, encode_canonical
from models_db.values.request_state import RequestState
from models_db.values.standing_terms import cost_of, describe_differences, differing_fields
from models_db.writes.insert import insert_row

AmountCheck = Callable[[Proposal], None]
"""Check that raises unless a proposal's amounts follow from its text; this room does not know accounting."""


def require_applicable(proposal: Proposal, applicable: AmountCheck | None) -> None:
    """Check a proposal whose amounts people have not read.

    Raises:
        ValueError: nothing checks it.
        and as `applicable`.
    """
    if proposal.kind == "retraction":
        return
    if applicable is None:
        raise ValueError(f"proposal {proposal.id} carries amounts, and nothing derives them")
    applicable(proposal)


def proposal_decided(number: int, state: str) -> Refused:
    """Return the refusal of a proposal that is not waiting any more."""
    return Refused(
        f"Proposal {number} is {state}; nothing waits for a decision.",
        f"See it with `almoner proposal show {number}`.",
        {"proposal": number, "state": state},
        code="ProposalDecided",
    )


def _authorisation_exhausted(number: int, reason: str, differs: Sequence[str] = ()) -> Refused:
    return Refused(
        f"Standing authorisation {number} does not cover this run: {reason}.",
        "Propose another: `almoner standing propose FILE.yaml`, or submit the request for approval by itself.",
        {"standing": number, "reason": reason, "differs": list(differs)},
        code="AuthorisationExhausted",
    )


class OwnAuthorisation(Refused):
    """An approver of a standing authorisation may neither request nor run under it."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"You have approved standing authorisation {number} yourself; where roles are separate, nobody requests or"
            " runs what they approved.",
            "Let another person request and run it; nothing was spent.",
            {"standing": number},
        )


def proposal_altered(number: int) -> Refused:
    """Return the refusal of a proposal whose row differs from its digest, to which its approvals belong."""
    return Refused(
        f"Proposal {number} differs from what was approved, or does not cover this request.",
        f"Nothing was done. Find out who changed it: `almoner audit verify`, `almoner proposal show {number}`."
        f' A steward rejects it: `almoner reject {number} --gate proposal --reason "..."`.',
        {"proposal": number},
        code="ProposalAltered",
    )


@dataclass(frozen=True)
class AuthorisationTerms:
    """Terms of a standing authorisation: at most `rho` and `delta` a run, `runs` times, until a moment.

    `choices` are the parameters of the configuration that almoner chose, each with its reason. They are shown and no
    part of the authorised terms: a request that states the same values is the same release.
    """

    configuration: dict[str, Json]
    rho: int
    delta: int
    runs: int
    until: str
    choices: Mapping[str, str] = field(default_factory=dict)


def propose_cap(
    session: Session,
    actor: Actor,
    dataset: Dataset,
    policy: PolicyVersion,
    claim: LifetimeClaim,
    reason: str,
    valid: timedelta,
) -> Proposal:
    """Propose another lifetime claim of the dataset's account.

    Raises:
        CapTooLow: more is spent or reserved already.
        RoleDenied: the actor is neither analyst nor steward.
    """
    require_room(session, dataset, claim.cap)
    proposal = _new_proposal(actor, dataset, policy, "cap", reason, valid)
    proposal.epsilon, proposal.delta = claim.epsilon, claim.delta
    proposal.delta_conversion = claim.delta_conversion
    proposal.rho, proposal.delta_fail = claim.cap.rho, claim.cap.delta
    return _record_proposal(session, dataset, proposal)


def propose_standing(
    session: Session,
    actor: Actor,
    dataset: Dataset,
    policy: PolicyVersion,
    terms: AuthorisationTerms,
    reason: str,
    valid: timedelta,
) -> Proposal:
    """Propose a standing authorisation: further runs of one configuration without a decision each time.

    Raises:
        RoleDenied: the actor is neither analyst nor steward.
    """
    proposal = _new_proposal(actor, dataset, policy, "standing", reason, valid)
    proposal.rho, proposal.delta_fail, proposal.runs, proposal.until = terms.rho, terms.delta, terms.runs, terms.until
    proposal.config_digest = digest(terms.configuration)
    proposal.configuration = encode_canonical(terms.configuration).decode()
    proposal.choices = encode_canonical(dict(terms.choices)).decode() if terms.choices else None
    return _record_proposal(session, dataset, proposal)


def propose_retraction(
    session: Session, actor: Actor, request_id: int, policy: PolicyVersion, reason: str, valid: timedelta
) -> Proposal:
    """Propose the retraction of a published release; its spent amount stays spent.

    Raises:
        NotPublished: there is nothing to retract.
        RoleDenied: the actor is neither analyst nor steward.
    """
    request = requests.find_request(session, request_id)
    publication = _find_publication(session, request_id)
    if publication is None or requests.state_of(session, request_id) != RequestState.PUBLISHED:
        raise Refused(
            f"Request {request_id} has published nothing that could be retracted.",
            f"See it with `almoner release show {request_id}`.",
            {"request": request_id},
            code="NotPublished",
        )
    dataset = session.get_one(Dataset, request.dataset_id)
    proposal = _new_proposal(actor, dataset, policy, "retraction", reason, valid)
    proposal.publication_id = publication.id
    return _record_proposal(session, dataset, proposal)


def _new_proposal(
    actor: Actor, dataset: Dataset, policy: PolicyVersion, kind: str, reason: str, valid: timedelta
) -> Proposal:
    now = datetime.now(UTC)
    # The end of a day: it is published with every release under the proposal, and should not tell the hour.
    expires_at = datetime.combine((now + valid).date(), time(23, 59, 59), UTC)
    return Proposal(kind=kind, dataset_id=dataset.id, policy_id=policy.id, proposer_id=actor.id, reason=reason,
                  nonce=secrets.token_hex(16), created_at=utc_now(now), expires_at=utc_now(expires_at))  # fmt: skip


def _record_proposal(session: Session, dataset: Dataset, proposal: Proposal) -> Proposal:
    proposal.digest = digest(content_of(proposal, dataset.name))
    insert_row(session, proposal)
    return proposal


def require_room(session: Session, dataset: Dataset, cap: Amount) -> None:
    """Check that a cap covers the amount that is spent and reserved by runs.

    Raises:
        CapTooLow: it does not.
    """
    balance = budget.balance(session, dataset.account_id)
    committed = balance.cap - balance.remaining
    if not committed.fits(cap):
        raise Refused(
            f"A cap of rho {cap.rho_text} (failure delta {cap.delta_text}) is below what dataset {dataset.name!r} has"
            f" spent or reserved: rho {committed.rho_text} (failure delta {committed.delta_text}).",
            f"Ask for a higher one: `almoner budget show {dataset.name}`.",
            {
                "dataset": dataset.name,
                "asked_rho": cap.rho_text,
                "taken_rho": committed.rho_text,
                "asked_delta_fail": cap.delta_text,
                "taken_delta_fail": committed.delta_text,
            },
            code="CapTooLow",
        )


def content_of(proposal: Proposal, dataset: str) -> dict[str, Json]:
    """Return all that a proposal says, as its digest covers it."""
    amounts = {"rho": proposal.rho, "delta_fail": proposal.delta_fail, "delta_conversion": proposal.delta_conversion}
    return {
        "proposal": proposal.kind,
        "dataset": dataset,
        "reason": proposal.reason,
        "nonce": proposal.nonce,
        "expires_at": proposal.expires_at,
        "epsilon": proposal.epsilon,
        "delta": proposal.delta,
        **{name: None if value is None else str(value) for name, value in amounts.items()},
        "runs": proposal.runs,
        "until": proposal.until,
        "config_digest": proposal.config_digest,
        "publication": proposal.publication_id,
    }


def find_proposal(session: Session, number: int) -> Proposal:
    """Return the proposal with that number.

    Raises:
        ProposalUnknown: there is none.
    """
    proposal = session.get(Proposal, number)
    if proposal is None:
        raise UsageError(
            f"There is no proposal {number}.",
            "See them with `almoner proposal list`.",
            {"proposal": number},
            code="ProposalUnknown",
        )
    return proposal


def list_all(session: Session) -> Sequence[Proposal]:
    """Return all proposals, oldest first."""
    return session.scalars(select(Proposal).order_by(Proposal.id)).all()


def state_of(session: Session, proposal: Proposal) -> str:
    """Return the state: carried, rejected, expired or open. A standing authorisation rejected later is ended."""
    carried = session.scalar(select(func.count()).where(AppliedProposal.proposal_id == proposal.id))
    if _is_rejected(session, proposal):
        return "ended" if carried else "rejected"
    if carried:
        return "carried"
    return "open" if proposal.expires_at > utc_now() else "expired"


def _is_rejected(session: Session, proposal: Proposal) -> bool:
    query = select(func.count()).where(Approval.proposal_id == proposal.id, Approval.decision == "reject")
    return bool(session.scalar(query))


def apply_proposal(session: Session, actor: Actor, proposal: Proposal, amount_check: AmountCheck | None) -> None:
    """Let a proposal take effect; the database checks its approvals and moves the caps of a new claim.

    Args:
        amount_check: checks its amounts, as it takes effect.

    Raises:
        ProposalAltered: its digest, which was approved, is not that of its content.
        CapTooLow: more than the new cap is spent or reserved by now.
    """
    require_intact(session, proposal)
    require_applicable(proposal, amount_check)
    dataset = session.get_one(Dataset, proposal.dataset_id)
    if proposal.kind == "cap":
        require_room(session, dataset, datasets.claim_of(proposal).cap)
    insert_row(session, AppliedProposal(proposal_id=proposal.id, actor_id=actor.id, at=utc_now()))
    if proposal.kind == "retraction":
        requests.record_transition(
            session,
            actor,
            retracted_request(session, proposal),
            RequestState.PUBLISHED,
            RequestState.RETRACTED,
            proposal.reason,
        )


def retracted_request(session: Session, proposal: Proposal) -> int:
    """Return the request whose release a retraction is about."""
    query = select(Artifact.request_id).join(Publication, Publication.artifact_id == Artifact.id)
    return session.scalars(query.where(Publication.id == proposal.publication_id)).one()


def _find_publication(session: Session, request_id: int) -> Publication | None:
    query = select(Publication).join(Artifact, Artifact.id == Publication.artifact_id)
    return session.scalars(query.where(Artifact.request_id == request_id)).one_or_none()


def retracted_artifacts(session: Session) -> tuple[str, ...]:
    """Return the sorted digests of all retracted artifacts, for later bundles."""
    query = (
        select(Artifact.digest)
        .join(Publication, Publication.artifact_id == Artifact.id)
        .join(Proposal, Proposal.publication_id == Publication.id)
        .join(AppliedProposal, AppliedProposal.proposal_id == Proposal.id)
        .where(Proposal.kind == "retraction")
    )
    return tuple(sorted(session.scalars(query)))


def find_authorisation(
    session: Session, number: int, body: dict[str, Json], requester: Actor | None = None
) -> Proposal:
    """Return the standing authorisation of that number, if it covers this request now.

    Raises:
        ProposalUnknown: there is none.
        AuthorisationExhausted: it is not in force, used up, for another configuration, or for less.
        OwnAuthorisation: the requester has approved it, where roles are separate.
    """
    proposal = find_proposal(session, number)
    _require_in_force(session, proposal)
    configuration = requests.configuration(body)
    if proposal.config_digest != digest(configuration):
        differs = differing_fields(configuration_of(proposal), configuration)
        raise _authorisation_exhausted(number, describe_differences(differs), differs)
    _require_covered(proposal, cost_of(body))
    if requester is not None:
        _require_not_approver(session, proposal, requester)
    return proposal


def _require_covered(proposal: Proposal, cost: Amount) -> None:
    allowed = Amount(proposal.rho or 0, proposal.delta_fail or 0)
    if not cost.fits(allowed):
        more = f"a run costs rho {cost.rho_text} and failure delta {cost.delta_text}"
        raise _authorisation_exhausted(
            proposal.id, f"{more}, and it allows rho {allowed.rho_text} and failure delta {allowed.delta_text}"
        )


def _require_not_approver(session: Session, proposal: Proposal, actor: Actor) -> None:
    """Check that the actor did not approve the authorisation; the check of a bundle demands the same."""
    if session.get_one(PolicyVersion, proposal.policy_id).several_roles:
        return
    query = select(Approval.approver_id).where(Approval.proposal_id == proposal.id, Approval.decision == "approve")
    if actor.id in session.scalars(query).all():
        raise OwnAuthorisation(proposal.id)


def require_authorised(session: Session, actor: Actor, request: Request) -> None:
    """Check that the standing authorisation that the request names covers one more run; the run uses it.

    Raises:
        AuthorisationExhausted: none is left.
        OwnAuthorisation: the actor has approved it, where roles are separate.
    """
    proposal = session.get_one(Proposal, request.standing_id)
    _require_in_force(session, proposal)
    _require_not_approver(session, proposal, actor)


def require_authorisation_intact(session: Session, request: Request) -> None:
    """Check that the request's standing authorisation is as approved, and is for exactly this configuration.

    Raises:
        ProposalAltered: it does not, or is not.
    """
    proposal = session.get_one(Proposal, request.standing_id)
    require_intact(session, proposal)
    if digest(requests.configuration(request_body(request))) != proposal.config_digest:
        raise proposal_altered(proposal.id)


def require_intact(session: Session, proposal: Proposal) -> None:
    """Check that the digest of a proposal, to which its approvals belong, is that of its content.

    Raises:
        ProposalAltered: it is not.
    """
    dataset = session.get_one(Dataset, proposal.dataset_id)
    if proposal.digest != digest(content_of(proposal, dataset.name)):
        raise proposal_altered(proposal.id)


def count_uses(session: Session, proposal: Proposal) -> int:
    """Return how many runs of a standing authorisation are used: the attempts of its requests, failed or not."""
    query = select(func.count()).select_from(Transition).join(Request, Request.id == Transition.request_id)
    begun = query.where(Request.standing_id == proposal.id, Transition.to_state == RequestState.RUNNING)
    return session.scalar(begun) or 0


def _require_in_force(session: Session, proposal: Proposal) -> None:
    state, used = state_of(session, proposal), count_uses(session, proposal)
    if proposal.kind != "standing" or state != "carried":
        reason = {"ended": "stewards have ended it", "open": "it waits for approvals (`open`)"}.get(
            state, f"it is {state}"
        )
        raise _authorisation_exhausted(
            proposal.id, reason if proposal.kind == "standing" else f"proposal {proposal.id} is not one"
        )
    if str(proposal.until) <= utc_now():
        raise _authorisation_exhausted(proposal.id, f"it ran until {str(proposal.until)[:10]}")
    if proposal.runs is not None and used >= proposal.runs:
        raise _authorisation_exhausted(proposal.id, f"all {proposal.runs} runs are used")
