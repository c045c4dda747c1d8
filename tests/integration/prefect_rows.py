"""The rows of a Prefect server's own database, for tests that look for what it must not know."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

Rows: TypeAlias = dict[str, list[dict[str, Any]]]


def prefect_rows(home: Path) -> Rows:
    """Every row of the test server below a folder, by table."""
    with closing(sqlite3.connect(home / "server" / "prefect-test.db")) as connection:
        connection.row_factory = sqlite3.Row
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {table: [dict(row) for row in connection.execute(f'SELECT * FROM "{table}"')] for table in tables}
