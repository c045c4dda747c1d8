"""Fixtures that tests of several folders use."""

from tests.unit.tasks.generation.fixtures import corpus, one_thread
from tests.unit.tasks.inference.fixtures import real, snapshot, tiny
from tests.unit.tasks.publishing.fixtures import folder, key, make_release, new_key, published, release

__all__ = [
    "corpus",
    "folder",
    "key",
    "make_release",
    "new_key",
    "one_thread",
    "published",
    "real",
    "release",
    "snapshot",
    "tiny",
]
