"""Which guards of an SQLite ledger the contract finds missing: `python -m tests.contract.mutate_guards`.

Each trigger is removed from a ledger with something of everything, then each clause of its condition, and the hostile
statements are tried again. A guard is found if a deed is taken without it, a clause if a deed is taken or its lawful
neighbour is refused. A guard that is not found is tried alone: if it refuses a deed, another guard or a constraint of
the schema stands before it; if it refuses none, no deed concerns it.
"""

import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.orm import Session

from models_db.errors import EnvironmentProblem
from tests.conftest import Ledgers, in_memory
from tests.contract.hostile import (
    DEEDS,
    FORGERIES,
    HostileLogin,
    Statements,
    forgeries,
    hostile_login,
    made_by,
    refused,
)
from tests.contracts.guard_alone import Guard, guards_of, mutants, undone

DATA = Path(__file__).resolve().parents[2] / "docs" / "figures" / "contract-guards.json"
Attempts = Sequence[tuple[str, Statements]]


@dataclass(frozen=True)
class Trial:
    """What a guard of a table is asked: statements that it must refuse, and some that it must not."""

    deeds: list[tuple[str, Statements]] = field(default_factory=list)
    neighbours: list[tuple[str, Statements]] = field(default_factory=list)


def trials(login: HostileLogin) -> Mapping[str, Trial]:
    """All deeds and their neighbours, by the tables that they write to."""
    made: defaultdict[str, Trial] = defaultdict(Trial)
    for name, deed in DEEDS.items():
        add(made, "deeds", name, made_by(login.town, deed.refused))
        if deed.lawful is not None:
            add(made, "neighbours", name, made_by(login.town, deed.lawful))
    for forgery in FORGERIES:
        for fact, statements in forgeries(login.town, forgery):
            add(made, "deeds", f"{fact} {forgery}", statements)
    return made


def add(made: defaultdict[str, Trial], kind: str, name: str, statements: Statements) -> None:
    for table in {table_of(statement) for statement in statements}:
        getattr(made[table], kind).append((name, statements))


def table_of(statement: object) -> str:
    """The table that a statement writes to."""
    words = str(statement).replace("OR REPLACE ", "").split()
    return words[1] if words[0] == "UPDATE" else words[2]


def taken(session: Session, deeds: Attempts) -> list[str]:
    """The deeds that the ledger takes."""
    return [name for name, statements in deeds if refused(session, statements) is None]


def without(session: Session, guard: Guard, deeds: Attempts) -> list[str]:
    """The deeds that are taken when a guard is away."""
    with undone(session):
        session.execute(text(f"DROP TRIGGER {guard.name}"))
        return taken(session, deeds)


def alone(session: Session, guard: Guard, guards: dict[str, Guard], deeds: Attempts) -> list[str]:
    """The deeds that a guard refuses when all others are away."""
    with undone(session):
        for name in guards:
            session.execute(text(f"DROP TRIGGER {name}"))
        free = {name for name, statements in deeds if refused(session, statements) is None}
        session.connection().exec_driver_sql(guard.statement())
        return [name for name, statements in deeds if name in free and refused(session, statements)]


def clauses(session: Session, guard: Guard, deeds: Attempts, neighbours: Attempts) -> Iterator[tuple[str, bool]]:
    """Each mutant of a guard's condition, and whether it is found."""
    for mutant in mutants(guard.condition):
        with undone(session):
            session.execute(text(f"DROP TRIGGER {guard.name}"))
            session.connection().exec_driver_sql(guard.statement(mutant.condition))
            found = any(refused(session, each) is None for _, each in deeds) or any(
                refused(session, each) is not None for _, each in neighbours
            )
        yield mutant.change, found


def judge(login: HostileLogin) -> list[dict[str, object]]:
    """What becomes of each guard."""
    guards, tried = guards_of(login.town.world.database), trials(login)
    found = []
    with login.town.world.database.write() as session:
        for name, guard in sorted(guards.items()):
            trial = tried.get(guard.table, Trial())
            by = without(session, guard, trial.deeds)
            row: dict[str, object] = {"guard": name, "deeds": by[:3]}
            if by:
                known = [each for each in trial.deeds if each[0] in by]
                each_clause = list(clauses(session, guard, known, trial.neighbours))
                row |= {
                    "verdict": "found",
                    "clauses": len(each_clause),
                    "missed": [c for c, seen in each_clause if not seen],
                }
            else:
                behind = alone(session, guard, guards, trial.deeds)
                row |= {"verdict": "second line" if behind else "no deed", "deeds": behind[:3]}
            found.append(row)
        session.rollback()
    return found


def no_server() -> object:
    raise EnvironmentProblem("Only guards of SQLite are removed.")


def main() -> None:
    """Write the data, and say how many were found."""
    with tempfile.TemporaryDirectory(dir=in_memory()) as folder:
        ledgers = Ledgers(Path(folder), no_server)  # type: ignore[arg-type]
        with hostile_login(ledgers, "sqlite") as login:
            rows = judge(login)
    DATA.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    sys.stdout.write(f"{len(rows)} guards: {dict(Counter(row['verdict'] for row in rows))}\n")


if __name__ == "__main__":
    main()
