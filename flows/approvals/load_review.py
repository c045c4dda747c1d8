"""Review inputs of requests and proposals, collected from the ledger."""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from flows.approvals.proposal_review import ProposalReviewInput
from flows.approvals.request_review import (
    BudgetInput,
    PreviousRelease,
    RecordedDecision,
    RequestReviewInput,
    ViewsInput,
)
from flows.audit.charges import charge_of_release
from flows.audit.lifetime_claims import require_authorised
from flows.governance.exposure import orders_budget
from flows.rehearsals.stored_results import recorded_rehearsals
from flows.releases.pricing import repetitions
from flows.workspace.policy_file import read_policy_version
from models_db.services import budget, datasets, erasures, exposures, gates, people, policies, proposals, requests
from models_db.services.audit.log import choices_of, configuration_of, request_body
from models_db.services.gates import Decidable, GateStatus, find_decidable
from models_db.tables import Artifact, Dataset, PolicyVersion, Principal, Proposal, Publication, Request
from models_db.values.request_state import UNRUN_STATES, Gate
from models_db.values.requests import model_to_json
from tasks.accounting.lifetime_claims import BudgetFacts
from tasks.common.extensions import code_digest, extensions
from tasks.inference.loading.check_model import stored_check
from tasks.pricing.request_warnings import memory_warning
from tasks.release.record import Person


def load_review_input(session: Session, number: int, gate: Gate) -> RequestReviewInput | ProposalReviewInput:
    """Collect the review input of a request or a proposal at a gate.

    Raises:
        RequestUnknown, ProposalUnknown: there is no such request or proposal.
        ValidationError: a proposal's row does not follow its format.
    """
    return (
        load_proposal_review(session, number) if gate is Gate.PROPOSAL else load_request_review(session, number, gate)
    )


def load_request_review(session: Session, request_id: int, gate: Gate) -> RequestReviewInput:
    """Collect the review input of a request at one of its gates.

    Raises:
        RequestUnknown: there is no such request.
        NotCharged: it was run, but the ledger has not charged its whole plan.
        ProposalAltered, AuthorisationDiffers: its standing authorisation is not for its text.
    """
    subject = find_decidable(session, request_id, gate)
    request, dataset = requests.find_request(session, request_id), session.get_one(Dataset, subject.dataset_id)
    body = request_body(request)
    require_authorised(session, request)
    charge = charge_of_release(session, request_id) if gate is Gate.PUBLISH else None
    return RequestReviewInput.model_validate(
        {
            **_common_fields(session, subject, dataset, body["plan"]["blocks"]),
            "request": body,
            "requester": _person_of(session.get_one(Principal, request.requester_id)),
            "expires_at": request.expires_at,
            "charged_rho": charge.rho if charge else None,
            "passes_limit": subject.state in UNRUN_STATES and _passes_limit(session, dataset, request, body),
            "previous": _previous_release(session, request),
            "rehearsals": recorded_rehearsals(session, body),
            "secrecy_end": exposures.find_secrecy_end(session, request_id),
            "notices": (
                (
                    *_drift_warnings(session, dataset, body),
                    *repetitions(session, request.dataset_id, body, before=request.id),
                    *_memory_notice(body),
                    *_extension_notices(),
                )
                if subject.state in UNRUN_STATES
                else ()
            ),
        }
    )


def load_proposal_review(session: Session, number: int) -> ProposalReviewInput:
    """Collect the review input of a proposal.

    Raises:
        ProposalUnknown: there is no such proposal.
    """
    subject = find_decidable(session, number, Gate.PROPOSAL)
    proposal, dataset = proposals.find_proposal(session, number), session.get_one(Dataset, subject.dataset_id)
    return ProposalReviewInput.model_validate(
        {
            **_common_fields(session, subject, dataset, None),
            "proposal": proposals.content_of(proposal, dataset.name),
            "configuration": configuration_of(proposal) if proposal.configuration else None,
            "choices": choices_of(proposal),
            "proposer": _person_of(session.get_one(Principal, proposal.proposer_id)),
            "release": _retracted_release(session, proposal),
        }
    )


