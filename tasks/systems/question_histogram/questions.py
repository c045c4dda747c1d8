"""Closed questions of a histogram, their answers and public keywords, and the rows and words that tell the counts.

*Parameters*; all of them are public.

    questions:
      - question: What is the text about?
        answers:
          - {name: money, keywords: [invoice, refund, pay back]}
          - {name: delivery, keywords: [parcel, courier]}

Codes of the errors (UsageError):

    QuestionsMissing        no question
    TooManyQuestions
    QuestionTooLong
    QuestionRepeated        two questions of one wording
    KeywordsUnused          `rule: model`, which reads no keywords
    AnswersMissing          none
    TooManyAnswers
    AnswerRepeated          two answers of one name, or one called like the bin of those without an answer
    AnswerWithoutKeywords   an answer that no text can have

*Rows*: a node for each question, and below it one for each bin. A function of the questions and of the noisy counts
alone, so verification makes the same rows again. `size` is the noisy value as it was drawn; words show a count from 0
on, with its margin of error. A question's size is the sum of its bins: the number of units that were asked, with the
noise of all of them.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from models_db.errors import UsageError
from models_db.values.requests import RequestModel, TextLine, normalise_spelling
from tasks.common.files import FileUnfit
from tasks.common.published_values import rounded
from tasks.systems.insights.wording import InsightSentences, InsightsRecord, InsightWording
from tasks.text.words import words
from tasks.values.results import SIZE_DEVIATION, TEXTS_FILE, Insight, Origin, Topic, margin_of_error, size_with_margin

NO_ANSWER = "no answer"
"""The last bin of every question: units that no answer fits, or that have no text."""
NONE_OF_THESE = "none of these"
"""How a model is offered `NO_ANSWER`."""

MOST_ANSWERS = 50
"""Answers without `NO_ANSWER`."""
LONGEST_ANSWER = 60
"""Characters of the name of an answer."""

TieBreak: TypeAlias = Literal["most", "first"]


def _not_blank(name: str) -> str:
    if not normalise_spelling(name):
        raise ValueError("an answer has a name with a letter or sign")
    return name


AnswerName = Annotated[TextLine, Field(max_length=LONGEST_ANSWER), AfterValidator(_not_blank)]


class Answer(RequestModel):
    """One answer.

    Attributes:
        name: its name, on the card and in the explorer; a model is shown it.
        keywords: words or phrases, any of which speaks for it.
    """

    name: AnswerName
    keywords: Annotated[tuple[Annotated[TextLine, Field(max_length=100)], ...], Field(max_length=1000)] = ()


class ClosedAnswers(RequestModel):
    """A closed list of answers, of which a text has one at most.

    Attributes:
        answers: in the order that decides between equals.
        match: the answer with the `most` matches of its keywords, or that of the `first` match in the text.
    """

    answers: tuple[Answer, ...] = ()
    match: TieBreak = "most"

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if not self.answers:
            raise _answers_invalid(
                "AnswersMissing",
                self.described,
                "has no answers",
                "Name the answers that are counted, under `answers`.",
            )
        if len(self.answers) > MOST_ANSWERS:
            raise _answers_invalid(
                "TooManyAnswers",
                self.described,
                f"has {len(self.answers)} answers, and {MOST_ANSWERS} are possible",
                "Merge some of them.",
            )
        require_distinct_names(self.described, [answer.name for answer in self.answers])
        for answer in self.answers if self.by_keywords else ():
            if not (answer.keywords and all(words(word) for word in answer.keywords)):
                raise _answers_invalid(
                    "AnswerWithoutKeywords",
                    self.described,
                    f"has an answer {answer.name!r} without keywords",
                    "Give each answer `keywords` with a letter or sign.",
                )
        return self

    @property
    def described(self) -> str:
        """What the answers are of, as errors name it."""
        return "`answers`"

    @property
    def by_keywords(self) -> bool:
        """Whether keywords decide, so that each answer needs some."""
        return True


def require_distinct_names(described: str, names: Sequence[str]) -> None:
    """Check that no two names differ in case and spaces alone, and that none is the program's own.

    Raises:
        AnswerRepeated: they do, or it is.
    """
    taken = {NO_ANSWER, NONE_OF_THESE}
    for name in names:
        if (spelling := comparable(name)) in taken:
            raise _answers_invalid(
                "AnswerRepeated",
                described,
                f"has the answer {name!r} twice",
                f"Name each answer once; {NO_ANSWER!r} and {NONE_OF_THESE!r} are the program's own.",
            )
        taken.add(spelling)


def comparable(text: str) -> str:
    """Return what two wordings have in common that differ in case and spaces alone."""
    return " ".join(text.casefold().split())


def _answers_invalid(code: str, described: str, problem: str, advice: str) -> UsageError:
    return UsageError(
        f"{described} {problem}.", f"{advice} docs/insights.md has an example.", {"of": described}, code=code
    )


MOST_QUESTIONS = 20
LONGEST_QUESTION = 200
"""Characters of a question."""

Rule: TypeAlias = Literal["keywords", "model"]


class Question(ClosedAnswers):
    """One question, which is asked of each unit by itself.

    Attributes:
        question: its wording.
        answers: the closed answers, in the order that decides between equals. `NO_ANSWER` follows by itself.
        rule: `keywords` counts words of the text; `model` compares the likelihoods of the answers.
    """

    question: TextLine
    rule: Rule = "keywords"

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if len(self.question) > LONGEST_QUESTION:
            raise _questions_invalid(
                "QuestionTooLong",
                f"has {len(self.question)} characters, and {LONGEST_QUESTION} are possible",
                "Write it shorter.",
                self.question,
            )
        for answer in () if self.by_keywords else self.answers:
            if answer.keywords:
                raise _questions_invalid(
                    "KeywordsUnused",
                    f"is asked by the model, and its answer {answer.name!r} has keywords",
                    "Leave `keywords` out, or write `rule: keywords`.",
                    self.question,
                )
        return self

    @property
    def described(self) -> str:
        """The question, as errors name it."""
        return f"The question {self.question[:LONGEST_QUESTION]!r}"

    @property
    def by_keywords(self) -> bool:
        """Whether keywords decide."""
        return self.rule == "keywords"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all bins: the answers, then `NO_ANSWER`."""
        return (*(answer.name for answer in self.answers), NO_ANSWER)


