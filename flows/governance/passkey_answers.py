"""Answers of passkeys to a challenge: whose passkey made one, among those in force."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy.orm import Session

from models_db.errors import Refused
from models_db.services import people
from models_db.services.audit import chain
from models_db.services.people import PasskeyTerms
from models_db.tables import Passkey, Principal
from tasks.release.signatures.webauthn import MOST_CLIENT_DATA, decode_url, spell_signature, verify_certified

ANSWER_FIELDS = ("credential_id", "authenticator_data", "client_data", "signature")
MOST_FIELD = 4 * MOST_CLIENT_DATA
"""Characters of one field of an answer."""


@dataclass(frozen=True)
class PasskeyAnswer:
    """What a browser sends after its user has touched a passkey.

    Attributes:
        credential_id: in base64url, as the browser says it.
        authenticator_data: in hexadecimal digits.
        client_data: JSON text.
        signature: as the authenticator made it.
    """

    credential_id: str
    authenticator_data: str
    client_data: str
    signature: bytes

    @classmethod
    def parse(cls, fields: Mapping[str, str]) -> "PasskeyAnswer":
        """Read the answer from a form, each field in base64url.

        Raises:
            AnswerRefused: a field is missing, or in another form.
        """
        try:
            given = [fields.get(name, "") for name in ANSWER_FIELDS]
            _, data, client_data, signature = (decode_url(text, MOST_FIELD) for text in given)
            return cls(given[0], data.hex(), client_data.decode(), signature)
        except ValueError:
            raise answer_refused() from None


def find_signer(
    session: Session, answer: PasskeyAnswer, origin: str, challenge: bytes, principal_id: int | None = None
) -> tuple[Principal, Passkey, str]:
    """Return the person and the passkey that answered `challenge` on pages of `origin`, and the signature as stored.

    Args:
        principal_id: the only person whose passkeys count; None for any.

    Raises:
        AnswerRefused: no passkey in force did, or the own key of its person has not certified it for this ledger.
    """
    ledger = chain.ledger_id(session)
    for passkey in people.open_passkeys(session, principal_id):
        if (passkey.credential_id, passkey.origin) != (answer.credential_id, origin):
            continue
        person = session.get_one(Principal, passkey.principal_id)
        try:
            signature = spell_signature(passkey.public_key, answer.signature)
        except ValueError:
            continue
        terms = PasskeyTerms.of(passkey, ledger)
        assertion = (answer.authenticator_data, answer.client_data, signature)
        if verify_certified(person.public_key, passkey.signature, terms, assertion, challenge):
            return person, passkey, signature
    raise answer_refused()


def answer_refused() -> Refused:
    """Return the refusal of an answer that no passkey in force has given to this challenge."""
    return Refused(
        "No passkey in force of that person has signed exactly this, here and with its user verified; nothing was"
        " recorded.",
        "Begin again on this page. `almoner passkey list` shows the passkeys in force and the address where each"
        " one signs; `almoner passkey invite` begins with a new one.",
        code="AnswerRefused",
    )
