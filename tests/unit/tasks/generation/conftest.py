"""A small corpus for systems to read."""

import pytest

from models_db.home import ProjectHome
from tasks.corpus.store import Corpus
from tests.unit.tasks.generation.workshop import NOTES, store


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """The demo corpus, cut to twelve patients."""
    folder = tmp_path_factory.mktemp("generation")
    return store(ProjectHome(folder / "home"), folder / "notes.jsonl", NOTES)
