"""Bulk insert of rows of one table whose numbers nobody needs, in one statement: an account has thousands of blocks."""

import json
from collections.abc import Sequence

from sqlalchemy import insert, text
from sqlalchemy.orm import Session

from models_db.database.base import Base
from models_db.writes.insert import Values, on_postgresql, translate_refusals
from models_db.writes.pending_links import add_pending


def insert_many(session: Session, kind: type[Base], rows: Sequence[Values]) -> None:
    """Insert rows of one table, with the same function and guards as `insert.insert_row`.

    Args:
        kind: the table.
        rows: the values of each row, of the same columns in every one of them.

    Raises:
        RuleViolated, CapExceeded, AlreadyRecorded, ClockWentBack: what the database said; then none of them is
        recorded.
    """
    if not rows:
        return
    with translate_refusals(session):
        if on_postgresql(session):
            session.connection().execute(
                _BULK_INSERT_FUNCTION, {"kind": kind.__tablename__, "rows": json.dumps(list(rows))}
            )
            add_pending(session, kind.__tablename__, [{**rows[0], "id": 0}])
        else:
            newest = session.scalar(text(f"SELECT max(id) FROM {kind.__tablename__}")) or 0  # noqa: S608
            session.connection().execute(insert(kind.__table__), list(rows))  # type: ignore[arg-type]
            row_ids = session.scalars(text(f"SELECT id FROM {kind.__tablename__} WHERE id > {newest} ORDER BY id"))  # noqa: S608
            add_pending(session, kind.__tablename__, [{**row, "id": n} for row, n in zip(rows, row_ids, strict=True)])


_BULK_INSERT_FUNCTION = text("SELECT count(*) FROM almoner_record(:kind, CAST(:rows AS jsonb))")
