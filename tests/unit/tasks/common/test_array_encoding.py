"""Arrays as journals keep them."""

import numpy as np
import pytest

from tasks.common.array_encoding import Stored, array_of, text_of


@pytest.mark.parametrize("stored", ["<f4", "<f8", "<i8"])
def test_numbers_come_back_row_by_row(stored: Stored) -> None:
    written = np.arange(6).reshape(2, 3)
    kept = array_of(text_of(written.T, stored), stored)
    assert kept.tolist() == [0, 3, 1, 4, 2, 5]
    assert kept.dtype == np.dtype(stored)
    kept[0] = 7  # writable


def test_the_text_is_the_same_on_every_machine() -> None:
    assert text_of(np.array([1.0, -2.0], ">f8"), "<f4") == text_of(np.array([1, -2]), "<f4") == "AACAPwAAAMA="


@pytest.mark.parametrize("text", ["!", "AAA=", "AACAPwAA\n"])
def test_other_texts_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        array_of(text, "<f4")
