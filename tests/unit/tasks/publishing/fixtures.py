"""Releases on disk, ready to be published."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tasks.release.signatures.ed25519 import SigningKey
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


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SigningKey]:
    base = tmp_path_factory.mktemp("published")
    release = a_release(base)
    return release.publish(base / "out").folder, release.key


@pytest.fixture
def folder(published: tuple[Path, SigningKey], tmp_path: Path) -> Path:
    """A bundle to be spoiled."""
    return Path(shutil.copytree(published[0], tmp_path / "bundle"))


@pytest.fixture
def key(published: tuple[Path, SigningKey]) -> SigningKey:
    """Its publisher's."""
    return published[1]
