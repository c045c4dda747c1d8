"""Wording of questions and counted answers; its sentences change with docs/insights.md."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from tasks.common.published_values import rounded
from tasks.systems.insights.wording import InsightSentences, InsightsRecord, InsightWording
from tasks.systems.question_histogram.answer_rows import require_answer_rows
from tasks.systems.question_histogram.parameters import QuestionHistogramParameters
from tasks.values.results import SIZE_DEVIATION, Insight, margin_of_error, size_with_margin

WRITTEN: Final = (
    "Counts of answers: each unit of a corpus was asked public questions with closed answers, and the answers were"
    " counted with noise by the mechanism {mechanism}. {rule}"
)
BY_KEYWORDS: Final = "No language model was used: answers follow from public words"
BY_MODEL: Final = "The language model {model} answered, from one unit's text at a time"
BY_BOTH: Final = (
    "Some answers follow from public words; others were given by the language model {model}, from one unit's text at a"
    " time"
)
_SENTENCES: Final = InsightSentences(
    preprocessing=(
        "All documents of a unit were joined into one text, in an order that a key fixes; what the model reads was cut"
        " at a public length. Nothing was filtered, balanced or deduplicated across units."
    ),
    contribution=(
        "All documents of a unit are one row: it adds 1 to exactly one count of each question, by a public rule that"
        " reads"
        ' this text alone. A unit that no answer fits counts as "no answer".'
    ),
    personal=(
        "No row is a record of anybody: each is a count of many units with noise, and all its words are the request's."
        " The claim bounds how far the answers of one unit can show in the counts; it does not cover people who are"
        " mentioned in a record without being its unit."
    ),
    post_processing=(
        "The rows are made from the noisy counts by a public rule; none is left out, and the words of a row show a"
        " negative count as 0. Measurements marked public read only released values."
    ),
)
_PAGE: Final = (
    "Each unit was asked these questions by itself, and its answers were counted with noise. Every word on this page is"
    " of the request; only counts depend on the data."
)

_COUNTS: Final = (
    "**A count is a noisy number of units**, and each unit gives exactly one answer to each question. The noise has a"
    " standard deviation of {one} units in each count: **the margin of error is \N{PLUS-MINUS SIGN}{margin} (95 %)**."
    " In one count of twenty or fewer the noise is larger. The margin is of the noise alone and of each count by"
    " itself."
)
_RAW: Final = (
    "**Shown counts begin at 0.** The rows hold every count as it was drawn, and noise makes some negative; nothing is"
    " left out. The counts of one question add up to the number of units, with the noise of all of them."
)
_KEYWORDS: Final = (
    "**Words decide**: an answer by keywords says that a text has the words, not that it means them. The margin of"
    " error does not cover what words miss or misread."
)
_MODEL: Final = (
    "**A model answered**, and it can be wrong; the margin of error does not cover that. It read one unit's text at a"
    " time, so a text with an instruction can decide on the answers of its own unit alone."
)
_NO_ANSWER: Final = '**"no answer"** counts the units that no answer fits, or whose text could not be read.'


class AnswerWording(InsightWording):
    """Wording of the system `question_histogram`."""

    rows = "counts"
    nouns = ("answer", "question")
    sentences = _SENTENCES
    page = _PAGE
    comparable = False
    most_shown = 100

    def written(self, record: InsightsRecord) -> str:
        """Return the sentence on the origin of the counts."""
        rules = _rules(record)
        rule = BY_BOTH if len(rules) > 1 else BY_MODEL if "model" in rules else BY_KEYWORDS
        return WRITTEN.replace("{rule}", rule)

    def reading(self, record: InsightsRecord) -> tuple[str, ...]:
        """Return paragraphs on counts, their margin, and the rules that gave the answers."""
        deviation, rules = Decimal(record.facts[SIZE_DEVIATION]), _rules(record)
        counts = _COUNTS.format(one=rounded(deviation), margin=margin_of_error(deviation))
        by_rule = [text for rule, text in (("keywords", _KEYWORDS), ("model", _MODEL)) if rule in rules]
        return (counts, _RAW, *by_rule, _NO_ANSWER)

    def rows_asked(self, record: InsightsRecord) -> int:
        """Return the number of bins of all questions."""
        return sum(len(question["answers"]) + 1 for question in record.request["parameters"]["questions"])

    def require_rows(self, insights: Sequence[Insight], record: InsightsRecord) -> str:
        """Check that the rows are the questions and bins of the request, and follow from their counts."""
        questions = QuestionHistogramParameters.model_validate(record.request["parameters"]).questions
        require_answer_rows(insights, questions, Decimal(record.facts[SIZE_DEVIATION]))
        return f"{len(insights) - len(questions)} counts of {len(questions)} questions, each in its row"

    def size_with_margin(self, insight: Insight, record: InsightsRecord) -> str | None:
        """Return a count from 0 on with its 95 % margin of error, in words."""
        if insight.size is None:
            return None
        return f"{size_with_margin(insight.size, Decimal(record.facts[SIZE_DEVIATION]), insight.clusters)} units"


def _rules(record: InsightsRecord) -> set[str]:
    return {question["rule"] for question in record.request["parameters"]["questions"]}
