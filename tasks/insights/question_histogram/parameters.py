"""Parameters of a question histogram; all of them are public.

    questions:
      - question: What is the text about?
        answers:
          - {name: money, keywords: [invoice, refund, pay back]}
          - {name: delivery, keywords: [parcel, courier]}

QuestionsInvalid (UsageError)
├── QuestionsMissing        no question
├── TooManyQuestions
├── QuestionTooLong
├── QuestionRepeated        two questions of one wording
├── AnswersMissing          a question without answers
├── TooManyAnswers
├── AnswerRepeated          two answers of one name, or one called like the bin of those without an answer
├── AnswerWithoutKeywords   `rule: keywords`, and an answer that no text can have
└── KeywordsUnused          `rule: model`, which reads no keywords
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from models_db.errors import UsageError
from models_db.values.requests import RequestModel, TextLine
from tasks.text.words import words

NO_ANSWER = "no answer"
"""The last bin of every question: units that no answer fits, or that have no text."""
NONE_OF_THESE = "none of these"
"""How the model is offered `NO_ANSWER`."""

MOST_QUESTIONS = 20
MOST_ANSWERS = 50
"""Answers of one question, without `NO_ANSWER`."""
LONGEST_QUESTION = 200
"""Characters of a question."""
LONGEST_ANSWER = 60
"""Characters of the name of an answer."""

Rule: TypeAlias = Literal["keywords", "model"]
TieBreak: TypeAlias = Literal["most", "first"]


class Answer(RequestModel):
    """One answer.

    Attributes:
        name: its name, on the card and in the explorer; a model is shown it.
        keywords: words or phrases, any of which speaks for it; for `rule: keywords` alone.
    """

    name: Annotated[TextLine, Field(max_length=LONGEST_ANSWER)]
    keywords: Annotated[tuple[Annotated[TextLine, Field(max_length=100)], ...], Field(max_length=1000)] = ()


class Question(RequestModel):
    """One question, which is asked of each unit by itself.

    Attributes:
        question: its wording.
        answers: the closed answers, in the order that decides between equals. `NO_ANSWER` follows by itself.
        rule: `keywords` counts words of the text; `model` compares the likelihoods of the answers.
        match: of `keywords`: the answer with the `most` matches, or that of the `first` one in the text.
    """

    question: TextLine
    answers: tuple[Answer, ...] = ()
    rule: Rule = "keywords"
    match: TieBreak = "most"

    @model_validator(mode="after")
    def _possible(self) -> "Question":
        if len(self.question) > LONGEST_QUESTION:
            raise QuestionTooLong(self.question)
        if not self.answers:
            raise AnswersMissing(self.question)
        if len(self.answers) > MOST_ANSWERS:
            raise TooManyAnswers(self.question, len(self.answers))
        taken = {NO_ANSWER, NONE_OF_THESE}
        for answer in self.answers:
            if (name := _spelling(answer.name)) in taken:
                raise AnswerRepeated(self.question, answer.name)
            taken.add(name)
            if self.rule == "keywords" and not (answer.keywords and all(words(word) for word in answer.keywords)):
                raise AnswerWithoutKeywords(self.question, answer.name)
            if self.rule == "model" and answer.keywords:
                raise KeywordsUnused(self.question, answer.name)
        return self

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
    def _possible(self) -> "QuestionHistogramParameters":
        if not self.questions:
            raise QuestionsMissing
        if len(self.questions) > MOST_QUESTIONS:
            raise TooManyQuestions(len(self.questions))
        taken = set[str]()
        for question in self.questions:
            if (wording := _spelling(question.question)) in taken:
                raise QuestionRepeated(question.question)
            taken.add(wording)
        return self

    @property
    def bins(self) -> int:
        """The number of bins of all questions together."""
        return sum(len(question.names) for question in self.questions)


def _spelling(text: str) -> str:
    """Return what two wordings have in common that differ in case and spaces alone."""
    return " ".join(text.casefold().split())


class QuestionsInvalid(UsageError):
    """Questions or answers that cannot be asked."""

    def __init__(self, problem: str, advice: str, question: str = "") -> None:
        where = f"The question {question[:LONGEST_QUESTION]!r} " if question else "`questions` "
        super().__init__(f"{where}{problem}.", f"{advice} docs/insights.md has an example.", {"question": question})


class QuestionsMissing(QuestionsInvalid):
    """No question."""

    def __init__(self) -> None:
        super().__init__("is empty", "Write at least one question with its answers.")


class TooManyQuestions(QuestionsInvalid):
    """More questions than a release asks."""

    def __init__(self, count: int) -> None:
        super().__init__(f"has {count} questions, and {MOST_QUESTIONS} are possible", "Ask fewer.")


class QuestionTooLong(QuestionsInvalid):
    """A question of too many characters."""

    def __init__(self, question: str) -> None:
        problem = f"has {len(question)} characters, and {LONGEST_QUESTION} are possible"
        super().__init__(problem, "Write it shorter.", question)


class QuestionRepeated(QuestionsInvalid):
    """Two questions of one wording."""

    def __init__(self, question: str) -> None:
        super().__init__("is asked twice", "Ask it once: each question costs noise.", question)


class AnswersMissing(QuestionsInvalid):
    """A question without answers."""

    def __init__(self, question: str) -> None:
        super().__init__("has no answers", "Name the answers that are counted, under `answers`.", question)


class TooManyAnswers(QuestionsInvalid):
    """A question with too many answers."""

    def __init__(self, question: str, count: int) -> None:
        super().__init__(f"has {count} answers, and {MOST_ANSWERS} are possible", "Merge some of them.", question)


class AnswerRepeated(QuestionsInvalid):
    """An answer that is there already."""

    def __init__(self, question: str, answer: str) -> None:
        advice = f"Name each answer once; {NO_ANSWER!r} and {NONE_OF_THESE!r} are the program's own."
        super().__init__(f"has the answer {answer!r} twice", advice, question)


class AnswerWithoutKeywords(QuestionsInvalid):
    """An answer that no text can have."""

    def __init__(self, question: str, answer: str) -> None:
        advice = "Give each answer `keywords` with a letter or sign, or ask the model: `rule: model`."
        super().__init__(f"has an answer {answer!r} without keywords", advice, question)


class KeywordsUnused(QuestionsInvalid):
    """Keywords of an answer that the model chooses."""

    def __init__(self, question: str, answer: str) -> None:
        advice = "Leave `keywords` out, or write `rule: keywords`."
        super().__init__(f"is asked by the model, and its answer {answer!r} has keywords", advice, question)
