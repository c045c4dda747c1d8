"""Check of a language model: support by the engine, prompting, and requirements (`almoner models check`).

It is made when a model is pulled, before its weights are fetched, and again when a request is priced, so that nobody
approves what cannot run. Its config.json and a network of its shape without weights decide (`require_supported`), and
its chat template. That takes seconds, because transformers has to be imported. So the result is stored beside the
models, and used as long as the model's settings, the libraries and the processor are the same. Nobody gains by changing
that file: a model is checked again when it is loaded.

Nothing in this module imports torch before a model has to be looked at.
"""

import hashlib
import json
import os
import platform
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from models_db.errors import AlmonerError
from models_db.values.canonical_json import Json
from tasks.common.extras import GenerationMissing, require_generation
from tasks.inference.catalogue import model_store
from tasks.inference.catalogue.local_models import LocalModel
from tasks.inference.catalogue.model_check import ModelCheck
from tasks.inference.catalogue.model_store import UnreadableModel
from tasks.inference.catalogue.registry import ListedModel, ModelKindMismatch, UnsupportedModel, find
from tasks.inference.prompts.render import NoChatTemplate

CODE: Final = 8
"""Raised whenever a model is refused, taken or described in another way than before."""


def require_usable(name: str) -> ModelCheck:
    """Return the check of a pulled language model that the engine can read; its chat template is the request's concern.

    Raises:
        GenerationMissing: the packages that look at a model are not installed.
        UnsupportedModel: the network that its config.json describes is not one that the engine reads.
        UnreadableModel: it has no configuration that transformers understands.
        ModelNotPulled: it is not on this machine.
    """
    check = check_model(name)
    require_supported_in(check)
    return check


def require_conversation(check: ModelCheck) -> None:
    """Raise NoChatTemplate if the model cannot be asked in a conversation."""
    if check.template_problem:
        raise NoChatTemplate(check.name, check.template_problem)


def require_supported_in(check: ModelCheck) -> None:
    """Raise UnsupportedModel if the engine cannot read the model."""
    if check.problem:
        raise UnsupportedModel(check.name, check.problem)


def check_model(name: str) -> ModelCheck:
    """Return the check of a pulled language model, the stored one where nothing has changed since.

    Raises:
        GenerationMissing: the packages that look at a model are not installed.
        UnknownModel, NoRevision, ModelKindMismatch, ModelNotPulled, UnreadableModel.
    """
    require_generation()
    if (stored := stored_check(name)) is not None:
        return stored
    from tasks.inference.loading.loading import located

    folder = located(find(name))[0]
    if model_store.is_embedder(folder):
        raise ModelKindMismatch(name, "causal_lm")
    return check_folder(name, folder)


@dataclass(frozen=True)
class Usability:
    """Whether a listed model can be used, whether it fits into this machine's memory, and a line about both.

    It counts as usable while it is not here.
    """

    usable: bool
    line: str
    fits: bool = True


def usability_of(model: ListedModel) -> Usability:
    """Return whether a listed model can be used here; never an error, so that one bad model hides no other.

    A model that is here and has no stored check is checked now, which takes seconds.
    """
    try:
        known = find(model.name)
        if isinstance(known, LocalModel) and not model.installed:
            return Usability(False, f"not usable: its folder {known.folder} is not there")
        if not model.installed:
            return Usability(True, "not checked")
        check = check_model(model.name)
    except ModelKindMismatch:
        return Usability(True, "for metrics")
    except GenerationMissing:
        return Usability(True, "not checked: this machine has no packages that read models")
    except AlmonerError as error:
        return Usability(False, f"not usable: {error.message}")
    return Usability(check.usable, check.verdict, fits=check.fits_here)


def check_folder(name: str, folder: Path) -> ModelCheck:
    """Check a model whose settings are in `folder`, with weights or without; the result is stored where it can be.

    Raises:
        UnreadableModel: there is no configuration that transformers understands.
    """
    from tasks.inference.loading.describe_model import describe_model

    with model_store.open_settings(name, folder) as view:
        check = describe_model(name, view)
    stored = {**state_of(name, folder), "check": check.model_dump(mode="json")}
    with suppress(OSError):  # a folder of models that others may only read
        model_store.write_text(checks_file(name, "json"), json.dumps(stored, indent=2))
    return check


def stored_check(name: str) -> ModelCheck | None:
    """Return the stored result; None if there is none, or where what it depends on has changed or is absent."""
    try:
        stored = json.loads(checks_file(name, "json").read_text(encoding="utf-8"))
        if any(stored[part] != value for part, value in state_of(name, Path(stored["folder"])).items()):
            return None
        return ModelCheck.model_validate(stored["check"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError, PackageNotFoundError, UnreadableModel):
        return None


def state_of(name: str, folder: Path) -> dict[str, Json]:
    """Return the facts on which a stored result depends.

    Raises:
        UnreadableModel.
    """
    return {
        "folder": str(folder),
        "files": model_store.stamps_of(folder, model_store.files_of(name, folder)),
        "libraries": [version("transformers"), version("torch")],
        "processor": _processor(),
        "code": CODE,
    }


def _processor() -> str:
    """Return a digest of the facts that decide the possible precisions: machines may share a folder of models."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        instructions = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        instructions = platform.processor()
    accelerator = Path("/dev/nvidiactl").exists()
    settings = [os.environ.get(name, "") for name in ("ONEDNN_MAX_CPU_ISA", "CUDA_VISIBLE_DEVICES")]
    return hashlib.sha256(json.dumps([instructions, accelerator, *settings]).encode()).hexdigest()


def checks_file(name: str, kind: str) -> Path:
    """Return the file of that kind in which results about a model are stored."""
    return model_store.models_folder() / ".checks" / f"{name.replace('/', '--')}.{kind}"
