"""Expecting an error by its code, whatever its class is."""

import pytest

from models_db.errors import AlmonerError


def refusal(*codes: str, match: str | None = None) -> "pytest.RaisesExc[AlmonerError]":
    """Return the context in which an error of one of these codes has to be raised; its message has to hold `match`."""
    return pytest.RaisesExc(AlmonerError, match=match, check=lambda error: error.code in codes)
