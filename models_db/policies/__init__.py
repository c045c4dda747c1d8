"""Policies: their text, rules and checks."""
