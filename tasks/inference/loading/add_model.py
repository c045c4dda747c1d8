"""Adding models from this machine: a folder of safetensors, a GGUF file, and either with a LoRA adapter merged."""

import shutil
from dataclasses import replace
from pathlib import Path

from models_db.errors import UsageError
from models_db.values.untrusted_text import require_plain_name
from tasks.common.files import require_user_file
from tasks.common.progress import Reporter, ignore, step
from tasks.inference.catalogue import model_store, registry
from tasks.inference.catalogue.model_check import ModelCheck
from tasks.inference.catalogue.model_store import require_disk
from tasks.inference.catalogue.registry import (
    LOCAL_REVISION,
    LocalModel,
    MergedParts,
    find_local,
    forget_local,
    write_local,
)
from tasks.inference.loading.check_model import check_folder, require_supported_in


def _not_a_model(path: Path, reason: str) -> UsageError:
    return UsageError(
        f"{path} is not a usable model: {reason}.",
        "Give a folder with config.json, a tokenizer and *.safetensors, or a .gguf file.",
        {"path": str(path)},
        code="NotAModel",
    )


def add_model(
    name: str, path: Path, licence: str, adapter: Path | None = None, report: Reporter = ignore
) -> ModelCheck:
    """Add a model, so that requests can name it; return its check.

    A folder stays where it is. Of a GGUF file, or with an adapter, a folder in the home of models is made.

    Args:
        name: a plain name that no model has.
        adapter: a folder of PEFT's, whose LoRA weights are added to the model's.
        report: called when a step begins and when it is done.

    Raises:
        InvalidPlainName, ModelExists, NotAModel, AdapterUnfit: the request is wrong.
        UnsupportedModel, UnreadableModel, NoSafetensors: the engine cannot read it.
        ModelDiskFull: the disk has no room for the folder that is made.
        ModelChanged: files of the model or the adapter changed while they were merged.
    """
    require_plain_name("a model", name)
    with model_store.pull_lock(name):
        _require_free(name)
        folder = path.expanduser().absolute()
        _require_model(folder)
        model = LocalModel(name, folder, licence, str(folder))
        if folder.suffix == ".gguf" or adapter is not None:
            adapter = None if adapter is None else adapter.expanduser().absolute()
            origin = str(folder) if adapter is None else f"{folder} with {adapter}"
            parts = None if adapter is None else _digests(name, folder, adapter, report)
            made = _make_folder(name, folder, adapter, report)
            if parts is not None and adapter is not None:
                _require_unchanged(name, parts, _digests(name, folder, adapter, report), made)
            model = replace(model, folder=made, origin=origin, parts=parts)
        try:
            with step(report, "checking the model"):
                check = check_folder(name, model.folder)
                require_supported_in(check)
            with step(report, "computing the digest of its files"):
                model_store.model_digest(name, model.folder, model.record)
        except BaseException:
            _remove_made(model)
            raise
        write_local(model)
    return check


def remove_model(name: str) -> LocalModel:
    """Forget a model that was added; a folder that almoner made for it is deleted, any other stays.

    Raises:
        ModelNotAdded.
    """
    with model_store.pull_lock(name):
        model = find_local(name)
        if model is None:
            raise UsageError(
                f"No model {name!r} was added from a folder.",
                "See `almoner models list`.",
                {"model": name},
                code="ModelNotAdded",
            )
        _remove_made(model)
    return model


def _remove_made(model: LocalModel) -> None:
    forget_local(model)
    if model.folder == _made_folder(model.name):
        shutil.rmtree(model.folder, ignore_errors=True)


def _require_free(name: str) -> None:
    if find_local(name) is not None or any(spec.name == name for spec in registry.REGISTRY):
        raise UsageError(
            f"There is a model {name!r} already.",
            "Choose another name; `almoner models list` shows those in use.",
            {"model": name},
            code="ModelExists",
        )


def _require_model(path: Path) -> None:
    if path.is_file():
        if path.suffix != ".gguf":
            raise _not_a_model(path, "it is a file, and no .gguf")
        return
    if not path.is_dir():
        raise _not_a_model(path, "it is not there" if not path.exists() else "it is neither a file nor a folder")
    if not (path / "config.json").is_file():
        raise _not_a_model(path, "it has no config.json")
    for file in filter(Path.exists, path.rglob("*")):
        try:
            require_user_file(file)
        except OSError as problem:
            raise _not_a_model(path, f"of {file.name}, {problem.strerror}") from None
    if not any(path.glob("*.safetensors")):
        other = next((file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in path.glob(pattern)), None)
        raise _not_a_model(path, f"{other} can run code when it is read" if other else "it has no *.safetensors")


def _digests(name: str, source: Path, adapter: Path, report: Reporter) -> MergedParts:
    """Return the digests of the base, of a GGUF file that of the file itself, and of the adapter's two files.

    Raises:
        NoSafetensors, AdapterUnfit.
    """
    from tasks.inference.loading.merge_adapter import adapter_digest

    with step(report, "computing the digests of model and adapter"):
        base = model_store.file_sha256(source) if source.is_file() else model_store.folder_digest(name, source)
        return MergedParts(base, adapter_digest(adapter))


def _require_unchanged(name: str, before: MergedParts, after: MergedParts, made: Path) -> None:
    """Raise ModelChanged, and remove the result, if a file changed while it was merged."""
    for one, other in ((before.base, after.base), (before.adapter, after.adapter)):
        if one != other:
            shutil.rmtree(made)
            raise model_store.model_changed(name, one, other)


def _made_folder(name: str) -> Path:
    return model_store.model_folder(name, LOCAL_REVISION)


def _make_folder(name: str, source: Path, adapter: Path | None, report: Reporter) -> Path:
    """Make the folder of a model from a GGUF file or with an adapter; nothing is left of one that fails."""
    target = _made_folder(name)
    shutil.rmtree(target, ignore_errors=True)  # of one that was killed before its record
    copied = 0 if source.is_file() else sum(file.stat().st_size for file in source.glob("*.safetensors"))
    with model_store.scratch_folder(name) as scratch, require_disk(name, target.parent, copied):
        folder = source
        if source.suffix == ".gguf":
            from tasks.inference.loading.download import unpack_gguf

            with step(report, "unpacking the weights"):
                folder = unpack_gguf(source, scratch / "unpacked")
        if adapter is not None:
            from tasks.inference.loading.merge_adapter import merge_adapter

            with (
                step(report, "adding the adapter to the weights"),
                model_store.describe_failures(name),
                model_store.open_settings(name, folder) as view,
            ):
                folder = merge_adapter(view, adapter, scratch / "merged")
        folder.rename(target)
    return target
