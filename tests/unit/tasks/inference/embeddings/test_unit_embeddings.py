"""Units as points: the bits of a row are those of its own text, whoever else is there."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.inference.catalogue.registry import list_models
from tasks.inference.embeddings.encoder import EMBEDDER, TextEmbedder, load_embedder
from tasks.inference.embeddings.unit_embeddings import LENGTHS, PIECES, CachedEmbedder, places_alike, points_of
from tests.support import require
from tests.tiny_embedder import Letters

CONCERNS = ("tasks/inference/embeddings",)

pytestmark = pytest.mark.dear

WORDS = ["the", "patient", "was", "seen", "at", "noon", "with", "fever", "and", "a", "cough", "that", "had", "gone"]
TEXTS = [" ".join(WORDS[start % 7 : start % 7 + size]) for start, size in enumerate([0, 1, 3, 5, 8, 8, 8, 12, 15] * 4)]
LONG = " ".join(WORDS * 40)


@dataclass
class Shaped:
    """An embedder of fixed shapes without weights. `leak` is what it lets a neighbour or a place do to a row.

    Attributes:
        shapes: of every pass that was made.
    """

    leak: str = ""
    name = "shaped"
    most = 32
    shaped = True
    shapes: list[tuple[int, int]] = field(default_factory=list)
    alike: dict[tuple[int, int], bool] = field(default_factory=dict)

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return Letters()(texts)

    def lengths(self, texts: Sequence[str]) -> list[int]:
        return [min(self.most, len(text.split()) + 2) for text in texts]

    def rows_at(self, texts: Sequence[str], columns: int) -> NDArray[np.float32]:
        self.shapes.append((len(texts), columns))
        rows = Letters()(texts)
        if self.leak == "place":
            rows[len(texts) // 2 :] *= np.float32(1 + 1e-6)
        if self.leak == "middle":
            rows[len(texts) // 3 : -(len(texts) // 3) or None] *= np.float32(1 + 1e-6)
        if self.leak == "neighbour":
            rows *= np.float32(1 + 1e-7 * len(texts[0]))
        return rows


@pytest.fixture(scope="module")
def embedder() -> TextEmbedder:
    installed = any(model.name == EMBEDDER and model.installed for model in list_models())
    require(installed, f"the embedder is not pulled: almoner models pull {EMBEDDER}")
    return load_embedder(device="cpu")


def same(some: NDArray[np.float32], others: NDArray[np.float32]) -> bool:
    return some.tobytes() == others.tobytes()


@pytest.mark.slow
def test_replacing_removing_lengthening_and_permuting_others_changes_no_bit(embedder: TextEmbedder) -> None:
    rows = points_of(embedder, TEXTS)
    assert rows.dtype == np.float32
    assert rows.shape == (len(TEXTS), 384)
    order = np.random.default_rng(1).permutation(len(TEXTS))
    assert same(points_of(embedder, [TEXTS[place] for place in order]), rows[order])
    for without, other in ((0, LONG), (17, "fever")):
        kept = [place for place in range(len(TEXTS)) if place != without]
        assert same(points_of(embedder, [TEXTS[place] for place in kept]), rows[kept])
        changed = [other if place == without else text for place, text in enumerate(TEXTS)]
        assert same(points_of(embedder, changed)[kept], rows[kept])
    assert same(np.concatenate([points_of(embedder, [text]) for text in TEXTS[:9]]), rows[:9])


def test_the_ordinary_call_does_depend_on_the_others(embedder: TextEmbedder) -> None:
    # What this module is for: if this fails, the test above says nothing.
    alone = np.concatenate([embedder([text]) for text in TEXTS])
    assert not same(embedder(TEXTS), alone)


@pytest.mark.slow
def test_rows_are_those_of_the_embedder(embedder: TextEmbedder) -> None:
    texts = [*TEXTS[:12], LONG, "Thé café — 5 mg!", "发烧"]
    rows = points_of(CachedEmbedder(embedder), texts)
    assert rows == pytest.approx(embedder(texts), abs=1e-6)
    assert np.linalg.norm(rows.astype(np.float64), axis=1) == pytest.approx(np.ones(len(texts)), abs=1e-7)


def test_what_cannot_be_embedded_has_the_row_of_the_empty_text(embedder: TextEmbedder) -> None:
    empty, blank, half = points_of(embedder, ["", " \n", "\ud800"])
    assert np.isfinite(half).all()
    assert same(empty, blank)

    class Strange(Letters):
        def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
            rows = super().__call__(texts)
            for place, text in enumerate(texts):
                rows[place] *= {"nan": np.nan, "none": 0.0, "endless": np.inf, "long": 5.0}.get(text, 1.0)
            return rows

    with np.errstate(invalid="ignore"):
        rows = points_of(Strange(), ["nan", "none", "endless", "long", ""])
    assert np.isfinite(rows).all()
    assert [same(row, rows[4]) for row in rows] == [True, True, True, False, True]
    assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(5), abs=1e-6)


def test_an_embedder_without_shapes_is_given_one_text_at_a_time() -> None:
    letters = Letters()
    rows = points_of(letters, ["a", "b", "a"])
    assert letters.asked == ["", "a", "b", "a"]
    assert same(rows, Letters()(["a", "b", "a"]))
    assert points_of(letters, []).shape == (0, 27)


def test_passes_have_public_shapes_alone() -> None:
    made, told = Shaped(), []
    points_of(made, [*TEXTS, LONG], lambda done, of: told.append((done, of)))
    assert set(made.shapes) == {(PIECES // length, length) for length in (8, 16, 32)}
    assert {length for _, length in made.shapes} <= {*LENGTHS, made.most}
    assert told[-1] == (len(TEXTS) + 1, len(TEXTS) + 1)


@pytest.mark.parametrize("leak", ["place", "middle", "neighbour"])
def test_where_places_are_not_alike_every_text_is_read_alone(leak: str) -> None:
    made = Shaped(leak)
    assert not places_alike(made, 4, 16)
    made.shapes.clear()
    points_of(made, TEXTS)
    points_of(made, TEXTS)
    checks = [shape for shape in made.shapes if shape[0] > 1]
    assert len(checks) == 4 * len(set(checks))  # once for each shape
    assert len(made.shapes) == len(checks) + 2 * len(TEXTS)


def test_this_machine_treats_all_places_of_a_pass_alike(embedder: TextEmbedder) -> None:
    points_of(embedder, TEXTS)
    require(all(embedder.alike.values()), "this machine's arithmetic does not treat all places of a pass alike")
    assert embedder.alike
