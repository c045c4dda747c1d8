"""k-shot prompts as token sequences.

    Name the section ... : World, Sports, Business or Technology.

    Article: one demonstration, on one line
    Section: Sports

    Article: the text that is asked about
    Section:

Every piece is tokenised on its own, so the demonstrations are the same tokens whatever is asked after them and can be
read once for all items. A text is put on one line, because lines structure the prompt, and none of its tokens is a
control token whatever it spells.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from models_db.errors import UsageError
from tasks.evaluation.in_context.demonstrations import Example
from tasks.evaluation.in_context.task_definitions import Task
from tasks.inference.prompt_rendering import reference_tokens

END = "\n\n"
"""Terminator of an answer."""

CONTENT_FREE = ("N/A", "", "[MASK]")
"""Texts without content whose answers show the model's bias (Zhao et al., 2021, section 5, and its appendix)."""

Tokens = tuple[int, ...]


def _prompt_too_long(needed: int, possible: int) -> UsageError:
    return UsageError(
        f"The prompt without demonstrations needs {needed} positions; the model has {possible}.",
        "Allow fewer tokens for a text, or choose a model with a longer context.",
        {"needed": needed, "possible": possible},
        code="PromptTooLong",
    )


@dataclass(frozen=True)
class SharedPrompt:
    """Prompt prefix shared by all items of a run.

    Attributes:
        tokens: instruction and demonstrations.
        shots: demonstrations in it.
        dropped: demonstrations left out, the earliest first, because the context is not long enough.
        cut: of those in it, how many have a text that was cut.
    """

    tokens: Tokens
    shots: int
    dropped: int
    cut: int


@dataclass(frozen=True)
class PromptWriter:
    """Writes the prompts of one task for one tokenizer.

    Attributes:
        task: the task.
        tokenizer: transformers' tokenizer.
        most: tokens that a text may have; the rest of it is cut off.
    """

    task: Task
    tokenizer: Any = field(repr=False)
    most: int

    def question(self, text: str) -> tuple[Tokens, bool]:
        """Return the tokens of a text and of the word before its answer, and whether the text was cut."""
        line = " ".join(text.split())
        whole = reference_tokens(self.tokenizer, f" {line}" if line else "", self.most + 1)
        head, tail = self._tokens(f"{self.task.text_word}:"), self._tokens(f"\n{self.task.answer_word}:")
        return head + whole[: self.most] + tail, len(whole) > self.most

    def answer(self, label: str) -> Tokens:
        """Return the tokens of a label's word, as they follow a question."""
        return self._tokens(f" {' '.join(self.task.word(label).split())}")

    def label_words(self) -> list[Tokens]:
        """Return the answers of a classification, in the order of its labels.

        Where the tokens of one begin those of another, all of them carry the end of an answer: "Art" would else be at
        least as likely as "Art school", whatever the text.
        """
        words = [self.answer(label) for label in self.task.labels]
        shared = any(one != other and other[: len(one)] == one for one in words for other in words)
        return [word + self._tokens(END) for word in words] if shared else words

    def shared(self, demonstrations: Sequence[Example], room: int) -> SharedPrompt:
        """Instruction and demonstrations in at most `room` tokens.

        Raises:
            PromptTooLong: the instruction alone is longer.
        """
        opening = self._opening() + self._tokens(self.task.instruction + END)
        if len(opening) > room:
            raise _prompt_too_long(len(opening), room)
        parts = [self._demonstration(example) for example in demonstrations]
        dropped = 0
        while len(opening) + sum(len(tokens) for tokens, _ in parts[dropped:]) > room:
            dropped += 1
        kept = parts[dropped:]
        tokens = opening + tuple(token for part, _ in kept for token in part)
        return SharedPrompt(tokens, len(kept), dropped, sum(was_cut for _, was_cut in kept))

    def _demonstration(self, example: Example) -> tuple[Tokens, bool]:
        question, was_cut = self.question(example.text)
        return question + self._free_answer(example.label) + self._tokens(END), was_cut

    def _free_answer(self, label: str) -> Tokens:
        """Return the tokens of a slot's value as `answer` does: private text, so without control tokens, and cut."""
        if not self.task.fills_slots:
            return self.answer(label)
        return reference_tokens(self.tokenizer, f" {' '.join(label.split())}", self.task.answer_tokens)

    def _opening(self) -> Tokens:
        """Return the control tokens that this tokenizer puts in front of any text."""
        plain = self._tokens("a")
        begun = tuple(self.tokenizer("a")["input_ids"])
        return begun[: begun.index(plain[0])]

    def _tokens(self, text: str) -> Tokens:
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])
