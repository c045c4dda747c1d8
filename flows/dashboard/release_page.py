"""Page of a release: request, claim, state, decisions, and the documents that the viewer may read."""

from collections.abc import Iterator
from dataclasses import dataclass

from flows.approvals.build_review import build_spend_review, load_request_review
from flows.approvals.review import flatten_fields
from flows.dashboard.documents import readable_documents
from flows.dashboard.queue_page import WAITING_STATES, QueueItem, RequestLine, queue_item, request_line
from flows.dashboard.viewer import View
from models_db.errors import AlmonerError
from models_db.services import artifacts, budget, gates, requests
from models_db.services.audit.log import UNREADABLE_ERRORS, request_body
from models_db.services.queries import lists
from models_db.tables import Dataset, Principal
from models_db.values.canonical_json import Json
from models_db.values.request_state import REQUEST_GATES, Gate
from tasks.release.sections import WARNINGS, Section, Warnings, sections_for, sections_to_json
from tasks.reporting.report_parts import Version


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
        sections: what the request asks for, as its review at the spend gate shows it, for this viewer.
        fields: all fields of the canonical request, by dotted name.
        artifact: the digest of its artifact.
        waiting: the queue item of the request, if it waits.
        reports: the readable versions of its report; `card` and `texts` say whether its card and texts are readable.
    """

    line: RequestLine
    digest: str
    expires_at: str
    sections: list[dict[str, Json]]
    fields: tuple[tuple[str, str], ...]
    artifact: str | None
    steps: tuple[RequestStep, ...]
    decisions: tuple[DecisionLine, ...]
    waiting: QueueItem | None
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
    spent = budget.spent_by(session, number) if view.figures else None
    return ReleasePage(
        line=request_line(request, state, dataset.name, names, spent),
        digest=request.digest,
        expires_at=request.expires_at,
        sections=sections_to_json(_sections(view, number)),
        fields=tuple(flatten_fields(request_body(request))),
        artifact=artifact.digest if artifact else None,
        steps=tuple(_request_steps(view, number, names)),
        decisions=tuple(_decision_lines(view, number, names)),
        waiting=queue_item(view, request, state) if state in WAITING_STATES else None,
        reports=papers.reports,
        card=papers.card,
        texts=papers.texts,
    )


def _request_steps(view: View, number: int, names: dict[int, str]) -> Iterator[RequestStep]:
    for step in requests.history(view.session, number):
        yield RequestStep(step.at, step.from_state, step.to_state, names[step.actor_id], step.detail)


def _decision_lines(view: View, number: int, names: dict[int, str]) -> Iterator[DecisionLine]:
    for decision, by in gates.decisions_on(view.session, number, *REQUEST_GATES):
        yield DecisionLine(decision.at, decision.gate, decision.decision, by.name, decision.reason, decision.expires_at)


def _sections(view: View, number: int) -> tuple[Section, ...]:
    """Return the sections of the request's review that the viewer may read; of one that cannot be read, the reason."""
    key = view.session.get_one(Principal, view.actor.id).public_key
    try:
        review = build_spend_review(load_request_review(view.session, number, Gate.SPEND), key)
    except UNREADABLE_ERRORS:
        line = "This version of almoner cannot read the format of this request; its fields are below."
        return (Warnings(WARNINGS, (line,), signed=False),)
    except AlmonerError as unfit:
        return (Warnings(WARNINGS, (f"It cannot be shown: {unfit.code}. {unfit.message}",), signed=False),)
    return sections_for(review.sections, balances=view.figures)
