"""Page of a release: request, claim, state, decisions, and the documents that the viewer may read."""

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import ValidationError

from flows.approvals.request_diff import flatten_fields
from flows.approvals.review_sections import mechanism_rows
from flows.dashboard.documents import readable_documents
from flows.dashboard.queue_page import WAITING_STATES, QueueItem, queue_item
from flows.dashboard.request_list import RequestLine, request_line
from flows.dashboard.viewer import View
from flows.rehearsals.stored_results import RecordedRehearsal, recorded_rehearsals
from models_db.errors import AlmonerError
from models_db.services import artifacts, budget, exposures, gates, requests
from models_db.services.audit.stored_text import request_body
from models_db.services.queries import lists
from models_db.tables import Dataset, Request
from models_db.values.gates import REQUEST_GATES
from models_db.values.secrecy_end import SecrecyEnd
from tasks.common.number_format import format_small
from tasks.planning.secret_assignment import while_secret
from tasks.release.approved_request import ApprovedRequest
from tasks.release.claim import Claim
from tasks.release.promise_strength import describe_guesses, describe_replace_one
from tasks.release.record import claim_of_plan, planned_events
from tasks.reporting.audience_filter import Version


@dataclass(frozen=True)
class ClaimView:
    """Claim of one release: for adding or removing a unit, and for replacing one by another.

    Attributes:
        while_secret: the figure while the assignment of units to texts is secret, or when and why it ended, in words;
            None where none is stated.
        guesses: upper bound on how often a guess about a unit's membership is right, in words.
    """

    epsilon: str
    while_secret: str | None
    delta: str
    rho: str
    unit: str
    relation: str
    replace_one: str
    guesses: str


@dataclass(frozen=True)
class RequestStep:
    """One step in the life of a request."""

    at: str
    from_state: str
    to_state: str
    by: str
    detail: str


@dataclass(frozen=True)
class DecisionLine:
    """A decision, and whether it still counts."""

    at: str
    gate: str
    decision: str
    by: str
    reason: str
    expires_at: str


@dataclass(frozen=True)
class ReleasePage:
    """One request with its claim, steps, decisions and documents.

    Attributes:
        claim: the claim; None if there is none, for the reason in `no_claim`.
        mechanisms: name, count, rho and parameters of each mechanism.
        fields: all fields of the canonical request, by dotted name.
        artifact: the digest of its artifact.
        waiting: the queue item of the request, if it waits.
        rehearsals: the newest rehearsal of the request on each public dataset.
        reports: the readable versions of its report; `card` and `texts` say whether its card and texts are readable.
    """

    line: RequestLine
    digest: str
    expires_at: str
    claim: ClaimView | None
    no_claim: str
    mechanisms: tuple[tuple[str, ...], ...]
    fields: tuple[tuple[str, str], ...]
    artifact: str | None
    steps: tuple[RequestStep, ...]
    decisions: tuple[DecisionLine, ...]
    waiting: QueueItem | None
    rehearsals: tuple[RecordedRehearsal, ...]
    reports: tuple[Version, ...]
    card: bool
    texts: bool


def release_page(view: View, number: int) -> ReleasePage:
    """Return the page of a request.

    Raises:
        RequestUnknown: there is no such request.
    """
    session = view.session
    request = requests.find_request(session, number)
    state, artifact = requests.state_of(session, number), artifacts.artifact_of(session, number)
    dataset, names = session.get_one(Dataset, request.dataset_id), lists.principal_names(session)
    papers = readable_documents(view, state, artifact, dataset)
    claim, why, invoked = _claim_and_mechanisms(request, exposures.find_secrecy_end(session, number))
    spent = budget.spent_by(session, number) if view.figures else None
    return ReleasePage(
        line=request_line(request, state, dataset.name, names, spent),
        digest=request.digest,
        expires_at=request.expires_at,
        claim=claim,
        no_claim=why,
        mechanisms=invoked,
        fields=tuple(flatten_fields(request_body(request))),
        artifact=artifact.digest if artifact else None,
        steps=tuple(_request_steps(view, number, names)),
        decisions=tuple(_decision_lines(view, number, names)),
        waiting=queue_item(view, request, state) if state in WAITING_STATES else None,
        rehearsals=_rehearsals(view, request),
        reports=papers.reports,
        card=papers.card,
        texts=papers.texts,
    )


def _rehearsals(view: View, request: Request) -> tuple[RecordedRehearsal, ...]:
    """Return them; none for a request in a format that this version cannot read."""
    try:
        return recorded_rehearsals(view.session, request_body(request))
    except (KeyError, TypeError):
        return ()


def _request_steps(view: View, number: int, names: dict[int, str]) -> Iterator[RequestStep]:
    for step in requests.history(view.session, number):
        yield RequestStep(step.at, step.from_state, step.to_state, names[step.actor_id], step.detail)


def _decision_lines(view: View, number: int, names: dict[int, str]) -> Iterator[DecisionLine]:
    for decision, by in gates.decisions_on(view.session, number, *REQUEST_GATES):
        yield DecisionLine(decision.at, decision.gate, decision.decision, by.name, decision.reason, decision.expires_at)


def _claim_and_mechanisms(
    request: Request, end: SecrecyEnd | None
) -> tuple[ClaimView | None, str, tuple[tuple[str, ...], ...]]:
    """Return the claim, the reason if there is none, and the mechanisms."""
    body = request_body(request)
    try:
        approved, events = ApprovedRequest.model_validate(body), planned_events(body)
        claim, invoked = claim_of_plan(events, body), mechanism_rows(events).rows
    except (ValidationError, AlmonerError, KeyError, TypeError):
        return None, "This version of almoner cannot read the format of this request; its fields are below.", ()
    if claim is None:
        return None, "No privacy is claimed: the dataset is marked public.", invoked
    return _claim_view(claim, approved, end), "", invoked


def _claim_view(claim: Claim, request: ApprovedRequest, end: SecrecyEnd | None) -> ClaimView:
    secret, (_, right) = claim.secret_assignment, claim.guessing_bounds
    second = None if secret is None else while_secret(secret, None if end is None else end.sentence)
    return ClaimView(
        claim.epsilon, second, format_small(claim.delta), claim.rho, request.unit, request.relation,
        describe_replace_one(claim.replace_one), describe_guesses(right),
    )  # fmt: skip
