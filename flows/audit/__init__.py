"""Verification, export and health of the audit chain."""
