"""Guards of an SQLite ledger one at a time, and their mutants."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import sqlglot
from sqlalchemy import Executable, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from sqlglot import exp

from models_db.sessions.database import Database

_TRIGGER = re.compile(
    r"CREATE TRIGGER (?P<name>\w+) (?:BEFORE|AFTER) (?P<operation>\w+) ON (?P<table>\w+) WHEN (?P<condition>.*)"
    r" BEGIN SELECT RAISE\(ABORT, '(?P<message>.*)'\); END",
    re.DOTALL,
)


@dataclass(frozen=True)
class Guard:
    """A trigger of SQLite: an operation on a table is denied where the condition holds."""

    name: str
    operation: str
    table: str
    condition: str
    message: str

    def statement(self, condition: str | None = None) -> str:
        """How it is made, with its own condition or another one."""
        return (
            f"CREATE TRIGGER {self.name} BEFORE {self.operation} ON {self.table} WHEN {condition or self.condition}"
            f" BEGIN SELECT RAISE(ABORT, '{self.message}'); END"
        )


def guards_of(database: Database) -> dict[str, Guard]:
    """Every guard of an SQLite ledger, by name."""
    with database.read() as session:
        statements = session.scalars(text("SELECT sql FROM sqlite_master WHERE type = 'trigger'")).all()
    found = (_TRIGGER.fullmatch(str(statement).strip()) for statement in statements)
    return {match["name"]: Guard(**match.groupdict()) for match in found if match}


@contextmanager
def undone(session: Session) -> Iterator[None]:
    """Whatever is done inside is taken back."""
    inside = session.begin_nested()
    try:
        yield
    finally:
        inside.rollback()


def refusal(session: Session, statements: Executable | list[Executable]) -> str:
    """What the database says to statements, which are taken back; empty if nothing."""
    with undone(session):
        try:
            perform(session, statements)
        except DBAPIError as problem:
            return str(problem.orig)
    return ""


def perform(session: Session, statements: Executable | list[Executable]) -> None:
    """Carry out what a case makes."""
    for statement in statements if isinstance(statements, list) else [statements]:
        session.execute(statement)


def remove_guards(session: Session, guards: Iterable[str]) -> None:
    """Remove guards until the transaction is taken back; what moves counters and head stays."""
    for name in guards:
        session.execute(text(f"DROP TRIGGER {name}"))


@contextmanager
def unchecked(session: Session, really: bool = True) -> Iterator[None]:
    """Inside, SQLite asks no CHECK."""
    switch = session.connection().exec_driver_sql
    switch(f"PRAGMA ignore_check_constraints = {'ON' if really else 'OFF'}")
    try:
        yield
    finally:
        switch("PRAGMA ignore_check_constraints = OFF")


@dataclass(frozen=True)
class Mutant:
    """A condition with one thing changed."""

    change: str
    condition: str


def mutants(condition: str) -> list[Mutant]:
    """Every way to lose one thing, in sub-queries too.

    Each clause of each AND and OR is removed; what counts distinct people counts rows; what takes the most takes the
    least.
    """
    tree = sqlglot.parse_one(f"SELECT 1 WHERE {condition}", read="sqlite")
    return [mutant for place, node in enumerate(tree.walk()) if (mutant := _mutant(tree, place, node))]


def _mutant(tree: exp.Expression, place: int, node: exp.Expression) -> Mutant | None:
    replacement = _replacement(node)
    if replacement is None:
        return None
    copy = tree.copy()
    list(copy.walk())[place].replace(replacement)
    return Mutant(f"{type(node.parent).__name__}: {node.sql('sqlite')}", copy.args["where"].this.sql("sqlite"))


def _replacement(node: exp.Expression) -> exp.Expression | None:
    if isinstance(node.parent, exp.And | exp.Or) and not isinstance(node, type(node.parent)):
        return exp.true() if isinstance(node.parent, exp.And) else exp.false()
    if isinstance(node, exp.Distinct) and isinstance(node.parent, exp.Count):
        return node.expressions[0].copy()
    if isinstance(node, exp.Max):
        return exp.Min(this=node.this.copy())
    return None
