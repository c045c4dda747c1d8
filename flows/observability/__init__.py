"""Metrics and traces of flows."""
