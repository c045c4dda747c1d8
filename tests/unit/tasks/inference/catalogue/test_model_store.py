"""The folder of models and the digests of what is in it."""

import hashlib
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tasks.inference.catalogue import model_store
from tasks.inference.catalogue.model_store import model_digest, pull_lock
from tests.refusals import refusal
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
    assert model_digest("m", tmp_path, tmp_path / "digest.json") == sha256(b"weights")
    assert model_store.recorded_digest(tmp_path / "digest.json") == sha256(b"weights")


def test_several_files_have_the_digest_of_their_listing(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"two")
    (tmp_path / "config.json").write_bytes(b"one")
    listing = f"{sha256(b'one')}  config.json\n{sha256(b'two')}  model.safetensors\n"
    assert model_digest("m", tmp_path, tmp_path / "digest.json") == sha256(listing.encode())


def test_the_record_saves_the_work_while_the_file_is_untouched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    digest = model_digest("m", tmp_path, tmp_path / "digest.json")
    with monkeypatch.context() as patch:
        patch.setattr(model_store, "file_sha256", lambda path: pytest.fail("computed again"))
        assert model_digest("m", tmp_path, tmp_path / "digest.json") == digest
    os.utime(tmp_path / "model.safetensors", (1, 1))
    assert model_digest("m", tmp_path, tmp_path / "digest.json") == digest
    assert json.loads((tmp_path / "digest.json").read_text())["files"]["model.safetensors"][:2] == [7, 10**9]


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"{}", b"\xff", b"[" * 100_000], ids=range(6))
def test_a_damaged_record_counts_as_none(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    record = tmp_path / "digest.json"
    record.write_bytes(damage)
    assert model_store.recorded_digest(record) is None
    assert model_digest("m", tmp_path, record) == sha256(b"weights")
    assert model_store.recorded_digest(record) == sha256(b"weights")


@pytest.mark.parametrize("changed", ["modules.json", "sentence_bert_config.json", "1_Pooling/config.json"])
def test_another_way_of_pooling_is_noticed(tmp_path: Path, changed: str) -> None:
    (tmp_path / "1_Pooling").mkdir()
    for name in ("model.safetensors", "modules.json", "sentence_bert_config.json", "1_Pooling/config.json"):
        (tmp_path / name).write_bytes(b"{}")
    model_digest("m", tmp_path, tmp_path / "digest.json")
    (tmp_path / changed).write_bytes(b"{ }")
    with refusal("ModelChanged"):
        model_digest("m", tmp_path, tmp_path / "digest.json")


def test_changed_weights_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    model_digest("m", tmp_path, tmp_path / "digest.json")
    before = (tmp_path / "digest.json").read_text()
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    with refusal("ModelChanged") as problem:
        model_digest("m", tmp_path, tmp_path / "digest.json")
    assert problem.value.exit_code == 3
    assert problem.value.facts["found"] == sha256(b"other weights")
    assert (tmp_path / "digest.json").read_text() == before
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "tokenizer.json").write_bytes(b"")
    with refusal("ModelChanged"):
        model_digest("m", tmp_path, tmp_path / "digest.json")


def test_other_formats_are_not_weights(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"a pickle")
    with refusal("NoSafetensors"):
        model_digest("m", tmp_path, tmp_path / "digest.json")


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


@pytest.mark.parametrize(
    "setting",
    ["config.json", "generation_config.json", "tokenizer.json", "tokenizer.model", "merges.txt", "chat_template.jinja",
     "additional_chat_templates/tool_use.jinja"],
)  # fmt: skip
def test_every_file_that_decides_what_a_model_reads_is_in_its_digest(tmp_path: Path, setting: str) -> None:
    record = tmp_path / "digest.json"
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / setting).parent.mkdir(exist_ok=True)
    (tmp_path / setting).write_text("one")
    (tmp_path / "README.md").write_text("about it")
    digest = model_digest("m", tmp_path, record)
    (tmp_path / "README.md").write_text("more about it")
    assert model_digest("m", tmp_path, record) == digest
    (tmp_path / setting).write_text("two")
    with refusal("ModelChanged"):
        model_digest("m", tmp_path, record)
    (tmp_path / setting).unlink()
    with refusal("ModelChanged"):
        model_digest("m", tmp_path, record)


def test_a_record_in_an_earlier_format_is_made_anew(tmp_path: Path) -> None:
    record = tmp_path / "digest.json"
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "config.json").write_text("{}")
    record.write_text(json.dumps({"digest": sha256(b"weights"), "files": {"model.safetensors": [7, 1]}}))
    digest = model_digest("m", tmp_path, record)
    assert json.loads(record.read_text())["digest"] == digest != sha256(b"weights")


def test_threads_write_a_record_without_meeting(models: Path) -> None:
    """Each writes a partial file of its own: one would move another's away."""
    texts = ["a" * 2000, "b" * 2000]
    with ThreadPoolExecutor(4) as threads:
        writes = [threads.submit(model_store.write_text, models / "record.json", text) for text in texts * 500]
    assert [write.exception() for write in writes if write.exception()] == []
    assert (models / "record.json").read_text() in texts
    assert [path.name for path in models.iterdir()] == ["record.json"]
