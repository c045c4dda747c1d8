"""Language model that answers a question about a text by the likelier of a few words."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.common.progress import Progress
from tasks.evaluation.in_context.predictions import label_scores
from tasks.evaluation.in_context.shared_prompt import read_prompt
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.prompt_rendering import private_prompt, reference_tokens
from tasks.inference.prompt_spec import PromptSpec

SYSTEM = "You judge texts. Reply with the answer alone, without any explanation."

_AT_ONCE = 16  # contents between two reports of progress


@dataclass(frozen=True)
class ModelJudge:
    """A public model at work; a `Judge` of tasks/evaluation/core/subject.py.

    Attributes:
        model: the model, with a chat template.
        progress: called with the number of contents done and their total.
    """

    model: LanguageModel
    progress: Progress = lambda done, of: None

    @property
    def name(self) -> str:
        """Model and revision, as metrics record them."""
        return f"{self.model.name} {self.model.revision}"

    def __call__(
        self, instruction: str, contents: Sequence[str], question: str, answers: Sequence[str]
    ) -> NDArray[np.float64]:
        """log P(answer | instruction, content, question) in nats, float64 [contents, answers].

        Instruction and content are text, whatever they spell: no control token comes out of them, and a brace is a
        brace. An instruction is cut to half the model's context, a content to what is left of it.

        Raises:
            NoChatTemplate: the model has none.
        """
        tokenizer = self.model.tokenizer
        message = f"{{reference}}\n\n{question}"
        pieces = private_prompt(tokenizer, PromptSpec("texts to be judged", system=SYSTEM, private=message))
        words = [tuple(tokenizer(answer, add_special_tokens=False)["input_ids"]) for answer in answers]
        prefix = reference_tokens(tokenizer, f"{instruction}\n\n", self.model.positions // 2)
        room = self.model.positions - len(pieces.tokens) - len(prefix) - max(map(len, words))
        shared = read_prompt(self.model, pieces.prefix + prefix)
        scores = np.empty((len(contents), len(answers)))
        for start in range(0, len(contents), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            prompts = [reference_tokens(tokenizer, content, room) + pieces.suffix for content in contents[part]]
            scores[part] = label_scores(shared, prompts, words).numpy()
            self.progress(min(start + _AT_ONCE, len(contents)), len(contents))
        return scores
