"""Budgets, gates, proposals, attempts and artifacts: what changes."""
