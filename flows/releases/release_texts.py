"""All texts and topics of a release, for a steward who decides on them, with the doubts about each."""

from functools import lru_cache
from pathlib import Path

from flows.releases.publish import find_artifact
from flows.workspace.workspace import Workspace
from models_db.errors import UsageError
from models_db.services import requests
from models_db.services.audit.stored_text import files_of, request_body
from models_db.values.untrusted_text import escape_controls
from tasks.common.files import read_document
from tasks.publishing.draft import rehash
from tasks.release.bundle_format import RECORD, read_insights, read_labelled
from tasks.release.prompt_passages import prompt_passages
from tasks.release.record import ReleaseRecord
from tasks.reporting.release_sections import Text, texts_of, texts_with_doubts
from tasks.reporting.report_parts import TextOnPage
from tasks.text.doubts import find_doubts
from tasks.values.results import Insight, ReleaseKind


def read_release_texts(workspace: Workspace, request_id: int) -> tuple[TextOnPage, ...]:
    """Return all texts of a produced, published or discarded release, in the order of the file.

    Raises:
        RequestUnknown: the ledger has no such request.
        WrongState: it has not been run.
        ArtifactChanged: the files differ from the produced ones.
    """
    folder = _open_draft(workspace, request_id)
    with workspace.database.read() as session:
        prompt = prompt_passages(request_body(requests.find_request(session, request_id)))
    return texts_with_doubts(read_texts(folder, read_record(folder).kind), prompt)


@lru_cache(maxsize=16)
def find_doubtful(folder: Path, digest: str, prompt: tuple[str, ...]) -> tuple[int, frozenset[int]]:
    """Return how many texts a draft has, and the numbers of those with a doubt, from 1.

    A doubt costs 0.1 to 0.4 ms of processor for each text, so they are kept for the next reader of the draft.

    Args:
        digest: SHA-256 of the texts in `folder`.
    """
    count, doubtful = 0, set[int]()
    for count, (text, _) in enumerate(read_labelled(folder), 1):
        if find_doubts(text, prompt):
            doubtful.add(count)
    return count, frozenset(doubtful)


def read_release_topics(workspace: Workspace, request_id: int) -> tuple[Insight, ...]:
    """Return all topics of a release of insights, parents before their children.

    Raises:
        NotInsights: it is a release of another kind.
        The errors of `read_release_texts`.
    """
    return read_topics(_open_draft(workspace, request_id), str(request_id))


def read_topics(folder: Path, place: str) -> tuple[Insight, ...]:
    """Return all topics in a draft or bundle of insights; `place` names it in errors.

    Raises:
        NotInsights: it is a release of another kind.
        FileUnfit: its files are not in their format.
    """
    kind = read_record(folder).kind
    if kind != ReleaseKind.INSIGHTS:
        raise not_insights(place, kind)
    return tuple(read_insights(folder))


def read_record(folder: Path) -> ReleaseRecord:
    """Return the record in a draft or bundle.

    Raises:
        FileUnfit: it is not in its format.
    """
    return ReleaseRecord.from_bytes(read_document(folder / RECORD))


def read_texts(folder: Path, kind: str) -> list[Text]:
    """Return the texts in a draft or bundle, those of insights with their topics.

    Raises:
        FileUnfit: its files are not in their format.
    """
    insights = read_insights(folder) if kind == ReleaseKind.INSIGHTS else ()
    return texts_of(read_labelled(folder), insights)


def _open_draft(workspace: Workspace, request_id: int) -> Path:
    artifact = find_artifact(workspace, request_id)
    folder = workspace.home.draft(artifact.request_id, artifact.attempt)
    rehash(folder, files_of(artifact))
    return folder


def not_insights(place: str, kind: str) -> UsageError:
    """Return the error of a release of another kind than insights."""
    return UsageError(
        f"{escape_controls(place)} is a release of kind {kind!r}, not of insights.",
        "Name releases of `kind: insights`: bundles, or numbers of requests.",
        {"place": place, "kind": kind},
        code="NotInsights",
    )
