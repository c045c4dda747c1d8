"""Page of a release: request, claim, state, decisions; and the documents of the release that a viewer may read.

Documents are its report in one version, its card, and its texts, page by page. A steward sees what `almoner report`
makes. Everybody else sees the public version, and only while the release is out: before the decision its texts are
nobody's but the stewards', and what was retracted is not shown again. These pages cannot write, so figures of governed
data that read it unprotected are shown to those alone who are on record as having seen some of that account:
`almoner report ID --internal` and `almoner evaluate` record it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from flows.approvals.build_review import build_spend_review, load_request_review
from flows.approvals.review import flatten_fields
from flows.dashboard.queue_page import WAITING_STATES, QueueItem, queue_item
from flows.dashboard.request_list import RequestLine, request_line
from flows.dashboard.viewer import View, Viewer
from flows.releases.release_texts import find_doubtful
from models_db.errors import AlmonerError, Refused
from models_db.home import ProjectHome
from models_db.services import artifacts, budget, exposures, gates, requests
from models_db.services.audit.stored_text import UNREADABLE_ERRORS, files_of, request_body
from models_db.services.queries import lists
from models_db.tables import Artifact, Dataset, Principal
from models_db.values.canonical_json import Json
from models_db.values.request_state import DECIDED, REQUEST_GATES, Gate, RequestState
from tasks.common.files import FileUnfit, measure, open_regular_file
from tasks.release.bundle_format import CARD, TEXTS, read_labelled
from tasks.release.prompt_passages import prompt_passages
from tasks.release.sections import WARNINGS, Section, Warnings, sections_for, sections_to_json
from tasks.reporting.report_parts import TextOnPage, Version, contents
from tasks.text.doubts import describe_doubts, find_doubts


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


MOST_CARD_BYTES = 4 << 20


@dataclass(frozen=True)
class ReleaseDocuments:
    """The readable versions of a report, the default first; whoever may read one may read the card and the texts."""

    reports: tuple[Version, ...]
    card: bool
    texts: bool


def readable_documents(view: View, state: str, artifact: Artifact | None, dataset: Dataset) -> ReleaseDocuments:
    """Return the documents of a request's artifact that the viewer may read."""
    if artifact is None:
        return ReleaseDocuments((), card=False, texts=False)
    reports = tuple(_report_versions(view, state, dataset))
    return ReleaseDocuments(reports, card=bool(reports), texts=bool(reports))


def _report_versions(view: View, state: str, dataset: Dataset) -> Iterator[Version]:
    if view.is_steward:
        yield "steward"
        yield "public"
        if not dataset.governed or (state in DECIDED and _has_seen(view, dataset)):
            yield "internal"
    elif state == RequestState.PUBLISHED:
        yield "public"


def _has_seen(view: View, dataset: Dataset) -> bool:
    return exposures.has_seen(view.session, dataset.account_id, view.actor.id)


def load_report(viewer: Viewer, number: int, version: Version) -> Mapping[str, Any]:
    """Return the content of a report for `tasks.reporting.html_report.page`.

    Raises:
        RequestUnknown: there is no such request.
        DocumentWithheld: the viewer may not read it.
        ArtifactChanged, FileUnfit: the files are missing here, or differ from the produced ones.
    """
    with viewer.open_view() as view:
        if version not in documents_of_request(view, number).reports:
            raise document_withheld(number, f"the {version} version of the report")
    from flows.reports.build import report_facts  # no other page needs it

    # Without the map of texts, because a web server should not load an embedder.
    return contents(version, report_facts(viewer.workspace(), number, version, drawn=False, viewer_recorded=True))


def load_card(viewer: Viewer, number: int) -> str:
    """Return the card of a release in quarantine, as Markdown.

    Raises:
        RequestUnknown: there is no such request.
        DocumentWithheld: the viewer may not read it.
        FileUnfit: the file is missing here, or differs from the produced one.
    """
    with viewer.open_view() as view:
        artifact = artifacts.artifact_of(view.session, number)
        if not documents_of_request(view, number).card or artifact is None:
            raise document_withheld(number, "the card")
    path = viewer.home.draft(artifact.request_id, artifact.attempt) / CARD
    if measure(path) != files_of(artifact).get(CARD):
        raise FileUnfit(CARD, "differs from the produced one")
    with open_regular_file(path) as file:
        return file.read(MOST_CARD_BYTES).decode()


