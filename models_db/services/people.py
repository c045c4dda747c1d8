"""People: their names, keys and roles, and the passkeys with which they decide in a browser.

Guards in the database decide who may do what. A passkey is a WebAuthn key, certified by its person's own key; its row
gives no right by itself. Whoever verifies a decision verifies the certificate as well (`tasks.release`), so a row that
somebody else wrote decides nothing.
"""

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.errors import EnvironmentProblem, Refused, UsageError
from models_db.services import logins
from models_db.services.audit.chain import Actor
from models_db.tables import AuditLink, OverlapKey, Passkey, PasskeyEnd, Principal, RoleGrant, RoleRevocation
from models_db.tables.principals import ROLES
from models_db.values.canonical_json import encode_canonical
from models_db.values.untrusted_text import is_unseen, without_unseen
from models_db.writes.database_errors import AlreadyRecorded
from models_db.writes.insert import insert_row, on_postgresql

LONGEST_NAME = 100


class PrincipalUnknown(EnvironmentProblem):
    """The ledger does not know this person or key."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The ledger does not know {name!r} with the signing key of this home.",
            "Use the home whose key is registered, or let an admin add this one:"
            " `almoner user add NAME --key PUBLIC_KEY`; `almoner init` shows the public key.",
            {"principal": name},
        )


def _ledger_empty() -> EnvironmentProblem:
    return EnvironmentProblem(
        "The ledger knows nobody yet: `almoner init` ended before it had recorded the first person.",
        "Nothing is lost: type `almoner init` again. It keeps what exists.",
        code="LedgerEmpty",
    )


def _name_taken(name: str) -> Refused:
    return Refused(
        f"{name!r}, or a name that reads like it, its key or its login, is already in use.",
        "One human has one name, one key and one login; see them with `almoner user list`.",
        {"principal": name},
        code="NameTaken",
    )


def found_ledger(
    session: Session, name: str, public_key: str, overlap_commitment: str, login: str | None = None
) -> Actor:
    """Create the first principal of a ledger, with every role, or return the principal with this key.

    Args:
        overlap_commitment: to the overlap key of all homes of this ledger; 64 hexadecimal digits.
        login: the PostgreSQL role the founder works under; without it, that of this session.

    Raises:
        PrincipalUnknown: there are others, and none has this key.
    """
    principal = _by_key(session, public_key)
    if principal is not None:
        return Actor(principal.id, principal.name)
    if is_founded(session):
        raise PrincipalUnknown(name)
    actor = _insert_principal(session, normalise_name(name), public_key, login or logins.session_login(session), None)
    at = utc_now()
    for role in ("admin", *(role for role in ROLES if role != "admin")):
        insert_row(session, _grant_row(actor, actor, role, at, None, "founded the ledger"))
    insert_row(session, OverlapKey(key_commitment=overlap_commitment, created_at=at, created_by=actor.id))
    return actor


def is_founded(session: Session) -> bool:
    """Return whether the ledger has a principal."""
    return session.scalars(select(Principal.id).limit(1)).one_or_none() is not None


def _known_by_key(session: Session, public_key: str) -> Principal:
    principal = _by_key(session, public_key)
    if principal is None:
        raise _ledger_empty() if _is_new(session) else PrincipalUnknown("anybody")
    return principal


def _is_new(session: Session) -> bool:
    """Return whether nothing was ever recorded; a ledger with links and without people was altered."""
    return not is_founded(session) and session.scalars(select(AuditLink.seq).limit(1)).first() is None


def enrol(session: Session, actor: Actor, name: str, public_key: str, login: str | None = None) -> Actor:
    """Record a further principal, who has no role yet. `login` is the PostgreSQL role that principal works under.

    Raises:
        RoleRequired: the actor is no admin.
        InvalidPersonName: it looks like another one.
        LoginNotSupported: a login in a ledger on SQLite.
        NameTaken: the name, the key or the login is in use.
    """
    require_role(session, actor, "admin")
    name = normalise_name(name)
    if login is not None:
        logins.require_logins(not on_postgresql(session))
    if comparable_name(name) in {comparable_name(taken) for taken in session.scalars(select(Principal.name))}:
        raise _name_taken(name)
    try:
        principal = _insert_principal(session, name, public_key, login, actor)
    except AlreadyRecorded:
        raise _name_taken(name) from None
    return principal


def _insert_principal(session: Session, name: str, public_key: str, login: str | None, by: Actor | None) -> Actor:
    principal = Principal(name=name, public_key=public_key, created_at=utc_now(), login=login, created_by=by and by.id)
    insert_row(session, principal)
    return Actor(principal.id, name)


def normalise_name(name: str) -> str:
    """Return a name in the spelling that the ledger stores.

    Raises:
        InvalidPersonName: it looks like another one.
    """
    name = unicodedata.normalize("NFC", name)
    seen = name.isprintable() and not any(map(is_unseen, name))
    if not (name == name.strip() and seen and 0 < len(name) <= LONGEST_NAME):
        raise UsageError(
            f"A person's name is 1 to {LONGEST_NAME} printable characters without space around them.",
            "Choose another, such as `anna`.",
            code="InvalidPersonName",
        )
    return name


def comparable_name(name: str) -> str:
    """Return the form of a name for comparison: two names that look alike to a reader have one form."""
    visible = without_unseen(unicodedata.normalize("NFC", name))
    return unicodedata.normalize("NFC", visible.strip().casefold())


def identify(session: Session, public_key: str) -> Actor:
    """Return the actor whose key this is.

    Raises:
        PrincipalUnknown: no principal has it.
        LedgerEmpty: the ledger holds nothing at all.
    """
    principal = _known_by_key(session, public_key)
    return Actor(principal.id, principal.name)


def acting_principal(session: Session, public_key: str) -> Actor:
    """Return the actor who works in a home with this key; on PostgreSQL, under the login of this session.

    Raises:
        PrincipalUnknown: no principal has the key.
        LedgerEmpty: the ledger holds nothing at all.
        LoginMismatch: the login is not that person's.
    """
    principal = _known_by_key(session, public_key)
    logins.require_own_login(session, principal)
    return Actor(principal.id, principal.name)


def _by_key(session: Session, public_key: str) -> Principal | None:
    return session.scalars(select(Principal).where(Principal.public_key == public_key)).one_or_none()


def find_principal(session: Session, name: str) -> Principal:
    """Return the principal of that name.

    Raises:
        PrincipalNotFound: there is none.
    """
    principal = session.scalars(select(Principal).where(Principal.name == name)).one_or_none()
    if principal is None:
        known = session.scalars(select(Principal.name).order_by(Principal.name)).all()
        raise UsageError(
            f"The ledger has no principal named {name!r}.",
            f"It knows {', '.join(known)}. An admin adds people: `almoner user add` (docs/people.md).",
            {"known": list(known)},
            code="PrincipalNotFound",
        )
    return principal


def list_all(session: Session) -> Sequence[Principal]:
    """Return all principals, in the order they came."""
    return session.scalars(select(Principal).order_by(Principal.id)).all()


def grants_at(session: Session, principal_id: int, at: str | None = None) -> Sequence[RoleGrant]:
    """Return the grants that hold at a time (default: now)."""
    at = at or utc_now()
    ended = select(RoleRevocation.grant_id)
    query = select(RoleGrant).where(
        RoleGrant.principal_id == principal_id,
        RoleGrant.valid_from <= at,
        or_(RoleGrant.valid_to.is_(None), RoleGrant.valid_to > at),
        RoleGrant.id.not_in(ended),
    )
    return session.scalars(query.order_by(RoleGrant.id)).all()


def unexpired_grants(session: Session) -> Sequence[RoleGrant]:
    """Return all grants that hold or will hold: not revoked, not past."""
    query = select(RoleGrant).where(
        or_(RoleGrant.valid_to.is_(None), RoleGrant.valid_to > utc_now()),
        RoleGrant.id.not_in(select(RoleRevocation.grant_id)),
    )
    return session.scalars(query.order_by(RoleGrant.id)).all()


def roles_of(session: Session, principal_id: int) -> frozenset[str]:
    """Return the present roles of a principal."""
    return frozenset(grant.role for grant in grants_at(session, principal_id))


def require_role(session: Session, actor: Actor, *roles: str) -> None:
    """Check for one of `roles` before work begins; the database checks again where it matters.

    Raises:
        RoleRequired: the actor has none of them.
    """
    roles_held = roles_of(session, actor.id)
    if roles_held.isdisjoint(roles):
        raise Refused(
            f"{actor.name!r} has the roles {', '.join(sorted(roles_held)) or 'none'}; this needs {' or '.join(roles)}.",
            "An admin grants roles: `almoner user grant NAME ROLE --reason TEXT`.",
            {"needed": list(roles), "held": sorted(roles_held)},
            code="RoleRequired",
        )


def grant(
    session: Session,
    actor: Actor,
    name: str,
    role: str,
    reason: str,
    *,
    valid_from: str | None = None,
    valid_to: str | None = None,
) -> RoleGrant:
    """Give a principal a role, from now or `valid_from` on, for good or until `valid_to`.

    Raises:
        RoleRequired: the actor is no admin.
        PrincipalNotFound, RoleUnknown: not those names.
    """
    require_role(session, actor, "admin")
    if role not in ROLES:
        raise UsageError(
            f"There is no role {role!r}.", f"Roles: {', '.join(ROLES)}.", {"roles": list(ROLES)}, code="RoleUnknown"
        )
    whom = find_principal(session, name)
    return insert_row(session, _grant_row(actor, Actor(whom.id, name), role, valid_from or utc_now(), valid_to, reason))


def _grant_row(by: Actor, to: Actor, role: str, valid_from: str, valid_to: str | None, reason: str) -> RoleGrant:
    return RoleGrant(principal_id=to.id, role=role, valid_from=valid_from, valid_to=valid_to, granted_by=by.id,
                     reason=reason, at=utc_now())  # fmt: skip


def revoke(session: Session, actor: Actor, name: str, role: str, reason: str) -> int:
    """Take a role away; approvals that rest on it no longer count. Returns how many grants ended.

    Raises:
        RoleRequired: the actor is no admin.
        RoleNotHeld: there is none.
        RuleViolated: the last admin.
    """
    require_role(session, actor, "admin")
    grants = [grant for grant in grants_at(session, find_principal(session, name).id) if grant.role == role]
    if not grants:
        raise Refused(
            f"{name!r} has no role {role!r} now.", "See `almoner user list`.", {"role": role}, code="RoleNotHeld"
        )
    for grant in grants:
        insert_row(session, RoleRevocation(grant_id=grant.id, revoked_by=actor.id, reason=reason, at=utc_now()))
    return len(grants)


@dataclass(frozen=True)
class PasskeyTerms:
    """A passkey, as its principal certifies it.

    Attributes:
        public_key: `es256:` and x, y, or `ed25519:` and the point, in hexadecimal digits.
        rp_id: the host that its signatures name by digest.
        origin: the address of the pages on which it signs, such as `https://ledger.example.org:8717`.
        ledger: the identity of the one ledger for which it decides (`chain.ledger_id`).
    """

    public_key: str
    rp_id: str
    origin: str
    ledger: str

    @classmethod
    def of(cls, passkey: Passkey, ledger: str) -> "PasskeyTerms":
        """Return the terms of a row of a ledger; a certificate for another ledger does not fit them."""
        return cls(passkey.public_key, passkey.rp_id, passkey.origin, ledger)

    def statement(self, principal_key: str) -> bytes:
        """Return the canonical bytes that the principal's own key signs."""
        return encode_canonical(
            {
                "passkey": self.public_key,
                "rp_id": self.rp_id,
                "origin": self.origin,
                "ledger": self.ledger,
                "principal": principal_key,
            }
        )


