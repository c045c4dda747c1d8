"""Which batches a release reads: every sample one of its own, no block and no label without one."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.corpus.store import Place
from tasks.planning.layout import BatchLayout
from tests.refusals import refusal

pytestmark = pytest.mark.dear


@st.composite
def layouts(draw: st.DrawFn) -> BatchLayout:
    blocks, labels = draw(st.integers(1, 30)), draw(st.integers(1, 12))
    return BatchLayout(draw(st.integers(max(blocks, labels), 400)), blocks, labels)


def places_of(layout: BatchLayout) -> list[Place]:
    return [place for (place,) in layout.sources()]


def spread(counts: Counter[Any]) -> int:
    return max(counts.values()) - min(counts.values())


@given(layouts())
def test_every_sample_has_a_batch_of_its_own(layout: BatchLayout) -> None:
    places = places_of(layout)
    assert len(places) == len(set(places)) == layout.samples


@given(layouts())
def test_no_block_and_no_label_is_empty_and_none_has_two_more_than_another(layout: BatchLayout) -> None:
    for part, many in ((0, layout.blocks), (1, layout.labels)):
        found = Counter(place[part] for place in places_of(layout))
        assert set(found) == set(range(many))
        assert spread(found) <= 1


@given(layouts())
def test_every_label_of_every_block_has_a_sample_before_any_has_a_second(layout: BatchLayout) -> None:
    found = Counter(place[:2] for place in places_of(layout))
    assert max(found.values()) == layout.most_in_a_block
    if layout.samples >= layout.cells:
        assert len(found) == layout.cells
        assert spread(found) <= 1
    else:
        assert set(found.values()) == {1}


@given(layouts())
def test_earlier_labels_have_what_is_left_over(layout: BatchLayout) -> None:
    found = Counter(label for _, label, _ in places_of(layout))
    numbers = [found[label] for label in range(layout.labels)]
    assert numbers == sorted(numbers, reverse=True)


@given(layouts())
def test_batches_are_the_first_of_their_label_in_their_block(layout: BatchLayout) -> None:
    numbers: dict[tuple[int, int], list[int]] = {}
    for block, label, batch in places_of(layout):
        numbers.setdefault((block, label), []).append(batch)
    assert all(found == list(range(len(found))) for found in numbers.values())


@given(st.integers(1, 40).flatmap(lambda blocks: st.tuples(st.integers(blocks, 400), st.just(blocks))))
def test_without_labels_samples_go_round_the_blocks(numbers: tuple[int, int]) -> None:
    samples, blocks = numbers
    expected = sorted((sample % blocks, 0, sample // blocks) for sample in range(samples))
    assert places_of(BatchLayout(samples, blocks)) == expected


@given(layouts(), st.integers(-(10**6), 10**9), st.integers(1, 10**5))
def test_every_place_exists_whatever_the_noisy_count_says(layout: BatchLayout, units: int, references: int) -> None:
    per_block = layout.per_block(units, references)
    assert per_block >= layout.most_in_a_block
    assert all(batch < per_block for _, _, batch in places_of(layout))


@given(layouts(), st.integers(1, 10**9), st.integers(1, 10**5))
def test_a_batch_holds_about_the_nominal_number_of_units(layout: BatchLayout, units: int, references: int) -> None:
    per_block = layout.per_block(units, references)
    if per_block > layout.most_in_a_block:
        assert abs(per_block - units / (layout.blocks * layout.labels * references)) <= 0.5


@pytest.mark.parametrize(("samples", "blocks"), [(0, 1), (1, 2), (9, 10)])
def test_fewer_samples_than_blocks_are_refused(samples: int, blocks: int) -> None:
    with refusal("BlockWithoutSample", match=f"{samples} samples cannot be shared by {blocks} blocks") as refused:
        BatchLayout(samples, blocks)
    assert str(blocks) in refused.value.advice


@pytest.mark.parametrize(("samples", "labels"), [(1, 2), (9, 10)])
def test_fewer_samples_than_labels_are_refused(samples: int, labels: int) -> None:
    with refusal("LabelWithoutSample", match=f"{samples} samples cannot be shared by {labels} labels") as refused:
        BatchLayout(samples, 1, labels)
    assert str(labels) in refused.value.advice
