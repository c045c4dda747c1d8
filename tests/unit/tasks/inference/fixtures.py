"""A tiny random Llama for the arithmetic, a tiny tokenizer for the plumbing, and the real model for both."""

import copy
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tasks.inference  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import huggingface_hub
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tasks.inference.catalogue.registry import list_models
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.loading.load_model import load
from tests.tiny_tokenizer import tiny_tokenizer
from tests.unit.tasks.inference.families import adopted

REAL = "smollm2-135m-instruct"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = f"org/tiny@{COMMIT}"
"""A model of the hub."""


@dataclass(frozen=True)
class Twins:
    """One set of weights twice: as transformers runs it, and as the engine does."""

    network: Any
    model: LanguageModel


def tiny_network(**changes: Any) -> Any:
    """A Llama with random weights, large enough for other-order sums to differ in their last bits."""
    settings: dict[str, Any] = {
        "vocab_size": 300,
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "initializer_range": 0.2,
        "eos_token_id": [5, 7],
        "bos_token_id": 1,
    }
    torch.manual_seed(3)
    return LlamaForCausalLM(LlamaConfig(**settings | changes)).eval()


def digest_of(folder: Path) -> str:
    """The digest of a model's folder, as `sha256sum` would have it of all files but the digest's own record."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != "digest.json")
    listing = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(folder)}\n" for file in files]
    return hashlib.sha256("".join(listing).encode()).hexdigest()


@pytest.fixture(scope="session")
def tiny() -> Twins:
    """A tiny model of 300 tokens."""
    network = tiny_network()
    return Twins(copy.deepcopy(network), adopted(network))


@pytest.fixture(scope="session")
def real() -> LanguageModel:
    """The offline model that everything else uses."""
    installed = any(model.name == REAL and model.installed for model in list_models())
    from tests.support import require  # needs more than a GPU kit has, which reads other parts of this module

    require(installed, f"the model is not pulled: almoner models pull {REAL}")
    return load(REAL, "cpu")


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny model where Hugging Face's cache would keep it."""
    monkeypatch.setenv("ALMONER_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    folder = tmp_path / "hub" / "models--org--tiny" / "snapshots" / COMMIT
    tiny_network().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder
