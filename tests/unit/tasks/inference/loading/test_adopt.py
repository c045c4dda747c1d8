"""Which networks the engine takes over, and that it then computes what they compute."""

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import GraniteConfig, GraniteForCausalLM

from tasks.inference.catalogue.devices import CPU, can_pack
from tasks.inference.catalogue.model_check import Precision
from tasks.inference.catalogue.registry import UnsupportedModel
from tasks.inference.engine.attention import grouped_attention
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.linear_layers import PackedLinear
from tasks.inference.loading import adopt
from tasks.inference.loading.adopt import wrap_network
from tasks.inference.loading.weights import quantise_layers
from tests.tiny_tokenizer import tiny_tokenizer
from tests.unit.tasks.inference.families import adopted
from tests.unit.tasks.inference.fixtures import tiny_network
from tests.unit.tasks.inference.processors import NO_ONEDNN, use_processor

SMALL: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "initializer_range": 0.2,
}


def test_public_facts_of_a_model() -> None:
    model = adopted(tiny_network())
    assert (model.vocabulary, model.width, model.layers, model.positions) == (300, 64, 3, 512)
    assert (model.heads, model.key_value_heads, model.head_size) == (4, 2, 16)
    assert (model.name, model.revision, model.digest) == ("tiny", "1", "d")
    assert model.stop_tokens == (2, 5, 7)


def test_half_precision_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="neither float32 nor bfloat16 but float16"):
        adopted(tiny_network().to(torch.float16))


def test_a_head_that_is_no_linear_layer_is_refused() -> None:
    network = tiny_network()
    network.set_output_embeddings(nn.Sequential(network.lm_head))
    with pytest.raises(UnsupportedModel, match="linear"):
        adopted(network)


def test_scaled_logits_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    networks = [GraniteForCausalLM(GraniteConfig(**SMALL, logits_scaling=3.0)) for _ in range(2)]
    assert adopted(networks[0]).logit_factor == pytest.approx(1 / 3)
    monkeypatch.setattr(adopt, "_logit_factor", lambda config: 1.0)
    with pytest.raises(UnsupportedModel, match="more than hidden states times its head"):
        adopted(networks[1])


def test_unknown_attention_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    network = tiny_network()
    inner = network.model.layers[0].self_attn.forward
    monkeypatch.setattr(
        network.model.layers[0].self_attn, "forward", lambda *a, **k: inner(*a, **k, position_bias=torch.ones(1))
    )
    with pytest.raises(UnsupportedModel, match="position_bias"):
        adopted(network)


@pytest.mark.parametrize("packs", [True, False])
def test_logits_are_the_networks_own(monkeypatch: pytest.MonkeyPatch, packs: bool) -> None:
    if not packs:
        use_processor(monkeypatch, NO_ONEDNN)
    network = tiny_network(mlp_bias=True, attention_bias=True)
    network.lm_head = nn.Linear(64, 300)
    whole = copy.deepcopy(network)
    model = adopted(network)
    assert (model.packed_head is not None) == (packs and can_pack(CPU))
    hidden = torch.randn(3, 64)
    with torch.inference_mode():
        torch.testing.assert_close(model.logits(hidden), whole.lm_head(hidden), atol=1e-5, rtol=1e-5)
        some = torch.tensor([7, 0, 299, 7])
        torch.testing.assert_close(model.logits_of(hidden, some), whole.lm_head(hidden)[:, some], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_packed_product_is_the_plain_product(bias: bool) -> None:
    if not can_pack(CPU):
        assert adopted(tiny_network()).packed_head is None
        return
    linear = nn.Linear(48, 80, bias=bias)
    x = torch.randn(5, 7, 48)
    with torch.inference_mode():
        torch.testing.assert_close(PackedLinear(linear)(x), linear(x), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(PackedLinear(linear)(x[:, ::2]), linear(x[:, ::2]), atol=1e-5, rtol=1e-5)


def test_packing_replaces_every_linear_layer() -> None:
    network = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))})
    quantise_layers(network, "float32", torch.device("cpu"))
    packs = can_pack(CPU)
    assert len([module for module in network.modules() if isinstance(module, nn.Linear)]) == (0 if packs else 2)
    assert len([module for module in network.modules() if isinstance(module, PackedLinear)]) == (2 if packs else 0)
    assert not can_pack(torch.device("meta"))


def test_stop_tokens_come_from_everywhere() -> None:
    network = tiny_network(eos_token_id=3)
    network.generation_config.eos_token_id = [9, 4]
    model: LanguageModel = wrap_network(
        network, SimpleNamespace(eos_token_id=None), name="", revision="", digest="", device=torch.device("cpu")
    )
    assert model.stop_tokens == (3, 4, 9)


@pytest.mark.parametrize(("heads", "groups"), [(4, 4), (4, 2), (6, 1)])
def test_grouped_attention_is_attention(heads: int, groups: int) -> None:
    query, key, value = torch.randn(3, heads, 5, 8), torch.randn(3, groups, 32, 8), torch.randn(3, groups, 32, 8)
    mask = torch.where(torch.rand(3, 1, 5, 32) < 0.5, 0.0, -torch.inf)
    mask[..., 0] = 0
    expected = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)
    mixed, _ = grouped_attention(None, query, key, value, mask)
    torch.testing.assert_close(mixed, expected.transpose(1, 2))
    scaled, _ = grouped_attention(None, query * 2, key, value, mask, scaling=0.5 * 8**-0.5)
    torch.testing.assert_close(scaled, mixed)
    with pytest.raises(ValueError, match="position_bias"):
        grouped_attention(None, query, key, value, mask, position_bias=torch.zeros(1))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_tokens_that_the_tokenizer_lacks_have_no_logit(precision: Precision) -> None:
    """A network is wider than its tokenizer: what cannot be written is never drawn, and never paid for."""
    tokenizer = tiny_tokenizer()
    network = tiny_network(vocab_size=300)
    whole = copy.deepcopy(network)
    known = max(tokenizer.get_vocab().values()) + 1
    assert known < 300
    model = wrap_network(
        network, tokenizer, name="wide", revision="1", digest="d", device=torch.device("cpu"), precision=precision
    )
    assert model.vocabulary == known
    hidden = torch.randn(3, model.width, generator=torch.Generator().manual_seed(1))
    assert model.logits(hidden).shape == (3, known)
    torch.testing.assert_close(model.logits(hidden), whole.lm_head(hidden)[:, :known], atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="not among"):
        model.check_knows([known])
