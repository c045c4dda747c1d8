"""Parameters of a question histogram; all of them are public.

    questions:
      - question: What is the text about?
        answers:
          - {name: money, keywords: [invoice, refund, pay back]}
          - {name: delivery, keywords: [parcel, courier]}

What can be wrong with answers is in `tasks.systems.question_histogram.closed_answers`.

Codes of the errors (UsageError):

    QuestionsMissing        no question
    TooManyQuestions
    QuestionTooLong
    QuestionRepeated        two questions of one wording
    KeywordsUnused          `rule: model`, which reads no keywords
"""

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from models_db.errors import UsageError
from models_db.values.requests import RequestModel, TextLine
from tasks.systems.question_histogram.closed_answers import NO_ANSWER, ClosedAnswers, comparable

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
