"""In-context learner: a public model that labels texts after a few labelled ones, for any set of labels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tasks.evaluation.core.in_context_result import InContextResult
from tasks.evaluation.core.subject import Pair
from tasks.evaluation.in_context.demonstrations import Choice, Example
from tasks.evaluation.in_context.measure import InContextTest
from tasks.evaluation.in_context.task_definitions import Task
from tasks.inference.engine.language_model import LanguageModel


@dataclass(frozen=True)
class ModelLearner:
    """A model at work; a `Learner` of tasks/evaluation/core/subject.py.

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
