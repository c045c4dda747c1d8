"""Opened project home: the ledger, the acting principal, the policy in force and the keys."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from flows.workspace import rollback_guard
from flows.workspace.policy_file import policy_of_home
from models_db.home import ProjectHome, home_missing
from models_db.policies.policy import Policy
from models_db.services import people, policies
from models_db.services.audit.chain import Actor
from models_db.services.budget import Provenance
from models_db.sessions.database import Database, SchemaOutdated
from models_db.sessions.read_only import ReadOnlyDatabase
from models_db.values.canonical_json import digest
from models_db.values.requests import model_to_json
from tasks.common.extensions import code_digest, library_versions
from tasks.release.signatures.ed25519 import SigningKey


@dataclass(frozen=True)
class Workspace:
    """A project home, opened by its owner."""

    home: ProjectHome
    database: Database
    actor: Actor
    key: SigningKey
    policy: Policy

    @property
    def policy_digest(self) -> str:
        """Return the digest of the home's policy, as requests record it."""
        return digest(model_to_json(self.policy))


def open_workspace(home: ProjectHome) -> Workspace:
    """Open a home for its owner.

    Raises:
        HomeMissing: there is no home; `almoner init` creates one.
        LedgerRolledBack: the ledger does not continue from the head that this home has seen.
        PrincipalUnknown: the ledger does not know the key of this home.
        LoginMismatch: on PostgreSQL, this session's login belongs to another principal.
        FileInvalid: policy.yaml does not follow its format.
    """
    home.require()
    database = rollback_guard.RollbackGuardedDatabase(home)
    key = SigningKey.load(signing_key_path(home))
    heads = rollback_guard.load_head(home)
    try:
        with database.read() as session:
            heads = rollback_guard.require_seen(session, heads)
            actor = people.acting_principal(session, key.public_key)
            policy = policy_of_home(session, home.policy, policies.policy_in_force(session))
    except SchemaOutdated:
        rollback_guard.require_same_ledger(home, database)  # one that is lost is not to be made again
        raise
    rollback_guard.save_head(home, heads, durable=True)
    return Workspace(home, database, actor, key, policy)


@dataclass(frozen=True)
class ReadOnlyWorkspace:
    """The audit log of a ledger, opened for reading."""

    home: ProjectHome
    database: ReadOnlyDatabase
    warning: str
    """Contradiction between the ledger and the head that this home has seen; empty if there is none."""


def open_read_only(home: ProjectHome) -> ReadOnlyWorkspace:
    """Open the ledger read-only: without a key, and also if it was rolled back.

    Raises:
        HomeMissing: there is no ledger.
        LedgerRolledBack: there is none any more, or it is empty.
    """
    database = ReadOnlyDatabase(home.database_url)
    if database.file is not None and not os.path.exists(database.file):
        rollback_guard.require_none_seen(home)
        raise home_missing(home.root)
    return ReadOnlyWorkspace(home, database, rollback_guard.check_rollback(home, database))


def signing_key_path(home: ProjectHome) -> Path:
    """Return the path of the owner's signing key."""
    return home.keys / "signing.key"


def overlap_key_path(home: ProjectHome) -> Path:
    """Return the path of the key that recognises units across datasets."""
    return home.keys / "overlap.key"


def partition_key_path(home: ProjectHome, name: str) -> Path:
    """Return the path of the key of one partition scheme."""
    return home.path_inside("keys", f"partition-{name}.key")


def process_owner(pid: int | None = None) -> str:
    """Return the name of a process, by default this one, in leases; the start time distinguishes reused process ids.

    Raises:
        psutil.NoSuchProcess: there is no such process.
    """
    import psutil  # slow, and only an attempt asks

    process = psutil.Process(pid)
    return f"{socket.gethostname()}/{process.pid}/{process.create_time():.2f}"


def process_lives(owner: str) -> bool:
    """Return whether the process of that name lives; of a process on another machine, nobody here can tell: it does."""
    import psutil

    host, _, rest = owner.partition("/")
    if host != socket.gethostname() and rest:
        return True
    try:
        return process_owner(int(rest.partition("/")[0])) == owner
    except (psutil.NoSuchProcess, ValueError):
        return False


def provenance(device: str, rng_kind: str) -> Provenance:
    """Return the provenance recorded with every mechanism: device, code digest, libraries, randomness."""
    return Provenance(device, code_digest(), library_versions(), rng_kind)
