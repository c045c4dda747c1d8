"""Expecting an error by its code, whatever its class is."""

import pytest

from models_db.errors import AlmonerError


def refusal(code: str, match: str | None = None) -> "pytest.RaisesExc[AlmonerError]":
    """Return the context in which an error of this code has to be raised; `match` is searched in its message."""
    return pytest.RaisesExc(AlmonerError, match=match, check=lambda error: error.code == code)
