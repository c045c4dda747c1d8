"""Summaries by adapters, as in the tests of systems."""

from tests.unit.tasks.systems.conftest import completion_tokens

__all__ = ["completion_tokens"]
