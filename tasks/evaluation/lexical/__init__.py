"""Metrics of words and records."""
