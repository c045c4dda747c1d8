"""The questions of requests and motions, collected from the ledger."""

from collections.abc import Container, Iterable, Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from flows.approvals.proposal_review import MotionQuestion
from flows.approvals.request_review import Budget, Given, Previous, Question, Views
from flows.governance.policy import policy_of
from flows.workspace.policy_file import read_version
from models_db.services.audit.stored_text import configuration_of, request_body
from models_db.services.catalogue import datasets, erasures, internal_views, policies, principals, requests
from models_db.services.lifecycle import artifacts, gates, ledger, proposals
from models_db.tables import Approval, Artifact, Dataset, PolicyVersion, Principal, Proposal, Publication, Request
from models_db.values.gates import Gate
from models_db.values.request_state import UNRUN
from models_db.values.requests import model_to_json
from tasks.common.code_version import code_digest
from tasks.release.record import Person


def question(session: Session, request_id: int, gate: Gate) -> Question:
    """The question of a request at one of its gates.

    Raises:
        RequestUnknown: there is no such request.
    """
    request = requests.find_request(session, request_id)
    state = requests.state_of(session, request_id)
    body = request_body(request)
    dataset = session.get_one(Dataset, request.dataset_id)
    artifact = artifacts.artifact_of(session, request_id)
    subject = request.digest if gate is Gate.SPEND or artifact is None else artifact.digest
    counting = {
        one.id for one, _ in gates.counting_decisions(session, request_id, gate) if one.subject_digest == subject
    }
    return Question.model_validate(
        {
            "number": request.id,
            "state": state,
            "request": body,
            "requester": _person(session.get_one(Principal, request.requester_id)),
            "expires_at": request.expires_at,
            "policy": model_to_json(policy_of(session, request)),
            "stewards": stewards(session),
            "given": _given(gates.request_decisions(session, request_id, gate), counting),
            "counted": gates.count_approvals(session, request, gate, subject)[0],
            "budget": _budget(session, dataset, body),
            "previous": _previous(session, request),
            "views": _views(session, dataset),
            "notices": tuple(_notices(session, dataset, body)) if state in UNRUN else (),
        }
    )


def stewards(session: Session) -> tuple[Person, ...]:
    """Whoever may sign now: stewards, and those to whom one has delegated."""
    delegates = {given.to_id for given in principals.open_delegations(session)}
    return tuple(
        _person(one)
        for one in principals.list_all(session)
        if one.id in delegates or "steward" in principals.roles_of(session, one.id)
    )


def _person(principal: Principal) -> Person:
    return Person(name=principal.name, public_key=principal.public_key)


def _given(found: Iterable[tuple[Approval, Principal]], counting: Container[int]) -> tuple[Given, ...]:
    return tuple(
        Given(by=by.name, decision=approval.decision, reason=approval.reason, counts=approval.id in counting)
        for approval, by in found
    )


def _budget(session: Session, dataset: Dataset, request: Mapping[str, Any]) -> Budget:
    """The budget that a request draws on, that of the blocks it reads; of no request, that of all."""
    blocks = request["plan"]["blocks"] if request else None
    cap, balance = datasets.lifetime_claim(session, dataset), ledger.balance(session, dataset.account_id, blocks)
    return Budget(
        epsilon_cap=cap.epsilon,
        delta_cap=cap.delta,
        delta_conversion=str(cap.delta_conversion),
        rho_cap=str(balance.cap.rho),
        rho_spent=str(balance.spent.rho),
        rho_held=str(balance.held.rho),
        delta_fail_cap=str(balance.cap.delta),
        delta_spent=str(balance.spent.delta),
        delta_held=str(balance.held.delta),
    )


def _previous(session: Session, request: Request) -> Previous | None:
    """The newest other release of the dataset that went out."""
    query = (
        select(Request)
        .join(Artifact, Artifact.request_id == Request.id)
        .join(Publication, Publication.artifact_id == Artifact.id)
        .where(Request.dataset_id == request.dataset_id, Request.id != request.id)
        .order_by(Publication.id.desc())
        .limit(1)
    )
    found = session.scalars(query).one_or_none()
    if found is None:
        return None
    return Previous(number=found.id, state=requests.state_of(session, found.id), request=request_body(found))


def _views(session: Session, dataset: Dataset) -> Views | None:
    """Who has seen unprotected figures of the account."""
    found = internal_views.find_viewing(session, dataset.account_id)
    return None if found is None else Views(since=found.since, people=found.people)


def _notices(session: Session, dataset: Dataset, body: dict[str, Any]) -> list[str]:
    """Differences between what was asked and what is here now; a run compares them again and refuses."""
    now, asked = policies.policy_in_force(session), body["dataset"]["version"]
    left = [version.number for version in erasures.remaining_versions(session, dataset)]
    return [
        text
        for differs, text in (
            (body["code"] != code_digest(), "almoner itself has changed since this was asked: a run would be refused."),
            (
                now is not None and body["policy"] != now.digest,
                "Another policy is in force than when this was asked.",
            ),
            (
                any(number > asked for number in left),
                "The dataset has a newer version than the one that was asked for.",
            ),
            (asked not in left, "The version of the data that was asked for was erased: nothing can be run."),
        )
        if differs
    ]


def motion_question(session: Session, number: int) -> MotionQuestion:
    """The question of a motion.

    Raises:
        MotionUnknown: there is no such motion.
    """
    motion = proposals.find_proposal(session, number)
    dataset = session.get_one(Dataset, motion.dataset_id)
    decided = gates.proposal_decisions(session, number)
    return MotionQuestion.model_validate(
        {
            "number": number,
            "state": proposals.state_of(session, motion),
            "motion": proposals.content_of(motion, dataset.name),
            "configuration": configuration_of(motion) if motion.configuration else None,
            "proposer": _person(session.get_one(Principal, motion.proposer_id)),
            "policy": model_to_json(read_version(session, session.get_one(PolicyVersion, motion.policy_id))),
            "stewards": stewards(session),
            "given": _given(decided, {one.id for one, _ in decided}),
            "counted": gates.count_proposal_approvals(session, motion)[0],
            "budget": _budget(session, dataset, {}),
            "release": _retracted(session, motion),
            "views": _views(session, dataset),
        }
    )


def _retracted(session: Session, motion: Proposal) -> Previous | None:
    if motion.kind != "retraction":
        return None
    request = requests.find_request(session, proposals.retracted_request(session, motion))
    state = requests.state_of(session, request.id)
    return Previous(number=request.id, state=state, request=request_body(request))
