"""Principals and policies, as the ledger knows them."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from models_db.base import moment
from models_db.errors import EnvironmentProblem
from models_db.services import audits
from models_db.services.audits import Actor
from models_db.services.denials import translated
from models_db.tables import PolicyVersion, Principal


class PrincipalUnknown(EnvironmentProblem):
    """The ledger does not know this person or key."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The ledger does not know {name!r} with the signing key of this home.",
            "Run `almoner init` in this home, or use the home whose key is registered.",
            {"principal": name},
        )


def enrol(session: Session, name: str, public_key: str) -> Actor:
    """Record a principal, or find the one with this name and key.

    Raises:
        PrincipalUnknown: the name is taken by another key.
    """
    found = session.scalars(select(Principal).where(Principal.name == name)).one_or_none()
    if found is None:
        found = Principal(name=name, public_key=public_key, created_at=moment())
        with translated():
            session.add(found)
            session.flush()
        audits.append(session, Actor(found.id, name), "principal.enrolled", {"name": name, "public_key": public_key})
    return _checked(found, name, public_key)


def identify(session: Session, name: str, public_key: str) -> Actor:
    """The actor behind a name and a key.

    Raises:
        PrincipalUnknown: no such principal, or another key.
    """
    return _checked(session.scalars(select(Principal).where(Principal.name == name)).one_or_none(), name, public_key)


def _checked(found: Principal | None, name: str, public_key: str) -> Actor:
    if found is None or found.public_key != public_key:
        raise PrincipalUnknown(name)
    return Actor(found.id, found.name)


def adopt_policy(
    session: Session,
    actor: Actor,
    *,
    digest: str,
    body: str,
    several_roles: bool,
    spend_approvals: int,
    publish_approvals: int,
) -> PolicyVersion:
    """The stored version of a policy; a policy seen for the first time is recorded."""
    found = session.scalars(select(PolicyVersion).where(PolicyVersion.digest == digest)).one_or_none()
    if found is None:
        found = PolicyVersion(
            digest=digest,
            body=body,
            several_roles=several_roles,
            spend_approvals=spend_approvals,
            publish_approvals=publish_approvals,
            created_at=moment(),
        )
        with translated():
            session.add(found)
            session.flush()
        audits.append(session, actor, "policy.adopted", {"digest": digest, "several_roles": several_roles})
    return found
