"""Sizes are functions of declared numbers."""

import pytest
import torch

from tasks.inference.engine.rows import prefill_shape
from tasks.inference.engine.shapes import (
    ContextTooLong,
    Sizes,
    generations_at_once,
    likely_rows,
    public_rows_per_chunk,
    rows_per_chunk,
    smaller_chunk,
)
from tasks.inference.prompt_rendering import PromptPieces
from tests.unit.tasks.inference.fixtures import Twins

pytestmark = pytest.mark.contract

CPU = torch.device("cpu")


def test_sizes_are_the_longest_of_each_kind() -> None:
    public = [PromptPieces((1,) * 9, (1,)), PromptPieces((1,) * 3, (1,) * 2)]
    private = [PromptPieces((1,) * 4, (1,) * 5), PromptPieces((1,) * 6, (1,) * 2)]
    sizes = Sizes.of(public, private, max_reference_tokens=100, max_new_tokens=20)
    assert sizes == Sizes(public_prompt=10, prefix=6, segment=105, new_tokens=19, reference_tokens=100)
    assert (sizes.public_columns, sizes.private_columns) == (29, 130)


def test_the_context_is_used_to_the_last_position(tiny: Twins) -> None:
    Sizes(4, 10, 400, 101).check_fits(tiny.model)
    with pytest.raises(ContextTooLong) as refused:
        Sizes(4, 10, 400, 102).check_fits(tiny.model)
    assert refused.value.facts == {"needed": 513, "possible": 512}
    assert "max_reference_tokens" in refused.value.advice


@pytest.mark.parametrize("generations", [1, 2, 4, 8, 40])
@pytest.mark.parametrize("nominal", [0, 1, 7, 16, 100])
def test_chunks_hold_likely_rows_in_few_passes(generations: int, nominal: int) -> None:
    rows, height = rows_per_chunk(generations, nominal, CPU), prefill_shape(CPU)[0]
    assert rows % height == 0
    assert 0 < rows <= 64
    likely = likely_rows(generations, nominal)
    assert likely >= generations * nominal
    chunks = -(-likely // rows)
    assert chunks == -(-likely // 64)  # no more chunks than the largest size would need
    assert chunks * rows - likely < chunks * height + height  # and hardly a wasted row


def test_the_usual_request_fits_one_chunk() -> None:
    assert rows_per_chunk(4, 7, CPU) == 36
    assert rows_per_chunk(1, 7, CPU) == 12


def test_accelerators_take_larger_chunks() -> None:
    assert rows_per_chunk(64, 7, torch.device("cuda")) > rows_per_chunk(64, 7, CPU)
    assert rows_per_chunk(64, 7, torch.device("cuda")) % prefill_shape(torch.device("cuda"))[0] == 0


def test_memory_bounds_the_generations_at_once(tiny: Twins) -> None:
    sizes = Sizes(50, 40, 170, 47, 150, 7)
    counts = [generations_at_once(tiny.model, sizes, memory) for memory in (0, 2**24, 2**26, 2**28)]
    assert counts == sorted(counts)
    assert counts[0] == 1  # one is always tried
    column = 2 * 4 * 3 * 2 * 16
    fits, height = counts[2], prefill_shape(CPU)[0]

    def needed(generations: int) -> int:
        chunk = rows_per_chunk(generations, 7, CPU)
        rows = -(-likely_rows(generations, 7) // chunk) * chunk
        return column * ((rows + height) * sizes.private_columns + generations * sizes.public_columns)

    assert needed(fits) <= 2**26 < needed(fits + 1)


def test_without_private_rows_only_public_ones_count(tiny: Twins) -> None:
    column = 2 * 4 * 3 * 2 * 16
    assert generations_at_once(tiny.model, Sizes(50, 0, 0, 46), 96 * column * 10) == 8  # and a scratch of 4 x 46


def test_a_pass_can_be_halved_down_to_a_prefill_pass() -> None:
    assert [smaller_chunk(rows, CPU) for rows in (64, 36, 12, 8, 4)] == [32, 16, 4, 4, 4]
    assert [public_rows_per_chunk(places, CPU) for places in (1, 8, 64, 65)] == [1, 8, 64, 33]
