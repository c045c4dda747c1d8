"""Public texts are embedded again after a temporary fault, with the same rows; private units are not."""

from typing import Any

import numpy as np
import pytest

from tasks.inference.embeddings.unit_embeddings import RetriedEmbedder, points_of
from tests.faults import Failing, FaultyLetters, temporary, waits
from tests.tiny_embedder import Letters

TEXTS = ["a river", "a stone", ""]


def test_a_call_is_made_again() -> None:
    failing: Any = Failing(Letters(), temporary(), TimeoutError())
    with waits() as seconds:
        rows = RetriedEmbedder(failing)(TEXTS)
    assert (rows == Letters()(TEXTS)).all()
    assert seconds == [10, 20]


def test_points_are_made_again_and_are_the_same() -> None:
    with waits() as seconds:
        points = points_of(RetriedEmbedder(FaultyLetters()), TEXTS)
    assert (points == points_of(Letters(), TEXTS)).all()
    assert points.dtype == np.float32
    assert seconds == [10]


def test_word_pieces_and_name_are_the_embedders() -> None:
    embed = RetriedEmbedder(Letters())
    assert embed.name == Letters.name
    for (rows, own), (expected, marks) in zip(embed.pieces(TEXTS), Letters().pieces(TEXTS), strict=True):
        assert (rows == expected).all()
        assert (own == marks).all()


def test_another_fault_ends_at_once() -> None:
    failing: Any = Failing(Letters(), ValueError())
    with waits() as seconds, pytest.raises(ValueError):
        RetriedEmbedder(failing)(TEXTS)
    assert seconds == []
