"""Facet extraction by the language model: one prompt per text, answered by a JSON object by construction.

After URANIA, appendix G.1; the wording is ours. The prompt before the text is the same for all texts and read once.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from models_db.values.canonical_json import digest
from tasks.analysis.facets.constrained_completion import complete_constrained
from tasks.analysis.facets.facet_settings import FacetExample, FacetField, FacetSettings
from tasks.analysis.facets.rule_based import no_facets, tidy_facets
from tasks.common.progress import Progress
from tasks.inference.engine.engine import Engine
from tasks.inference.prompt_rendering import PromptPieces, private_prompt
from tasks.inference.prompt_spec import PromptSpec, escape_braces
from tasks.inference.structured_output.grammar_constraint import GrammarConstraint
from tasks.values.results import Facets

CODE = 1
"""Version, increased whenever this module or its dependencies extract other facets; a part of the name."""

SYSTEM = "You read texts and note their facets as one JSON object. You note only what the text itself says."
ASK = """Note the facets of each text:
{fields}

{examples}Text: {{reference}}
Facets:"""


@dataclass(frozen=True, eq=False)
class ModelExtractor:
    """An `Extractor` by the model.

    Attributes:
        prompt: the tokens around each text.
        grammar: of the answers.
    """

    settings: FacetSettings
    engine: Engine
    prompt: PromptPieces
    grammar: GrammarConstraint
    progress: Progress

    @classmethod
    def of(cls, settings: FacetSettings, engine: Engine, progress: Progress) -> "ModelExtractor":
        """Build the extractor; arguments and errors as `extractor_for`."""
        grammar = GrammarConstraint.of_schema(settings.json_schema, engine.model, settings.max_new_tokens)
        prompt = private_prompt(engine.model.tokenizer, _wording(settings))
        extractor = cls(settings, engine, prompt, grammar, progress)
        extractor([])  # a prompt that does not fit the model is refused now
        return extractor

    @property
    def name(self) -> str:
        """Digests of weights, prompt and settings; the prompt's tokens also cover tokenizer and chat template."""
        model = self.engine.model
        prompt_digest = digest([list(self.prompt.prefix), list(self.prompt.suffix)])
        return (
            f"model {model.digest} {model.precision} on {model.device.type}, code {CODE}, prompt {prompt_digest},"
            f" settings {self.settings.digest}"
        )

    def __call__(self, texts: Sequence[str]) -> list[Facets]:
        """Return the facets of each text."""
        settings = self.settings
        answers = complete_constrained(
            self.engine,
            self.prompt,
            texts,
            self.grammar,
            settings.max_text_tokens,
            self.progress,
            contrast=float(settings.contrast),
        )
        return [facets_in(self.settings.fields, answer) for answer in answers]


def facets_in(fields: Sequence[FacetField], answer: str | None) -> Facets:
    """Parse an answer; empty facets if there is none, or if it is not JSON of the schema."""
    try:
        record = json.loads(answer or "")
    except (ValueError, RecursionError):
        return no_facets(fields)
    if not isinstance(record, Mapping) or not all(_fits(field, record.get(field.name)) for field in fields):
        return no_facets(fields)
    return tidy_facets(fields, {field.name: _several(record[field.name]) for field in fields})


def _several(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _fits(field: FacetField, value: object) -> bool:
    if field.kind == "text":
        return isinstance(value, str)
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _wording(settings: FacetSettings) -> PromptSpec:
    """Return the prompt, with braces escaped except those of the text's placeholder."""
    fields = "\n".join(f"- {field.name}: {field.about}" for field in settings.fields)
    examples = "".join(
        f"Text: {example.text}\nFacets: {_noted(settings, example)}\n\n" for example in settings.examples
    )
    return PromptSpec(
        "facets", system=SYSTEM, private=ASK.format(fields=escape_braces(fields), examples=escape_braces(examples))
    )


def _noted(settings: FacetSettings, example: FacetExample) -> str:
    """Return the answer to an example, in the order and the form of all answers."""
    phrases_by_field = {
        field.name: example.facets[field.name] for field in settings.fields if field.name in example.facets
    }
    answer = {
        name: " ".join(phrases) if settings.field[name].kind == "text" else phrases
        for name, phrases in phrases_by_field.items()
    }
    return json.dumps(answer, ensure_ascii=False)
