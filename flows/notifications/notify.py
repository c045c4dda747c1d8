"""Notices: read from the audit chain, and sent through channels that each remember their position in it.

The chain is the outbox. No link is ever lost, and a channel's position advances when a notice has arrived. So each
arrives at least once after any crash, and its number identifies duplicates. No run waits for a notice.
"""

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from flows.notifications.channels import (
    Channel,
    ChannelExists,
    ChannelsUnwritable,
    ChannelUnknown,
    channels_of,
    write_channels,
)
from flows.notifications.send import send_notice
from flows.workspace.workspace import open_workspace
from models_db.database.base import utc_now
from models_db.errors import AlmonerError
from models_db.home import ProjectHome
from models_db.services.audit import chain
from models_db.services.audit.link_body import parse_body, whole_number
from models_db.services.audit.log import LoggedLink, as_link
from models_db.services.audit.stored_text import LedgerAltered, request_body
from models_db.sessions.database import Database
from models_db.tables import AuditLink, Proposal, Request
from models_db.values.amounts import Amount
from models_db.values.bounded_json import parse_json
from models_db.values.canonical_json import Json
from models_db.values.gates import Gate
from models_db.values.printable_text import escape_controls
from models_db.values.standing_terms import cost_of
from tasks.common.files import write_over

PROGRESS_FILE = "notices.json"
LINKS_PER_ROUND = 500
"""Largest number of links that a channel processes in one poll."""
FIRST_RETRY_DELAY = timedelta(seconds=30)
LONGEST_RETRY_DELAY = timedelta(hours=1)

EVENT_TEXTS = {
    "request.submitted": "a request waits at the spend gate",
    "run.produced": "a release waits at the publish gate",
    "proposal.proposed": "a proposal waits for approvals",
    "slot.decided": "a slot was skipped",
    "slot.ended": "a run was given up",
    "run.failed": "a run failed",
}
GATE_OF_EVENT = {
    "request.submitted": Gate.SPEND,
    "run.produced": Gate.PUBLISH,
    "proposal.proposed": Gate.PROPOSAL,
}
NOTICE_FIELDS = {
    "proposal.proposed": ("proposal", "kind"),
    "slot.decided": ("schedule", "slot", "skipped"),
    "slot.ended": ("schedule", "slot", "reason"),
    "run.failed": ("attempt", "reason"),
}
"""Fields of a link's body that a notice copies: numbers and names of errors. Text by people stays in the ledger."""


MOST_PROGRESS_BYTES = 1_000_000
"""Largest size in bytes of the file with the position of each channel."""
_NAME = re.compile(r"[A-Za-z0-9_.:+ -]{1,100}")
"""Form of the texts that a notice copies from a link: names of errors and kinds, and times."""


@dataclass(frozen=True)
class ChannelProgress:
    """Position of a channel: its next link, and after failures in a row the time of its next attempt."""

    next: int
    failures: int = 0
    not_before: str = ""


@dataclass(frozen=True)
class DeliveryResult:
    """Result of one delivery through a channel; the name of the error that stopped it, if one did."""

    channel: str
    sent: int
    failed: str = ""
    detail: str = ""


def deliver_notices(home: ProjectHome, now: datetime | None = None) -> list[DeliveryResult]:
    """Send every channel its new notices; do nothing if another process of this home is sending.

    Raises:
        FileInvalid, FileUnreadable: the channels cannot be read.
        ChannelsUnwritable: the positions of the channels cannot be stored.
        LedgerUnreachable: the chain cannot be read.
    """
    channels = channels_of(home)
    if not channels:
        return []
    database, at = open_workspace(home).database, now or datetime.now(UTC)
    with _exclusive_sender(home) as mine:
        return [_deliver_to_channel(home, database, name, each, at) for name, each in channels.items()] if mine else []


def _deliver_to_channel(
    home: ProjectHome, database: Database, name: str, channel: Channel, now: datetime
) -> DeliveryResult:
    place, sent = _read_progress(home).get(name), 0
    if place is None:
        place = ChannelProgress(_newest_link(database) + 1)
    if place.not_before > utc_now(now):
        return DeliveryResult(name, 0)
    for number, notice in notices_since(database, place.next):
        if notice is not None:
            try:
                send_notice(channel, notice)
            except AlmonerError as problem:
                _write_progress(home, name, _retry_later(place, now))
                return DeliveryResult(name, sent, problem.name, problem.message)
            sent += 1
        place = ChannelProgress(number + 1)
        if notice is not None:
            _write_progress(home, name, place)
    _write_progress(home, name, place)
    return DeliveryResult(name, sent)


def _retry_later(place: ChannelProgress, now: datetime) -> ChannelProgress:
    wait = min(FIRST_RETRY_DELAY * 2 ** min(place.failures, 10), LONGEST_RETRY_DELAY)
    return replace(place, failures=place.failures + 1, not_before=utc_now(now + wait))


def notices_since(database: Database, first: int) -> list[tuple[int, dict[str, Json] | None]]:
    """Return the links from `first` on with their notices; None for links without one."""
    with database.read() as session:
        columns = [getattr(AuditLink, name) for name in LoggedLink._fields]
        query = select(*columns).where(AuditLink.seq >= first).order_by(AuditLink.seq).limit(LINKS_PER_ROUND)
        links = [as_link(row) for row in session.execute(query)]
        genesis = session.scalars(select(AuditLink.row_hash).order_by(AuditLink.seq).limit(1)).one_or_none() or ""
        return [(link.seq, _notice_of_link(session, link, genesis[:16])) for link in links]