class QuestionHistogramParameters(RequestModel):
    """`parameters:` of a request.

    Attributes:
        questions: each unit gives one answer to each of them.
        max_text_tokens: tokens of a unit that the model reads; keywords are looked for in the whole text.
    """

    questions: tuple[Question, ...] = ()
    max_text_tokens: Annotated[int, Field(ge=16, le=100_000)] = 192

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not self.questions:
            raise _questions_invalid("QuestionsMissing", "is empty", "Write at least one question with its answers.")
        if len(self.questions) > MOST_QUESTIONS:
            raise _questions_invalid(
                "TooManyQuestions",
                f"has {len(self.questions)} questions, and {MOST_QUESTIONS} are possible",
                "Ask fewer.",
            )
        taken = set[str]()
        for question in self.questions:
            if (wording := comparable(question.question)) in taken:
                raise _questions_invalid(
                    "QuestionRepeated",
                    "is asked twice",
                    "Ask it once: each question costs noise.",
                    question.question,
                )
            taken.add(wording)
        return self

    @property
    def bins(self) -> int:
        """The number of bins of all questions together."""
        return sum(len(question.names) for question in self.questions)


def _questions_invalid(code: str, problem: str, advice: str, question: str = "") -> UsageError:
    where = f"The question {question[:LONGEST_QUESTION]!r} " if question else "`questions` "
    return UsageError(
        f"{where}{problem}.", f"{advice} docs/insights.md has an example.", {"question": question}, code=code
    )


_ASKED = {
    "keywords": {
        "most": "Asked by keywords: the answer with the most matches in a unit's text.",
        "first": "Asked by keywords: the answer of the first match in a unit's text.",
    },
    "model": {
        "most": "Asked of the language model: the likeliest answer about a unit's text.",
        "first": "Asked of the language model: the likeliest answer about a unit's text.",
    },
}


def answer_rows(questions: Sequence[Question], counts: Sequence[int], deviation: Decimal) -> tuple[Insight, ...]:
    """Return the nodes: each question, followed by its bins in the order of the request.

    Args:
        counts: the noisy counts of all bins, question after question.
        deviation: the standard deviation of the noise in each, in units.

    Raises:
        ValueError: not one count for each bin.
    """
    return tuple(_rows(questions, counts, deviation))


def _rows(questions: Sequence[Question], counts: Sequence[int], deviation: Decimal) -> Iterator[Insight]:
    if len(counts) != sum(len(question.names) for question in questions):
        raise ValueError("every bin has a count")
    rest, number = iter(counts), 0
    for question in questions:
        own = [next(rest) for _ in question.names]
        parent = number = number + 1
        asked = size_with_margin(sum(own), deviation, len(own))
        text = f"{_ASKED[question.rule][question.match]} Units asked: {asked}."
        yield Insight(number, None, 1, Topic(question.question, text), (), sum(own), clusters=len(own))
        listed = [*(answer.keywords for answer in question.answers), ()]
        for name, keywords, count in zip(question.names, listed, own, strict=True):
            number += 1
            text = f"Units with this answer: {size_with_margin(count, deviation)}."
            origins = tuple[Origin, ...](["request"] * len(keywords))
            yield Insight(number, parent, 0, Topic(name, text), keywords, count, origins=origins)


def require_answer_rows(nodes: Sequence[Insight], questions: Sequence[Question], deviation: Decimal) -> None:
    """Check that nodes are the questions and bins of the request, in order, with a count each and its words.

    Raises:
        FileUnfit: they are others.
    """
    counts = [node.size for node in nodes if node.level == 0]
    measured = [count for count in counts if count is not None]
    expected = sum(len(question.names) for question in questions)
    if len(measured) != len(counts) or len(counts) != expected:
        raise FileUnfit(TEXTS_FILE, f"has {len(measured)} counts, and the request has {expected} bins")
    for node, row in zip(nodes, answer_rows(questions, measured, deviation), strict=False):
        if node != row:
            raise FileUnfit(TEXTS_FILE, f"has a line {row.number} that does not follow from the request and counts")
    if len(nodes) != expected + len(questions):
        raise FileUnfit(TEXTS_FILE, "has other lines than the questions and bins of the request")


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
