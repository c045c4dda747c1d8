"""Alembic: env.py, NOTES.md and versions, which import no project code."""