def documents_of_request(view: View, number: int) -> ReleaseDocuments:
    """Return the documents of a request that the viewer may read.

    Raises:
        RequestUnknown: there is no such request.
    """
    request = requests.find_request(view.session, number)
    artifact, state = artifacts.artifact_of(view.session, number), requests.state_of(view.session, number)
    return readable_documents(view, state, artifact, view.session.get_one(Dataset, request.dataset_id))


def load_question(viewer: Viewer, number: int, gate: Gate) -> bytes:
    """Return the question on a request or proposal that waits at a gate, for a steward to sign on another machine.

    Raises:
        DocumentWithheld: the viewer is no steward.
        The errors of `flows.approvals.decide.question_for_signing`.
    """
    from flows.approvals.decide import question_for_signing  # it loads the libraries of reviews

    with viewer.open_view() as view:
        if "steward" not in view.roles:
            raise document_withheld(number, "the question")
    return question_for_signing(viewer.workspace(), number, gate)


def document_withheld(number: int, what: str) -> Refused:
    """Return the refusal of a document of a release that the viewer may not read."""
    return Refused(
        f"You may not read {what} of request {number} now.",
        "Stewards see the output of a run; everybody else sees its public report and its texts while the release is"
        " published. `almoner report ID --internal` shows unprotected figures, and records who sees them.",
        {"request": number},
        code="DocumentWithheld",
    )


SHOWN_TEXTS: Final = 50


@dataclass(frozen=True)
class TextsPage:
    """Some of the texts of a release, in the order of the file.

    Attributes:
        of: how many texts the release has; `doubtful` of them have a doubt.
        looked_for: the sentence about that number.
        matching: how many of them fit the search.
        page: the number of this page, from 1, of `pages`.
        find: words that the texts contain, whatever the case of their letters.
        only_doubtful: whether the search is for texts with a doubt.
    """

    request: int
    dataset: str
    texts: tuple[TextOnPage, ...]
    of: int
    doubtful: int
    looked_for: str
    matching: int
    page: int
    pages: int
    find: str
    only_doubtful: bool


def texts_page(
    view: View, home: ProjectHome, number: int, page: int = 1, find: str = "", *, only_doubtful: bool = False
) -> TextsPage:
    """Return a page of the texts of a request; the last one, if there are fewer.

    Whoever may read a report of the release may read its texts: stewards, and everybody while it is published.

    Raises:
        RequestUnknown: there is no such request.
        DocumentWithheld: the viewer may not read them.
        FileUnfit: the file is missing here, or differs from the produced one.
    """
    artifact = artifacts.artifact_of(view.session, number)
    if not documents_of_request(view, number).texts or artifact is None:
        raise document_withheld(number, "the texts")
    request = requests.find_request(view.session, number)
    prompt = prompt_passages(request_body(request))
    folder, expected = home.draft(artifact.request_id, artifact.attempt), files_of(artifact).get(TEXTS)
    if expected is None or measure(folder / TEXTS) != expected:
        raise FileUnfit(TEXTS, "differs from the produced one")
    count, doubtful = find_doubtful(folder, str(expected["sha256"]), prompt)

    def fitting() -> Iterator[tuple[int, str, str | None]]:
        for index, (text, label) in enumerate(read_labelled(folder), 1):
            if (index in doubtful or not only_doubtful) and find.casefold() in text.casefold():
                yield index, text, label

    matching = sum(1 for _ in fitting())
    pages = max(1, -(-matching // SHOWN_TEXTS))
    page = min(max(1, page), pages)
    shown = islice(fitting(), (page - 1) * SHOWN_TEXTS, page * SHOWN_TEXTS)
    texts = tuple(TextOnPage(index, label, text, find_doubts(text, prompt)) for index, text, label in shown)
    dataset = view.session.get_one(Dataset, request.dataset_id).name
    looked_for = describe_doubts(len(doubtful), count)
    return TextsPage(
        number, dataset, texts, count, len(doubtful), looked_for, matching, page, pages, find, only_doubtful
    )
