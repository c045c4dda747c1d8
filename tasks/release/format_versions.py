"""Format version of a release, named in `release.json`, and the files of a bundle (docs/bundle.md).

The format fixes fields of the record, words of the card and files of the bundle: a change of any of them after a
release of almoner gets another number. This almoner writes and reads one format, and refuses every other by name.
Releases of insights have one file more.

A further file that follows from the record has its name in `file_names.DRAFT_FILES`, its maker in `derived_files`, and
a row in `card_text` and in docs/bundle.md; no other place names it.
"""

from typing import Final

from models_db.errors import AlmonerError
from tasks.common.files import decode_json
from tasks.release.file_names import (
    APPROVALS,
    ATTESTATION,
    CHECKPOINT,
    DRAFT_FILES,
    EXPLORER,
    RECORD,
    REVOCATIONS,
    SUMS,
    SUMS_SIGNATURE,
)
from tasks.values.release_kinds import ReleaseKind

FORMAT: Final = "almoner-release/1"

_DECIDED: Final = (APPROVALS, ATTESTATION, CHECKPOINT, REVOCATIONS)


def drafted_files(kind: str) -> tuple[str, ...]:
    """Return the files that a run produces, and the publish gate approves, in a release of that kind."""
    return tuple(sorted((*DRAFT_FILES, EXPLORER) if kind == ReleaseKind.INSIGHTS else DRAFT_FILES))


def summed_files(kind: str) -> tuple[str, ...]:
    """Return the files that SHA256SUMS lists."""
    return tuple(sorted((*drafted_files(kind), *_DECIDED)))


def bundle_files(kind: str) -> tuple[str, ...]:
    """Return the published files: a bundle may hold no others."""
    return (*summed_files(kind), SUMS, SUMS_SIGNATURE)


def stated_kind(record: bytes) -> str:
    """Return the kind in `release.json`, which decides the files; empty where it names none, which is refused later."""
    try:
        stored = decode_json(record, RECORD)
    except AlmonerError:
        return ""
    kind = stored.get("kind") if isinstance(stored, dict) else None
    return kind if isinstance(kind, str) else ""
