"""Read-only view of a home for the principal whose key lies in it; its sessions cannot write.

Everything is asked anew for every page: a role that was revoked, or a policy that became quiet, counts at once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy.orm import Session

from flows.governance.policy import withholds_balances
from flows.workspace import rollback_guard
from flows.workspace.policy_file import policy_of_home, read_policy_in_force
from flows.workspace.workspace import Workspace, signing_key_path
from models_db.home import ProjectHome
from models_db.policies.policy import Policy
from models_db.services import people, policies
from models_db.services.audit.chain import Actor
from models_db.sessions.database import SchemaOutdated
from models_db.sessions.read_only import ReadOnlyDatabase
from tasks.release.signatures.ed25519 import SigningKey


@dataclass(frozen=True)
class View:
    """One read session on the ledger.

    Attributes:
        roles: the viewer's roles now.
        policy: the policy in force; None before the first.
        doubt: how the ledger contradicts the head that the home has seen; empty if it does not.
    """

    session: Session
    actor: Actor
    roles: frozenset[str]
    policy: Policy | None
    doubt: str

    @property
    def figures(self) -> bool:
        """Return whether the policy in force lets the viewer see remaining budgets."""
        return not withholds_balances(self.policy, self.roles)

    @property
    def is_steward(self) -> bool:
        """Return whether the viewer may see the pages of stewards."""
        return "steward" in self.roles


@dataclass(frozen=True)
class Viewer:
    """A home opened for reading; one for each thread, because its database serves one thread at a time."""

    home: ProjectHome
    database: ReadOnlyDatabase
    public_key: str

    @contextmanager
    def open_view(self) -> Iterator[View]:
        """Open one read session for the viewer.

        Raises:
            PrincipalUnknown: the ledger does not know the key of this home.
            LoginMismatch: on PostgreSQL, this session's login belongs to another principal.
            LedgerUnreachable, LedgerNotReadable, SchemaOutdated: see `ReadOnlyDatabase.read`.
        """
        try:
            # before the session begins, see `rollback_guard.require_seen`
            heads, unread = rollback_guard.load_head(self.home), ""
        except rollback_guard.SeenFileUnusable as problem:
            heads, unread = None, problem.message
        try:
            with self.database.read() as session:
                actor = people.acting_principal(session, self.public_key)
                how = rollback_guard.missing_links(session, heads) if heads is not None else ""
                doubt = f"The ledger differs from the one that this home has seen: {how}." if how else unread
                roles, policy = people.roles_of(session, actor.id), read_policy_in_force(session)
                yield View(session, actor, roles, policy, doubt)
        except SchemaOutdated:
            if heads is not None:
                rollback_guard.require_same_ledger(self.home, self.database)
            raise

    def workspace(self) -> Workspace:
        """Open the home as other commands do, but through a read-only database.

        The secret key is in memory only while one report is built; an idle server does not keep it.

        Raises:
            FileInvalid: policy.yaml does not follow its format.
            The errors of `open_view`.
        """
        with self.database.read() as session:
            actor = people.acting_principal(session, self.public_key)
            policy = policy_of_home(session, self.home.policy, policies.policy_in_force(session))
        return Workspace(self.home, self.database, actor, SigningKey.load(signing_key_path(self.home)), policy)


def open_viewer(home: ProjectHome) -> Viewer:
    """Open a home for reading.

    Raises:
        HomeMissing: there is no home; `almoner init` creates one.
        SigningKeyUnusable: its key cannot be read.
    """
    home.require()
    return Viewer(home, ReadOnlyDatabase(home.database_url), SigningKey.load(signing_key_path(home)).public_key)
