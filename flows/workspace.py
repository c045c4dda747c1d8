"""An opened project home: the ledger, who is acting, the policy in force and the keys."""

import hashlib
import socket
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

import psutil
from sqlalchemy.orm import Session

import models_db
from flows.written import read_yaml
from models_db.canonical import canonical, digest
from models_db.engine import Database
from models_db.home import ProjectHome
from models_db.requests import Policy, as_json, parse
from models_db.services import people
from models_db.services.audits import Actor
from models_db.services.ledger import Provenance
from models_db.tables import PolicyVersion
from tasks.publishing.signing import SigningKey

ROOMS = ("cli", "flows", "migrations", "models_db", "tasks")
LIBRARIES = ("dp-accounting", "numpy", "opendp", "torch", "transformers")

POLICY = """\
# The policy of this project home. Every request records the version it was made under, and every card says
# what it allows. A change does not touch requests that were made before it.

# One person may request, approve and run the same release. For a team, set this to false.
several_roles: true

# How many approvals each gate needs: before private data is touched, and before anything leaves.
approvals: {spend: 1, publish: 1}

# Days until an approval, or an undecided request, expires.
approval_days: 30
request_days: 90

# How often one approved request may be run; a failed run has spent what it armed.
attempts: 5
"""


@dataclass(frozen=True)
class Workspace:
    """A home that `almoner init` has made, opened by one person."""

    home: ProjectHome
    database: Database
    actor: Actor
    key: SigningKey
    policy: Policy

    @property
    def policy_digest(self) -> str:
        """Names the policy in force in requests."""
        return digest(as_json(self.policy))

    def policy_version(self, session: Session) -> PolicyVersion:
        """The ledger's row for the policy in force; recorded when it is first used."""
        body = as_json(self.policy)
        return people.adopt_policy(
            session,
            self.actor,
            digest=self.policy_digest,
            body=canonical(body).decode(),
            several_roles=self.policy.several_roles,
            spend_approvals=self.policy.approvals.spend,
            publish_approvals=self.policy.approvals.publish,
        )


def open_workspace(home: ProjectHome) -> Workspace:
    """Open a home for the person at the keyboard.

    Raises:
        HomeMissing: `almoner init` has not made it.
        PrincipalUnknown: the ledger knows another key under this name.
        FileInvalid: policy.yaml does not follow its format.
    """
    home.require()
    database = Database(home.database_url)
    key = SigningKey.load(signing_key_path(home))
    with database.read() as session:
        actor = people.identify(session, key.public_key)
    policy = parse(Policy, read_yaml(home.policy, "policy.yaml"), "policy.yaml")
    return Workspace(home, database, actor, key, policy)


def signing_key_path(home: ProjectHome) -> Path:
    """Where a home keeps the key its owner signs with."""
    return home.keys / "signing.key"


def overlap_key_path(home: ProjectHome) -> Path:
    """Where a home keeps the key that recognises units across datasets."""
    return home.keys / "overlap.key"


def partition_key_path(home: ProjectHome, name: str) -> Path:
    """Where a home keeps the key of one partition scheme."""
    return home.inside("keys", f"partition-{name}.key")


@cache
def code_digest() -> str:
    """SHA-256 over the source of the five rooms: what the spend gate approves is run by exactly this code."""
    root = Path(models_db.__file__).parent.parent
    found = hashlib.sha256()
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            found.update(f"{path.relative_to(root).as_posix()}\0".encode())
            found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def owner(pid: int | None = None) -> str:
    """A process, this one by default, as a lease names it; the start time tells a reused number apart.

    Raises:
        psutil.NoSuchProcess: there is none.
    """
    process = psutil.Process(pid)
    return f"{socket.gethostname()}/{process.pid}/{process.create_time():.2f}"


def provenance(device: str, rng_kind: str) -> Provenance:
    """What is recorded with every mechanism that runs here."""
    return Provenance(device, code_digest(), library_versions(), rng_kind)


def library_versions() -> dict[str, str]:
    """The libraries that decide what a run computes."""
    return {name: version(name) for name in LIBRARIES}
