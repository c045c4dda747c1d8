"""Names in a search of the audit log. One that exists nowhere is refused: "none" would read as "nothing happened"."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from sqlalchemy import select
from sqlalchemy.orm import Session

from models_db.errors import UsageError
from models_db.services import datasets, people, requests
from models_db.services.audit import log
from models_db.services.audit.log import LogFilter
from models_db.tables.audit_log import AuditLink


def require_known_names(session: Session, search: LogFilter) -> None:
    """Check that the names of a search exist: in the audit log, or else in the ledger, or as names of this version.

    A dataset, a request or a person is known if a link names it or the ledger has it; a kind or a mechanism, if a link
    has it or this version of almoner could write it.

    Raises:
        DatasetUnknown, RequestUnknown, PrincipalNotFound, SearchedNameUnknown: one of them does not.
    """
    for field, find in (
        ("dataset", datasets.find_dataset),
        ("request_id", requests.find_request),
        ("actor", people.find_principal),
    ):
        value, column = getattr(search, field), getattr(AuditLink, field)
        if value is not None and session.scalars(select(AuditLink.seq).where(column == value).limit(1)).first() is None:
            find(session, value)
    if (kind := search.kind) is not None and not any(known.startswith(kind) for known in log.KINDS):
        _require_link(session, LogFilter(kind=kind), "kind", log.KINDS)
    if (mechanism := search.mechanism) is not None:
        from tasks.mechanisms.registry import MECHANISMS  # other searches need neither of the two
        from tasks.systems.registry import SYSTEMS

        if mechanism not in MECHANISMS and mechanism not in SYSTEMS:
            _require_link(session, LogFilter(mechanism=mechanism), "mechanism", (*SYSTEMS, *MECHANISMS))


def _require_link(session: Session, search: LogFilter, what: str, known: Iterable[str]) -> None:
    """Check that a link of the ledger fits, though this version of almoner would not write its name."""
    if not log.read_page(session, search, 1).links:
        written = str(getattr(search, what))
        raise _searched_name_unknown(what, written, sorted(known))


def _searched_name_unknown(what: str, written: str, known: Sequence[str]) -> UsageError:
    near = get_close_matches(written, known, 3)
    areas = dict.fromkeys(name.partition(".")[0] for name in known)
    return UsageError(
        f"Neither this version of almoner nor this ledger knows the {what} {written!r}.",
        f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(areas)}.",
        {what: written, "near": near},
        code="SearchedNameUnknown",
    )
