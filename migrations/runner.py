"""Runs Alembic on an open connection, inside the caller's transaction."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

import migrations


def run(connection: Connection, revision: str = "head") -> None:
    """Run the missing migrations up to `revision`; nothing is committed here."""
    settings = Config()
    settings.set_main_option("script_location", str(Path(migrations.__file__).parent))
    settings.attributes["connection"] = connection
    command.upgrade(settings, revision)
