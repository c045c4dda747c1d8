"""Policies: their text, rules, checks and pacing windows."""
