"""Evidence of a run and of a publication, compared with the audit log before anything is spent or published.

`verify_rows.compare_rows_with_chain` compares a whole ledger. This module compares only the rows that decide a request:
principals and roles that may decide, the policies, all datasets with their claims of units, every proposal, the
accounts under its root account with their holds, entries, counters and charges in orders, all requests of these
datasets with their steps (a run uses a standing authorisation), the recorded views of unprotected figures, and the
request with its approvals and what it produced. Of a request
that extends a release, that release is compared as well. A link must name each of them. Every link of the chain must
have its own hash and follow the one before; only an anchor reveals a chain that was rewritten as a whole
(`verify_chain`).
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from sqlalchemy import bindparam, text
from sqlalchemy.orm import Session

from models_db.services.audit import verify_chain
from models_db.services.audit.chain import GENESIS, read_chain_head
from models_db.services.audit.log import LogFilter, LoggedLink, stream_links
from models_db.services.audit.stored_text import ledger_rows_altered, request_body
from models_db.services.verification import verify_rows
from models_db.services.verification.verify_rows import Comparison, IdRanges
from models_db.tables import Dataset, Request


def require_rows_match_chain(session: Session, request: Request) -> None:
    """Compare everything that a request rests on with the links of the chain.

    Raises:
        LedgerAltered: with every difference.
    """
    dataset = session.get_one(Dataset, request.dataset_id)
    values: dict[str, Any] = {"requests": _concerned_requests(request), "account": dataset.account_id}
    sharing = frozenset(
        session.scalars(text("SELECT name FROM dataset WHERE account_id = :id"), {"id": dataset.account_id})
    )
    others = {table: IdRanges.of(_ids(session, table, f"NOT ({condition})", values))
              for table, condition in _NEEDED_TABLES.items()}  # fmt: skip
    comparison = Comparison(session)
    links = _intact_links(session, comparison)
    comparison.compare(link for link in links if _is_needed(link, values["requests"], sharing, others))
    for table, condition in _NEEDED_TABLES.items():
        for number in comparison.covered[table].lacks(_ids(session, table, condition, values)):
            comparison.add_difference(f"{table} {number} has no link")
    verify_rows.add_derived_differences(
        comparison,
        {
            "account": lambda: verify_rows.account_differences(session, dataset.account_id),
            "unit_mark": lambda: verify_rows.unit_claim_differences(session),
        },
    )
    if comparison.differences:
        raise ledger_rows_altered(comparison.differences, request.id)


def _concerned_requests(request: Request) -> list[int]:
    """Return the request's number, and that of the release that it extends: what that one released is its input."""
    extends = request_body(request)["parameters"].get("extends")
    return [request.id] if extends is None else [request.id, int(extends["release"])]


def _intact_links(session: Session, comparison: Comparison) -> Iterator[LoggedLink]:
    """Yield all links of the chain; those that are missing, or do not fit, are added to the differences."""
    number, expected = 0, GENESIS
    for link in stream_links(session, LogFilter()):
        if link.seq != number + 1:
            comparison.add_difference(f"link {number + 1} is missing")
        elif verify_chain.break_reason(link, number + 1, expected):
            comparison.add_difference(f"link {link.seq} was altered")
        number, expected = link.seq, link.row_hash
        yield link
    head = read_chain_head(session)
    if (head.seq, head.hash) != (number, expected):
        comparison.add_difference(f"the chain ends at link {number}, before its recorded head")


def _ids(session: Session, table: str, condition: str, values: Mapping[str, Any]) -> Iterator[int]:
    """Return the ids of rows, ascending."""
    query = text(f"SELECT x.id FROM {table} x WHERE {condition} ORDER BY x.id")  # noqa: S608  (of constants)
    bound = {name: value for name, value in values.items() if f":{name}" in condition}
    if "requests" in bound:
        query = query.bindparams(bindparam("requests", expanding=True))
    return iter(session.scalars(query, bound))


def _is_needed(
    link: LoggedLink, requests: Collection[int], sharing: Collection[str], others: Mapping[str, IdRanges]
) -> bool:
    """Return whether a link names, or named before an alteration, rows that decide the requests.

    Args:
        sharing: the names of the datasets on the account of the requests.
        others: the ids of the rows that decide other requests, by table; a row that was removed is not among them.
    """
    if link.request_id is None or link.request_id in requests:
        return True
    named = _NAMED_ROWS.findall(link.body)
    if link.dataset in sharing and any(table in _OF_THE_ACCOUNT for *_, table in named):
        return True
    return any(
        table in others and not others[table].covers(int(first), int(last or first)) for first, last, table in named
    )


_OF_THE_ACCOUNT = ("request", "transition", "invocation", "renyi_charge", "hold", "entry")
"""What other requests of the account have charged, and which runs of a standing authorisation they have used."""
_NAMED_ROWS = re.compile(r'"ids":"(\d{1,19})(?:-(\d{1,19}))?","table":"(\w+)"')
"""Rows of a table in the body of a link."""
_EVERY_ROW = "TRUE"
_OF_REQUEST = "x.request_id IN :requests"
_REQUESTS = "SELECT r.id FROM request r JOIN dataset d ON d.id = r.dataset_id WHERE d.account_id = :account"
_ACCOUNTS = "SELECT a.id FROM account a WHERE a.id = :account OR a.parent_id = :account"
_NEEDED_TABLES = {
    "principal": _EVERY_ROW,
    "role_grant": _EVERY_ROW,
    "role_revocation": _EVERY_ROW,
    "passkey": _EVERY_ROW,
    "passkey_end": _EVERY_ROW,
    "policy_version": _EVERY_ROW,
    "policy_rule": _EVERY_ROW,
    "policy_adoption": _EVERY_ROW,
    "dataset": _EVERY_ROW,
    "dataset_version": _EVERY_ROW,
    "unit_claim": _EVERY_ROW,
    "cohort": "x.account_id = :account",
    "overlap_key": _EVERY_ROW,
    "account": "x.id = :account OR x.parent_id = :account",
    "invocation": f"x.request_id IN ({_REQUESTS})",
    "renyi_charge": f"x.request_id IN ({_REQUESTS})",
    "hold": f"x.account_id IN ({_ACCOUNTS})",
    "entry": f"x.hold_id IN (SELECT h.id FROM hold h WHERE h.account_id IN ({_ACCOUNTS}))",  # noqa: S608  (of constants)
    "internal_view": _EVERY_ROW,
    "assignment_exposure": _EVERY_ROW,
    "proposal": _EVERY_ROW,
    "carried": _EVERY_ROW,
    "request": f"x.id IN ({_REQUESTS})",
    "transition": f"x.request_id IN ({_REQUESTS})",
    "approval": f"x.proposal_id IS NOT NULL OR {_OF_REQUEST}",
    "withdrawal": "x.approval_id IN (SELECT a.id FROM approval a WHERE a.proposal_id IS NOT NULL"
    " OR a.request_id IN :requests)",
    "artifact": _OF_REQUEST,
    "publication": "x.artifact_id IN (SELECT f.id FROM artifact f WHERE f.request_id IN :requests)",
    "evaluation": "x.artifact_id IN (SELECT f.id FROM artifact f WHERE f.request_id IN :requests)",
}
