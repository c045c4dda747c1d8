"""Content of stored versions, compared with the marks that the ledger keeps of them."""

from sqlalchemy.orm import Session

from flows.workspace.home_keys import load_overlap_key
from flows.workspace.workspace import Workspace
from models_db.errors import EnvironmentProblem
from models_db.services import erasures
from models_db.tables import Dataset, DatasetVersion
from tasks.corpus.erase_unit import content_mark


def mark_of_store(
    workspace: Workspace, session: Session, dataset: Dataset, version: DatasetVersion, without: str | None = None
) -> str:
    """Return the keyed mark of this home's copy of a version, computed without the unit `without`.

    Raises:
        KeyMissing, KeyTooOpen, KeyDiffers: this home lacks the key of the marks, or has another one.
        VersionMissing, StoreBusy, StoreUnreadable: see `tasks.corpus.store.open_corpus`.
    """
    key = load_overlap_key(workspace.home, session)
    has_unit_field = dataset.unit_field is not None
    return content_mark(workspace.home, version.uid, key, has_unit_field=has_unit_field, without=without)


def differs_from_ledger(workspace: Workspace, session: Session, dataset: Dataset, version: DatasetVersion) -> bool:
    """Return whether this home's copy of a version differs from the ingested units less the erased ones.

    Raises:
        The errors of `mark_of_store`.
    """
    return mark_of_store(workspace, session, dataset, version) != erasures.manifest_mark(session, version)


def store_differs(name: str, number: int) -> EnvironmentProblem:
    """Return the error of a stored version that differs from its mark in the ledger."""
    return EnvironmentProblem(
        f"Version {number} of {name!r} in this home differs from its mark in the ledger.",
        "Find out who changed it (`almoner doctor`), then erase the whole version: `--version N`.",
        {"dataset": name, "version": number},
        code="StoreDiffers",
    )
