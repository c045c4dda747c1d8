"""Passkeys: WebAuthn keys with which principals decide in a browser, each certified by its principal's own key.

A row here gives no right by itself. Whoever verifies a decision verifies the certificate as well (`tasks.release`), so
a row that somebody else wrote decides nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.errors import Refused, UsageError
from models_db.services.audit.chain import Actor
from models_db.tables import Passkey, PasskeyEnd
from models_db.values.canonical_json import encode_canonical
from models_db.writes.database_errors import AlreadyRecorded
from models_db.writes.insert import insert_row


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


def register(
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
        raise PasskeyTaken from None


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


def find_open(session: Session, number: int) -> Passkey:
    """Return a passkey that was not revoked.

    Raises:
        PasskeyUnknown: there is none of that number.
    """
    found = next((passkey for passkey in open_passkeys(session) if passkey.id == number), None)
    if found is None:
        raise PasskeyUnknown(number)
    return found


def revoke(session: Session, actor: Actor, number: int, reason: str) -> Passkey:
    """Record that a passkey decides nothing any more.

    Raises:
        PasskeyUnknown: there is none, or it was revoked.
        RoleDenied: it is another person's, and the actor is no admin.
    """
    passkey = find_open(session, number)
    insert_row(session, PasskeyEnd(passkey_id=number, reason=reason, ended_by=actor.id, at=utc_now()))
    return passkey


class PasskeyTaken(Refused):
    """The ledger has the key already."""

    def __init__(self) -> None:
        super().__init__(
            "The ledger has this passkey already; a key belongs to one person, and is registered once.",
            "See the passkeys with `almoner passkey list`; `almoner passkey invite` begins with a new one.",
        )


class PasskeyUnknown(UsageError):
    """No passkey of that number is in force."""

    def __init__(self, number: int) -> None:
        super().__init__(f"No passkey {number} is in force.", "See `almoner passkey list`.", {"passkey": number})
