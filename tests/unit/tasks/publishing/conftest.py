"""Releases on disk, ready to be published."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from models_db.canonical import digest
from tasks.publishing.draft import write_draft
from tasks.publishing.record import ReleaseRecord
from tasks.publishing.signing import SigningKey
from tests.unit.tasks.publishing.builders import TEXTS, Release, Steward, a_record, metrics_of


@pytest.fixture
def new_key(tmp_path: Path) -> Callable[[str], SigningKey]:
    return lambda name: SigningKey.create(tmp_path / f"{name}.pem")


@pytest.fixture
def make_release(tmp_path: Path, new_key: Callable[[str], SigningKey]) -> Callable[..., Release]:
    def make(record: ReleaseRecord | None = None, texts: Sequence[str] = TEXTS) -> Release:
        found = record or a_record()
        draft = tmp_path / "draft"
        files = write_draft(draft, found, texts, metrics_of(texts, "length", "distinct"))
        sue, tom = Steward("sue", new_key("sue")), Steward("tom", new_key("tom"))
        approvals = (
            sue.decide(found, "spend", found.request_sha256),
            sue.decide(found, "publish", digest(files)),
            tom.decide(found, "publish", digest(files)),
        )
        return Release(found, draft, files, approvals, new_key("publisher"), (sue, tom))

    return make


@pytest.fixture
def release(make_release: Callable[..., Release]) -> Release:
    return make_release()
