"""Public models as judge and as in-context learner: they answer by the likelier of a few words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tasks.common.progress import Progress
from tasks.evaluation.evaluation_input import Pair
from tasks.evaluation.in_context.demonstrations import Choice, Example, Task
from tasks.evaluation.in_context.measure import InContextTest
from tasks.evaluation.in_context.questions import label_scores, read_prompt
from tasks.evaluation.in_context.result import InContextResult
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.prompt_rendering import private_prompt, reference_tokens
from tasks.inference.prompt_spec import PromptSpec

SYSTEM = "You judge texts. Reply with the answer alone, without any explanation."

_AT_ONCE = 16  # contents between two reports of progress


@dataclass(frozen=True)
class ModelJudge:
    """A public model at work; a `Judge` of tasks/evaluation/evaluation_input.py.

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


@dataclass(frozen=True)
class ModelLearner:
    """A model at work; a `Learner` of tasks/evaluation/evaluation_input.py.

    Attributes:
        progress: called with the number of prompts done and their total.
    """

    model: LanguageModel
    progress: Callable[[int, int], None] = lambda done, of: None

    @property
    def name(self) -> str:
        """Model and revision, as metrics record them."""
        return f"{self.model.name} {self.model.revision}"

    def __call__(
        self, items: Sequence[Pair], pool: Sequence[Pair], shots: int, seeds: Sequence[int]
    ) -> tuple[InContextResult, InContextResult]:
        """Results with `shots` of the pool and with none. Balanced over labels where every label has enough texts.

        Raises:
            UnknownLabel: an item has a label that the pool has not.
            PromptTooLong: the labels do not fit into the model's context.
        """
        labels = sorted({label for _, label in pool})
        words = MappingProxyType({label: label for label in labels})
        task = Task("released", "Classify each of these texts.", "Input", "Answer", words)
        test = InContextTest(self.model, task, tuple(Example(*pair) for pair in items))
        fewest = min(sum(label == own for _, label in pool) for own in labels)
        how: Choice = "balanced" if fewest * len(labels) >= shots else "random"
        few = test.few_shot("released", [Example(*pair) for pair in pool], shots, seeds, how, self.progress)
        return few, test.zero_shot()
