"""Secret keys of a home, and the content of stored versions, each compared with the ledger's commitments.

Secret keys of a home that say who a person is and in which block, each read only against the ledger's commitment. There
are two kinds: the overlap key, under which every mark of a unit is made, and one key for each partition. Nothing else
reads their files, so no command works with a key that is damaged, or of another home.
"""

from collections.abc import Iterator

from sqlalchemy import select
from sqlalchemy.orm import Session

from flows.workspace.workspace import Workspace, overlap_key_path, partition_key_path
from models_db.errors import AlmonerError, EnvironmentProblem
from models_db.home import ProjectHome
from models_db.services import erasures
from models_db.tables import Account, Dataset, DatasetVersion, OverlapKey
from tasks.corpus.erase_unit import content_mark
from tasks.corpus.keys import load_key
from tasks.corpus.versions import version_uids


def load_overlap_key(home: ProjectHome, session: Session) -> bytes:
    """Return the key that recognises units across datasets, 32 bytes.

    Raises:
        KeyMissing: this home does not have it.
        KeyTooOpen: other users may read or write it.
        KeyDiffers: it is not the key with which the ledger was founded.
    """
    return load_key(overlap_key_path(home), session.scalars(select(OverlapKey.key_commitment)).first() or "")


def load_partition_key(home: ProjectHome, session: Session, dataset: Dataset) -> bytes:
    """Return the key that puts the units of a dataset into their blocks, 32 bytes.

    Raises:
        KeyMissing: this home does not have it.
        KeyTooOpen: other users may read or write it.
        KeyDiffers: it is not the key with which the dataset's account was opened.
    """
    return _load_root_key(home, session.get_one(Account, dataset.account_id))


def require_own_keys(home: ProjectHome, session: Session) -> None:
    """Check the keys that are in this home; a home needs only those of the data in it.

    Raises:
        KeyTooOpen, KeyDiffers: one of them is open to others, or not the one of the beginning.
    """
    if overlap_key_path(home).exists():
        load_overlap_key(home, session)
    for root in session.scalars(_ROOTS):
        if partition_key_path(home, str(root.key_name)).exists():
            _load_root_key(home, root)


def unsound_keys(home: ProjectHome, session: Session) -> Iterator[str]:
    """Yield, in words, the keys in this home that differ, and those that are missing for its stored versions."""
    stored = DatasetVersion.uid.in_(version_uids(home))
    needing = set(session.scalars(select(Dataset.account_id).join(DatasetVersion).where(stored)))
    try:
        if needing or overlap_key_path(home).exists():
            load_overlap_key(home, session)
    except AlmonerError as problem:
        yield problem.message
    for root in session.scalars(_ROOTS):
        try:
            if root.id in needing or partition_key_path(home, str(root.key_name)).exists():
                _load_root_key(home, root)
        except AlmonerError as problem:
            names = session.scalars(select(Dataset.name).where(Dataset.account_id == root.id))
            yield f"{problem.message} It is the key of {', '.join(map(repr, names))}."


_ROOTS = select(Account).where(Account.parent_id.is_(None)).order_by(Account.id)


def _load_root_key(home: ProjectHome, root: Account) -> bytes:
    return load_key(partition_key_path(home, str(root.key_name)), str(root.key_commitment))


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