@dataclass(frozen=True)
class PasskeySignature:
    """What beside the signature itself comes from a passkey that decides.

    Attributes:
        passkey_id: the passkey's number.
        authenticator_data: 37 bytes, in hexadecimal digits.
        client_data: the JSON text that the browser wrote.
    """

    passkey_id: int
    authenticator_data: str
    client_data: str

    @property
    def stored(self) -> str:
        """Return the text that the ledger keeps."""
        return encode_canonical(
            {"authenticator_data": self.authenticator_data, "client_data": self.client_data}
        ).decode()


def register_passkey(
    session: Session, actor: Actor, person: Actor, terms: PasskeyTerms, credential_id: str, signature: str
) -> Passkey:
    """Record a passkey of `person`, whose own key made `signature` over the terms.

    Raises:
        PasskeyTaken: the ledger has that key already.
        RoleDenied: the actor is neither that person nor an admin.
    """
    row = Passkey(principal_id=person.id, public_key=terms.public_key, credential_id=credential_id, rp_id=terms.rp_id,
                  origin=terms.origin, signature=signature, created_by=actor.id, at=utc_now())  # fmt: skip
    try:
        return insert_row(session, row)
    except AlreadyRecorded:
        raise Refused(
            "The ledger has this passkey already; a key belongs to one person, and is registered once.",
            "See the passkeys with `almoner passkey list`; `almoner passkey invite` begins with a new one.",
            code="PasskeyTaken",
        ) from None


