"""Rendered prompt of a request that is priced, made by the installed model's own tokenizer and chat template.

transformers, which takes seconds to import, is needed once for each wording: the result is stored beside the models,
and used as long as the model's settings, the libraries and almoner's code are the same. Nobody gains by changing that
file: a run renders the prompt again and compares (`flows.releases.execute`).
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from models_db.values.canonical_json import Json, digest
from tasks.common.code_version import code_digest
from tasks.inference.catalogue import model_store
from tasks.inference.catalogue.registry import find
from tasks.inference.loading.check_model import checks_file, state_of
from tasks.inference.prompts.prompt_spec import PromptSpec
from tasks.inference.prompts.rendered import RenderedPrompt

MOST_STORED: Final = 200
"""Wordings of a model whose result is stored; the oldest is forgotten first."""


def check_prompt(name: str, spec: PromptSpec, shown: Sequence[str]) -> RenderedPrompt:
    """Return the rendered prompt of a request for a pulled model; arguments and errors as `RenderedPrompt.of`."""
    file, key = checks_file(name, "prompts.json"), digest({**_fields(spec), "shown": list(shown)})
    stored = _stored(file)
    if (rendered := _parsed(stored.get(key))) is not None:
        return rendered
    from tasks.inference.loading.loading import located, read_tokenizer

    folder = located(find(name))[0]
    tokenizer = read_tokenizer(folder)
    rendered = RenderedPrompt.of(tokenizer, spec, shown)
    kept = dict([*stored.items(), (key, asdict(rendered))][-MOST_STORED:])
    model_store.write_text(file, json.dumps({**_state(folder), "prompts": kept}, indent=2))
    return rendered


def _fields(spec: PromptSpec) -> dict[str, Json]:
    return {**asdict(spec), "examples": list(spec.examples)}


def _state(folder: Path) -> dict[str, Json]:
    return {**state_of(folder), "code": code_digest()}


def _stored(file: Path) -> dict[str, Any]:
    """Return the stored results by wording; none if something that they depend on has changed."""
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        if any(stored[part] != value for part, value in _state(Path(stored["folder"])).items()):
            return {}
        return dict(stored["prompts"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def _parsed(stored: Any) -> RenderedPrompt | None:
    try:
        rendered = RenderedPrompt(str(stored["sha256"]), int(stored["tokens"]))
    except (KeyError, TypeError, ValueError):
        return None
    return rendered
