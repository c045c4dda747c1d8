"""Execution of Alembic on an open connection, inside the caller's transaction."""

import os
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

import migrations

MIGRATIONS_FOLDER = Path(migrations.__file__).parent
VERSION_FOLDERS = [MIGRATIONS_FOLDER / "versions"]
"""The folders of the version files; tests add one with revisions to come."""


def settings_for(connection: Connection | None = None) -> Config:
    """Alembic's settings, for a connection that is open."""
    settings = Config()
    settings.set_main_option("script_location", str(MIGRATIONS_FOLDER))
    settings.set_main_option("path_separator", "os")
    settings.set_main_option("version_locations", os.pathsep.join(map(str, VERSION_FOLDERS)))
    settings.attributes["connection"] = connection
    return settings


def run(connection: Connection, revision: str = "head") -> None:
    """Run the missing migrations up to `revision`; nothing is committed here."""
    command.upgrade(settings_for(connection), revision)


def newest_revision() -> str:
    """Return the revision that this installation brings a ledger to."""
    return str(ScriptDirectory.from_config(settings_for()).get_current_head())
