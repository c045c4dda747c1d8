"""Passkeys: an invitation, the browser's answer, the person's own signature; and answers to a challenge.

Registration of passkeys: an invitation from the command line, the browser's answer, the person's own signature. The
page on which a browser creates a passkey sends nothing to the dashboard. It shows a command, which its person types in
the home that made the invitation; there the person's own key certifies the passkey. So whoever serves the page can
neither register a passkey later nor for somebody else.
"""

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field
from sqlalchemy.orm import Session

from flows.workspace.workspace import Workspace
from models_db.database.base import utc_now
from models_db.errors import Refused, UsageError
from models_db.home import ProjectHome
from models_db.services import gates, people
from models_db.services.audit import chain
from models_db.services.gates import withdrawal_statement
from models_db.services.people import PasskeyTerms
from models_db.tables import Passkey, Principal
from models_db.values.canonical_json import Json, encode_canonical
from tasks.common.files import FileUnfit, decode_json, encode_json, open_regular_file, write_new, write_over
from tasks.common.published_values import Digest, Name, Strict, read_as
from tasks.release.signatures.ed25519 import SigningKey, verify
from tasks.release.signatures.webauthn import (
    MOST_CLIENT_DATA,
    decode_url,
    encode_url,
    read_answer,
    spell_signature,
    verify_certified,
)

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


INVITATION_MINUTES: Final = 15
_ORIGIN: Final = re.compile(r"(https?)://([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)(:[1-9][0-9]{0,4})?")
_ADDRESS: Final = re.compile(r"[0-9.]+")
_LEDGER: Final = re.compile(r"[0-9a-f]{64}")
_MOST_FILE_BYTES: Final = 20_000


class Invitation(Strict):
    """The one invitation of a home that waits for a browser's answer."""

    format: Literal["almoner-passkey-invitation/1"] = "almoner-passkey-invitation/1"
    name: Name
    origin: str
    ledger: Digest
    nonce: Digest
    expires_at: str

    @property
    def rp_id(self) -> str:
        """Return the host of the origin."""
        return host_of(self.origin)

    def challenge(self, principal_key: str) -> bytes:
        """Return what the new passkey has to answer: a digest of person, ledger, page, time and a nonce."""
        return hashlib.sha256(
            encode_canonical({"passkey_invitation": self.nonce, "origin": self.origin, "ledger": self.ledger,
                              "expires_at": self.expires_at, "principal": principal_key})
        ).digest()  # fmt: skip

    def url(self, principal_key: str) -> str:
        """Return the address of the page that creates the passkey; it holds no secret."""
        stated: dict[str, Json] = {
            "name": self.name,
            "principal": principal_key,
            "challenge": encode_url(self.challenge(principal_key)),
            "expires_at": self.expires_at,
        }
        return f"{self.origin}/passkeys/new?invitation={encode_url(encode_canonical(stated))}"


class CertifiedPasskey(Strict):
    """A passkey with its person's signature: what the ledger records, or a file that somebody brings to it."""

    format: Literal["almoner-passkey/1"] = "almoner-passkey/1"
    principal: Digest
    public_key: Annotated[str, Field(pattern=r"^(es256:[0-9a-f]{128}|ed25519:[0-9a-f]{64})$")]
    credential_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,1364}$")]
    rp_id: Annotated[str, Field(max_length=255)]
    origin: Annotated[str, Field(max_length=255)]
    ledger: Digest
    signature: str

    @property
    def terms(self) -> PasskeyTerms:
        """Return what is certified."""
        return PasskeyTerms(self.public_key, self.rp_id, self.origin, self.ledger)

    @property
    def is_authentic(self) -> bool:
        """Return whether its person's own key certified it."""
        return verify(self.principal, self.signature, self.terms.statement(self.principal))


def require_origin(origin: str) -> str:
    """Return the address at which browsers reach a dashboard, in the form in which they state it.

    Raises:
        OriginUnfit: browsers create no passkey there.
    """
    match = _ORIGIN.fullmatch(origin.rstrip("/"))
    if match is None or _ADDRESS.fullmatch(match[2]):
        raise _origin_unfit(origin, "is not like https://ledger.example.org:8717: a name of a host, no address")
    if match[1] == "http" and match[2] != "localhost":
        raise _origin_unfit(origin, "is not encrypted, and only `localhost` need not be")
    if match[4] == {"http": ":80", "https": ":443"}[match[1]]:
        raise _origin_unfit(origin, "names the usual port, which browsers leave out")
    return match[0]


