"""All texts of a release, for a steward who decides on them, with the doubts about each; and their selection."""

from flows.releases.publish import find_artifact
from flows.workspace.workspace import Workspace
from models_db.services.audit.stored_text import files_of, request_body
from models_db.services.catalogue import requests
from models_db.tables import Artifact
from tasks.common.files import read_document
from tasks.publishing.draft import rehash
from tasks.release.file_names import RECORD
from tasks.release.record import ReleaseRecord
from tasks.release.text_rows import read_labelled
from tasks.release.wording.selection_text import selection_sentence
from tasks.reporting.release_sections import texts_of, texts_with_doubts
from tasks.reporting.sections import TextOnPage


def read_release_texts(workspace: Workspace, request_id: int) -> tuple[TextOnPage, ...]:
    """Return all texts of a produced, published or discarded release, in the order of the file.

    Raises:
        RequestUnknown: the ledger has no such request.
        WrongState: it has not been run.
        ArtifactChanged: the files differ from the produced ones.
    """
    artifact = find_artifact(workspace, request_id)
    folder = workspace.home.path_inside("quarantine", artifact.folder)
    rehash(folder, files_of(artifact))
    with workspace.database.read() as session:
        prompt = str(request_body(requests.find_request(session, request_id))["prompt"]["description"])
    return texts_with_doubts(texts_of(read_labelled(folder)), prompt)


def read_selection(workspace: Workspace, artifact: Artifact) -> str | None:
    """Return the sentence on the selection of a release's texts; None where all are published, or it was erased.

    Raises:
        FileUnfit: the record in quarantine is not in its format.
    """
    path = workspace.home.path_inside("quarantine", artifact.folder) / RECORD
    return selection_sentence(ReleaseRecord.from_bytes(read_document(path))) if path.is_file() else None
