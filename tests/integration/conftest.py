"""Project homes on both backends, worked by a tiny model."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import tasks.evaluate
from tests import tiny_model
from tests.conftest import PostgreSQL
from tests.integration.story import Almoner
from tests.tiny_embedder import Letters


@pytest.fixture
def real_almoner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Almoner]:
    """A home that `almoner init` has not made yet, with the models of this machine."""
    made = Almoner(tmp_path)
    monkeypatch.setenv("ALMONER_HOME", str(made.home.root))
    # On a busy machine two threads spend their time waiting for each other: 154 s instead of 8 were measured.
    monkeypatch.setenv("ALMONER_THREADS", "1")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield made
    torch.set_num_threads(threads)


@pytest.fixture
def almoner(real_almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> Almoner:
    """The same with a tiny model and a tiny embedder, its ledger on SQLite."""
    tiny_model.install(monkeypatch)
    monkeypatch.setattr(tasks.evaluate, "load_embedder", lambda **_: Letters())
    return real_almoner


@pytest.fixture
def team_almoner(almoner: Almoner, postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch) -> Iterator[Almoner]:
    """The same with its ledger on PostgreSQL."""
    database = postgresql.create(f"story_{abs(hash(almoner.folder))}")
    monkeypatch.setenv("ALMONER_DATABASE_URL", database.url)
    yield almoner
    postgresql.drop(database)


@pytest.fixture
def any_almoner(backend: str, request: pytest.FixtureRequest) -> Almoner:
    """Once on each backend."""
    made = request.getfixturevalue({"sqlite": "almoner", "postgresql": "team_almoner"}[backend])
    assert isinstance(made, Almoner)
    return made
