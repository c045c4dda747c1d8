"""Principals and policies, as the ledger knows them."""

import unicodedata

from sqlalchemy import select
from sqlalchemy.orm import Session

from models_db.base import moment
from models_db.errors import EnvironmentProblem
from models_db.services import audits
from models_db.services.audits import Actor
from models_db.services.denials import AlreadyRecorded, translated
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
    """Record a principal, or find the one whose key this is: one key is one person, whatever the login is called.

    Raises:
        PrincipalUnknown: the name, or one that reads like it, is taken by another key.
    """
    found = _by_key(session, public_key)
    if found is not None:
        return Actor(found.id, found.name)
    if plain_name(name) in {plain_name(taken) for taken in session.scalars(select(Principal.name))}:
        raise PrincipalUnknown(name)
    found = Principal(name=name, public_key=public_key, created_at=moment())
    try:
        with translated():
            session.add(found)
            session.flush()
    except AlreadyRecorded:
        raise PrincipalUnknown(name) from None
    actor = Actor(found.id, name)
    audits.append(session, actor, "principal.enrolled", {"name": name, "public_key": public_key})
    return actor


def plain_name(name: str) -> str:
    """`name` as it is compared: two names that look alike to a reader are one."""
    seen = "".join(sign for sign in unicodedata.normalize("NFC", name) if unicodedata.category(sign) != "Cf")
    return unicodedata.normalize("NFC", seen.strip().casefold())


def identify(session: Session, public_key: str) -> Actor:
    """The actor whose key this is.

    Raises:
        PrincipalUnknown: nobody's.
    """
    found = _by_key(session, public_key)
    if found is None:
        raise PrincipalUnknown("anybody")
    return Actor(found.id, found.name)


def _by_key(session: Session, public_key: str) -> Principal | None:
    return session.scalars(select(Principal).where(Principal.public_key == public_key)).one_or_none()


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
