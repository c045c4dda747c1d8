"""The tiny model behind a real server on loopback."""

from collections.abc import Iterator

import pytest

from tests.support_backend import ModelServer


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as made:
        yield made