def host_of(origin: str) -> str:
    """Return the host of an origin, which is the `rp id` of its passkeys."""
    return origin.partition("://")[2].partition(":")[0]


def invite(home: ProjectHome, name: str, origin: str, ledger: str) -> Invitation:
    """Make the invitation that the next answer is for; an earlier one no longer counts.

    Args:
        ledger: the identity of the one ledger for which the passkey is to decide.

    Raises:
        OriginUnfit: browsers create no passkey there.
        LedgerUnnamed: that is no identity of a ledger.
    """
    if not _LEDGER.fullmatch(ledger):
        raise UsageError(
            "A passkey decides for one ledger, and this home reaches none; nothing was made.",
            "Give --ledger IDENTITY, 64 hexadecimal digits, beside --name; an admin finds it with"
            " `almoner passkey list`.",
            code="LedgerUnnamed",
        )
    expires = utc_now(datetime.now(UTC) + timedelta(minutes=INVITATION_MINUTES))
    made = Invitation(name=name, origin=require_origin(origin), ledger=ledger, nonce=secrets.token_hex(32),
                      expires_at=expires)  # fmt: skip
    write_over(_invitation_path(home), encode_json(made.model_dump()), 0o600)
    return made


def certify(home: ProjectHome, key: SigningKey, answer: str) -> CertifiedPasskey:
    """Sign the passkey in a browser's answer. The invitation is used up, whatever comes after.

    Raises:
        InvitationMissing, InvitationExpired: no invitation waits, or it came too late.
        PasskeyAnswerUnfit: the answer is for another invitation, or makes no passkey. The invitation still waits.
    """
    invitation = _waiting_invitation(home)
    if utc_now() >= invitation.expires_at:
        raise Refused(
            f"The invitation expired at {invitation.expires_at[:16].replace('T', ' ')} UTC, {INVITATION_MINUTES}"
            " minutes after it was made; nothing was recorded.",
            "Begin again with `almoner passkey invite`.",
            {"expires_at": invitation.expires_at},
            code="InvitationExpired",
        )
    challenge = invitation.challenge(key.public_key)
    created = read_answer(answer, invitation.rp_id, invitation.origin, invitation.ledger, challenge)
    try:
        _invitation_path(home).unlink()  # of two at once, one takes it
    except FileNotFoundError:
        raise _invitation_missing() from None
    return CertifiedPasskey(
        principal=key.public_key,
        public_key=created.terms.public_key,
        credential_id=created.credential_id,
        rp_id=created.terms.rp_id,
        origin=created.terms.origin,
        ledger=created.terms.ledger,
        signature=key.sign(created.terms.statement(key.public_key)),
    )


def record(workspace: Workspace, certified: CertifiedPasskey) -> tuple[int, str]:
    """Record a certified passkey; return its number and its person's name.

    Raises:
        PasskeyForged: its person's own key did not certify it.
        PasskeyOfAnotherLedger: its person certified it for another ledger.
        PrincipalUnknown: the key belongs to nobody.
        PasskeyTaken: the ledger has it already.
        RoleDenied: it is another person's, and this home's owner is no admin.
    """
    if not certified.is_authentic:
        raise Refused(
            "The own key of its person did not certify this passkey; nothing was recorded.",
            "Its person makes the file anew: `almoner passkey add ANSWER --export FILE`.",
            code="PasskeyForged",
        )
    with workspace.database.write() as session:
        if certified.ledger != chain.ledger_id(session):
            raise Refused(
                "Its person has certified this passkey for another ledger; nothing was recorded.",
                "They create one for this ledger: `almoner passkey invite --name NAME --ledger IDENTITY`, with the"
                " identity that `almoner passkey list` shows here.",
                code="PasskeyOfAnotherLedger",
            )
        person = people.identify(session, certified.principal)
        row = people.register_passkey(
            session, workspace.actor, person, certified.terms, certified.credential_id, certified.signature
        )
        return row.id, person.name


def write_certified(path: Path, certified: CertifiedPasskey) -> None:
    """Write a certified passkey to the new file `path` (0600).

    Raises:
        PasskeyFileUnusable: the file exists, or cannot be written.
    """
    try:
        write_new(path, encode_json(certified.model_dump()), 0o600)
    except OSError as problem:
        raise _passkey_file_unusable(path, f"cannot be written: {problem.strerror or type(problem).__name__}") from None


