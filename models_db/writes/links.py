"""The link of a transaction, added to the chain at its end, with a content that no caller chooses; claims of units.

Claims of units: marks go into the ledger under a claim, which gets its digest when the transaction ends. A transaction
makes one claim for an account, however many units it brings: their number is private, and so is whether any of them was
new. Hence the salt, which is in the row and in no link.

The link of a transaction: added to the chain at its end, with a content that no caller chooses. On PostgreSQL triggers
note new rows in `pending_link`, `almoner_link` makes the link, and the server does not commit what a login has added
while a row has no link (`pending_link_is_told`). On SQLite the session keeps the list in memory, and `Database.write`
makes the link.
"""

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any

from sqlalchemy import TextClause, bindparam, event, insert, text
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.tables import UnitClaim, UnitMark
from models_db.values.canonical_json import encode_canonical
from models_db.writes.database_errors import translate_database_errors
from models_db.writes.insert import add_pending, take_pending
from models_db.writes.link_content import digest_of_contents, link_fields, link_hash, name_rows, row_content

_INSERT_BATCH, _SORT_BATCH = 5000, 50_000
_OPEN_CLAIMS_KEY = "almoner_claims"
_MARK_BATCH = 10_000


@event.listens_for(Session, "after_rollback")
def _forget_claims(session: Session) -> None:
    """Forget the claims of a transaction that was rolled back."""
    session.info.pop(_OPEN_CLAIMS_KEY, None)


ClaimedUnit = tuple[bytes, int]
"""A unit's mark, and the cohort in which the account first saw it."""


def claim_units(session: Session, account_id: int, units: Iterable[ClaimedUnit], by: int | None = None) -> None:
    """Claim units for a root account; those it holds already stay, in their cohort and under their claim.

    Args:
        by: the claiming principal; PostgreSQL takes it from the login.

    Raises:
        RuleViolated: another account holds one of them, or one is neither known in that cohort nor new in the newest.
    """
    postgresql = session.get_bind().dialect.name == "postgresql"
    claim = None if postgresql else _open_claim(session, account_id, by)
    with translate_database_errors():
        for batch in _sorted_batches(units):
            if claim is None:
                marks, cohorts = [mark for mark, _ in batch], [cohort for _, cohort in batch]
                session.execute(_CLAIM_FUNCTION, {"root": account_id, "marks": marks, "cohorts": cohorts})
            else:
                statement = insert(UnitMark).prefix_with("OR IGNORE")
                rows = [{"mark": mark, "account_id": account_id, "cohort": cohort, "claim": claim}
                        for mark, cohort in batch]  # fmt: skip
                session.execute(statement, rows)
        if claim is None:  # a version without units makes its claim, too
            session.execute(_CLAIM_FUNCTION, {"root": account_id, "marks": [], "cohorts": []})
            add_pending(session, "unit_claim", [0])


_CLAIM_FUNCTION = text("SELECT almoner_claim_units(:root, CAST(:marks AS bytea[]), CAST(:cohorts AS integer[]))")


def _open_claim(session: Session, account_id: int, by: int | None) -> int:
    """Return the claim of this transaction for an account, on SQLite."""
    claims: dict[int, tuple[int, int | None]] = session.info.setdefault(_OPEN_CLAIMS_KEY, {})
    if account_id not in claims:
        newest = session.scalar(text("SELECT max(id) FROM unit_claim")) or 0
        claims[account_id] = (max([newest, *(number for number, _ in claims.values())]) + 1, by)
        add_pending(session, "unit_claim", [claims[account_id][0]])
    return claims[account_id][0]


def close_claims(session: Session) -> None:
    """Give the claims of this transaction their rows, on SQLite."""
    claims: dict[int, tuple[int, int | None]] = session.info.pop(_OPEN_CLAIMS_KEY, {})
    for account_id, (number, by) in claims.items():
        salt = secrets.token_hex(32)
        row = {"id": number, "account_id": account_id, "salt": salt, "digest": _digest_claim(session, number, salt),
               "created_at": utc_now(), "created_by": by}  # fmt: skip
        session.execute(insert(UnitClaim), [row])


def _digest_claim(session: Session, claim: int, salt: str) -> str:
    query = text("SELECT claim, mark, account_id, cohort FROM unit_mark WHERE claim = :claim ORDER BY mark")
    rows = session.connection().execute(query, {"claim": claim}, execution_options={"yield_per": _MARK_BATCH})
    return digest_claims({claim: salt}, rows).get(claim) or ""


