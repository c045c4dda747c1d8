"""Maximum nesting of JSON texts in the ledger, where the database cannot check it by itself.

`migrations.schema.forms` bounds bytes and digits on both backends, and on PostgreSQL the depth. SQLite lets no trigger
use its JSON functions while it mistrusts the schema (`trusted_schema=OFF`), so there the depth is checked before a
write.
"""

import re
from collections.abc import Mapping
from typing import Any

from models_db.writes.database_errors import RuleViolated

MOST_JSON_DEPTH = 32
JSON_TEXT_COLUMNS = {
    "proposal": ("configuration", "choices"),
    "policy_version": ("body",),
    "request": ("canonical",),
    "invocation": ("event", "libraries"),
    "artifact": ("files",),
    "evaluation": ("result",),
    "dataset": ("public_metadata",),
    "rehearsal": ("result",),
}
"""The columns that hold JSON, by table."""
UNBOUNDED_TEXT = "a text is too long, too deep or has a number too long"

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


def require_shallow(table: str, row: Mapping[str, Any]) -> None:
    """Check the JSON texts of a row.

    Raises:
        RuleViolated: one is nested deeper than DEPTH.
    """
    for column in JSON_TEXT_COLUMNS.get(table, ()):
        if isinstance(text := row.get(column), str) and _nesting_depth(text) > MOST_JSON_DEPTH:
            raise RuleViolated(UNBOUNDED_TEXT)


def _nesting_depth(text: str) -> int:
    deepest = depth = 0
    for sign in re.findall(r"[][{}]", _STRING.sub("", text)):
        depth += 1 if sign in "[{" else -1
        deepest = max(deepest, depth)
    return deepest
