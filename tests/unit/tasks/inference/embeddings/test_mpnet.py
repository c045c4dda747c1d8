"""all-mpnet-base-v2 with its real weights, where it was pulled: the rows of sentence-transformers, and units apart."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tasks.evaluation.distributions import mauve
from tasks.evaluation.neighbours import proximity
from tasks.inference.embeddings.encoder import TextEmbedder, load_embedder
from tasks.inference.embeddings.unit_embeddings import CachedEmbedder, points_of
from tests.own_home import on_request
from tests.unit.tasks.evaluation.embedded_subjects import number, subject, themed

CONCERNS = ("tasks/inference/embeddings",)

pytestmark = [pytest.mark.slow, pytest.mark.dear]

NAME = "all-mpnet-base-v2"
TEXTS = ("The patient was seen at noon; no allergies.", "", "Thé café — 5 mg, twice a day!", "word " * 500)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with on_request(NAME) as folder:
        yield folder


@pytest.fixture(scope="module")
def embedder(folder: Path) -> TextEmbedder:
    return load_embedder(NAME, device="cpu")


def test_rows_are_those_of_sentence_transformers(folder: Path, embedder: TextEmbedder) -> None:
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(folder), device="cpu", local_files_only=True).encode(list(TEXTS))
    rows = embedder(TEXTS)
    assert rows.shape == (4, 768)
    assert rows == pytest.approx(reference, abs=2e-6)
    assert embedder.lengths(TEXTS)[-1] == embedder.most == 384
    assert embedder.name.startswith(f"{NAME} 0.0.1 (files {embedder.digest[:12]}, mean of 384 word pieces")


def test_meaning_is_near_meaning(embedder: TextEmbedder) -> None:
    rows = embedder(["A doctor saw the patient at midday.", "The patient was seen at noon.", "Pasta with basil."])
    near, far = float(rows[0] @ rows[1]), float(rows[0] @ rows[2])
    assert near > 0.6 > 0.3 > far


def test_a_unit_keeps_every_bit_beside_others(embedder: TextEmbedder) -> None:
    units = [f"Note {index}: the patient rested, and ate {index} apples." for index in range(6)]
    alone, others = points_of(embedder, units[:2]), points_of(embedder, [*units, "word " * 50])
    assert np.array_equal(alone, others[:2])
    assert not np.array_equal(alone[0], alone[1])


def test_metrics_tell_what_is_alike(embedder: TextEmbedder) -> None:
    documents, cached = themed(40, 1), CachedEmbedder(embedder)
    strange = ["The committee postponed the reading of its minutes."] * 20
    for metric, figure in ((mauve, "mauve"), (proximity, "mean")):
        like = metric(subject(themed(20, 2), documents, cached)).values
        other = metric(subject(strange, documents, cached)).values
        assert number(like[f"{figure}_low"]) > number(other[f"{figure}_high"])
