"""Formats of a release, named in `release.json`, and the files of a bundle in each (docs/bundle.md, decisions/0009).

A format fixes fields of the record, words of the card and files of the bundle. Whatever of these changes is a new
format; what an older one says is kept here, in `record` and in `card_text`, for as long as it is verified. Releases of
insights have a format of their own, because they have other rows and one file more (decisions/0045).

A further file that follows from the record has its name in `layout.DRAFT_FILES`, its maker in `derived`, and a row in
`card_text` and in docs/bundle.md; nothing else knows it.
"""

from typing import Final

from models_db.errors import AlmonerError
from tasks.common.files import parse_document
from tasks.publishing.layout import (
    APPROVALS,
    ATTESTATION,
    CARD,
    CHECKPOINT,
    DRAFT_FILES,
    EVALUATION,
    EXPLORER,
    RECORD,
    REVOCATIONS,
    SUMS,
    SUMS_SIGNATURE,
    TEXTS,
)
from tasks.values.release_kinds import ReleaseKind

FORMAT_1: Final = "almoner-release/1"
FORMAT_2: Final = "almoner-release/2"
"""Attestation, revocation list, cap changes, standing authorisations, delegation, policies per dataset."""
FORMAT_3: Final = "almoner-release/3"
"""Templates of prompts, labels, demonstrations and records, the rule by which documents are cut (decisions/0020)."""
FORMAT_4: Final = "almoner-release/4"
"""Declared public metadata; Parquet, Croissant, a deployments-registry record and a checklist (decisions/0025)."""
FORMAT_5: Final = "almoner-release/5"
"""Insights: rows with a parent, keywords and a size, and `explorer.html` (decisions/0045). No other kind has it."""
NEWEST: Final = FORMAT_4
"""Of every kind but insights."""
KNOWN: Final = (FORMAT_1, FORMAT_2, FORMAT_3, FORMAT_4, FORMAT_5)

_FIRST_DRAFT: Final = (CARD, EVALUATION, RECORD, TEXTS)
_DRAFTED: Final = {
    FORMAT_1: _FIRST_DRAFT,
    FORMAT_2: _FIRST_DRAFT,
    FORMAT_3: _FIRST_DRAFT,
    FORMAT_4: DRAFT_FILES,
    FORMAT_5: (*DRAFT_FILES, EXPLORER),
}
_DECIDED: Final = (APPROVALS, ATTESTATION, CHECKPOINT, REVOCATIONS)
_ADDED: Final = {FORMAT_1: (APPROVALS, CHECKPOINT)} | dict.fromkeys(KNOWN[1:], _DECIDED)


def format_of(kind: str) -> str:
    """What a new release of that kind is written in."""
    return FORMAT_5 if kind == ReleaseKind.INSIGHTS else NEWEST


def drafted_files(release_format: str) -> tuple[str, ...]:
    """What a run produces, and the publish gate approves."""
    return tuple(sorted(_DRAFTED[release_format]))


def summed_files(release_format: str) -> tuple[str, ...]:
    """What SHA256SUMS lists."""
    return tuple(sorted((*_DRAFTED[release_format], *_ADDED[release_format])))


def bundle_files(release_format: str) -> tuple[str, ...]:
    """What is published: nothing else may lie in a bundle."""
    return (*summed_files(release_format), SUMS, SUMS_SIGNATURE)


def stated_format(record: bytes) -> str:
    """The format that `release.json` names; the newest where it names none that is known, and is refused for that."""
    try:
        stored = parse_document(record, RECORD)
    except AlmonerError:
        return NEWEST
    found = stored.get("format") if isinstance(stored, dict) else None
    return found if isinstance(found, str) and found in KNOWN else NEWEST
