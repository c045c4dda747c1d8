"""Structured output of a public model about released values: JSON records of a public schema, one per prompt.

Post-processing (PRIVACY §5): a prompt is made of what was released and of public words, and nothing here reads the
corpus. Keywords come from people all the same, so a prompt is text as a whole: whatever it spells is tokenised as
plain characters and no part of it is a control token (`reference_tokens`). The grammar keeps every answer to
the schema (`inference.structured_output`), whatever is asked.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from models_db.values.canonical_json import encode_canonical
from models_db.values.requests import ExactDecimal
from tasks.decoding.run_context import RunContext
from tasks.inference.prompt_rendering import PromptPieces, private_prompt, reference_tokens
from tasks.inference.prompt_spec import PromptSpec

if TYPE_CHECKING:  # pricing a request must not load torch
    from tasks.decoding.public_sampling import PublicSampling
    from tasks.inference.structured_output.grammar_constraint import GrammarConstraint

SYSTEM = "You are a careful editor who names topics. You answer in JSON."

Record = dict[str, Any]
Schema = Mapping[str, Any]
Read = TypeVar("Read")


class Write(Protocol):
    """Asks a public model."""

    def __call__(self, prompts: Sequence[str], schema: Schema) -> list[Record]:
        """Return one record of `schema` for each prompt; an empty one if the answer was cut or is not JSON."""


@dataclass(frozen=True)
class Writer:
    """A `Write` with the public model of a context.

    Attributes:
        pieces: the public tokens around a prompt.
        how: how tokens are drawn: nothing is paid for, and no draw is written down.
        constraints: of every schema that is asked for, by its canonical JSON.
    """

    context: RunContext
    pieces: PromptPieces
    how: "PublicSampling"
    constraints: Mapping[bytes, "GrammarConstraint"]

    @classmethod
    def of(
        cls,
        context: RunContext,
        schemas: Sequence[Schema],
        max_new_tokens: int,
        temperature: ExactDecimal,
        top_k: int = 20,
    ) -> "Writer":
        """Return a writer for these schemas. A schema that the model cannot write is refused here, before any spending.

        Args:
            max_new_tokens: tokens of one record, the end included.
            top_k: how many tokens may follow each token; 1 always takes the likeliest.

        Raises:
            NoChatTemplate: the model cannot be prompted.
            TokenizerNotSupported, EndTokenMissing, TokenLimitTooSmall: it cannot write such records in so many tokens.
            ContextTooLong: it cannot read a prompt and write as much.
        """
        from tasks.decoding.public_sampling import PublicSampling
        from tasks.inference.engine.shapes import Sizes
        from tasks.inference.structured_output.grammar_constraint import GrammarConstraint

        model = context.engine.model
        pieces = private_prompt(model.tokenizer, PromptSpec("topics", SYSTEM, "topics", "{reference}"))
        Sizes.of([pieces], [], 0, max_new_tokens).check_fits(model)
        constraints = {
            encode_canonical(dict(schema)): GrammarConstraint.of_schema(schema, model, max_new_tokens)
            for schema in schemas
        }
        return cls(context, pieces, PublicSampling(max_new_tokens, temperature, top_k), constraints)

    @property
    def room(self) -> int:
        """Tokens of a prompt that are read; the rest of a longer one is not."""
        return self.context.engine.model.longest - len(self.pieces.tokens) - self.how.max_new_tokens

    def __call__(self, prompts: Sequence[str], schema: Schema) -> list[Record]:
        """Implement `Write`.

        Raises:
            KeyError: `schema` is not one that the writer was made for.
        """
        from tasks.decoding.public_sampling import draw_public_texts

        constraint = self.constraints[encode_canonical(dict(schema))]
        if not prompts:
            return []
        tokenizer = self.context.engine.model.tokenizer
        prompt_tokens = [self.pieces.around(reference_tokens(tokenizer, prompt, self.room)) for prompt in prompts]
        drawn = draw_public_texts(self.context, prompt_tokens, self.how, constraint)
        return [_record(text.text) if text.complete else {} for text in drawn]


def answers(
    write: Write, rounds: Sequence[Sequence[str]], schema: Schema, read: Callable[[int, Record], Read | None]
) -> list[Read | None]:
    """Return the model's answers as `read` parses them; unusable answers are requested again in the next round.

    Args:
        rounds: prompts about the same matters in the same order, worded differently in each round.
        read: of a matter's number and an answer; None if that is of no use.

    Returns:
        for each matter the first answer that is of use; None where no round had one.
    """
    first_useful: dict[int, Read] = {}
    for prompts in rounds:
        missing = [number for number in range(len(prompts)) if number not in first_useful]
        records = write([prompts[number] for number in missing], schema) if missing else []
        for number, record in zip(missing, records, strict=True):
            if (answer := read(number, record)) is not None:
                first_useful[number] = answer
    return [first_useful.get(number) for number in range(len(rounds[0]))]


def _record(text: str) -> Record:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}
