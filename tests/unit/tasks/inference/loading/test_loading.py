"""From a name to a model in memory, local files only."""

import json
from pathlib import Path

import huggingface_hub
import pytest
import torch

from models_db.errors import AlmonerError
from tasks.inference.catalogue import model_store
from tasks.inference.catalogue.devices import UnknownDevice
from tasks.inference.catalogue.model_store import NoSafetensors, WeightsChanged
from tasks.inference.catalogue.registry import ModelNotPulled, UnknownModel, list_models
from tasks.inference.loading.loading import UnreadableModel, load
from tasks.inference.network.language_model import LanguageModel
from tasks.inference.prompts.render import NoChatTemplate, public_prompt
from tests.tiny_tokenizer import tiny_tokenizer
from tests.unit.tasks.inference.fixtures import REAL, tiny_network

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = f"org/tiny@{COMMIT}"


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny model where Hugging Face's cache would keep it."""
    monkeypatch.setenv("ALMONER_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    folder = tmp_path / "hub" / "models--org--tiny" / "snapshots" / COMMIT
    tiny_network().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def test_a_hub_model_from_local_files(snapshot: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = load(NAME, "cpu")
    assert (model.name, model.revision) == (NAME, COMMIT)
    assert model.digest == model_store.file_sha256(snapshot / "model.safetensors")
    assert model.device == torch.device("cpu")
    assert model.stop_tokens == (1, 5, 7)
    assert public_prompt(model.tokenizer, "Notes.").prefix
    assert list_models()[-1].digest == model.digest
    assert capfd.readouterr() == ("", "")


def test_changed_weights(snapshot: Path) -> None:
    load(NAME, "cpu")
    tiny_network(initializer_range=0.1).save_pretrained(snapshot)
    with pytest.raises(WeightsChanged):
        load(NAME, "cpu")


def test_pickles_are_not_read(snapshot: Path) -> None:
    (snapshot / "model.safetensors").rename(snapshot / "pytorch_model.bin")
    with pytest.raises(NoSafetensors):
        load(NAME, "cpu")


def test_code_of_a_model_is_not_run(snapshot: Path) -> None:
    config = json.loads((snapshot / "config.json").read_text())
    config |= {"model_type": "strange", "auto_map": {"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"}}
    (snapshot / "config.json").write_text(json.dumps(config))
    (snapshot / "code.py").write_text(f"open({str(snapshot / 'ran')!r}, 'w')")
    with pytest.raises(UnreadableModel) as problem:
        load(NAME, "cpu")
    assert problem.value.exit_code == 3
    assert not (snapshot / "ran").exists()


@pytest.mark.parametrize("damage", ["config.json", "model.safetensors", "tokenizer.json"])
def test_damaged_files(snapshot: Path, damage: str) -> None:
    (snapshot / damage).write_text("{")
    with pytest.raises(UnreadableModel):
        load(NAME, "cpu")


def test_no_chat_template(snapshot: Path) -> None:
    (snapshot / "chat_template.jinja").unlink()
    with pytest.raises(NoChatTemplate):
        load(NAME, "cpu")


@pytest.mark.parametrize("name", ["smollm2-135m-instruct", f"org/other@{COMMIT}"])
def test_what_was_not_pulled(snapshot: Path, name: str) -> None:
    with pytest.raises(ModelNotPulled) as problem:
        load(name, "cpu")
    assert f"almoner models pull {name}" in problem.value.advice


@pytest.mark.parametrize(("name", "device", "error"), [("x", "cpu", UnknownModel), (NAME, "gpu", UnknownDevice)])
def test_wrong_requests(snapshot: Path, name: str, device: str, error: type[AlmonerError]) -> None:
    with pytest.raises(error):
        load(name, device)


def test_the_offline_model(real: LanguageModel) -> None:
    assert (real.name, real.revision, real.vocabulary) == (REAL, "0.1.2", 49152)
    assert real.digest == model_store.file_sha256(model_store.model_folder(REAL, "0.1.2") / "model.safetensors")
    assert real.stop_tokens == (2,)
    assert real.head_weight.dtype == torch.float32
