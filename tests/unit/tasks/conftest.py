"""Fixtures that tests of several folders use."""

from tests.unit.tasks.inference.fixtures import real, snapshot, tiny
from tests.unit.tasks.publishing.fixtures import folder, key, make_release, new_key, published, release
from tests.unit.tasks.systems.fixtures import corpus, one_thread

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
