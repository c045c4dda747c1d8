"""Text backends: public prompts in, texts out. Their interface, and the one with the model on this machine.

A prompt is made of public words and of values that a mechanism has released, so whatever a backend does with it is
post-processing (PRIVACY §5), and it does not matter whose machine it runs on. A system that shows private text to the
model works with the engine instead, which only this machine has. Imports no torch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from models_db.values.requests import ExactDecimal
from tasks.inference.prompt_rendering import private_prompt, reference_tokens
from tasks.inference.prompt_spec import PromptSpec

if TYPE_CHECKING:
    from tasks.inference.engine.language_model import LanguageModel


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


class Drawn(Protocol):
    """A text as generation returns it."""

    @property
    def text(self) -> str:
        """The text."""

    @property
    def tokens(self) -> int:
        """The number of its tokens."""

    @property
    def complete(self) -> bool:
        """False if it was cut."""


Draw = Callable[[Sequence[Sequence[int]], Sampling], Sequence[Drawn]]
"""Draws a text for each prompt, given as tokens; nothing is paid for, and nothing is written down on the way."""


@dataclass(frozen=True)
class LocalBackend:
    """A `TextBackend` with a model that this machine has loaded."""

    model: "LanguageModel"
    draw: Draw
    external: bool = False

    @property
    def name(self) -> str:
        """The model and its revision."""
        return f"{self.model.name} {self.model.revision}"

    def require_ready(self, prompts: Sequence[str], how: Sampling) -> None:
        """Implement `TextBackend.require_ready`.

        Raises:
            ContextTooLong, NoChatTemplate, ControlTokens: as `write`.
        """
        self._prompt_tokens(prompts, how)

    def write(self, prompts: Sequence[str], how: Sampling) -> list[Completion]:
        """Implement `TextBackend.write`.

        Released values come from people all the same: whatever a prompt spells is tokenised as plain characters, and
        no part of it is a control token (`reference_tokens`).

        Raises:
            ContextTooLong: a prompt and its answer are longer than the model was made for.
            NoChatTemplate, ControlTokens: the model cannot be asked.
        """
        if not prompts:
            return []
        drawn = self.draw(self._prompt_tokens(prompts, how), how)
        return [Completion(text.text, text.tokens, text.complete) for text in drawn]

    def _prompt_tokens(self, prompts: Sequence[str], how: Sampling) -> list[tuple[int, ...]]:
        """Return the tokens of every prompt, if they and an answer fit."""
        from tasks.inference.catalogue.model_check import ContextTooLong

        tokenizer, positions = self.model.tokenizer, self.model.longest
        system = (how.system or SYSTEM).replace("{", "{{").replace("}", "}}")  # plain characters, not a template
        spec = PromptSpec("texts", system=system, public="texts", private="{reference}")
        around = private_prompt(tokenizer, spec)
        taken = len(around.tokens) + how.max_new_tokens
        prompt_tokens = [reference_tokens(tokenizer, prompt, positions) for prompt in prompts]
        longest = taken + max(map(len, prompt_tokens))
        if longest > positions:
            raise ContextTooLong(longest, positions)
        return [around.around(tokens) for tokens in prompt_tokens]
