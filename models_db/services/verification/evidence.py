"""Evidence of a run and of a publication, compared with the audit log before anything is spent or published.

`verify_rows.compare_rows_with_chain` compares a whole ledger. This module compares only the rows that decide a request:
principals and roles that may decide, the policies, all datasets with their claims of units, every proposal and every
use of a standing authorisation, the accounts under its root account with their holds, entries, counters and charges in
orders, the recorded views of unprotected figures, and the request with its approvals and what it produced. Of a request
that extends a release, that release is compared as well. A link must name each of them. Every link of the chain must
have its own hash and follow the one before; only an anchor reveals a chain that was rewritten as a whole
(`verify_chain`).
"""

from collections.abc import Collection, Iterator

from sqlalchemy import bindparam, text
from sqlalchemy.orm import Session

from models_db.services.audit import verify_chain
from models_db.services.audit.chain import GENESIS, read_chain_head
from models_db.services.audit.log import LogFilter, LoggedLink, stream_chunks
from models_db.services.audit.stored_text import LedgerAltered, request_body
from models_db.services.verification import verify_rows
from models_db.services.verification.compare_rows import Comparison
from models_db.tables import Dataset, Request


def require_rows_match_chain(session: Session, request: Request) -> None:
    """Compare everything that a request rests on with the links of the chain.

    Raises:
        LedgerAltered: with every difference.
    """
    dataset = session.get_one(Dataset, request.dataset_id)
    concerned = _concerned_requests(request)
    parameters = {"requests": concerned, "account": dataset.account_id}
    sharing = frozenset(
        session.scalars(text("SELECT name FROM dataset WHERE account_id = :id"), {"id": parameters["account"]})
    )
    comparison = Comparison(session)
    links = _intact_links(session, comparison)
    comparison.compare(link for link in links if _is_needed(link, concerned, sharing))
    for table, condition in _NEEDED_TABLES.items():
        query = text(f"SELECT x.id FROM {table} x WHERE {condition} ORDER BY x.id")  # noqa: S608  (of constants)
        values = {name: value for name, value in parameters.items() if f":{name}" in condition}
        if "requests" in values:
            query = query.bindparams(bindparam("requests", expanding=True))
        for number in comparison.covered[table].lacks(session.scalars(query, values)):
            comparison.add_difference(f"{table} {number} has no link")
    verify_rows.add_derived_differences(
        comparison,
        {
            "account": lambda: verify_rows.account_differences(session, dataset.account_id),
            "unit_mark": lambda: verify_rows.unit_claim_differences(session),
        },
    )
    if comparison.differences:
        raise LedgerAltered(comparison.differences, request.id)


def _concerned_requests(request: Request) -> list[int]:
    """Return the request's number, and that of the release that it extends: what that one released is its input."""
    extends = request_body(request)["parameters"].get("extends")
    return [request.id] if extends is None else [request.id, int(extends["release"])]


def _intact_links(session: Session, comparison: Comparison) -> Iterator[LoggedLink]:
    """Yield all links of the chain; those that are missing, or do not fit, are added to the differences."""
    number, expected = 0, GENESIS
    for chunk in stream_chunks(session, LogFilter()):
        for link in chunk:
            if link.seq != number + 1:
                comparison.add_difference(f"link {number + 1} is missing")
            elif verify_chain.break_reason(link, number + 1, expected):
                comparison.add_difference(f"link {link.seq} was altered")
            number, expected = link.seq, link.row_hash
            yield link
    head = read_chain_head(session)
    if (head.seq, head.hash) != (number, expected):
        comparison.add_difference(f"the chain ends at link {number}, before its recorded head")


def _is_needed(link: LoggedLink, requests: Collection[int], sharing: Collection[str]) -> bool:
    """Return whether a link names rows that decide requests, whose account `sharing` (names of datasets) draws on."""
    kind = str(link.kind)
    beginning = kind.partition(".")[0]
    if beginning in _SHARED_KINDS or (link.request_id in requests and beginning != "ledger"):
        return True
    if _NAMES_A_USE in link.body:
        return True
    spends = beginning == "ledger" or _NAMES_A_CHARGE in link.body
    return kind in _VIEW_KINDS or (link.dataset in sharing and spends)


_SHARED_KINDS = frozenset(("principal", "role", "policy", "account", "dataset", "units",
                           "cohort", "proposal", "assignment", "passkey", "key"))  # fmt: skip
"""First parts of the kinds of links about people, policies, datasets, their budgets, and releases that were exposed."""
_VIEW_KINDS = frozenset(("evaluation.internal", "evaluation.shown"))
"""Kinds of links about views of unprotected figures: they qualify budgets, and end what revocation lists name."""
_NAMES_A_USE = '"table":"standing_use"'
"""Substring of a link's body that names a use of a standing authorisation, whose limit all requests share."""
_NAMES_A_CHARGE = '"table":"renyi_charge"'
"""Substring of the body of a link, of the start of an attempt, that names a charge in Rényi orders."""
_ANY_LINK = "TRUE"
_LINK_OF_REQUEST = "x.request_id IN :requests"
_ACCOUNTS = "SELECT a.id FROM account a WHERE a.id = :account OR a.parent_id = :account"
_NEEDED_TABLES = {
    # what has to be named by a link: the rows that decide
    "principal": _ANY_LINK,
    "role_grant": _ANY_LINK,
    "role_revocation": _ANY_LINK,
    "passkey": _ANY_LINK,
    "passkey_end": _ANY_LINK,
    "policy_version": _ANY_LINK,
    "policy_rule": _ANY_LINK,
    "policy_adoption": _ANY_LINK,
    "dataset": _ANY_LINK,
    "dataset_version": _ANY_LINK,
    "unit_claim": _ANY_LINK,
    "cohort": "x.account_id = :account",
    "overlap_key": _ANY_LINK,
    "account": "x.id = :account OR x.parent_id = :account",
    "invocation": "x.request_id IN"
    " (SELECT r.id FROM request r JOIN dataset d ON d.id = r.dataset_id WHERE d.account_id = :account)",
    "renyi_charge": "x.request_id IN"
    " (SELECT r.id FROM request r JOIN dataset d ON d.id = r.dataset_id WHERE d.account_id = :account)",
    "hold": f"x.account_id IN ({_ACCOUNTS})",
    "entry": f"x.hold_id IN (SELECT h.id FROM hold h WHERE h.account_id IN ({_ACCOUNTS}))",  # noqa: S608  (of constants)
    "internal_view": _ANY_LINK,
    "assignment_exposure": _ANY_LINK,
    "proposal": _ANY_LINK,
    "carried": _ANY_LINK,
    "request": "x.id IN :requests",
    "transition": _LINK_OF_REQUEST,
    "approval": f"x.proposal_id IS NOT NULL OR {_LINK_OF_REQUEST}",
    "withdrawal": "x.approval_id IN (SELECT a.id FROM approval a WHERE a.proposal_id IS NOT NULL"
    " OR a.request_id IN :requests)",
    "standing_use": _ANY_LINK,
    "artifact": _LINK_OF_REQUEST,
    "publication": "x.artifact_id IN (SELECT f.id FROM artifact f WHERE f.request_id IN :requests)",
    "evaluation": "x.artifact_id IN (SELECT f.id FROM artifact f WHERE f.request_id IN :requests)",
}