def _notice_of_link(session: Session, link: LoggedLink, ledger: str) -> dict[str, Json] | None:
    parsed = parse_body(link.body)
    body = parsed or {}
    silent = link.kind == "request.submitted" and "standing" in body
    if link.kind not in EVENT_TEXTS or silent or (link.kind == "slot.decided" and not body.get("skipped")):
        return None
    facts: dict[str, Json] = {
        "notice": link.seq,
        "ledger": ledger,
        "at": link.at,
        "event": EVENT_TEXTS[link.kind],
        "dataset": None if link.dataset is None else " ".join(escape_controls(link.dataset).split()),
    }
    if link.request_id is not None:
        facts["request"] = link.request_id
    if link.kind in GATE_OF_EVENT:
        facts["gate"] = GATE_OF_EVENT[link.kind]
    if parsed is None:
        facts["unreadable"] = True
    sentences = {
        name: body[name] for name in NOTICE_FIELDS.get(link.kind, ()) if name in body and _is_brief_field(body[name])
    }
    return {**facts, **sentences, **_notice_price(session, link, body)}


def _notice_price(session: Session, link: LoggedLink, body: Mapping[str, Any]) -> dict[str, Json]:
    """Return the cost of a request's plan, or the amount that a proposal names."""
    request = session.get(Request, link.request_id) if link.request_id is not None else None
    number = whole_number(body, "proposal")
    proposal = session.get(Proposal, number) if number is not None else None
    if proposal is not None and proposal.rho is not None:
        return {"rho": Amount(proposal.rho, proposal.delta_fail or 0).rho_text}
    try:
        request_fields = request_body(request) if request is not None else {}
        return {"rho": cost_of(request_fields).rho_text} if "plan" in request_fields else {}
    except LedgerAltered:  # who is told of a request sees it at the gate; `doctor` names the row
        return {}


def _is_brief_field(value: object) -> bool:
    """Return whether a field of a link has the form that almoner writes: a whole number or a short name."""
    return isinstance(value, int) or (isinstance(value, str) and _NAME.fullmatch(value) is not None)


# --- channels of a home ----------------------------------------------------------------------------------------


def add_channel(home: ProjectHome, name: str, channel: Channel) -> None:
    """Store a channel; its notices begin with the next event.

    Raises:
        ChannelExists: there is a channel of that name.
        FileInvalid, FileUnreadable, ChannelsUnwritable: the files of channels cannot be read or written.
    """
    channels = channels_of(home.require())
    if name in channels:
        raise ChannelExists(name)
    _write_progress(home, name, ChannelProgress(_newest_link(open_workspace(home).database) + 1))
    write_channels(home, {**channels, name: channel})


def remove_channel(home: ProjectHome, name: str) -> None:
    """Remove a channel and its position.

    Raises:
        ChannelUnknown: there is no channel of that name.
        FileInvalid, FileUnreadable, ChannelsUnwritable: the files of channels cannot be read or written.
    """
    find_channel(home, name)
    write_channels(home, {each: channel for each, channel in channels_of(home).items() if each != name})
    _write_progress(home, name, None)


def find_channel(home: ProjectHome, name: str) -> Channel:
    """Return the channel of that name.

    Raises:
        ChannelUnknown: there is no such channel.
    """
    channels = channels_of(home.require())
    if name not in channels:
        raise ChannelUnknown(name, sorted(channels))
    return channels[name]


def send_test_notice(home: ProjectHome, name: str) -> None:
    """Send a notice that is marked as a test.

    Raises:
        ChannelUnknown: there is no such channel.
        NotDelivered: the notice has not arrived, or its arrival is unknown.
        SecretMissing: a variable with a secret is not set.
    """
    send_notice(
        find_channel(home, name), {"notice": 0, "ledger": "", "at": utc_now(), "event": "a try", "dataset": None}
    )


def channel_progress(home: ProjectHome) -> dict[str, ChannelProgress]:
    """Return the position of every channel."""
    return _read_progress(home)


def _newest_link(database: Database) -> int:
    with database.read() as session:
        return chain.read_chain_head(session).seq


def _read_progress(home: ProjectHome) -> dict[str, ChannelProgress]:
    try:
        progress = parse_json(home.path_inside(PROGRESS_FILE).read_bytes(), most_bytes=MOST_PROGRESS_BYTES)
        return {str(name): ChannelProgress(**fields) for name, fields in progress.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError):
        raise ChannelsUnwritable(
            PROGRESS_FILE, "its content is damaged; remove it to get notices from now on"
        ) from None


def _write_progress(home: ProjectHome, name: str, place: ChannelProgress | None) -> None:
    positions = {each: asdict(position) for each, position in _read_progress(home).items() if each != name}
    if place is not None:
        positions[name] = asdict(place)
    try:
        write_over(
            home.path_inside(PROGRESS_FILE), json.dumps(positions, sort_keys=True).encode(), 0o600, durable=False
        )
    except OSError as problem:
        raise ChannelsUnwritable(PROGRESS_FILE, problem.strerror or type(problem).__name__) from None


@contextmanager
def _exclusive_sender(home: ProjectHome) -> Iterator[bool]:
    """Take the sender's lock of this home; yield whether no other process holds it."""
    descriptor = os.open(home.path_inside(f"{PROGRESS_FILE}.lock"), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        yield _try_lock(descriptor)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
