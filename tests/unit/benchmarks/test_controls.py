"""Controls are what they say: nothing of the data is left in them, and a text that has its group is told apart."""

from collections import Counter
from types import ModuleType

import numpy as np
import pytest

SCRIPTS = ("common.controls",)


@pytest.fixture(scope="module")
def controls(bench: dict[str, ModuleType]) -> ModuleType:
    return bench["common.controls"]


def test_a_text_is_compared_with_the_other_groups_of_its_kind_alone(controls: ModuleType) -> None:
    scores = {"kettle": 0.5, "lamp": 0.2, "toaster": 0.5, "shoe": 0.9}
    kinds = {"kettle": "home", "lamp": "home", "toaster": "home", "shoe": "cloth"}
    found = controls.own_and_others(scores.__getitem__, "kettle", kinds)
    assert found == controls.OwnAndOthers(0.5, (0.2, 0.5))
    assert found.difference == pytest.approx(0.15)
    assert found.preference == 0.75  # one below, one tie


def test_a_group_that_is_alone_in_its_kind_has_no_control(controls: ModuleType) -> None:
    with pytest.raises(ValueError, match="shoe has no other group of the kind cloth"):
        controls.own_and_others(lambda group: 0.0, "shoe", {"shoe": "cloth", "lamp": "home"})


def test_who_has_nothing_of_a_group_prefers_its_own_in_half_of_the_cases(controls: ModuleType) -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(20_000, 5))
    mean = np.mean([controls.preference(own, tuple(others)) for own, *others in scores])
    assert mean == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("count", [2, 3, 4, 7, 14])
def test_a_rotation_leaves_no_value_at_its_place(controls: ModuleType, count: int) -> None:
    values = list(range(count))
    found = controls.rotated(values)
    assert sorted(found) == values
    assert all(one != other for one, other in zip(found, values, strict=True))


def test_shuffling_within_groups_keeps_groups_and_places_and_breaks_pairs(controls: ModuleType) -> None:
    groups = np.arange(2 * 50 * 3).reshape(2, 50, 3)
    found = controls.shuffled_within(groups, 3)
    assert (np.sort(found, axis=1) == groups).all()
    together = {tuple(text) for text in groups.reshape(-1, 3)}
    assert sum(tuple(text) in together for text in found.reshape(-1, 3)) < 5


def test_what_is_picked_is_there_once_and_follows_the_seed(controls: ModuleType) -> None:
    found = controls.picked("abcdef", 4, "seed")
    assert len(set(found)) == 4
    assert set(found) <= set("abcdef")
    assert found == controls.picked("abcdef", 4, "seed")
    assert sorted(controls.picked("ab", 4, "seed")) == ["a", "b"]
    assert Counter(controls.permuted("aabbbc", 2)) == Counter("aabbbc")


def test_answers_at_random_are_each_equally_likely(controls: ModuleType) -> None:
    counts = Counter(controls.answers_at_random(8000, 4, seed=1))
    assert set(counts) == {0, 1, 2, 3}
    assert all(abs(count - 2000) < 6 * (8000 * 3 / 16) ** 0.5 for count in counts.values())


def test_the_best_constant_answer_is_the_commonest_label(controls: ModuleType) -> None:
    assert controls.best_constant(["a", "b", "b", "c"]) == 0.5
