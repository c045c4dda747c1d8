"""Text backend of the model on this machine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tasks.inference.backends.interface import SYSTEM, Completion, Sampling
from tasks.inference.prompts.prompt_spec import PromptSpec
from tasks.inference.prompts.render import private_prompt, reference_tokens

if TYPE_CHECKING:  # pricing a request must not load torch
    from tasks.inference.network.language_model import LanguageModel


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
        no part of it is a control token (`render.reference_tokens`).

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
