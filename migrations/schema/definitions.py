"""Definitions of the schema: tables, guards, actions and functions; `rendering` writes them for each database."""

from collections.abc import Mapping
from dataclasses import dataclass, field
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


class Index(NamedTuple):
    """An index of a table."""

    name: str
    columns: str
    unique: bool = False
    where: str = ""


ACTORS = (
    "actor_id", "created_by", "requester_id", "granted_by", "revoked_by", "ended_by", "proposer_id", "adopted_by",
    "approver_id",
)  # fmt: skip
"""The columns that say who adds a row; where one may be NULL, the database fills it in, as it does `brought_by`."""
TIMES = ("at", "created_at")
"""The columns that say when a row is added."""


@dataclass(frozen=True)
class Table:
    """A table with its general guards.

    Attributes:
        name: of the table; constraints are named after it (`pk_`, `uq_`, `fk_`, `ck_`).
        columns: one a line: name, type, `-> table` where it refers to the id of a row there. `{key}` is a number that
            the database gives (`{serial}` from a sequence), `{number}` one of 64 bits, `{bytes}` bytes. VARCHAR(27)
            holds a time, VARCHAR(16), (32) and (64) that many hexadecimal digits, another VARCHAR(n) a line, TEXT a
            text (`forms.form_of`).
        key: the primary key.
        unique: further keys.
        checks: conditions of each row, by the end of their names.
        indexes: in addition to those of the keys.
        no_update: guarded: rows are not changed.
        no_delete: guarded: rows are not deleted, nor the table truncated.
        no_replace: guarded on SQLite, whose REPLACE deletes the row with which it collides, past the delete triggers of
            a connection that forgot `recursive_triggers`: no row with a key that is there already.
        by: the roles of which whoever adds a row must have one. A guard asks for it where the row names its author;
            elsewhere PostgreSQL does, which knows the login.
    """

    name: str
    columns: str
    key: tuple[str, ...] = ("id",)
    unique: tuple[tuple[str, ...], ...] = ()
    checks: Mapping[str, str] = field(default_factory=dict)
    indexes: tuple[Index, ...] = ()
    no_update: bool = True
    no_delete: bool = True
    no_replace: bool = True
    by: tuple[str, ...] = ()

    @property
    def lines(self) -> list[tuple[str, str, str]]:
        """Name, type and referred table of each column; no table is an empty text."""
        pairs = (line.strip().partition(" -> ") for line in self.columns.strip().splitlines())
        return [(*definition.partition(" ")[::2], target) for definition, _, target in pairs]

    @property
    def times(self) -> list[str]:
        """The columns that hold a time."""
        return [name for name, kind, _ in self.lines if kind.startswith("VARCHAR(27)")]

    @property
    def author(self) -> tuple[str, str] | None:
        """The columns that say who adds a row and when, if there are both and somebody always does.

        Nobody has added the first person, and the owner of the tables may open accounts.
        """
        who, when = ([name for name, _, _ in self.lines if name in names] for names in (ACTORS, TIMES))
        return (who[0], when[0]) if who and when and self.name not in ("principal", "account") else None

    @property
    def by_whom(self) -> str:
        """The rule that `by` sets, in words."""
        roles = " or ".join(map(with_article, self.by))
        return f"only {roles} records {with_article(self.name.replace('_', ' '))}"

    @property
    def numbered(self) -> bool:
        """Return whether the database assigns the row numbers."""
        return self.stamped or any(kind == "{serial}" for _, kind, _ in self.lines)

    @property
    def stamped(self) -> bool:
        """Return whether people add rows, on PostgreSQL under their logins (`logins.stamp`); else the database does."""
        return any(kind == "{key}" for _, kind, _ in self.lines)

    @property
    def keys(self) -> list[tuple[str, ...]]:
        """Every key under which there is at most one row."""
        indexes = [tuple(index.columns.split(", ")) for index in self.indexes if index.unique and not index.where]
        return [self.key, *self.unique, *indexes]


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
