"""A small corpus for systems to read."""

from collections.abc import Iterator

import pytest
import torch

from models_db.home import ProjectHome
from tasks.corpus.store import Corpus
from tests.unit.tasks.systems.workshop import NOTES, store


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """The demo corpus, cut to twelve patients."""
    folder = tmp_path_factory.mktemp("generation")
    return store(ProjectHome(folder / "home"), folder / "notes.jsonl", NOTES)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """So little work is not worth sharing out, and on a busy machine the threads would wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