def digest_claims(salts: Mapping[int, str], marks: Iterable[Any]) -> dict[int, str | None]:
    """Return the digest of each claim; None of one whose salt or marks have other types than their columns.

    Args:
        marks: claim, mark, account and cohort of every unit, in the order of the marks; those of no claim are left out.
    """
    hashes = {number: hashlib.sha256(salt.encode()) for number, salt in salts.items() if isinstance(salt, str)}
    unreadable = set(salts) - set(hashes)
    for claim, mark, account, cohort in marks:
        if claim in hashes:
            try:
                hashes[claim].update(_spell_mark(mark, account, cohort))
            except (AttributeError, OverflowError, TypeError):
                unreadable.add(claim)
    return {number: None if number in unreadable else hashes[number].hexdigest() for number in salts}


def _spell_mark(mark: bytes, account: int, cohort: int) -> bytes:
    """Return a mark as its claim's digest covers it.

    Raises:
        AttributeError, OverflowError, TypeError: a value that the columns of a unit cannot have.
    """
    return len(mark).to_bytes(4, "big") + mark + account.to_bytes(8, "big") + cohort.to_bytes(8, "big")


def _sorted_batches(items: Iterable[ClaimedUnit]) -> Iterator[list[ClaimedUnit]]:
    """Yield batches of _MARKS, every _SORTED marks in order, because neighbours lie on one page of the index."""
    coming = iter(items)
    while near := sorted(islice(coming, _SORT_BATCH)):
        yield from (near[first : first + _INSERT_BATCH] for first in range(0, len(near), _INSERT_BATCH))


def record_link(session: Session) -> int | None:
    """Add the link for the rows that the transaction has added. Returns its number, None if there are none.

    Raises:
        ClockWentBack: the newest link is from a later time than now.
    """
    pending = take_pending(session)
    if not pending:
        return None
    if session.get_bind().dialect.name == "postgresql":
        with translate_database_errors():
            number: int | None = session.execute(_LINK_FUNCTION).scalar()
            return number
    close_claims(session)
    rows, views = [], []
    for table, (first, last) in pending:
        contents = contents_between(session, table, first, last)
        rows.append(name_rows(table, first, last, digest_of_contents(contents.values())))
        views.append(views_of_rows(session, table, [last])[last])
    return append_link(session, body=encode_canonical({"rows": rows}).decode(), **link_fields(views))


def contents_between(session: Session, table: str, first: int, last: int) -> dict[int, str]:
    """Return the contents of the rows of a table with these numbers, by id."""
    rows = session.connection().execute(_rows_query(table), {"first": first, "last": last})
    names = rows.keys()
    found = (dict(zip(names, row, strict=True)) for row in rows)
    return {row["id"]: row_content(table, row) for row in found}


@cache
def _rows_query(table: str) -> TextClause:
    return text(f"SELECT * FROM {table} WHERE id BETWEEN :first AND :last ORDER BY id")  # noqa: S608


def views_of_rows(session: Session, table: str, ids: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    """Return what `link_of_<table>` says of some rows, by id."""
    rows = session.connection().execute(_views_query(table), {"ids": list(ids)})
    return {row["row_id"]: dict(row) for row in rows.mappings()}


@cache
def _views_query(table: str) -> TextClause:
    query = text(f"SELECT * FROM link_of_{table} WHERE row_id IN :ids")  # noqa: S608
    return query.bindparams(bindparam("ids", expanding=True))


def append_link(session: Session, actor: str, kind: str, body: str, dataset: str | None, request_id: int | None) -> int:
    """Add a link, on SQLite only.

    Raises:
        ClockWentBack: the newest link is from a later time than now.
    """
    with translate_database_errors():
        last, previous = session.connection().execute(_READ_HEAD).one()
        link: dict[str, Any] = {"seq": last + 1, "prev_hash": previous, "at": utc_now(), "actor": actor, "kind": kind,
                                "dataset": dataset, "request_id": request_id, "body": body}  # fmt: skip
        session.connection().execute(_INSERT_LINK, {**link, "row_hash": link_hash(**link)})
        return int(last) + 1


_LINK_FUNCTION = text("SELECT almoner_link()")
_READ_HEAD = text("SELECT seq, hash FROM audit_head")
_INSERT_LINK = text("""
INSERT INTO audit (seq, prev_hash, row_hash, at, actor, kind, dataset, request_id, body)
VALUES (:seq, :prev_hash, :row_hash, :at, :actor, :kind, :dataset, :request_id, :body)
""")
