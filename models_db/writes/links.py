"""The link of a transaction: added to the chain at its end, with a content that no caller chooses.

On PostgreSQL triggers note new rows in `pending_link`, `almoner_link` makes the link, and the server does not commit
what a login has added while a row has no link (`pending_link_is_told`). On SQLite the session keeps the list in memory,
and `Database.write` makes the link.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import TextClause, bindparam, text
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.values.canonical_json import encode_canonical
from models_db.writes.database_errors import translate_database_errors
from models_db.writes.link_content import digest_of_contents, link_fields, name_rows, row_content
from models_db.writes.link_hash import link_hash
from models_db.writes.pending_links import take_pending
from models_db.writes.unit_claims import close_claims


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
