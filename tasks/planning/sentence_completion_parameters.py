"""Completion of cut sentences in a system's `parameters:`: how many public tokens may finish the last one of a text."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from models_db.errors import UsageError
from models_db.values.requests import RequestModel
from tasks.inference.structured_output.form_parameters import form_of
from tasks.inference.structured_output.schema_parameters import schema_of

MOST_TOKENS = 1000


class SentenceCompletionParameters(RequestModel):
    """The part of a system's `parameters:` that is about cut sentences; public.

    Attributes:
        complete_sentence: N, tokens of the public model that finish the last sentence of a text at most, beyond
            `max_new_tokens` and uncharged (`decoding.sentence_completion`). None: a text ends where it is cut.
    """

    complete_sentence: Annotated[int, Field(ge=1, le=MOST_TOKENS)] | None = None

    @property
    def completion_tokens(self) -> int:
        """N; 0 where no sentence is completed."""
        return self.complete_sentence or 0

    @model_validator(mode="after")
    def _no_grammar(self) -> Self:
        if self.complete_sentence is not None:
            for name, found in (("form", form_of(self)), ("schema", schema_of(self))):
                if found is not None:
                    raise SentenceInGrammar(name)
        return self


def completion_facts(settings: SentenceCompletionParameters, tokens_per_text: int) -> dict[str, str]:
    """Return facts about the completion of sentences, for people.

    Args:
        tokens_per_text: the most tokens of a text, those included.
    """
    if settings.complete_sentence is None:
        return {}
    most = settings.complete_sentence
    return {
        "cut sentences": f"are finished with at most {most} tokens of the public model, which cost nothing",
        "tokens per text": str(tokens_per_text),
    }


class SentenceInGrammar(UsageError):
    """Completion of sentences in texts that are held to a grammar."""

    def __init__(self, grammar: str) -> None:
        super().__init__(
            f"A release has `complete_sentence` or a `{grammar}`, not both: a grammar ends its texts itself.",
            "Leave `parameters.complete_sentence` out.",
            {"grammar": grammar},
        )
