"""Run of a question histogram: every unit is asked by itself, the counts are drawn once, and rows are made of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Protocol, cast

from models_db.values.canonical_json import Json
from tasks.corpus.store import ShardProgress
from tasks.decoding.run_context import RunContext
from tasks.mechanisms.counts.set_histogram import SetHistogram
from tasks.systems.insights.run_tools import as_text
from tasks.systems.question_histogram.answer_rows import answer_rows
from tasks.systems.question_histogram.keyword_rule import KeywordRule
from tasks.systems.question_histogram.model_rule import ModelRule
from tasks.systems.question_histogram.parameters import Question, QuestionHistogramParameters
from tasks.values.plan import Plan
from tasks.values.results import SIZE_DEVIATION, Generated


class AnswerRule(Protocol):
    """Function from texts to one answer each, every answer a function of its own text and of public values."""

    def __call__(self, texts: Sequence[str]) -> list[int]:
        """Return the number of the bin of each text, in order; never fails because of a text."""


@dataclass(frozen=True)
class QuestionHistogramRun:
    """A run; units are read when the counts are released.

    Attributes:
        rules: of each question, in order.
        progress: of the reading of all units.
    """

    parameters: QuestionHistogramParameters
    histogram: SetHistogram
    plan: Plan
    bench: RunContext
    rules: tuple[AnswerRule, ...]
    progress: ShardProgress

    @classmethod
    def of(
        cls, parameters: QuestionHistogramParameters, histogram: SetHistogram, plan: Plan, bench: RunContext
    ) -> "QuestionHistogramRun":
        """Build the run; nothing is read or spent yet.

        Raises:
            As `ModelRule.of`.
        """
        progress = ShardProgress(bench.in_tenths("answers"))
        rules = tuple(
            _rule_for(question, number, parameters, bench, progress)
            for number, question in enumerate(parameters.questions)
        )
        return cls(parameters, histogram, plan, bench, rules, progress)

    def generated(self) -> Generated:
        """Release the counts of all bins and return a row for each question and each bin.

        Raises:
            StepLost: an interrupted run has paid for the counts and lost them.
        """
        self.bench.begin_steps(self.plan)
        released = self.bench.release("answers 0", [0], self.counts, self._draw)
        counts = cast("list[int]", released)
        rows = answer_rows(self.parameters.questions, counts, Decimal(self.plan.facts[SIZE_DEVIATION]))
        return Generated(tuple(as_text(row, self.bench) for row in rows), {})

    def counts(self) -> list[int]:
        """Count the units in each bin, question after question. PRIVATE: for the mechanism alone.

        A unit is in one bin of each question: whatever is no number of a bin counts as `NO_ANSWER`.
        """
        counts = [[0] * len(question.names) for question in self.parameters.questions]
        for lot in self.bench.lots(self.plan.blocks):
            self.progress.enter(lot)
            texts = [placed.unit.text for placed in lot.units]
            for own, rule in zip(counts, self.rules, strict=True):
                for _, answer in zip(texts, rule(texts), strict=True):
                    own[answer if 0 <= answer < len(own) else -1] += 1
            self.progress(1, 1)
        return [count for own in counts for count in own]

    def _draw(self, counts: list[int]) -> Json:
        return list(self.histogram.draw(counts, self.bench.rng))


def _rule_for(
    question: Question,
    number: int,
    parameters: QuestionHistogramParameters,
    bench: RunContext,
    progress: ShardProgress,
) -> AnswerRule:
    if question.rule == "keywords":
        return KeywordRule.of(question)
    part = partial(_part, progress, number, len(parameters.questions))
    return ModelRule.of(question, bench.engine, parameters.max_text_tokens, part)


def _part(progress: ShardProgress, number: int, questions: int, done: int, total: int) -> None:
    """Report progress within one question as progress within all of them."""
    progress(number * total + done, questions * total)
