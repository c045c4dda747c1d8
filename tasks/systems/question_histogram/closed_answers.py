"""Closed answers of questions, with public keywords.

    answers:
      - {name: money, keywords: [invoice, refund, pay back]}
      - {name: delivery, keywords: [parcel, courier]}

Codes of the errors (UsageError):

    AnswersMissing          none
    TooManyAnswers
    AnswerRepeated          two answers of one name, or one called like the bin of those without an answer
    AnswerWithoutKeywords   an answer that no text can have
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