def open_passkeys(session: Session, principal_id: int | None = None) -> Sequence[Passkey]:
    """Return the passkeys that were not revoked, of one principal or of all, oldest first."""
    query = select(Passkey).where(Passkey.id.not_in(select(PasskeyEnd.passkey_id)))
    if principal_id is not None:
        query = query.where(Passkey.principal_id == principal_id)
    return session.scalars(query.order_by(Passkey.id)).all()


def passkeys_by_id(session: Session, numbers: Collection[int | None]) -> Mapping[int, Passkey]:
    """Return passkeys by their numbers, revoked ones too."""
    query = select(Passkey).where(Passkey.id.in_([number for number in numbers if number is not None]))
    return {passkey.id: passkey for passkey in session.scalars(query)}


def find_passkey(session: Session, number: int) -> Passkey:
    """Return a passkey that was not revoked.

    Raises:
        PasskeyUnknown: there is none of that number.
    """
    found = next((passkey for passkey in open_passkeys(session) if passkey.id == number), None)
    if found is None:
        raise UsageError(
            f"No passkey {number} is in force.",
            "See `almoner passkey list`.",
            {"passkey": number},
            code="PasskeyUnknown",
        )
    return found


def revoke_passkey(session: Session, actor: Actor, number: int, reason: str) -> Passkey:
    """Record that a passkey decides nothing any more.

    Raises:
        PasskeyUnknown: there is none, or it was revoked.
        RoleDenied: it is another person's, and the actor is no admin.
    """
    passkey = find_passkey(session, number)
    insert_row(session, PasskeyEnd(passkey_id=number, reason=reason, ended_by=actor.id, at=utc_now()))
    return passkey
