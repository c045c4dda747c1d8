"""One unit counts for the first few different things it names."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.mechanisms.counts.set_histogram import bound_contributions, count_units_by_item

pytestmark = pytest.mark.contract

UNITS = st.lists(st.lists(st.sampled_from("abcdef"), max_size=8), max_size=6)


def test_the_first_different_ones_in_their_order():
    assert bound_contributions(["b", "a", "b", "c", "d"], 3) == ("b", "a", "c")
    assert bound_contributions([], 3) == ()
    with pytest.raises(ValueError, match="at least one item"):
        bound_contributions(["a"], 0)


@given(UNITS, st.lists(st.sampled_from("abcdef"), max_size=8), st.integers(1, 4))
def test_a_unit_moves_at_most_so_many_counts_by_one(units, another, most):
    without, with_it = count_units_by_item(units, most), count_units_by_item([*units, another], most)
    moved = Counter({name: with_it[name] - without[name] for name in "abcdef"})
    assert set(moved.values()) <= {0, 1}
    assert moved.total() == len(set(another)) if len(set(another)) < most else moved.total() == most
