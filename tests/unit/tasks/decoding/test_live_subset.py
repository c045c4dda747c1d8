"""Some of the live generations, as if they were all."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tasks.decoding.loop import LiveSubset
from tasks.inference.engine.session import RowHidden, RowLogits, RowValues


def rows(generation: list[int], kind: type[RowValues] = RowHidden) -> RowValues:
    """Rows whose values say which they are; every third one is not valid."""
    number = torch.arange(len(generation))
    values = torch.stack([number.float(), number.float() + 0.5], 1)
    return kind(values, torch.tensor(generation, dtype=torch.int64), number % 3 != 2)


def test_of_all_nothing_is_left_out_and_nothing_is_copied() -> None:
    every, given_rows, candidates = torch.randn(3, 4), rows([0, 0, 1, 2]), torch.arange(6).view(3, 2)
    some = LiveSubset((0, 1, 2), 3)
    assert some.all_chosen
    assert some.of(every) is every
    assert some.rows(given_rows) is given_rows
    assert some.all_of(candidates) is candidates


def test_the_chosen_ones_part() -> None:
    every = torch.arange(12).view(4, 3)
    assert LiveSubset((1, 3), 4).of(every).tolist() == [[3, 4, 5], [9, 10, 11]]
    assert not LiveSubset((1, 3), 4).all_chosen


def test_candidates_of_the_chosen_stand_in_their_places() -> None:
    candidates = torch.tensor([[7, 8], [9, 10]])
    assert LiveSubset((1, 3), 4).all_of(candidates).tolist() == [[0, 0], [7, 8], [0, 0], [9, 10]]
    assert LiveSubset((1, 3), 4).all_of(None) is None
    assert candidates.tolist() == [[7, 8], [9, 10]]


@pytest.mark.parametrize("kind", [RowHidden, RowLogits])
def test_rows_of_the_chosen_are_counted_anew(kind: type[RowValues]) -> None:
    found = LiveSubset((1, 3), 4).rows(rows([0, 1, 1, 2, 3, 3], kind))
    assert type(found) is kind
    assert found.values[:, 0].tolist() == [1, 2, 4, 5]
    assert found.generation.tolist() == [0, 0, 1, 1]
    assert found.valid.tolist() == [True, False, True, False]


def test_chosen_ones_without_rows_and_no_rows_at_all() -> None:
    found = LiveSubset((0, 2), 3).rows(rows([1, 1]))
    assert (found.values.shape, found.generation.shape, found.valid.shape) == ((0, 2), (0,), (0,))
    none = RowHidden(torch.zeros(0, 5), torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.bool))
    assert LiveSubset((1,), 2).rows(none).values.shape == (0, 5)


@given(st.data())
def test_some_is_what_each_of_them_would_see_alone(data: st.DataObject) -> None:
    """Whatever the others are: values and validity of a chosen generation are its own, in their order."""
    live = data.draw(st.integers(1, 6))
    generation = sorted(data.draw(st.lists(st.integers(0, live - 1), max_size=12)))
    chosen = sorted(data.draw(st.sets(st.integers(0, live - 1), min_size=1)))
    every = (
        rows(generation) if generation else RowHidden(torch.zeros(0, 2), torch.zeros(0).long(), torch.zeros(0).bool())
    )
    found = LiveSubset(tuple(chosen), live).rows(every)
    for place, number in enumerate(chosen):
        own, seen = every.generation == number, found.generation == place
        assert torch.equal(found.values[seen], every.values[own])
        assert torch.equal(found.valid[seen], every.valid[own])
    assert len(found.values) == sum(number in chosen for number in generation)
