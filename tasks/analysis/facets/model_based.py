"""Facets by the language model: each text is asked about by itself, and the answer is a JSON object by construction.

After URANIA, appendix G.1; the words are ours. What stands before the text is one for all texts, and is read once.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from models_db.values.canonical_json import digest
from tasks.analysis.facets.constrained_completion import complete_constrained
from tasks.analysis.facets.normal_form import no_facets, tidy_facets
from tasks.analysis.facets.parameters import FacetExample, FacetField, FacetSettings
from tasks.common.progress import Progress
from tasks.inference.engine.engine import Engine
from tasks.inference.prompts.prompt_spec import PromptSpec
from tasks.inference.prompts.render import PromptPieces, private_prompt
from tasks.inference.structured_output.greedy_decoding import Grammar
from tasks.values.insight import Facets

CODE = 1
"""Raised whenever this module, or what it stands on, finds other facets than before: it is part of the name."""

SYSTEM = "You read texts and note their facets as one JSON object. You note only what the text itself says."
ASK = """Note the facets of each text:
{fields}

{examples}Text: {{reference}}
Facets:"""


@dataclass(frozen=True, eq=False)
class ModelExtractor:
    """An `Extractor` by the model.

    Attributes:
        prompt: what stands around each text.
        grammar: what the answers are held to.
    """

    settings: FacetSettings
    engine: Engine
    prompt: PromptPieces
    grammar: Grammar
    progress: Progress

    @classmethod
    def of(cls, settings: FacetSettings, engine: Engine, progress: Progress) -> "ModelExtractor":
        """The extractor; arguments and errors as `extractor_for`."""
        grammar = Grammar.of_schema(settings.json_schema, engine.model, settings.max_new_tokens)
        prompt = private_prompt(engine.model.tokenizer, _wording(settings))
        made = cls(settings, engine, prompt, grammar, progress)
        made([])  # whatever does not fit the model is refused now
        return made

    @property
    def name(self) -> str:
        """Weights, prompt and settings; the prompt's tokens also tell of the tokenizer and of the model's template."""
        model = self.engine.model
        asked = digest([list(self.prompt.prefix), list(self.prompt.suffix)])
        return (
            f"model {model.digest} {model.precision} on {model.device.type}, code {CODE}, prompt {asked},"
            f" settings {self.settings.digest}"
        )

    def __call__(self, texts: Sequence[str]) -> list[Facets]:
        """One for each text."""
        asked = self.settings
        answers = complete_constrained(
            self.engine,
            self.prompt,
            texts,
            self.grammar,
            asked.max_text_tokens,
            self.progress,
            contrast=float(asked.contrast),
        )
        return [facets_in(self.settings.fields, answer) for answer in answers]


def facets_in(fields: Sequence[FacetField], answer: str | None) -> Facets:
    """What an answer says; empty facets if it says nothing, is no JSON, or is not of the schema."""
    try:
        read = json.loads(answer or "")
    except (ValueError, RecursionError):
        return no_facets(fields)
    if not isinstance(read, Mapping) or not all(_fits(field, read.get(field.name)) for field in fields):
        return no_facets(fields)
    return tidy_facets(fields, {field.name: _several(read[field.name]) for field in fields})


def _several(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _fits(field: FacetField, value: object) -> bool:
    if field.kind == "text":
        return isinstance(value, str)
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _wording(settings: FacetSettings) -> PromptSpec:
    """What the model is told. Braces in it are plain characters; only the place of the text is one."""
    fields = "\n".join(f"- {field.name}: {field.about}" for field in settings.fields)
    examples = "".join(f"Text: {each.text}\nFacets: {_noted(settings, each)}\n\n" for each in settings.examples)
    return PromptSpec("facets", system=SYSTEM, private=ASK.format(fields=_plain(fields), examples=_plain(examples)))


def _noted(settings: FacetSettings, example: FacetExample) -> str:
    """The answer to an example, in the order and the form of all answers."""
    known = {field.name: example.facets[field.name] for field in settings.fields if field.name in example.facets}
    noted = {name: " ".join(said) if settings.field[name].kind == "text" else said for name, said in known.items()}
    return json.dumps(noted, ensure_ascii=False)


def _plain(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
