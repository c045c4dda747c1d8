"""Evidence of a run and of a publication, compared with the audit log before anything is spent or published.

`verify_rows.compare_rows_with_chain` compares a whole ledger. This module compares only the rows that decide a request:
principals and roles that may decide, the policies, the datasets and claims of its account, every proposal, and the
request with its approvals and what it produced. A link must name each of them, have its own hash and be followed by the
next link; a chain that was rewritten as a whole shows against an anchor (`verify_chain`).
"""

from collections.abc import Iterator

from sqlalchemy import text
from sqlalchemy.orm import Session

from models_db.services.audit import verify_chain
from models_db.services.audit.log import LoggedLink, as_link
from models_db.services.audit.stored_text import LedgerAltered
from models_db.services.verification import verify_rows
from models_db.services.verification.compare_rows import Comparison
from models_db.tables import Dataset, Request


def require_rows_match_chain(session: Session, request: Request) -> None:
    """Compare everything that a request rests on with the links of the chain.

    Raises:
        LedgerAltered: with every difference.
    """
    dataset = session.get_one(Dataset, request.dataset_id)
    given = {"request": request.id, "dataset": dataset.name, "dataset_id": dataset.id, "account": dataset.account_id}
    comparison = Comparison(session)
    comparison.compare(_needed_links(session, comparison, given))
    for table, condition in _NEEDED_TABLES.items():
        query = text(f"SELECT x.id FROM {table} x WHERE {condition} ORDER BY x.id")  # noqa: S608  (of constants)
        values = {name: value for name, value in given.items() if f":{name}" in condition}
        for number in comparison.covered[table].lacks(session.scalars(query, values)):
            comparison.add_difference(f"{table} {number} has no link")
    for difference in verify_rows.cap_differences(session, dataset.account_id):
        comparison.add_difference(difference)
    if comparison.differences:
        raise LedgerAltered(comparison.differences, request.id)


def _needed_links(session: Session, comparison: Comparison, parameters: dict[str, object]) -> Iterator[LoggedLink]:
    """The links that name what is needed, whole in themselves and followed by the next one."""
    kinds = session.scalars(text("SELECT DISTINCT kind FROM audit ORDER BY kind")).all()
    general = [kind for kind in kinds if str(kind).partition(".")[0] in _SHARED_KINDS]
    among = ", ".join(f":kind{number}" for number in range(len(general)))
    values = {"request": parameters["request"], "dataset": parameters["dataset"],
              **{f"kind{number}": kind for number, kind in enumerate(general)}}  # fmt: skip
    query = text(_LINKS_QUERY.format(kinds=among or "NULL"))
    for *columns, following in session.connection().execute(query, values):
        link = as_link(columns)
        if link.row_hash != verify_chain.link_hash(link) or following not in (link.row_hash, None):
            comparison.add_difference(f"link {link.seq} was altered")
        yield link


_SHARED_KINDS = ("principal", "role", "delegation", "policy", "account", "scope", "dataset", "cohort", "proposal",
            "cap", "partition")  # fmt: skip
"""How kinds begin that tell of people, policies, datasets and what they may lose."""
_LINKS_QUERY = """
SELECT y.seq, y.prev_hash, y.row_hash, y.at, y.actor, y.kind, y.dataset, y.request_id, y.body, n.prev_hash
  FROM audit y LEFT JOIN audit n ON n.seq = y.seq + 1
 WHERE (y.kind IN ({kinds}) AND (y.kind <> 'dataset.ingested' OR y.dataset = :dataset))
    OR (y.request_id = :request AND y.kind NOT LIKE 'ledger.%')
 ORDER BY y.seq
"""
_ANY_LINK = "TRUE"
_LINK_OF_REQUEST = "x.request_id = :request"
_NEEDED_TABLES = {
    # what has to be named by a link: the rows that decide
    "principal": _ANY_LINK,
    "role_grant": _ANY_LINK,
    "role_revocation": _ANY_LINK,
    "delegation": _ANY_LINK,
    "delegation_end": _ANY_LINK,
    "policy_version": _ANY_LINK,
    "policy_rule": _ANY_LINK,
    "policy_adoption": _ANY_LINK,
    "dataset": "x.account_id = :account",
    "dataset_version": "x.dataset_id = :dataset_id",
    "cohort": "x.account_id = :account",
    "partition_scheme": "x.account_id = :account",
    "cap": "x.account_id = :account",
    "account": "(x.id = :account OR x.parent_id = :account) AND x.kind IN ('root', 'block', 'scope')",
    "scope_end": "x.account_id IN (SELECT a.id FROM account a WHERE a.parent_id = :account)",
    "proposal": _ANY_LINK,
    "carried": _ANY_LINK,
    "request": "x.id = :request",
    "transition": _LINK_OF_REQUEST,
    "approval": f"x.proposal_id IS NOT NULL OR {_LINK_OF_REQUEST}",
    "withdrawal": "x.approval_id IN (SELECT a.id FROM approval a WHERE a.proposal_id IS NOT NULL"
    " OR a.request_id = :request)",
    "standing_use": _LINK_OF_REQUEST,
    "artifact": _LINK_OF_REQUEST,
    "publication": "x.artifact_id IN (SELECT f.id FROM artifact f WHERE f.request_id = :request)",
    "evaluation": "x.artifact_id IN (SELECT f.id FROM artifact f WHERE f.request_id = :request)",
}
