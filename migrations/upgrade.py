"""Bring a ledger to the newest schema."""

from pathlib import Path

from alembic import command
from alembic.config import Config

import migrations
from models_db.engine import Database


def config(database: Database) -> Config:
    """Alembic's configuration for one ledger (`attributes['connection']` is set by the caller)."""
    made = Config()
    made.set_main_option("script_location", str(Path(migrations.__file__).parent))
    return made


def upgrade(database: Database, revision: str = "head") -> None:
    """Run the missing migrations in one connection."""
    with database.engine.connect() as connection:
        settings = config(database)
        settings.attributes["connection"] = connection
        command.upgrade(settings, revision)
        connection.commit()