def _common_fields(
    session: Session, subject: Decidable, dataset: Dataset, blocks: Sequence[int] | None
) -> dict[str, Any]:
    """Collect the fields of `ReviewInput`; `blocks` are the blocks to be charged, None for all."""
    status, claim = GateStatus.load(session, [subject]), datasets.lifetime_claim(session, dataset)
    counting = {one.id for one in status.counting(subject)}
    return {
        "number": subject.number,
        "state": subject.state,
        "policy": model_to_json(read_policy_version(session, session.get_one(PolicyVersion, subject.policy_id))),
        "stewards": list_signers(session),
        "given": tuple(
            RecordedDecision(by=by.name, decision=one.decision, reason=one.reason, counts=one.id in counting)
            for one, by in gates.decisions_on(session, subject.number, subject.gate)
        ),
        "counted": len(status.approvers(subject)),
        "needed": status.needed(subject),
        "budget": BudgetInput.of(BudgetFacts(claim, budget.balance(session, dataset.account_id, blocks))),
        "views": _views_of_account(session, dataset),
    }


def list_signers(session: Session) -> tuple[Person, ...]:
    """Return the people who may sign now: the stewards."""
    return tuple(_person_of(one) for one in people.list_all(session) if "steward" in people.roles_of(session, one.id))


def _person_of(principal: Principal) -> Person:
    return Person(name=principal.name, public_key=principal.public_key)


def _previous_release(session: Session, request: Request) -> PreviousRelease | None:
    """Return the newest other published release of the dataset."""
    query = (
        select(Request)
        .join(Artifact, Artifact.request_id == Request.id)
        .join(Publication, Publication.artifact_id == Artifact.id)
        .where(Request.dataset_id == request.dataset_id, Request.id != request.id)
        .order_by(Publication.id.desc())
        .limit(1)
    )
    previous = session.scalars(query).one_or_none()
    if previous is None:
        return None
    state = requests.state_of(session, previous.id)
    return PreviousRelease(number=previous.id, state=state, request=request_body(previous))


def _views_of_account(session: Session, dataset: Dataset) -> ViewsInput | None:
    """Return the views of unprotected figures of the account."""
    views = exposures.find_viewing(session, dataset.account_id)
    return None if views is None else ViewsInput(since=views.since, people=views.people)


def _passes_limit(session: Session, dataset: Dataset, request: Request, body: dict[str, Any]) -> bool:
    """Return whether an attempt from nothing would pass a limit in Rényi orders; once it was charged, none would."""
    account = None if budget.is_charged(session, request.id) else orders_budget(session, dataset.account_id)
    if account is None:
        return False
    from tasks.planning.secret_assignment import curve_of_plan

    return account.passed_by(curve_of_plan(body["plan"]), body["plan"]["blocks"]) is not None


def _extension_notices() -> Iterator[str]:
    """Yield a sentence for each extension: its code takes part in whatever is approved here."""
    for extension in extensions():
        yield f"This almoner is extended by {extension}: its code is part of what you approve."


def _drift_warnings(session: Session, dataset: Dataset, body: dict[str, Any]) -> list[str]:
    """List differences between the request and the present code, policy and data; a run compares them again."""
    policy, version = policies.policy_in_force(session), body["dataset"]["version"]
    remaining = [one.number for one in erasures.remaining_versions(session, dataset)]
    return [
        text
        for differs, text in (
            (body["code"] != code_digest(), "almoner itself has changed since this request: a run would be refused."),
            (
                policy is not None and body["policy"] != policy.digest,
                "Another policy is in force than at the time of the request.",
            ),
            (
                any(number > version for number in remaining),
                "The dataset has a newer version than the requested one.",
            ),
            (version not in remaining, "The requested version of the data was erased: nothing can be run."),
        )
        if differs
    ]


def _memory_notice(body: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence if the model is here, was checked, and needs more memory than the machine of this home has."""
    check = stored_check(body["model"]["name"])
    if warning := memory_warning(check, body["parameters"], "the machine of this home"):
        yield warning


def _retracted_release(session: Session, proposal: Proposal) -> PreviousRelease | None:
    if proposal.kind != "retraction":
        return None
    request = requests.find_request(session, proposals.retracted_request(session, proposal))
    state = requests.state_of(session, request.id)
    return PreviousRelease(number=request.id, state=state, request=request_body(request))
