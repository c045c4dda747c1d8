"""Completion of cut sentences: how many public tokens finish the last sentence of a text."""

from typing import Final

from models_db.values.requests import RequestModel
from tasks.inference.structured_output.form import form_of
from tasks.inference.structured_output.json_schema import schema_of

COMPLETION_TOKENS: Final = 24
"""Tokens of the public model that finish a cut sentence at most, beyond `max_new_tokens` and uncharged."""


class SentenceCompletionParameters(RequestModel):
    """Parameters of texts that `decoding.sentence_completion` finishes; no request sets how."""

    @property
    def reproduces_paper(self) -> bool:
        """Whether texts end with their last draw, as those of the paper that the parameters reproduce."""
        return False

    @property
    def completion_tokens(self) -> int:
        """N; 0 where no sentence is completed: a form or a schema ends its texts itself."""
        in_grammar = form_of(self) is not None or schema_of(self) is not None
        return 0 if in_grammar or self.reproduces_paper else COMPLETION_TOKENS


def completion_facts(settings: SentenceCompletionParameters) -> dict[str, str]:
    """Return the fact about the completion of sentences, for people."""
    if not settings.completion_tokens:
        return {}
    most = settings.completion_tokens
    return {"cut sentences": f"are finished with at most {most} more tokens of the public model, which cost nothing"}
