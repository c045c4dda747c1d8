"""Systems: texts end with their last draw, but where a test is about the tokens behind it."""

import pytest

from tasks.planning import shared_parameters


@pytest.fixture(autouse=True)
def completion_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """No public token finishes a sentence."""
    monkeypatch.setattr(shared_parameters, "COMPLETION_TOKENS", 0)
