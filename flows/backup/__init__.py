"""Backups of a project home, and their restoration."""
