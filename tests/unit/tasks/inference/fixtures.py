"""A tiny random Llama for the arithmetic, a tiny tokenizer for the plumbing, and the real model for both."""

import copy
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import tasks.inference  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tasks.inference.catalogue.registry import list_models
from tasks.inference.loading.adopt import wrap_network
from tasks.inference.loading.loading import load
from tasks.inference.network.language_model import LanguageModel
from tests.support import require

REAL = "smollm2-135m-instruct"


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


def adopted(network: Any) -> LanguageModel:
    """The network in the engine's hands, on the CPU."""
    tokenizer = SimpleNamespace(eos_token_id=2)
    return wrap_network(network, tokenizer, name="tiny", revision="1", digest="d", device=torch.device("cpu"))


@pytest.fixture(scope="session")
def tiny() -> Twins:
    """A tiny model of 300 tokens."""
    network = tiny_network()
    return Twins(copy.deepcopy(network), adopted(network))


@pytest.fixture(scope="session")
def real() -> LanguageModel:
    """The offline model that everything else uses."""
    installed = any(model.name == REAL and model.installed for model in list_models())
    require(installed, f"the model is not pulled: almoner models pull {REAL}")
    return load(REAL, "cpu")
