"""JSON texts that rows keep, as readers get them: whole, or not at all.

Guards keep rows from being changed, but a role that may drop a guard can change them. A reader gets the text that the
row's own digest names; `models_db.services.verification.verify_rows` compares that digest with the recorded one.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from sqlalchemy.exc import DBAPIError

from models_db.errors import Refused
from models_db.tables import Artifact, Proposal, Request, StoredEvaluation
from models_db.values.canonical_json import InvalidJson, parse_json

MOST_TEXT_BYTES = 16_000_000
"""Largest text that is read; no column takes a larger one."""


UNREADABLE_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors that code raises on a value of another type or range than its column's."""


_SUM_TOO_LARGE = "integer overflow"


def is_unreadable(problem: Exception) -> bool:
    """Return whether a reader raised this because a row has a value that its column cannot have.

    SQLite keeps values of any type in any column. A database that cannot be asked is another problem.
    """
    if isinstance(problem, DBAPIError):
        return str(problem.orig) == _SUM_TOO_LARGE
    return isinstance(problem, UNREADABLE_ERRORS)


def ledger_rows_altered(differences: Sequence[str], request_id: int | None = None) -> Refused:
    """Return the error of rows of the ledger that differ from the audit log."""
    whose = "" if request_id is None else f" Nothing was spent or published for request {request_id}."
    return Refused(
        f"The ledger was altered behind its record: {'; '.join(differences)}.{whose}",
        "Use this ledger no further until you know who changed it: `almoner doctor`,"
        " `almoner audit verify --against BUNDLE`; then restore a backup.",
        {"request": request_id, "differences": list(differences)},
        code="LedgerAltered",
    )


def request_body(request: Request) -> dict[str, Any]:
    """Return the canonical body of a request.

    Raises:
        LedgerAltered: its text is not the one that its digest names.
    """
    return stored_object(request.canonical, f"canonical of request {request.id}", request.digest)


def configuration_of(proposal: Proposal) -> dict[str, Any]:
    """Return the configuration that a standing authorisation is for.

    Raises:
        LedgerAltered: its text is not the one that its digest names.
    """
    return stored_object(proposal.configuration, f"configuration of proposal {proposal.id}", proposal.config_digest)


def files_of(artifact: Artifact) -> dict[str, Any]:
    """Return the digests of an artifact's files, by name.

    Raises:
        LedgerAltered: its text is not the one that its digest names.
    """
    return stored_object(artifact.files, f"files of artifact {artifact.id}", artifact.digest)


def result_of(evaluation: StoredEvaluation) -> dict[str, Any]:
    """Return the result of an evaluation.

    Raises:
        LedgerAltered: it is no object.
    """
    return stored_object(evaluation.result, f"result of evaluation {evaluation.id}")


def stored_object(text: object, location: str, digest: str | None = None) -> dict[str, Any]:
    """Return the JSON object in a text of a row, whose depth and numbers are bounded.

    A text that has its digest and is no such object was recorded so by somebody: it says nothing, and is in no format.

    Args:
        location: the column and the row, for the error.
        digest: SHA-256 of the text in hexadecimal digits, where the row has it.

    Raises:
        LedgerAltered: it is another text; where the row has no digest, no object.
    """
    value: Any = None
    genuine = isinstance(text, str) and digest in (None, hashlib.sha256(text.encode()).hexdigest())
    if isinstance(text, str) and genuine:
        with suppress(InvalidJson):
            value = parse_json(text, most_bytes=MOST_TEXT_BYTES, halves=True)
    if not isinstance(value, dict):
        if genuine and digest is not None:
            return {}
        raise ledger_rows_altered([f"{location} is not the text that was recorded"])
    return value


def choices_of(proposal: Proposal) -> dict[str, str]:
    """Return the parameters that almoner chose for a standing authorisation, each with its reason.

    They are a mark that no approval covers: a text that is no such object says nothing.
    """
    try:
        choices = parse_json(proposal.choices or "{}", most_bytes=MOST_TEXT_BYTES)
    except UNREADABLE_ERRORS:
        return {}
    texts = isinstance(choices, dict) and all(isinstance(reason, str) for reason in choices.values())
    return choices if texts else {}
