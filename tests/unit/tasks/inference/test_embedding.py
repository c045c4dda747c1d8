"""Texts as points: what the reference library makes of the same weights, and how passes are cut."""

import json
from pathlib import Path

import numpy as np
import pytest

from tasks.inference import embedding, registry, store
from tasks.inference.embedding import EMBEDDER, NotPooled, TextEmbedder, load_embedder
from tasks.inference.loading import UnreadableModel
from tasks.inference.registry import ModelNotPulled, WrongKind, list_models
from tests.support import require

# sentence-transformers 6.2.0 on the same files: SentenceTransformer(folder, device="cpu").encode(texts), first six
# numbers of each row. The last text is longer than what is read.
TEXTS = ("The patient was seen at noon; no allergies.", "", "Thé café — 5 mg, twice a day!", "word " * 400)
GOLDEN = (
    (0.045375, 0.113855, -0.016353, 0.007029, 0.032721, -0.013463),
    (-0.118838, 0.048299, -0.002548, -0.011011, 0.051951, 0.010292),
    (0.03179, 0.023523, 0.04595, 0.111264, -0.032437, -0.049175),
    (-0.008124, -0.095586, -0.038673, 0.049662, -0.043794, 0.02372),
)


@pytest.fixture(scope="module")
def embedder() -> TextEmbedder:
    installed = any(model.name == EMBEDDER and model.installed for model in list_models())
    require(installed, f"the embedder is not pulled: almoner models pull {EMBEDDER}")
    return load_embedder(device="cpu")


def test_rows_are_those_of_sentence_transformers(embedder: TextEmbedder) -> None:
    rows = embedder(TEXTS)
    assert rows.shape == (4, 384)
    assert rows.dtype == np.float32
    assert rows[:, :6] == pytest.approx(np.array(GOLDEN), abs=2e-6)
    assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(4), abs=1e-6)


def test_a_row_hardly_depends_on_the_texts_around_it(embedder: TextEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    together = embedder(TEXTS)
    monkeypatch.setattr(embedding, "_PIECES_AT_ONCE", 1)
    assert np.abs(together - embedder(TEXTS)).max() < 1e-5


def test_pieces_of_a_text_and_which_are_its_own(embedder: TextEmbedder) -> None:
    pieces, counted = embedder.pieces(["noon", "", "at noon"])[0]
    assert pieces.shape == (3, 384)
    assert counted.tolist() == [False, True, False]
    assert np.linalg.norm(pieces, axis=1) == pytest.approx(np.ones(3), abs=1e-6)
    assert [flags.tolist() for _, flags in embedder.pieces(["", "at noon"])] == [
        [False, False],
        [False, True, True, False],
    ]


def test_no_texts(embedder: TextEmbedder) -> None:
    assert embedder([]).shape == (0, 384)
    assert embedder.pieces([]) == []


def test_progress_ends_with_all_texts(embedder: TextEmbedder) -> None:
    told: list[tuple[int, int]] = []
    watched = TextEmbedder(
        embedder.model, "1", "d", embedder.network, embedder.tokenizer, lambda done, of: told.append((done, of))
    )
    watched(["a", "b " * 100, "c"])
    assert told[-1] == (3, 3)


def test_what_is_recorded_names_the_weights(embedder: TextEmbedder) -> None:
    assert embedder.digest == registry.REGISTRY[1].sha256
    assert embedder.name.startswith("all-minilm-l6-v2 0.1.0 (weights 53aa51172d14")


def test_wrong_names() -> None:
    with pytest.raises(WrongKind):
        load_embedder("smollm2-135m-instruct")
    with pytest.raises(NotPooled):
        load_embedder("org/model@" + "0" * 40)


def test_not_pulled_and_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALMONER_MODELS", str(tmp_path))
    with pytest.raises(ModelNotPulled):
        load_embedder(device="cpu")
    folder = store.model_folder(EMBEDDER, registry.REGISTRY[1].revision)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "strange"}))
    (folder / "model.safetensors").write_bytes(b"{")
    with pytest.raises(UnreadableModel):
        load_embedder(device="cpu")
