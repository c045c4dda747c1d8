"""Definitions of guards, actions and functions; `rendering` writes them for each database."""

from dataclasses import dataclass
from typing import Literal, NamedTuple


class Both(NamedTuple):
    """SQL text with one form for each of the two databases."""

    sqlite: str
    postgresql: str

    def within(self, template: str) -> "Both":
        """Return both texts inside other SQL, in place of each `@`."""
        return Both(template.replace("@", self.sqlite), template.replace("@", self.postgresql))


Sql = str | Both
"""SQL that both databases read, or one text for each. `IS DISTINCT FROM` is written `IS NOT` for SQLite."""


def with_article(noun: str) -> str:
    """Return a noun behind its article."""
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def deny(message: str) -> str:
    """Return the statement with which a function of PostgreSQL refuses."""
    return f"RAISE EXCEPTION 'almoner: {message}' USING ERRCODE = '23514';"


@dataclass(frozen=True)
class Guard:
    """A condition under which the database refuses to add or change a row.

    Attributes:
        name: of its trigger; on PostgreSQL the guards of new rows are one trigger, `<table>_is_sound`.
        table: whose rows it concerns.
        message: the rule that it keeps; `models_db.writes.database_errors` turns it into a named error.
        denied: true of the row NEW (and OLD) that is refused. What must hold is written NOT EXISTS (all that must
            hold), so that a missing row or a NULL denies.
        operation: INSERT, UPDATE or DELETE. only: the rows of an INSERT for which `denied` is asked at all.
    """

    name: str
    table: str
    message: str
    denied: Sql
    operation: str = "INSERT"
    only: str = ""


@dataclass(frozen=True)
class Action:
    """Statements that the database itself runs after a row is added.

    SQLite runs the statements of a trigger under the conflict rule of the outer one: after a CHECK refuses one of them,
    `INSERT OR IGNORE` would go on without it, and `INSERT OR FAIL` would stop with the outer row in place. So it is
    looked afterwards whether they were done; RAISE(ABORT) undoes the whole statement under any rule.

    Attributes:
        name: of its trigger.
        table: after whose rows it is done.
        statements: what is done.
        failed: true if it was not done.
        message: what is said then.
        source: PostgreSQL only: the whole function, where it is not these statements and this look.
    """

    name: str
    table: str
    statements: tuple[str, ...]
    failed: str
    message: str
    source: str = ""


@dataclass(frozen=True)
class Function:
    """A function of PostgreSQL.

    Attributes:
        name: it begins with `almoner_`. arguments: as it declares them. result: what it returns. properties: language,
            volatility, and whether it works with the rights of its owner. source: its text. settings: "keys": the
            search path, and queries planned by keys; "path": the search path alone, of what asks no table; "caller":
            those of its caller, because functions and guards call it, and to set them again costs more than it does.
    """

    name: str
    arguments: str
    result: str
    properties: str
    source: str
    settings: Literal["keys", "path", "caller"] = "keys"
