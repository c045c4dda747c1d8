"""Interface of text backends: public prompts in, texts out.

A prompt is made of public words and of values that a mechanism has released, so whatever a backend does with it is
post-processing (PRIVACY §5), and it does not matter whose machine it runs on. A system that shows private text to the
model works with the engine instead, which only this machine has.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from models_db.values.requests import ExactDecimal

SYSTEM = "You write texts. You answer with the text that is asked for, and with nothing beside it."
"""Default system prompt."""


SEES = "external model: sees only DP outputs"
"""Note of cards and records on every release that a model behind an API has written."""


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters of texts.

    Attributes:
        max_new_tokens: tokens of one text at most, the end token included.
        temperature: 1 draws from the model's own distribution.
        top_k: number of candidates for each token; 0 for all. Not every endpoint supports this limit: vLLM and
            llama.cpp do, OpenAI's own servers and transformers' do not and refuse it.
        system: the system prompt; None for the default.
    """

    max_new_tokens: int
    temperature: ExactDecimal
    top_k: int = 0
    system: str | None = None


@dataclass(frozen=True)
class Completion:
    """One text.

    Attributes:
        tokens: number of drawn tokens, without the end token; an estimate if an endpoint does not report it.
        complete: False if it was cut at the limit.
    """

    text: str
    tokens: int
    complete: bool


class TextBackend(Protocol):
    """Writes texts."""

    @property
    def name(self) -> str:
        """Name of the model, for records."""

    @property
    def external(self) -> bool:
        """True if prompts leave this machine's programs."""

    def require_ready(self, prompts: Sequence[str], how: Sampling) -> None:
        """Check that such prompts can be asked, before anything is paid for.

        A local model is asked nothing. An external one is asked the prompts, because only an answer tells that address,
        key, model and fields are right; answers are dropped. So these are public words, and few.

        Raises:
            EndpointFailure: as `write`.
            ContextTooLong: a prompt is longer than the local model can read.
            NoChatTemplate, ControlTokens: the local model cannot be asked.
        """

    def write(self, prompts: Sequence[str], how: Sampling) -> list[Completion]:
        """Return one text for each prompt, in their order. Each of several equal prompts gets its own text.

        Before a call of an external backend, call `RunJournal.begin`: its answers are kept beside the journal.

        Raises:
            EndpointFailure: an external model cannot be reached, or does not answer as it should. Answers that came
                are kept, and a run that goes on does not ask for them again.
            ContextTooLong: a prompt is longer than the local model can read.
        """
