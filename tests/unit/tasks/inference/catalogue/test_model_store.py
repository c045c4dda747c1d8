"""The folder of models and the digests of what is in it."""

import hashlib
import json
import os
import threading
from pathlib import Path

import pytest

from tasks.inference.catalogue import model_store
from tasks.inference.catalogue.model_store import NoSafetensors, WeightsChanged, pull_lock, weights_digest
from tests.support import PATIENCE


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ALMONER_MODELS", str(tmp_path))
    return tmp_path


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_the_folder_is_a_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert model_store.models_folder() == tmp_path
    monkeypatch.delenv("ALMONER_MODELS")
    assert model_store.models_folder() == Path.home() / ".cache/almoner/models"


def test_one_file_has_its_own_digest(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    assert weights_digest("m", tmp_path, tmp_path / "digest.json") == sha256(b"weights")
    assert model_store.recorded_digest(tmp_path / "digest.json") == sha256(b"weights")


def test_several_files_have_the_digest_of_their_listing(tmp_path: Path) -> None:
    (tmp_path / "b.safetensors").write_bytes(b"two")
    (tmp_path / "a.safetensors").write_bytes(b"one")
    listing = f"{sha256(b'one')}  a.safetensors\n{sha256(b'two')}  b.safetensors\n"
    assert weights_digest("m", tmp_path, tmp_path / "digest.json") == sha256(listing.encode())


def test_the_record_saves_the_work_while_the_file_is_untouched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    digest = weights_digest("m", tmp_path, tmp_path / "digest.json")
    with monkeypatch.context() as patch:
        patch.setattr(model_store, "file_sha256", lambda path: pytest.fail("computed again"))
        assert weights_digest("m", tmp_path, tmp_path / "digest.json") == digest
    os.utime(tmp_path / "model.safetensors", (1, 1))
    assert weights_digest("m", tmp_path, tmp_path / "digest.json") == digest
    assert json.loads((tmp_path / "digest.json").read_text())["files"] == {"model.safetensors": [7, 10**9]}


def test_changed_weights_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    weights_digest("m", tmp_path, tmp_path / "digest.json")
    before = (tmp_path / "digest.json").read_text()
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    with pytest.raises(WeightsChanged) as problem:
        weights_digest("m", tmp_path, tmp_path / "digest.json")
    assert problem.value.exit_code == 3
    assert problem.value.facts["found"] == sha256(b"other weights")
    assert (tmp_path / "digest.json").read_text() == before
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "more.safetensors").write_bytes(b"")
    with pytest.raises(WeightsChanged):
        weights_digest("m", tmp_path, tmp_path / "digest.json")


def test_other_formats_are_not_weights(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"a pickle")
    with pytest.raises(NoSafetensors):
        weights_digest("m", tmp_path, tmp_path / "digest.json")


def test_only_one_holds_the_lock() -> None:
    inside, waited = threading.Event(), threading.Event()

    def second() -> None:
        with pull_lock("m"):
            waited.set()

    with pull_lock("m"):
        thread = threading.Thread(target=second)
        thread.start()
        with pull_lock("another"):
            inside.set()
        assert not waited.wait(0.2)
    thread.join(PATIENCE)
    assert waited.is_set()
