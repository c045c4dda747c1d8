"""Content of stored versions, compared with the marks that the ledger keeps of them."""

from sqlalchemy.orm import Session

from flows.workspace.workspace import Workspace, overlap_key_path
from models_db.errors import EnvironmentProblem
from models_db.services.catalogue import erasures
from models_db.tables import Dataset, DatasetVersion
from tasks.corpus.erase_unit import content_mark
from tasks.corpus.identity.keys import load_key


def mark_of_store(workspace: Workspace, dataset: Dataset, version: DatasetVersion, without: str | None = None) -> str:
    """Return the keyed mark of what this home holds of a version, as if it held nothing of the unit `without`.

    Raises:
        KeyMissing: this home has not the key of the marks.
        VersionMissing, StoreBusy, StoreUnreadable: as `tasks.corpus.store.open_corpus`.
    """
    key = load_key(overlap_key_path(workspace.home))
    return content_mark(workspace.home, version.uid, key, named=dataset.unit_field is not None, without=without)


def differs_from_ledger(workspace: Workspace, session: Session, dataset: Dataset, version: DatasetVersion) -> bool:
    """Return whether this home holds of a version something else than what came in, less what was erased since.

    Raises:
        As `mark_of_store`.
    """
    return mark_of_store(workspace, dataset, version) != erasures.manifest_mark(session, version)


class StoreDiffers(EnvironmentProblem):
    """A stored version holds something else than the ledger says."""

    def __init__(self, name: str, number: int) -> None:
        super().__init__(
            f"Version {number} of {name!r} holds other content in this home than the ledger says.",
            "Find out who changed it (`almoner doctor`); erase the whole version: `--version N`.",
            {"dataset": name, "version": number},
        )
