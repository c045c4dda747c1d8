"""Reviews of requests and proposals, built from what the ledger holds: each digest is computed here and read nowhere.

A further kind of review needs a function here and its sections; showing, confirming, signing and filing do not change.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import select
from sqlalchemy.orm import Session

from flows.approvals.proposal_review import ProposalReviewInput, build_proposal_review
from flows.approvals.review import Review
from flows.approvals.review_input import (
    BudgetInput,
    PreviousRelease,
    RecordedDecision,
    RequestReviewInput,
    ViewsInput,
)
from flows.approvals.review_sections import missed_bounds, publish_sections, spend_sections
from flows.audit.charges import charge_of_release
from flows.audit.lifetime_claims import require_authorised
from flows.governance.exposure import orders_budget
from flows.rehearsals.stored_results import recorded_rehearsals
from flows.releases.propose import repetitions
from flows.releases.release_texts import find_doubtful
from flows.workspace.policy_file import read_policy_version
from models_db.errors import Refused
from models_db.services import budget, datasets, erasures, exposures, gates, people, policies, proposals, requests
from models_db.services.audit.stored_text import choices_of, configuration_of, request_body
from models_db.services.gates import Decidable, GateStatus, find_decidable
from models_db.tables import Artifact, Dataset, PolicyVersion, Principal, Proposal, Publication, Request
from models_db.values.canonical_json import digest
from models_db.values.request_state import UNRUN_STATES, Gate
from models_db.values.requests import model_to_json
from tasks.accounting.lifetime_claims import BudgetFacts
from tasks.common.extensions import code_digest, extensions
from tasks.common.files import FileTable, read_document
from tasks.inference.loading.check_model import stored_check
from tasks.pricing.request_warnings import memory_warning
from tasks.publishing.draft import read_metrics, rehash
from tasks.release.bundle_format import EVALUATION, RECORD, TEXTS, read_insights, read_labelled
from tasks.release.description import wording_of
from tasks.release.prompt_passages import prompt_passages
from tasks.release.record import Person, ReleaseRecord
from tasks.release.sections import Samples, Section, Table
from tasks.release.signatures.attestation import attestation_payload
from tasks.systems.insights.wording import count_deviation_of, keywords_with_notes
from tasks.text.doubts import describe_doubts
from tasks.values.results import Insight, ReleaseKind


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


Draft: TypeAlias = tuple[Path, FileTable]
"""The folder that a run produced, and the size and digest of each of its files."""

SAMPLES_SHOWN = 3
INSIGHTS_SHOWN = 60


def build_review(
    gate: Gate, inputs: RequestReviewInput | ProposalReviewInput, draft: Draft | None, viewer: str | None
) -> Review:
    """Build the review of a request or proposal at a gate, ready to be shown and signed.

    Args:
        viewer: the public key of the person who reads it.

    Raises:
        GateMismatch: the inputs or the draft do not belong to the gate.
    """
    match gate, inputs, draft:
        case Gate.SPEND, RequestReviewInput(), None:
            return build_spend_review(inputs, viewer)
        case Gate.PUBLISH, RequestReviewInput(), (folder, files):
            return build_publish_review(inputs, folder, files, viewer)
        case Gate.PROPOSAL, ProposalReviewInput(), None:
            return build_proposal_review(inputs, viewer)
    raise GateMismatch(gate)


def build_spend_review(inputs: RequestReviewInput, viewer: str | None) -> Review:
    """Build the review of a request before any private text is read; `viewer` is the reader's public key."""
    refusal = inputs.refusal
    return Review(
        number=inputs.number,
        gate=Gate.SPEND,
        dataset=inputs.dataset,
        state=inputs.state,
        subject_digest=digest(inputs.request),
        policy=inputs.policy,
        sections=spend_sections(inputs, viewer, refusal),
        stewards=inputs.stewards,
        refusal=refusal,
    )


def build_publish_review(inputs: RequestReviewInput, folder: Path, files: FileTable, viewer: str | None) -> Review:
    """Build the review of the draft in `folder` before any of it is published.

    Raises:
        ArtifactChanged: the folder differs from the sizes and digests in `files`.
        DraftOfAnotherRequest: the draft belongs to another request.
    """
    rehash(folder, files)  # what is shown is what the approval binds to
    record = ReleaseRecord.from_bytes(read_document(folder / RECORD))
    if (record.release, digest(record.request)) != (inputs.number, digest(inputs.request)):
        raise Refused(
            f"The files are not those of request {inputs.number}.",
            "Nothing was signed. Export the review again: `almoner approve ID --gate publish --export FILE`.",
            {"request": inputs.number},
            code="DraftOfAnotherRequest",
        )
    metrics = tuple(read_metrics(read_document(folder / EVALUATION)))
    refusal = inputs.refusal
    shown: Section
    looked_for = None
    if record.kind == ReleaseKind.INSIGHTS:
        shown = shown_insights(list(read_insights(folder)), record)
    else:
        count, doubtful = find_doubtful(folder, str(files[TEXTS]["sha256"]), prompt_passages(inputs.request))
        shown, looked_for = shown_samples(folder), describe_doubts(len(doubtful), count)
    return Review(
        number=inputs.number,
        gate=Gate.PUBLISH,
        dataset=inputs.dataset,
        state=inputs.state,
        subject_digest=digest(files),
        policy=inputs.policy,
        sections=publish_sections(inputs, viewer, refusal, record, metrics, shown, files, looked_for),
        stewards=inputs.stewards,
        payload=attestation_payload(folder, files),
        missed_bounds=missed_bounds(inputs, metrics),
        refusal=refusal,
    )


def shown_samples(folder: Path) -> Samples:
    """Return the first texts of a draft; the title says how many there are."""
    rows = read_labelled(folder)
    samples = tuple(islice(rows, SAMPLES_SHOWN))
    count = len(samples) + sum(1 for _ in rows)
    title = f"Texts: {f'the first {len(samples):,} of' if count > len(samples) else 'all'} {count:,}"
    return Samples(title, tuple(text for text, _ in samples), tuple(name for _, name in samples))


def shown_insights(nodes: Sequence[Insight], record: ReleaseRecord | None = None) -> Table:
    """Return the first insights of a draft, groups before their members, without their descriptions.

    Args:
        record: of the draft; without it, counts are shown without their noise.
    """
    rows = tuple(_insight_row(node, record) for node in nodes[:INSIGHTS_SHOWN])
    shown = f"the first {INSIGHTS_SHOWN} of {len(nodes)}" if len(nodes) > INSIGHTS_SHOWN else f"all {len(nodes)}"
    title = f"Insights: {shown}; descriptions are in explorer.html and texts.jsonl"
    columns = ("id", "name", "size", "keywords")
    return Table(title, columns, rows, empty="There are none: no cluster was large enough.", released=True)


def _insight_row(node: Insight, record: ReleaseRecord | None) -> tuple[str, ...]:
    size = "not measured" if node.size is None else str(node.size)
    counted = None if record is None else wording_of(record).size_with_margin(node, record)
    deviation = None if record is None else count_deviation_of(record)
    return str(node.number), node.topic.name, counted or size, "; ".join(keywords_with_notes(node, deviation))


class GateMismatch(ValueError):
    """The inputs of a review, or its draft, do not belong to its gate."""
