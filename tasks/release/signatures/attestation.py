"""Attestation of a release: a DSSE envelope around its in-toto Statement, signed by the stewards and the publisher.

The statement names the release's files, mechanisms, claim and policy. It follows from the record and the table of
files, byte for byte, so it is stored only in the envelope that its signers signed. It states neither how much of a
budget is spent nor when: both would reveal attempts and crashes. A field's meaning never changes; a new field is a new
predicate type and a new format of the record.

A steward signs the statement when approving the files, and the publisher when delivering them; a key's id is its public
key. Any DSSE and in-toto tool can read the envelope.
"""

import hashlib
from base64 import standard_b64encode
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from models_db.errors import Refused
from models_db.values.canonical_json import Json, digest, encode_canonical
from tasks.common.files import FileTable, FileUnfit, decode_json, encode_json, read_document
from tasks.common.published_values import Digest, Strict, read_as
from tasks.release.bundle_format import ATTESTATION, RECORD
from tasks.release.record import ReleaseRecord
from tasks.release.signatures.ed25519 import SigningKey

if TYPE_CHECKING:
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]  # its documented place, without __all__


STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "urn:almoner:dp-release:v1"
"""A name, not an address: verification is offline."""

_FROM_THE_RECORD: Final = (
    "format",
    "release",
    "dataset",
    "kind",
    "mechanism",
    "claim",
    "events",
    "lifetime",
    "cap_changes",
    "standing",
    "unprotected_figures",
    "model",
    "request_sha256",
    "policy",
    "people",
    "code_sha256",
    "libraries",
    "rng",
)


def in_toto_statement(record: ReleaseRecord, files: FileTable) -> bytes:
    """Return the canonical bytes of the statement on a draft's `files`."""
    return encode_canonical({
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": files[name]["sha256"]}} for name in sorted(files)],
        "predicateType": PREDICATE_TYPE,
        "predicate": _predicate(record, files),
    })  # fmt: skip


def _predicate(record: ReleaseRecord, files: FileTable) -> Json:
    fields = record.to_json()
    # The record leaves out fields that are not set.
    selected = {name: fields[name] for name in _FROM_THE_RECORD if name in fields}
    return selected | {"artifact_sha256": digest(files), "policy_sha256": record.request["policy"]}


PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"


class DsseSignature(Strict):
    """One signature of an envelope; `keyid` is the public key, `sig` base64."""

    keyid: Digest
    sig: str


class StoredEnvelope(Strict):
    """`attestation.json`, as DSSE 1.0 writes an envelope."""

    payload: str
    payloadType: Literal["application/vnd.in-toto+json"]  # noqa: N815 - DSSE's name
    signatures: tuple[DsseSignature, ...]


def attestation_payload(folder: Path, files: FileTable) -> bytes:
    """Return the statement that a steward signs beside the approval of a draft.

    Args:
        files: the draft's table of files, as the ledger has it.

    Raises:
        ArtifactChanged: the draft's record is not the one in `files`.
        FileUnfit: the draft's record is not a valid record.
    """
    data = read_document(folder / RECORD)
    if hashlib.sha256(data).hexdigest() != files[RECORD]["sha256"]:
        raise artifact_changed(RECORD, "has other content")
    return in_toto_statement(ReleaseRecord.from_bytes(data), files)


def attest(payload: bytes, key: SigningKey) -> str:
    """Sign `payload` and return one DSSE signature as JSON text: `{"keyid": public key, "sig": base64}`."""
    signature = bytes.fromhex(key.sign(_envelope(payload).pae()))
    return encode_canonical({"keyid": key.public_key, "sig": standard_b64encode(signature).decode()}).decode()


def envelope(payload: bytes, attestations: Iterable[str]) -> "Envelope":
    """Return an envelope with these signatures, sorted by key, so that it shows no order in time.

    Raises:
        FileUnfit: a signature is not in its form.
    """
    signature_by_key = {signature.keyid: signature for signature in map(_read_signature, attestations)}
    signatures = [signature_by_key[key].model_dump() for key in sorted(signature_by_key)]
    return _decoded(_envelope(payload).to_dict() | {"signatures": signatures})


