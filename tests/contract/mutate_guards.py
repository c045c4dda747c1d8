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
from tests.contracts.guard_alone import Guard, guards_of, mutants, refusal, undone
from tests.contracts.test_guards import CASES

DATA = Path(__file__).resolve().parents[2] / "docs" / "figures" / "contract-guards.json"
Attempts = Sequence[tuple[str, Statements]]
Trials = defaultdict[str, "Trial"]


@dataclass(frozen=True)
class Trial:
    """What a guard of a table is asked: statements that it must refuse, and some that it must not."""

    deeds: list[tuple[str, Statements]] = field(default_factory=list)
    neighbours: list[tuple[str, Statements]] = field(default_factory=list)


def trials(login: HostileLogin) -> Trials:
    """All deeds and their neighbours, by the tables that they write to."""
    made: Trials = defaultdict(Trial)
    for name, deed in DEEDS.items():
        add(made, "deeds", name, made_by(login.town, deed.refused))
        if deed.lawful is not None:
            add(made, "neighbours", name, made_by(login.town, deed.lawful))
    for forgery in FORGERIES:
        for fact, statements in forgeries(login.town, forgery):
            add(made, "deeds", f"{fact} {forgery}", statements)
    return made


def add(made: Trials, kind: str, name: str, statements: Statements) -> None:
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


def clauses(session: Session, guard: Guard, deeds: Attempts, neighbours: Attempts) -> list[bool]:
    """Whether each mutant of a guard's condition is found."""
    found = []
    for mutant in mutants(guard.condition):
        with undone(session):
            session.execute(text(f"DROP TRIGGER {guard.name}"))
            session.connection().exec_driver_sql(guard.statement(mutant.condition))
            taken_now = any(refused(session, each) is None for _, each in deeds)
            found.append(taken_now or any(refused(session, each) is not None for _, each in neighbours))
    return found


def second_lines(
    session: Session, guards: Mapping[str, Guard], unfound: Sequence[str], tried: Trials
) -> dict[str, str]:
    """Of guards that are not found: a deed that each refuses where it stands alone."""
    lines = {}
    with undone(session):
        for name in guards:
            session.execute(text(f"DROP TRIGGER {name}"))
        for name in unfound:
            with undone(session):
                session.connection().exec_driver_sql(guards[name].statement())
                for deed, statements in tried[guards[name].table].deeds:
                    if guards[name].message in refusal(session, list(statements)):
                        lines[name] = deed
                        break
    return lines


def judge(login: HostileLogin) -> Iterator[dict[str, object]]:
    """What becomes of each guard."""
    guards, tried = guards_of(login.town.world.database), trials(login)
    with login.town.world.database.write() as session:
        session.connection().exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        found = {name: without(session, guard, tried[guard.table].deeds) for name, guard in guards.items()}
        lines = second_lines(session, guards, [name for name, by in found.items() if not by], tried)
        for name in sorted(guards):
            trial = tried[guards[name].table]
            if not (by := found[name]):
                verdict = "second line" if name in lines else "no deed"
                yield {"guard": name, "verdict": verdict, "deed": lines.get(name)}
                continue
            row: dict[str, object] = {"guard": name, "verdict": "found", "deed": by[0]}
            if name in CASES:  # the clauses of those that every table has are those of its columns
                known = [each for each in trial.deeds if each[0] in by]
                made = clauses(session, guards[name], known, trial.neighbours)
                row |= {"clauses": len(made), "clauses_found": sum(made)}
            yield row
        session.rollback()


def main() -> None:
    """Write the data, and say how many were found."""
    with tempfile.TemporaryDirectory(dir=in_memory()) as folder:
        ledgers = Ledgers(Path(folder), lambda: sys.exit("Only guards of SQLite are removed."))
        with hostile_login(ledgers, "sqlite") as login:
            rows = list(judge(login))
    DATA.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    for kind, of_kind in (("own", [row for row in rows if row["guard"] in CASES]), ("all", rows)):
        sys.stdout.write(f"{kind}: {len(of_kind)} guards, {dict(Counter(row['verdict'] for row in of_kind))}\n")
    counts = [sum(int(str(row.get(key, 0))) for row in rows) for key in ("clauses_found", "clauses")]
    sys.stdout.write(f"clauses of guards that are found: {counts[0]} of {counts[1]}\n")


if __name__ == "__main__":
    main()
