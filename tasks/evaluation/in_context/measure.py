"""In-context measurement: test items and a pool of demonstrations in, one frozen result out."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from models_db.errors import UsageError
from tasks.evaluation.in_context.demonstrations import (
    CONTENT_FREE,
    Choice,
    Example,
    PromptWriter,
    SharedPrompt,
    Task,
    Tokens,
    choose,
    require_labels,
)
from tasks.evaluation.in_context.questions import (
    calibrated_labels,
    content_free,
    first_token_bias,
    greedy_answers,
    label_scores,
    read_prompt,
)
from tasks.evaluation.in_context.result import InContextResult, Run, Score
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.rows import RowBatch

MAX_TEXT_TOKENS = 128
"""Default number of tokens of a text in a prompt."""

ZERO_SHOT, ZERO_SHOT_NAMED = "zero_shot", "zero_shot_named"


@dataclass(frozen=True)
class InContextTest:
    """A model and the public items it is asked about; every column of a table is measured by the same one.

    Attributes:
        model: the public model.
        task: the task.
        items: labelled texts, none of them among the demonstrations.
        max_text_tokens: a text in a prompt is cut to this many tokens.
        context: positions a prompt may take; the model's own if not given.
    """

    model: LanguageModel
    task: Task
    items: tuple[Example, ...]
    max_text_tokens: int = MAX_TEXT_TOKENS
    context: int | None = None

    def __post_init__(self) -> None:
        if not self.items:
            raise UsageError(
                f"There is not one test item for the task {self.task.name!r}.",
                "Give a public file with at least one labelled text.",
                {"task": self.task.name},
                code="NoTestItems",
            )
        require_labels(self.task, self.items)

    def zero_shot(self) -> InContextResult:
        """Measure without demonstrations, in one run, because there is nothing to choose.

        Raises:
            PromptTooLong.
        """
        return self._result(ZERO_SHOT, 0, [self._run(0, [])])

    def zero_shot_named(self) -> InContextResult:
        """Measure as `zero_shot` does, with the labels named in the instruction: a public baseline for demonstrations.

        Raises:
            PromptTooLong.
            ValueError: a task of slot filling has no labels to name.
        """
        if not self.task.naming:
            raise ValueError(f"the task {self.task.name} has no line that names labels")
        named_task = replace(self, task=replace(self.task, instruction=self.task.naming))
        return named_task._result(ZERO_SHOT_NAMED, 0, [named_task._run(0, [])])

    def few_shot(
        self,
        column: str,
        pool: Sequence[Example],
        shots: int,
        seeds: Sequence[int],
        how: Choice | None = None,
        progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> InContextResult:
        """`shots` demonstrations of `pool` for each seed; `pool` must be released or public.

        Args:
            column: names where the pool comes from.
            how: balanced over labels or random; see `choose`.
            progress: called with the number of runs done and their total.

        Raises:
            UnknownLabel, TooFewDemonstrations, LabelWithoutDemonstration, PromptTooLong.
            ValueError: no seed, or not one shot.
        """
        if not seeds or shots < 1:
            raise ValueError("at least one seed and one shot are needed")
        chosen = {seed: choose(self.task, pool, shots, seed, how) for seed in seeds}
        runs = []
        for seed, demonstrations in chosen.items():
            runs.append(self._run(seed, demonstrations))
            progress(len(runs), len(chosen))
        return self._result(column, shots, runs)

    def _result(self, column: str, shots: int, runs: Sequence[Run]) -> InContextResult:
        answers = Counter(_normalise_answer(item.label) for item in self.items)
        return InContextResult(self.task.name, column, shots, max(answers.values()), tuple(runs))

    def _run(self, seed: int, demonstrations: Sequence[Example]) -> Run:
        writer = PromptWriter(self.task, self.model.tokenizer, self.max_text_tokens)
        questions, cut = zip(*(writer.question(item.text) for item in self.items), strict=True)
        empty = [writer.question(text)[0] for text in CONTENT_FREE]
        shared = self._shared_prompt(writer, demonstrations, [*questions, *empty])
        answer = self._fill_slots if self.task.fills_slots else self._classify
        raw, calibrated = answer(writer, read_prompt(self.model, shared.tokens), questions, empty)
        score = Score(len(self.items), self._count_correct(raw), self._count_correct(calibrated))
        return Run(seed, score, shared.shots, shared.dropped, shared.cut + sum(cut))

    def _shared_prompt(
        self, writer: PromptWriter, demonstrations: Sequence[Example], questions: Sequence[Tokens]
    ) -> SharedPrompt:
        """Return the same demonstrations for all items; the longest question and its answer decide how many fit."""
        words = [] if self.task.fills_slots else writer.label_words()
        answer = max((len(word) for word in words), default=self.task.answer_tokens)
        possible = min(self.context or self.model.positions, self.model.positions)
        return writer.shared(demonstrations, possible - max(map(len, questions)) - answer)

    def _classify(
        self, writer: PromptWriter, prompt: RowBatch, questions: Sequence[Tokens], empty: Sequence[Tokens]
    ) -> tuple[list[str], list[str]]:
        scores = label_scores(prompt, [*questions, *empty], writer.label_words())
        of_items, of_empty = scores[: len(questions)], scores[len(questions) :]
        calibrated = calibrated_labels(of_items, content_free(of_empty))
        labels = self.task.labels
        return [labels[place] for place in of_items.argmax(1)], [labels[place] for place in calibrated.argmax(1)]

    def _fill_slots(
        self, writer: PromptWriter, prompt: RowBatch, questions: Sequence[Tokens], empty: Sequence[Tokens]
    ) -> tuple[list[str], list[str]]:
        return greedy_answers(prompt, questions, self.task.answer_tokens, first_token_bias(prompt, empty))

    def _count_correct(self, answers: Sequence[str]) -> int:
        pairs = zip(answers, self.items, strict=True)
        return sum(_normalise_answer(answer) == _normalise_answer(item.label) for answer, item in pairs)


def _normalise_answer(answer: str) -> str:
    """Return an answer as exact match compares it: lower case, with single spaces."""
    return " ".join(answer.split()).casefold()
