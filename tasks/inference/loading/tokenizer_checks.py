"""Checks of a priced request by the installed model's tokenizer: its rendered prompt, and the grammar of its texts.

transformers, which takes seconds to import, is needed once for each wording and each grammar: results are stored beside
the models, and used as long as the model's settings, the libraries and almoner's code are the same. Nobody gains by
changing these files: a run renders the prompt again and compares (`flows.releases.execute`), and checks the grammar.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from models_db.values.canonical_json import Json, digest
from models_db.values.requests import model_to_json
from tasks.common.code_version import code_digest
from tasks.inference.catalogue import model_store
from tasks.inference.catalogue.model_store import UnreadableModel
from tasks.inference.catalogue.registry import find
from tasks.inference.loading.check_model import checks_file, state_of
from tasks.inference.prompts.prompt_spec import PromptSpec
from tasks.inference.prompts.rendered import RenderedPrompt
from tasks.inference.structured_output.form_parameters import has_grammar

MOST_STORED: Final = 200
"""Wordings, or grammars, of a model whose result is stored; the oldest is forgotten first."""
_OF_GRAMMARS: Final = ("json_schema", "form", "slot_tokens", "max_new_tokens")
"""Parameters that decide whether a model can write texts of a grammar."""


def check_prompt(name: str, spec: PromptSpec, shown: Sequence[str]) -> RenderedPrompt:
    """Return the rendered prompt of a request for a pulled model; arguments and errors as `RenderedPrompt.of`."""
    results, key = StoredResults.of(name, "prompts"), digest({**_fields(spec), "shown": list(shown)})
    if (rendered := _parsed(results.found.get(key))) is not None:
        return rendered
    from tasks.inference.loading.loading import located, read_tokenizer

    folder = located(find(name))[0]
    with model_store.open_settings(name, folder) as view:
        rendered = RenderedPrompt.of(read_tokenizer(name, view), spec, shown)
    results.store(folder, key, asdict(rendered))
    return rendered


def check_grammar(name: str, settings: BaseModel) -> None:
    """Refuse parameters whose schema or form a pulled model cannot follow in so many tokens.

    Raises:
        FormAndSchema, TokenizerNotSupported, EndTokenMissing, TokenLimitTooSmall, FormNotWritable, FormTooLong: as
            `tasks.inference.structured_output.schema_constraint.constraint_for`.
    """
    if not has_grammar(settings):
        return
    written = {part: model_to_json(getattr(settings, part, None)) for part in _OF_GRAMMARS}
    results, key = StoredResults.of(name, "grammars"), digest(written)
    if results.found.get(key) is True:
        return
    from tasks.inference.loading.loading import located, read_tokens
    from tasks.inference.structured_output.schema_constraint import constraint_for

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
