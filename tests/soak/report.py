"""What a soak says of itself: figures as JSON, and the same as a page of text."""

import json
import platform
import sqlite3
from pathlib import Path
from typing import Any

from models_db.sessions.database import Database
from tests.soak.soak import Soak
from tests.support import fetch

COUNTS = {
    "requests": "SELECT count(*) FROM request",
    "releases": "SELECT count(*) FROM artifact",
    "slots": "SELECT count(*) FROM schedule_slot",
    "slots that were skipped": "SELECT count(*) FROM schedule_slot WHERE skipped IS NOT NULL",
    "attempts": "SELECT count(*) FROM transition WHERE to_state = 'running'",
    "attempts that ended without a release": "SELECT count(*) FROM transition WHERE from_state = 'running'"
    " AND to_state = 'approved'",
    "attempts that went on": "SELECT count(*) FROM transition WHERE to_state = 'running' AND detail <> ''",
    "runs that were given up": "SELECT count(*) FROM slot_end",
    "instalments that were armed": "SELECT count(*) FROM (SELECT DISTINCT h.invocation_id, h.instalment"
    " FROM entry e JOIN hold h ON h.id = e.hold_id WHERE e.kind = 'ARM') armed",
    "links of the chain": "SELECT count(*) FROM audit",
}


def figures(it: Soak, seed: int, seconds: float) -> dict[str, Any]:
    """All there is to tell."""
    database = it.database
    found = it.figures
    return {
        "backend": it.backend,
        "version": _version(database),
        "seed": seed,
        "seconds": round(seconds, 1),
        "rounds": found.rounds,
        "processes": found.processes,
        "checks": found.checks,
        "ledger": {name: int(str(fetch(database, query)[0][0])) for name, query in COUNTS.items()},
        "draws": sum(map(len, it.drawn.values())),
        "faults": dict(sorted(found.faults.items())),
        "ends of processes": dict(sorted(found.ends.items())),
        "outcomes": dict(sorted(found.outcomes.items())),
        "problems that pollers told": dict(sorted(found.problems.items())),
        "wrong": found.wrong,
    }


def _version(database: Database) -> str:
    if database.is_sqlite:
        return f"SQLite {sqlite3.sqlite_version}, Python {platform.python_version()}"
    return f"{str(fetch(database, 'SELECT version()')[0][0]).split(' on ')[0]}, Python {platform.python_version()}"


def written(told: dict[str, Any], folder: Path) -> list[Path]:
    """Write both; returns where."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"soak-{told['backend']}-{told['seed']}"
    files = [folder / f"{name}.json", folder / f"{name}.txt"]
    files[0].write_text(json.dumps(told, indent=2) + "\n")
    files[1].write_text(as_text(told))
    return files


def as_text(told: dict[str, Any]) -> str:
    """The figures, a line each."""
    lines = []
    for name, value in told.items():
        if isinstance(value, dict):
            lines += [f"{name}:", *(f"  {count:>7}  {what}" for what, count in value.items())]
        elif isinstance(value, list):
            lines += [f"{name}: {'nothing' if not value else ''}".rstrip(), *(f"  {each}" for each in value)]
        else:
            lines.append(f"{name}: {value}")
    return "\n".join(lines) + "\n"
