"""Texts as points: what the reference library makes of the same weights, and how passes are cut."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import MPNetConfig, MPNetModel

from tasks.inference.catalogue import model_store, registry
from tasks.inference.catalogue.model_store import UnreadableModel
from tasks.inference.catalogue.registry import ModelKindMismatch, ModelNotPulled, list_models
from tasks.inference.embeddings import encoder
from tasks.inference.embeddings.encoder import EMBEDDER, MAX_PIECES, TextEmbedder, load_embedder
from tests.refusals import refusal
from tests.support import require
from tests.tiny_tokenizer import TEMPLATE, tiny_tokenizer
from tests.unit.tasks.inference.fixtures import digest_of

pytestmark = pytest.mark.dear

HUB = "org/tiny@" + "0" * 40

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
    monkeypatch.setattr(encoder, "_PIECES_AT_ONCE", 1)
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
    watched = replace(embedder, progress=lambda done, of: told.append((done, of)))
    watched(["a", "b " * 100, "c"])
    assert told[-1] == (3, 3)
    watched.pieces(["a", "b"])
    assert told[-1] == (2, 2)


def test_what_is_recorded_names_the_files(embedder: TextEmbedder) -> None:
    assert embedder.digest == digest_of(model_store.model_folder("all-minilm-l6-v2", "0.1.0"))
    assert embedder.name.startswith(f"all-minilm-l6-v2 0.1.0 (files {embedder.digest[:12]}")


def test_wrong_names() -> None:
    with pytest.raises(ModelKindMismatch):
        load_embedder("smollm2-135m-instruct")


def test_a_pass_of_a_given_shape(embedder: TextEmbedder) -> None:
    assert embedder.shaped
    assert embedder.lengths(["", "at noon", "word " * 400]) == [2, 4, MAX_PIECES]
    rows = embedder.rows_at(["at noon", ""], 16)
    assert rows == pytest.approx(embedder(["at noon", ""]), abs=1e-6)
    assert embedder.rows_at(["at noon today"], 4) == pytest.approx(embedder(["at noon"]), abs=1e-6)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes the snapshot of an encoder of random weights with that way of pooling, as the library saves it."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Normalize
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    def make(pooling: str, template: str | None = None) -> Path:
        torch.manual_seed(3)
        tokenizer = tiny_tokenizer(template)
        tokenizer.pad_token = tokenizer.eos_token
        sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
        config = MPNetConfig(vocab_size=len(tokenizer), max_position_embeddings=40, **sizes)
        plain, snapshot = tmp_path / "plain", tmp_path / "snapshot"
        MPNetModel(config).save_pretrained(plain)
        tokenizer.save_pretrained(plain)
        parts = [Transformer(str(plain), max_seq_length=32), Pooling(16, pooling), Dense(16, 8), Normalize()]
        SentenceTransformer(modules=parts, device="cpu").save_pretrained(str(snapshot), create_model_card=False)
        return snapshot

    monkeypatch.setenv("ALMONER_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *a, **b: str(tmp_path / "snapshot"))
    return make


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_a_hub_model_says_itself_how_it_is_pooled(hub: Callable[..., Path], pooling: str) -> None:
    from sentence_transformers import SentenceTransformer

    snapshot = hub(pooling)
    made = load_embedder(HUB, device="cpu")
    texts = ["noon", "at", "a longer text that is cut somewhere before its end"]
    assert made.width == 8
    assert np.isfinite(made(["", "noon"])).all()
    assert not made([""]).any()  # this tokenizer puts no marks, so there is nothing to pool
    assert made(texts) == pytest.approx(SentenceTransformer(str(snapshot), device="cpu").encode(texts), abs=1e-6)
    assert made.name == f"org/tiny {'0' * 40} (files {made.digest[:12]}, {pooling} of 32 word pieces at most)"
    assert [rows.shape for rows, _ in made.pieces(texts)] == [(length, 16) for length in made.lengths(texts)]
    assert max(made.lengths(texts)) == 32


def test_a_model_that_wraps_texts_in_a_template(hub: Callable[..., Path]) -> None:
    hub("mean", TEMPLATE)
    made = load_embedder(HUB, device="cpu")
    assert not made.shaped
    assert np.isfinite(made(["noon", ""])).all()
    with refusal("WordPiecesUnavailable"):
        made.pieces(["noon"])


def test_weights_of_every_layer_are_in_the_digest(hub: Callable[..., Path]) -> None:
    snapshot = hub("mean")
    load_embedder(HUB, device="cpu")
    (layer,) = snapshot.glob("2_*/model.safetensors")
    save_file({"linear.weight": torch.zeros(8, 16), "linear.bias": torch.zeros(8)}, layer)
    with refusal("ModelChanged"):
        load_embedder(HUB, device="cpu")


def _without_modules(snapshot: Path) -> None:
    (snapshot / "modules.json").unlink()


def _pickled(snapshot: Path) -> None:
    (layer,) = snapshot.glob("2_*/model.safetensors")
    layer.rename(layer.with_name("pytorch_model.bin"))


def _foreign(snapshot: Path) -> None:
    listed = json.loads((snapshot / "modules.json").read_text())
    listed[1]["type"] = "pooling.Own"
    (snapshot / "modules.json").write_text(json.dumps(listed))
    (snapshot / "pooling.py").write_text("raise SystemExit('code of a model was run')")


def _endless(snapshot: Path) -> None:
    settings = snapshot / "config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "num_hidden_layers": 10**30}))


def _without_weights(snapshot: Path) -> None:
    for weights in snapshot.rglob("*.safetensors"):
        weights.unlink()


@pytest.mark.parametrize(
    ("break_it", "error"),
    [
        (_without_modules, "NotPooled"),
        (_pickled, "NoSafetensors"),
        (_foreign, "UnreadableModel"),
        (_endless, "UnsupportedModel"),
        (_without_weights, "NoSafetensors"),
        (shutil.rmtree, "NoSafetensors"),
    ],
)
def test_hub_models_that_are_refused(hub: Callable[..., Path], break_it: Any, error: str) -> None:
    break_it(hub("mean"))
    with refusal(error):
        load_embedder(HUB, device="cpu")


def test_not_pulled_and_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALMONER_MODELS", str(tmp_path))
    with pytest.raises(ModelNotPulled):
        load_embedder(device="cpu")
    folder = model_store.model_folder(EMBEDDER, registry.REGISTRY[1].revision)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "strange"}))
    (folder / "model.safetensors").write_bytes(b"{")
    with pytest.raises(UnreadableModel):
        load_embedder(device="cpu")