def read_certified(path: Path) -> CertifiedPasskey:
    """Read a certified passkey from a file.

    Raises:
        PasskeyFileUnusable: the file is missing, or holds something else.
    """
    try:
        with open_regular_file(path) as file:
            return read_as(CertifiedPasskey, decode_json(file.read(_MOST_FILE_BYTES), path.name), path.name)
    except FileUnfit as unfit:
        raise _passkey_file_unusable(path, unfit.reason) from None
    except OSError as problem:
        raise _passkey_file_unusable(path, f"cannot be read: {problem.strerror or type(problem).__name__}") from None


def list_passkeys(session: Session) -> list[dict[str, Json]]:
    """Return all passkeys in force, and whether their person's own key certified them."""
    persons = {person.id: person for person in people.list_all(session)}
    ledger = chain.ledger_id(session)
    return [
        {
            "number": passkey.id,
            "name": persons[passkey.principal_id].name,
            "origin": passkey.origin,
            "key": passkey_fingerprint(passkey.public_key),
            "since": passkey.at,
            "certified": is_certified(passkey, persons[passkey.principal_id].public_key, ledger),
        }
        for passkey in people.open_passkeys(session)
    ]


def is_certified(passkey: Passkey, principal_key: str, ledger: str) -> bool:
    """Return whether its person's own key certified a passkey for the ledger of that identity."""
    return verify(principal_key, passkey.signature, PasskeyTerms.of(passkey, ledger).statement(principal_key))


def passkey_fingerprint(public_key: str) -> str:
    """Return a short name of a passkey's public key, for people to compare."""
    return f"SHA256:{encode_url(hashlib.sha256(public_key.encode()).digest())[:16]}"


def revoke(workspace: Workspace, number: int, reason: str) -> tuple[str, list[tuple[int, str]]]:
    """Revoke a passkey; its person takes back what it approved and nobody has used. Returns the person and these.

    An admin who revokes the passkey of somebody else signs no withdrawals, which bind that person. What it approved
    counts no more in either case.

    Raises:
        PasskeyUnknown: there is none, or it was revoked.
        RoleDenied: it is another person's, and this home's owner is no admin.
    """
    with workspace.database.write() as session:
        passkey = people.find_passkey(session, number)
        taken_back = _withdraw_unused(session, workspace, passkey, reason)
        people.revoke_passkey(session, workspace.actor, number, reason)
        names = {person.id: person.name for person in people.list_all(session)}
        return names[passkey.principal_id], taken_back


def _withdraw_unused(session: Session, workspace: Workspace, passkey: Passkey, reason: str) -> list[tuple[int, str]]:
    me = workspace.actor
    if passkey.principal_id != me.id:
        return []
    unused = gates.unused_approvals(session, me.id)
    subjects = {(of.number, of.gate): of for of, approval in unused if approval.passkey_id == passkey.id}
    for number, gate in sorted(subjects):
        statement = withdrawal_statement(number, gate, subjects[number, gate].subject_digest, reason, me.name)
        gates.withdraw_approval(session, me, number, gate, reason, workspace.key.sign(statement))
    return [(number, gate.value) for number, gate in sorted(subjects)]


def _invitation_path(home: ProjectHome) -> Path:
    return home.path_inside("keys", "passkey-invitation.json")


def _waiting_invitation(home: ProjectHome) -> Invitation:
    path = _invitation_path(home)
    try:
        data = path.read_bytes()[:_MOST_FILE_BYTES]
        return read_as(Invitation, decode_json(data, path.name), path.name)
    except (OSError, FileUnfit):
        raise _invitation_missing() from None


def _origin_unfit(origin: str, reason: str) -> UsageError:
    return UsageError(
        f"{origin!r} {reason}.",
        "Give the address as the browser shows it: https://HOST or https://HOST:PORT; on this machine"
        " http://localhost:8717. `almoner dashboard --decide` prints it at its start.",
        {"origin": origin},
        code="OriginUnfit",
    )


def _invitation_missing() -> Refused:
    return Refused(
        "No invitation of this home waits for a passkey; each is used once.",
        "Begin with `almoner passkey invite`, and answer the newest one, in the same home.",
        code="InvitationMissing",
    )


def _passkey_file_unusable(path: Path, reason: str) -> UsageError:
    return UsageError(
        f"{path} {reason}.",
        "`almoner passkey add ANSWER --export FILE` writes such a file; do not edit it.",
        {"path": str(path), "reason": reason},
        code="PasskeyFileUnusable",
    )
