"""In-toto Statement of a release: its files, mechanisms, claim and policy.

It follows from the record and the table of files, byte for byte, so it is stored only in the envelope that its
signers signed. It states neither how much of a budget is spent nor when: both would reveal attempts and crashes.

Evolution: a field's meaning never changes; a new field is a new predicate type and a new format of the record.
"""

from typing import Final

from models_db.values.canonical_json import Json, digest, encode_canonical
from tasks.common.files import FileTable
from tasks.release.record import ReleaseRecord

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


def statement(record: ReleaseRecord, files: FileTable) -> bytes:
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
