"""A corpus enters: registered with its lifetime claim, and ingested as the next version of its dataset."""

import secrets

from flows.budgets import lifetime_claim
from flows.workspace import Workspace, overlap_key_path, partition_key_path
from models_db.services import datasets
from models_db.services.datasets import Registration
from tasks.corpus.keys import create_key, load_key
from tasks.corpus.sources import Source
from tasks.ingest import RecordedVersion, ingest_version


def register(workspace: Workspace, wanted: Registration, epsilon: str, delta: str, blocks: int = 1) -> None:
    """Register a dataset with a budget of its own; nothing is read.

    Args:
        epsilon, delta: the lifetime claim, as decimal text; it is never exceeded and never reset.
        blocks: how many disjoint blocks its units are dealt into, each with the whole budget.

    Raises:
        InvalidTarget: no claim can be made from epsilon and delta.
        DatasetExists: the name is taken.
        Denied: only a steward or an admin registers one.
    """
    with workspace.database.write() as session:
        datasets.refuse_taken(session, wanted.name)
        claim = lifetime_claim(epsilon, delta)
        key_name = secrets.token_hex(8)
        create_key(partition_key_path(workspace.home, key_name))
        account = datasets.open_account(session, claim, blocks, key_name)
        datasets.register(session, workspace.actor, wanted, account.id)


def register_sharing(workspace: Workspace, wanted: Registration, other: str) -> None:
    """Register a dataset on the budget of another one, because they share people.

    Raises:
        DatasetUnknown: there is no `other`.
        DatasetExists, Denied: as `register`.
        NotAlike: its units are not those of `other`.
    """
    with workspace.database.write() as session:
        account = datasets.find(session, other).account_id
        datasets.register(session, workspace.actor, wanted, account)


def ingest(workspace: Workspace, name: str, source: Source, label_field: str | None = None) -> RecordedVersion:
    """Copy a corpus into the home as the dataset's next version: all of it, or nothing.

    Args:
        source: JSONL, CSV, Parquet, or a folder of .txt; here, or in a store (`flows.stores.source_at`).
        label_field: the field of a document's label or group; kept private.

    Raises:
        DatasetUnknown: there is no such dataset.
        UnnamedUnitsAgain: it would put one person into two blocks.
        KeyMissing: this home has no key to recognise units with.
        UsageError: the corpus cannot be read as one.
        Refused: the ledger does not take the version.
    """
    with workspace.database.read() as session:
        dataset = datasets.find(session, name)
        datasets.admit_another_version(session, dataset)
    overlap_key = load_key(overlap_key_path(workspace.home))
    return ingest_version(
        workspace.home, workspace.database, workspace.actor, dataset, source, overlap_key, label_field
    )
