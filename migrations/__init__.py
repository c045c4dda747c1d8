"""Alembic: env.py, NOTES.md, and versions and schema, which import no project code."""
