"""A process that upgrades a ledger and dies by its own kill -9 before a given statement, or right after the commit."""

import os
import signal
from pathlib import Path

from sqlalchemy import event

import migrations.schema_inventory
from migrations.upgrade import upgrade
from models_db.sessions.database import Database


def upgrade_and_die(url: str, revisions: Path, statement: int | None) -> None:
    """Upgrade, with the revisions of a folder beside those of the installation.

    Before the statement of that number (None: after everything) the process is gone.
    """
    migrations.schema_inventory.VERSION_FOLDERS.append(revisions)
    database = Database(url)
    seen = 0

    @event.listens_for(database.engine, "before_cursor_execute")
    def _count(*_: object) -> None:
        nonlocal seen
        seen += 1
        if seen == statement:
            die()

    @event.listens_for(database.engine, "commit")
    def _commit(_: object) -> None:
        if statement == 0:
            die()

    upgrade(database)
    die()


def die() -> None:
    """What no handler can catch."""
    os.kill(os.getpid(), signal.SIGKILL)
