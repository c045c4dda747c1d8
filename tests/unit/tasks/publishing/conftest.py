"""Releases on disk, ready to be published."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tasks.publishing.signing import SigningKey
from tests.unit.tasks.publishing.builders import Release, a_release


@pytest.fixture
def new_key(tmp_path: Path) -> Callable[[str], SigningKey]:
    return lambda name: SigningKey.create(tmp_path / f"{name}.pem")


@pytest.fixture
def make_release(tmp_path: Path) -> Callable[..., Release]:
    return partial(a_release, tmp_path)


@pytest.fixture
def release(make_release: Callable[..., Release]) -> Release:
    return make_release()
