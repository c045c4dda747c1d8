"""Texts allocated to labels by noisy counts: exact shares, a minimum for each, and a layout that every block reads."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tasks.evaluation.charged.estimates import shares
from tasks.planning.batches import AllocatedLayout, layout_of
from tasks.planning.label_allocation import (
    AllocationWithoutLabels,
    LabelAllocation,
    TooFewTextsForLabels,
    allocate,
    allocation_of_request,
    format_counts,
    nearest_counts,
    parse_counts,
)
from tests.unit.tasks.generation.asking import ink

pytestmark = pytest.mark.dear

PROPORTIONAL = {"method": "proportional"}
COUNTS = st.lists(st.integers(-300, 3000), min_size=1, max_size=12)


@st.composite
def wanted(draw: st.DrawFn) -> tuple[int, list[int], int]:
    """Texts, weights and a minimum that the texts suffice for."""
    weights = draw(st.lists(st.integers(0, 1000), min_size=1, max_size=12))
    minimum = draw(st.integers(0, 5))
    return draw(st.integers(minimum * len(weights), 500)), weights, minimum


@given(wanted())
def test_all_texts_are_allocated_and_no_label_has_fewer_than_the_minimum(
    given_: tuple[int, list[int], int],
) -> None:
    texts, weights, minimum = given_
    allocated = allocate(texts, weights, minimum)
    assert sum(allocated) == texts
    assert min(allocated) >= minimum


@given(wanted())
def test_labels_above_the_minimum_share_the_rest_in_proportion(given_: tuple[int, list[int], int]) -> None:
    """Each is less than one text away from its quota of what the labels below the minimum leave.

    Which those are is found one by one, from the rarest label on, as a person would.
    """
    texts, weights, minimum = given_
    if not any(weights):
        return
    free = sorted(range(len(weights)), key=lambda label: weights[label], reverse=True)
    rest = texts
    while rest * weights[free[-1]] < minimum * sum(weights[label] for label in free):
        free.pop()
        rest -= minimum
    allocated, total = allocate(texts, weights, minimum), sum(weights[label] for label in free)
    assert all(abs(allocated[label] - Fraction(rest * weights[label], total)) < 1 for label in free)
    assert all(allocated[label] == minimum for label in set(range(len(weights))) - set(free))


@given(wanted())
def test_more_units_never_mean_fewer_texts(given_: tuple[int, list[int], int]) -> None:
    texts, weights, minimum = given_
    allocated = allocate(texts, weights, minimum)
    ranked = sorted(range(len(weights)), key=lambda label: weights[label])
    if any(weights):
        numbers = [allocated[label] for label in ranked]
        assert all(later >= earlier or weights[a] == weights[b] for earlier, later, a, b in zip(
            numbers, numbers[1:], ranked, ranked[1:], strict=False))  # fmt: skip


@pytest.mark.parametrize(
    ("texts", "weights", "minimum", "expected"),
    [
        (100, [75, 15, 8, 2], 1, (75, 15, 8, 2)),
        (10, [75, 15, 8, 2], 1, (7, 1, 1, 1)),
        (4, [1000, 0, 0, 0], 1, (1, 1, 1, 1)),
        (7, [0, 0, 0], 1, (3, 2, 2)),
        (3, [1, 1], 0, (2, 1)),
        (20, [97, 3], 5, (15, 5)),
    ],
)
def test_known_allocations(texts: int, weights: list[int], minimum: int, expected: tuple[int, ...]) -> None:
    assert allocate(texts, weights, minimum) == expected


def test_too_few_texts_are_refused_by_name_and_with_the_least_number() -> None:
    with pytest.raises(TooFewTextsForLabels) as refused:
        allocate(5, [1, 2, 3], 2)
    assert "at least 6 texts" in (refused.value.advice or "")
    with pytest.raises(TooFewTextsForLabels):
        layout_of(ink(samples=5, labels=("a", "b"), label_allocation={**PROPORTIONAL, "minimum": 3}), 5, 1)


@given(COUNTS)
def test_nearest_counts_have_the_sum_and_are_those_of_the_estimates(noisy: list[int]) -> None:
    found = nearest_counts(noisy)
    assert min(found) >= 0
    if sum(noisy) < 1:
        assert set(found) == {0}
        return
    assert sum(found) == sum(noisy)
    expected = shares(np.array([noisy], np.float64))[0] * sum(noisy)
    assert np.allclose([float(count) for count in found], expected, atol=1e-6)


@st.composite
def layouts(draw: st.DrawFn) -> AllocatedLayout:
    noisy, blocks = draw(COUNTS), draw(st.integers(1, 9))
    allocation = LabelAllocation.model_validate({**PROPORTIONAL, "minimum": draw(st.integers(1, 3))})
    samples = draw(st.integers(max(blocks, allocation.minimum * len(noisy)), 300))
    declared = draw(st.none() | st.integers(1, 20))
    return AllocatedLayout.of(allocation, noisy, samples, blocks, draw(st.integers(1, 50)), declared)


@given(layouts())
def test_every_text_has_a_batch_of_its_own_that_exists(layout: AllocatedLayout) -> None:
    places = [place for (place,) in layout.sources()]
    assert len(places) == len(set(places)) == sum(layout.texts)
    assert places == sorted(places)
    assert all(batch < layout.batches[label] for _, label, batch in places)
    labels = layout.labels_of_texts([str(label) for label in range(len(layout.texts))])
    assert Counter(labels) == {str(label): texts for label, texts in enumerate(layout.texts)}


@given(layouts())
def test_blocks_have_equally_many_texts_of_all_labels_and_of_each(layout: AllocatedLayout) -> None:
    places = [place for (place,) in layout.sources()]
    for label in (None, *range(len(layout.texts))):
        found = Counter(block for block, other, _ in places if label in (None, other))
        numbers = [found[block] for block in range(layout.blocks)]
        assert max(numbers) - min(numbers) <= 1


@given(layouts())
def test_no_label_has_more_texts_in_a_block_than_batches(layout: AllocatedLayout) -> None:
    assert all(texts <= batches * layout.blocks for texts, batches in zip(layout.texts, layout.batches, strict=True))


def test_each_label_is_split_so_that_a_batch_has_about_the_nominal_number_of_units() -> None:
    allocation = LabelAllocation.model_validate(PROPORTIONAL)
    layout = AllocatedLayout.of(allocation, [900, 90, 10], 20, 1, 10)
    assert layout.texts == (17, 2, 1)
    assert layout.batches == (90, 9, 1)
    assert AllocatedLayout.of(allocation, [900, 90, 10], 20, 1, 10, declared=4).batches == (17, 4, 4)


@pytest.mark.parametrize("labels", [(), ("a",)])
def test_fewer_than_two_labels_are_refused(labels: tuple[str, ...]) -> None:
    with pytest.raises(AllocationWithoutLabels):
        ink(labels=labels, label_allocation=PROPORTIONAL)


@pytest.mark.parametrize(
    "given_",
    [{}, {"method": "equal"}, {**PROPORTIONAL, "share": 0}, {**PROPORTIONAL, "share": "0.51"},
     {**PROPORTIONAL, "minimum": 0}, {**PROPORTIONAL, "epsilon": 1}],
)  # fmt: skip
def test_what_is_out_of_range_is_refused(given_: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ink(labels=("a", "b"), label_allocation=given_)


@given(COUNTS)
def test_counts_are_read_as_they_are_written(counts: list[int]) -> None:
    assert parse_counts(format_counts(counts)) == tuple(counts)


@pytest.mark.parametrize("figure", ["", "1,2", "1, 02", "1, two", " 1", "+1"])
def test_a_figure_in_another_form_is_refused(figure: str) -> None:
    with pytest.raises(ValueError, match=r"whole numbers|invalid literal"):
        parse_counts(figure)


def test_a_stored_request_without_the_field_allocates_equally() -> None:
    assert allocation_of_request({}) is None
    assert allocation_of_request({"label_allocation": None}) is None
