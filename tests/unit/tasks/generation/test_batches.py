"""Which batches a release reads: every sample one of its own, no block without one."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.generation.batches import BatchLayout
from tasks.generation.interface import BlockWithoutSample

LAYOUTS = st.integers(1, 40).flatmap(lambda blocks: st.builds(BatchLayout, st.integers(blocks, 400), st.just(blocks)))


@given(LAYOUTS)
def test_every_sample_has_a_batch_of_its_own(layout: BatchLayout) -> None:
    places = layout.places()
    assert len(places) == len(set(places)) == layout.samples


@given(LAYOUTS)
def test_no_block_is_empty_and_none_has_two_more_than_another(layout: BatchLayout) -> None:
    in_block = Counter(block for block, _ in layout.places())
    assert set(in_block) == set(range(layout.blocks))
    assert max(in_block.values()) - min(in_block.values()) <= 1
    assert max(in_block.values()) == layout.most_in_a_block


@given(LAYOUTS)
def test_batches_are_the_first_of_their_block(layout: BatchLayout) -> None:
    for block in range(layout.blocks):
        numbers = [batch for found, batch in layout.places() if found == block]
        assert numbers == list(range(len(numbers)))


@given(LAYOUTS, st.integers(-(10**6), 10**9), st.integers(1, 10**5))
def test_every_place_exists_whatever_the_noisy_count_says(layout: BatchLayout, units: int, references: int) -> None:
    per_block = layout.per_block(units, references)
    assert per_block >= layout.most_in_a_block
    assert all(batch < per_block for _, batch in layout.places())


@given(LAYOUTS, st.integers(1, 10**9), st.integers(1, 10**5))
def test_a_batch_holds_about_the_nominal_number_of_units(layout: BatchLayout, units: int, references: int) -> None:
    per_block = layout.per_block(units, references)
    if per_block > layout.most_in_a_block:
        assert abs(per_block - units / (layout.blocks * references)) <= 0.5


@pytest.mark.parametrize(("samples", "blocks"), [(0, 1), (1, 2), (9, 10)])
def test_fewer_samples_than_blocks_are_refused(samples: int, blocks: int) -> None:
    with pytest.raises(BlockWithoutSample, match=f"{samples} samples cannot be shared by {blocks} blocks") as refused:
        BatchLayout(samples, blocks)
    assert str(blocks) in refused.value.advice
