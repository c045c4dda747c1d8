"""Parameters of a question histogram: closed questions, their answers and public keywords; all of them are public.

answers:
      - {name: money, keywords: [invoice, refund, pay back]}
      - {name: delivery, keywords: [parcel, courier]}

Codes of the errors (UsageError):

    AnswersMissing          none
    TooManyAnswers
    AnswerRepeated          two answers of one name, or one called like the bin of those without an answer
    AnswerWithoutKeywords   an answer that no text can have

    questions:
      - question: What is the text about?
        answers:
          - {name: money, keywords: [invoice, refund, pay back]}
          - {name: delivery, keywords: [parcel, courier]}

What can be wrong with answers is in `tasks.systems.question_histogram.parameters`.

Codes of the errors (UsageError):

    QuestionsMissing        no question
    TooManyQuestions
    QuestionTooLong
    QuestionRepeated        two questions of one wording
    KeywordsUnused          `rule: model`, which reads no keywords
"""

from collections.abc import Sequence
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from models_db.errors import UsageError
from models_db.values.requests import RequestModel, TextLine, normalise_spelling
from tasks.text.words import words

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
