"""In-context accuracy of a release: a judge that learns from what it is shown, and one that learns nothing."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.evaluation.in_context_accuracy import in_context
from tasks.evaluation.subject import Subject
from tests.unit.tasks.evaluation.subjects import Text

DOCUMENTS = [("goal match keeper", "sport"), ("budget tax invoice", "money"), ("pitch goal referee", "sport")] * 5
RELEASED = [
    ("a goal in the match", "sport"),
    ("tax and budget", "money"),
    ("the keeper", "sport"),
    ("invoice", "money"),
]


class Reader:
    """Finds the answer likelier whose demonstrations share more words with the content; prefers `biased` by itself."""

    name = "reader 1"

    def __init__(self, biased: str = "") -> None:
        self.biased = biased
        self.prompts: list[str] = []

    def __call__(
        self, instruction: str, contents: Sequence[str], question: str, answers: Sequence[str]
    ) -> NDArray[np.float64]:
        self.prompts.append(instruction)
        shown = [part.rsplit(f"{question} ", 1) for part in instruction.split("\n\n")[1:]]

        def score(content: str, answer: str) -> float:
            words = set(content.split()[1:])
            own = sum(len(words & set(text.split()[1:])) for text, label in shown if label == answer)
            return own + 3.0 * (answer == self.biased)

        return np.array([[score(content, answer) for answer in answers] for content in contents])


def subject(judge: Reader | None, released: Sequence[tuple[str, str | None]] = RELEASED) -> Subject:
    return Subject(
        [Text(text, label=label) for text, label in released],
        documents=lambda: [text for text, _ in DOCUMENTS],
        labelled=lambda: DOCUMENTS,
        judge=judge,
    )


def test_demonstrations_teach_what_zero_shot_does_not_know():
    """Every item shares a word with a demonstration of its label; without one the first label wins everywhere."""
    found = in_context(subject(Reader()))
    assert (found.exposure, found.values["accuracy"], found.values["shots"]) == ("internal", "1.0000", 4)
    assert found.values["zero_shot"] == "0.3333"  # `money`, in the order of the alphabet
    assert found.values["majority"] == "0.6667"
    assert "100% right with 4 demonstrations, 33% with none" in found.line


def test_what_the_model_prefers_by_itself_is_taken_out():
    biased = in_context(subject(Reader("sport")))
    assert biased.values["accuracy"] == "1.0000"


def test_demonstrations_are_balanced_and_differ_by_seed():
    judge = Reader()
    in_context(subject(judge, [(f"{text} {n}", label) for n in range(9) for text, label in RELEASED]))
    few = judge.prompts[:3]
    assert [prompt.count("Answer: sport") for prompt in few] == [2, 2, 2]
    assert len(set(few)) == 3
    assert judge.prompts[3] == "Classify each of these texts."


@pytest.mark.parametrize(
    "released", [[], [("a", None)], [("a", "sport"), ("b", "sport")], [("", "sport"), (" ", "money")]]
)
def test_nothing_is_asked_where_there_is_nothing_to_tell_apart(released):
    judge = Reader()
    found = in_context(subject(judge, released))
    assert found.values["accuracy"] is None
    assert judge.prompts == []


def test_labels_that_no_document_has_are_not_measured():
    found = in_context(subject(Reader(), [("a", "x"), ("b", "y")]))
    assert (found.values["accuracy"], found.values["tested_on"]) == (None, 0)


def test_a_corpus_without_labels_is_not_measured():
    given = subject(Reader())
    found = in_context(Subject(given.texts, documents=given.documents, judge=given.judge))
    assert found.values["accuracy"] is None
