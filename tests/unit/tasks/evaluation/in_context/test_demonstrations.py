"""Which demonstrations are chosen, by which seed, and what is refused."""

from collections import Counter
from itertools import pairwise

import pytest

from tasks.evaluation.in_context.demonstrations import TASKS, Example, choose, task_named
from tests.refusals import refusal
from tests.unit.tasks.evaluation.in_context.conftest import ANIMALS, NOTES, WEATHER


@pytest.mark.parametrize("shots", [3, 6, 12])
def test_balanced_is_every_label_equally_often(shots):
    for seed in range(20):
        assert set(Counter(example.label for example in choose(WEATHER, NOTES, shots, seed)).values()) == {shots // 3}


@pytest.mark.parametrize("shots", [1, 2, 4, 8])
def test_what_does_not_divide_is_one_more_for_labels_that_the_seed_chooses(shots):
    extra = set()
    for seed in range(30):
        counts = Counter(example.label for example in choose(WEATHER, NOTES, shots, seed))
        assert {counts[label] for label in WEATHER.labels} <= {shots // 3, shots // 3 + 1}
        extra |= {label for label in WEATHER.labels if counts[label] > shots // 3}
    assert extra == set(WEATHER.labels)


def test_a_seed_chooses_the_same_again_and_another_seed_something_else():
    assert choose(WEATHER, NOTES, 4, 5) == choose(WEATHER, NOTES, 4, 5)
    assert len({tuple(choose(WEATHER, NOTES, 4, seed)) for seed in range(10)}) > 5


def test_more_shots_contain_fewer():
    for seed in range(5):
        chosen = [set(choose(WEATHER, NOTES, shots, seed)) for shots in (1, 2, 4, 8, 12)]
        assert all(few < many for few, many in pairwise(chosen))
        assert [len(examples) for examples in chosen] == [1, 2, 4, 8, 12]


def test_the_last_shown_is_not_always_of_one_label():
    assert len({choose(WEATHER, NOTES, 12, seed)[-1].label for seed in range(20)}) == 3


def test_random_takes_what_comes():
    uneven = [Example(f"rain {number}", "w") for number in range(6)]
    assert len(choose(WEATHER, uneven, 4, 0, "random")) == 4
    slots = [Example(f"the cat {number}", "cat") for number in range(6)]
    assert len(choose(ANIMALS, slots, 6, 0)) == 6


def test_more_shots_than_demonstrations():
    with refusal("TooFewDemonstrations") as refused:
        choose(WEATHER, NOTES, 13, 0)
    assert refused.value.facts == {"wanted": 13, "available": 12}


def test_empty_texts_do_not_count():
    holes = [*NOTES, Example(" \n", "w"), Example("", "d"), Example("fog", "w")]
    assert all(example.text.strip() for example in choose(WEATHER, holes, 13, 0, "random"))
    with refusal("TooFewDemonstrations") as refused:
        choose(WEATHER, holes, 14, 0, "random")
    assert refused.value.facts["available"] == 13


def test_a_label_without_demonstrations():
    without = [example for example in NOTES if example.label != "d"]
    with refusal("LabelWithoutDemonstration") as refused:
        choose(WEATHER, without, 3, 0)
    assert refused.value.facts == {"label": "d", "wanted": 1, "available": 0}
    assert len(choose(WEATHER, without, 3, 0, "random")) == 3


def test_a_label_with_too_few():
    few = [example for example in NOTES if example.label != "d"] + [Example("sun", "d")]
    with refusal("LabelWithoutDemonstration") as refused:
        choose(WEATHER, few, 6, 0)
    assert refused.value.facts == {"label": "d", "wanted": 2, "available": 1}


def test_a_label_that_the_task_does_not_have():
    with refusal("UnknownLabel") as refused:
        choose(WEATHER, [*NOTES, Example("hail", "h")], 1, 0)
    assert refused.value.facts == {"task": "weather", "label": "h", "known": ["w", "d", "x"]}


def test_tasks_by_name():
    assert task_named("trec") is TASKS["trec"]
    with refusal("UnknownTask") as refused:
        task_named("sst2")
    assert refused.value.facts["known"] == list(TASKS)
