"""Page of the audit log: the links that match a search."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any

from flows.audit.export import link_details, require_known_names
from flows.dashboard.viewer import View
from models_db.database.base import utc_now
from models_db.errors import UsageError
from models_db.services.audit import log
from models_db.services.audit.log import Details, LogFilter, LoggedLink, details_of_links
from models_db.values.untrusted_text import escape_controls, parse_digits

LINKS_PER_PAGE = 50
LONGEST_DETAIL = 60
"""Number of characters of a detail in a list; the JSON has the whole detail."""


@dataclass(frozen=True)
class LinkLine:
    """One link of the chain; `details` are what its rows say, with amounts as decimals."""

    seq: int
    at: str
    actor: str
    kind: str
    dataset: str | None
    request: int | None
    details: tuple[tuple[str, str], ...]
    row_hash: str


@dataclass(frozen=True)
class AuditPage:
    """A page of links, newest first, the search that found them, and the number at which older ones begin."""

    wanted: Mapping[str, str]
    links: tuple[LinkLine, ...]
    next_before: int | None


def parse_search(query: Mapping[str, str]) -> LogFilter:
    """Parse a search from the typed fields; an empty field does not filter.

    Raises:
        InvalidSearch: a number or a time is malformed.
    """
    fields_given = {name: value.strip() for name, value in query.items() if value.strip()}
    text: dict[str, Any] = {
        each.name: fields_given.get(each.name) for each in fields(LogFilter) if each.name in fields_given
    }
    search = replace(LogFilter(), **(text | {"request_id": _parse_number(fields_given), "since": None, "until": None}))
    return replace(search, since=_parse_time(fields_given.get("since")), until=_parse_time(fields_given.get("until")))


def _parse_number(fields: Mapping[str, str]) -> int | None:
    written = fields.get("request")
    if written is None:
        return None
    number = parse_digits(written)
    if number is None:
        raise _invalid_search(written, "is not the number of a request", "Write it as 7.")
    return number


def _parse_time(written: str | None) -> str | None:
    """Return a time in the format of the audit log; a day becomes its first moment."""
    if written is None:
        return None
    try:
        at = datetime.fromisoformat(written)
        return utc_now(at if at.tzinfo else at.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        raise _invalid_search(written, "is not a time", "Write it as 2026-11-21 or 2026-11-21T08:30.") from None


def audit_page(view: View, query: Mapping[str, str], before: int | None = None) -> AuditPage:
    """Return the newest matching links, or the newest of those with a number below `before`.

    Raises:
        InvalidSearch: a number or a time is malformed.
        DatasetUnknown, RequestUnknown, PrincipalNotFound, SearchedNameUnknown: a name exists nowhere.
    """
    search = parse_search(query)
    require_known_names(view.session, search)
    links = log.read_page(view.session, search, LINKS_PER_PAGE, before)
    details = details_of_links(view.session, links.links)
    lines = tuple(_link_line(link, details[link.seq]) for link in reversed(links.links))
    return AuditPage(dict(query), lines, links.next_before)


def _link_line(link: LoggedLink, details: Details | None) -> LinkLine:
    dataset = None if link.dataset is None else escape_controls(link.dataset)
    return LinkLine(
        link.seq, escape_controls(link.at), escape_controls(link.actor), escape_controls(link.kind),
        dataset, link.request_id,
        tuple(link_details(link, details)), escape_controls(link.row_hash),
    )  # fmt: skip


def _invalid_search(written: str, what: str, advice: str) -> UsageError:
    return UsageError(f"{written[:LONGEST_DETAIL]!r} {what}.", advice, code="InvalidSearch")
