"""In-context accuracy of a release: what is asked, with which demonstrations, and what is told of the answers."""

from collections.abc import Sequence

import pytest

from tasks.evaluation.evaluation_input import EvaluationInput, Pair
from tasks.evaluation.in_context.accuracy import ITEMS, in_context
from tasks.evaluation.in_context.learner import ModelLearner
from tasks.evaluation.in_context.result import InContextResult, Run, Score
from tests.tiny_model import tiny_model
from tests.unit.tasks.evaluation.subjects import Text

DOCUMENTS = [("goal match keeper", "sport"), ("budget tax invoice", "money"), ("pitch goal referee", "sport")] * 5
RELEASED = [("goal in a match", "sport"), ("tax and budget", "money"), ("the keeper", "sport"), ("invoice", "money")]


class Pupil:
    """Answers 12 of 15 with demonstrations and 3 without; remembers what it was asked."""

    name = "pupil 1"

    def __init__(self) -> None:
        self.asked: list[tuple[list[Pair], list[Pair], int]] = []

    def __call__(
        self, items: Sequence[Pair], pool: Sequence[Pair], shots: int, seeds: Sequence[int]
    ) -> tuple[InContextResult, InContextResult]:
        self.asked.append((list(items), list(pool), shots))
        tested = len(items)
        few = tuple(Run(seed, Score(tested, 0, 12), shots, 0, 0) for seed in seeds)
        none = (Run(0, Score(tested, 0, 3), 0, 0, 0),)
        return InContextResult("t", "released", shots, 10, few), InContextResult("t", "zero_shot", 0, 10, none)


def subject(
    pupil: Pupil | None, released: Sequence[tuple[str, str | None]] = RELEASED, times: int = 1
) -> EvaluationInput:
    return EvaluationInput(
        [Text(text, label=label) for text, label in released],
        documents=lambda: [text for text, _ in DOCUMENTS],
        labelled=lambda: DOCUMENTS * times,
        learn=pupil,
    )


def test_the_figures():
    found = in_context(subject(Pupil()))
    assert (found.exposure, found.values["accuracy"], found.values["zero_shot"]) == ("internal", "0.8000", "0.2000")
    assert (found.values["chance"], found.values["shots"], found.values["tested_on"]) == ("0.6667", 4, 15)
    assert float(str(found.values["accuracy_low"])) < 0.8 < float(str(found.values["accuracy_high"]))
    assert found.line == "80% right with 4 demonstrations, 20% with none"


def test_what_is_asked():
    """Documents of released labels, no more than a public number; released texts that are not empty."""
    pupil = Pupil()
    in_context(subject(pupil, [*RELEASED, ("", "sport"), ("no label", None)], times=9))
    ((items, pool, shots),) = pupil.asked
    assert (len(items), shots) == (ITEMS, 4)
    assert pool == RELEASED


@pytest.mark.parametrize(
    "released",
    [[], [("a", None)], [("a", "sport"), ("b", "sport")], [("", "sport"), (" ", "money")], [("a", "x"), ("b", "y")]],
)
def test_nothing_is_asked_where_there_is_nothing_to_tell_apart(released):
    pupil = Pupil()
    assert in_context(subject(pupil, released)).values["accuracy"] is None
    assert pupil.asked == []


def test_a_corpus_without_labels_is_not_measured():
    given = subject(Pupil())
    found = in_context(EvaluationInput(given.texts, documents=given.documents, learn=given.learn))
    assert found.values["accuracy"] is None


@pytest.mark.parametrize("pool", [RELEASED, RELEASED[:3]], ids=["balanced", "too few of a label"])
def test_a_model_is_asked_with_and_without_demonstrations(pool):
    few, none = ModelLearner(tiny_model())([("goal", "sport"), ("tax", "money")], pool, len(pool), range(2))
    assert (few.shots, len(few.runs), few.tested) == (len(pool), 2, 2)
    assert (none.shots, len(none.runs)) == (0, 1)
    assert [run.shots for run in few.runs] == [len(pool)] * 2
