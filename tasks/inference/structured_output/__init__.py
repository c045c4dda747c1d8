"""Constrained decoding by JSON schemas and forms."""
