"""Read-only view of a home for the principal whose key lies in it; its sessions cannot write.

Everything is asked anew for every page: a role that was revoked, or a policy that became quiet, counts at once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy.orm import Session

from flows.governance.policy import hides_balances
from flows.workspace import rollback_guard
from flows.workspace.policy_file import policy_of_home
from flows.workspace.workspace import Workspace, signing_key_path
from models_db.home import ProjectHome
from models_db.services.audit.chain import Actor
from models_db.services.catalogue import policies, principals
from models_db.sessions.read_only import ReadOnlyDatabase
from tasks.release.signatures.ed25519 import SigningKey


@dataclass(frozen=True)
class View:
    """One look at the ledger.

    Attributes:
        roles: of the viewer, now.
        figures: whether the policy in force lets the viewer see what is left of budgets.
        doubt: how the ledger contradicts what the home has seen of it; empty if it does not.
    """

    session: Session
    actor: Actor
    roles: frozenset[str]
    figures: bool
    doubt: str

    @property
    def is_steward(self) -> bool:
        """Whether the viewer may see the pages of stewards."""
        return "steward" in self.roles


@dataclass(frozen=True)
class Viewer:
    """A home to look at; one for each thread, because its database is asked by one at a time."""

    home: ProjectHome
    database: ReadOnlyDatabase
    public_key: str

    @contextmanager
    def open_view(self) -> Iterator[View]:
        """One session, and who looks.

        Raises:
            PrincipalUnknown: the ledger does not know the key of this home.
            LoginMismatch: on PostgreSQL, this session's login is somebody else's.
            LedgerUnreachable, LedgerNotReadable, SchemaOutdated: see `ReadOnlyDatabase.read`.
        """
        try:
            # before the session begins, see `rollback_guard.require_seen`
            heads, unread = rollback_guard.load_head(self.home), ""
        except rollback_guard.SeenFileUnusable as problem:
            heads, unread = None, problem.message
        with self.database.read() as session:
            actor = principals.acting_principal(session, self.public_key)
            how = rollback_guard.missing_links(session, heads) if heads is not None else ""
            doubt = f"The ledger differs from the one that this home has seen: {how}." if how else unread
            roles = principals.roles_of(session, actor.id)
            yield View(session, actor, roles, not hides_balances(session, actor), doubt)

    def workspace(self) -> Workspace:
        """The same home as other commands open it, but through a database that cannot be written.

        The secret key is read for as long as one report takes, and not kept by whoever waits for requests.

        Raises:
            as `look`, and FileInvalid: policy.yaml does not follow its format.
        """
        with self.database.read() as session:
            actor = principals.acting_principal(session, self.public_key)
            policy = policy_of_home(session, self.home.policy, policies.policy_in_force(session))
        return Workspace(self.home, self.database, actor, SigningKey.load(signing_key_path(self.home)), policy)


def open_viewer(home: ProjectHome) -> Viewer:
    """Open a home to look at.

    Raises:
        HomeMissing: `almoner init` has not made it.
        SigningKeyUnusable: its key cannot be read.
    """
    home.require()
    return Viewer(home, ReadOnlyDatabase(home.database_url), SigningKey.load(signing_key_path(home)).public_key)
