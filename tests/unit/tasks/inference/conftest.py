"""A tiny random Llama for the arithmetic, a tiny tokenizer for the plumbing, and the real model for both."""

import copy
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import tasks.inference  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from tasks.inference.adoption import adopt
from tasks.inference.language_model import LanguageModel
from tasks.inference.loading import load
from tasks.inference.registry import list_models
from tests.support import require

REAL = "smollm2-135m-instruct"
TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


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
    return adopt(network, tokenizer, name="tiny", revision="1", digest="d", device=torch.device("cpu"))


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


def tiny_tokenizer(template: str | None = TEMPLATE) -> Any:
    """A byte-level tokenizer with two control tokens, an unknown-free vocabulary and a chat template."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate(["<|start|>", "<|end|>", *letters])}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<|start|>", eos_token="<|end|>")
    made.chat_template = template
    return made