def envelope_document(envelope: "Envelope") -> bytes:
    """Return the content of `attestation.json`."""
    return encode_json(envelope.to_dict())


def read_envelope(data: bytes) -> "Envelope":
    """Read `attestation.json`.

    Raises:
        FileUnfit: it is not in almoner's format, has a key twice, or is not in its canonical spelling.
    """
    stored = read_as(StoredEnvelope, decode_json(data, ATTESTATION), ATTESTATION)
    keys = [signature.keyid for signature in stored.signatures]
    if keys != sorted(set(keys)):
        raise FileUnfit(ATTESTATION, "has a key twice, or its signatures out of order")
    envelope = _decoded(stored.model_dump(mode="json"))
    if envelope_document(envelope) != data:
        raise FileUnfit(ATTESTATION, "is not in its canonical spelling")
    return envelope


def _decoded(stored: dict[str, Any]) -> "Envelope":
    from securesystemslib.dsse import Envelope

    try:
        return Envelope.from_dict(stored)
    except ValueError:
        raise FileUnfit(ATTESTATION, "is not in base64") from None


def require_attested(
    envelope: "Envelope",
    payload: bytes,
    *,
    stewards: Collection[str],
    threshold: int,
    publisher: str,
    by_passkey: Collection[str] = (),
) -> None:
    """Check that stewards and publisher, and nobody else, signed exactly this statement.

    A passkey signs no envelope, because DSSE has no form for that. Its decision names the digest of the very files from
    which the statement follows, so it counts as its steward's signature.

    Args:
        stewards: public keys of the stewards whose publish approval counts.
        threshold: how many of them must have signed.
        by_passkey: those of `stewards` whose decision on these files a passkey signed, checked by the caller.

    Raises:
        NotAttested: another statement, or a missing, foreign or false signature.
    """
    if envelope.payload != payload:
        raise _not_attested("its statement is not that of these files and their record")
    if not set(envelope.signatures) <= {publisher, *stewards}:
        raise _not_attested("it has a signature of a key that neither approved nor published")
    for signer in envelope.signatures:
        _require_signatures(envelope, [signer], 1, "a signature does not verify")
    _require_signatures(envelope, [publisher], 1, "the publisher has not signed")
    signed = envelope.signatures.keys() & set(stewards)
    decided = len(set(stewards) & set(by_passkey) - signed)
    if decided < threshold:
        reason = f"{len(signed) + decided} of {threshold} approvers signed"
        _require_signatures(envelope, signed, threshold - decided, reason)


def _require_signatures(envelope: "Envelope", keys: Collection[str], threshold: int, reason: str) -> None:
    from securesystemslib.exceptions import VerificationError

    try:
        envelope.verify([_key(key) for key in sorted(set(keys))], threshold)
    except (VerificationError, ValueError):
        raise _not_attested(reason) from None


def _key(public_key: str) -> "SSlibKey":
    from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]

    return SSlibKey(public_key, "ed25519", "ed25519", {"public": public_key})


def _envelope(payload: bytes) -> "Envelope":
    from securesystemslib.dsse import Envelope

    return Envelope(payload, PAYLOAD_TYPE, {})


def _read_signature(attestation: str) -> DsseSignature:
    return read_as(DsseSignature, decode_json(attestation.encode() + b"\n", ATTESTATION), ATTESTATION)


def _not_attested(reason: str) -> Refused:
    return Refused(
        f"The attestation does not hold: {reason}.",
        "Every steward whose approval counts signs the statement when approving with `almoner approve`; approvals"
        " made otherwise do not count here.",
        {"reason": reason},
        code="NotAttested",
    )


def artifact_changed(name: str, reason: str) -> Refused:
    """Return the error for a draft that differs from the files that were produced and approved."""
    return Refused(
        f"The draft differs from what was approved: {name} {reason}.",
        "Nothing was published. Find out who changed the quarantine folder; the output of a run is never edited.",
        {"file": name, "reason": reason},
        code="ArtifactChanged",
    )
