"""Mapped columns only; what the database enforces is in the migrations."""
