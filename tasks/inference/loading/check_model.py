"""Checks of a language model and of a request by its tokenizer, whose results are stored beside the models.

A model: support by the engine, prompting, and requirements (`almoner models check`). It is checked when it is pulled,
before its weights are fetched, and again when a request is priced, so that nobody approves what cannot run. Its
config.json and a network of its shape without weights decide (`require_supported`), and its chat template.

A priced request: its rendered prompt, and the grammar of its texts, once for each wording and each grammar.

All that takes seconds, because transformers has to be imported. So a result is used as long as the model's settings,
the libraries, and the processor or almoner's code are the same. Nobody gains by changing these files: a model is
checked again when it is loaded, and a run renders the prompt again and compares (`flows.releases.execute`), and checks
the grammar.

Nothing in this module imports torch before a model has to be looked at.
"""

import hashlib
import json
import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from models_db.errors import AlmonerError
from models_db.values.canonical_json import Json, digest
from models_db.values.requests import model_to_json
from tasks.common.extensions import code_digest
from tasks.common.extras import GenerationMissing, require_generation
from tasks.inference.catalogue import model_store
from tasks.inference.catalogue.model_check import ModelCheck
from tasks.inference.catalogue.model_store import UnreadableModel
from tasks.inference.catalogue.registry import ListedModel, LocalModel, ModelKindMismatch, UnsupportedModel, find
from tasks.inference.prompt_rendering import NoChatTemplate, RenderedPrompt
from tasks.inference.prompt_spec import PromptSpec
from tasks.inference.structured_output.form import has_grammar

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
    from tasks.inference.loading.load_model import located

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
    from tasks.inference.loading.load_model import describe_model

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


MOST_STORED: Final = 200
"""Wordings, or grammars, of a model whose result is stored; the oldest is forgotten first."""
_OF_GRAMMARS: Final = ("json_schema", "form", "slot_tokens", "max_new_tokens")
"""Parameters that decide whether a model can write texts of a grammar."""


def check_prompt(name: str, spec: PromptSpec, shown: Sequence[str]) -> RenderedPrompt:
    """Return the rendered prompt of a request for a pulled model; arguments and errors as `RenderedPrompt.of`."""
    results, key = StoredResults.of(name, "prompts"), digest({**_fields(spec), "shown": list(shown)})
    if (rendered := _parsed(results.found.get(key))) is not None:
        return rendered
    from tasks.inference.loading.load_model import located, read_tokenizer

    folder = located(find(name))[0]
    with model_store.open_settings(name, folder) as view:
        rendered = RenderedPrompt.of(read_tokenizer(name, view), spec, shown)
    results.store(folder, key, asdict(rendered))
    return rendered


def check_grammar(name: str, settings: BaseModel) -> None:
    """Refuse parameters whose schema or form a pulled model cannot follow in so many tokens.

    Raises:
        FormAndSchema, TokenizerNotSupported, EndTokenMissing, TokenLimitTooSmall, FormNotWritable, FormTooLong: as
            `tasks.inference.structured_output.grammar_constraint.constraint_for`.
    """
    if not has_grammar(settings):
        return
    written = {part: model_to_json(getattr(settings, part, None)) for part in _OF_GRAMMARS}
    results, key = StoredResults.of(name, "grammars"), digest(written)
    if results.found.get(key) is True:
        return
    from tasks.inference.loading.load_model import located, read_tokens
    from tasks.inference.structured_output.grammar_constraint import constraint_for

    folder = located(find(name))[0]
    limit: int = settings.max_new_tokens  # type: ignore[attr-defined]  # whatever has a grammar has a limit
    with model_store.open_settings(name, folder) as view:
        constraint_for(settings, read_tokens(name, view), limit)
    results.store(folder, key, True)


@dataclass(frozen=True)
class StoredResults:
    """Results of one kind about a model; none if something that they depend on has changed."""

    name: str
    file: Path
    found: dict[str, Any]

    @classmethod
    def of(cls, name: str, kind: str) -> "StoredResults":
        """Return the stored results of a model."""
        file = checks_file(name, f"{kind}.json")
        try:
            stored = json.loads(file.read_text(encoding="utf-8"))
            if any(stored[part] != value for part, value in _state(name, Path(stored["folder"])).items()):
                return cls(name, file, {})
            return cls(name, file, dict(stored["results"]))
        except (OSError, ValueError, KeyError, TypeError, RecursionError, UnreadableModel):
            return cls(name, file, {})

    def store(self, folder: Path, key: str, result: Json) -> None:
        """Store a further result about the model in `folder`."""
        kept = dict([*self.found.items(), (key, result)][-MOST_STORED:])
        model_store.write_text(self.file, json.dumps({**_state(self.name, folder), "results": kept}, indent=2))


def _fields(spec: PromptSpec) -> dict[str, Json]:
    return {**asdict(spec), "examples": list(spec.examples)}


def _state(name: str, folder: Path) -> dict[str, Json]:
    return {**state_of(name, folder), "code": code_digest()}


def _parsed(stored: Any) -> RenderedPrompt | None:
    try:
        rendered = RenderedPrompt(str(stored["sha256"]), int(stored["tokens"]))
    except (KeyError, TypeError, ValueError):
        return None
    return rendered
