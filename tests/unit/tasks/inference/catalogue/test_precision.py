"""A model with fewer bits is still the model: its types, its distance from float32, and the refusal when it is far."""

import copy

import pytest
import torch
from torch import nn
from transformers import GraniteConfig, GraniteForCausalLM

from tasks.inference.catalogue.devices import CPU, keeps_bfloat16
from tasks.inference.catalogue.model_check import PRECISIONS, Precision
from tasks.inference.catalogue.registry import UnsupportedModel
from tasks.inference.engine import linear_layers
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.loading import adopt
from tasks.inference.loading import adopt as adoption
from tasks.inference.loading.adopt import LONGEST_EXAMPLE, PUBLIC_TEXT, largest_inputs, mean_divergence, wrap_network
from tasks.inference.prompt_rendering import reference_tokens
from tests.refusals import refusal
from tests.unit.tasks.inference.catalogue.test_precision_isolation import LOWERED, lowered
from tests.unit.tasks.inference.engine.test_isolation import batches
from tests.unit.tasks.inference.fixtures import tiny_network
from tests.unit.tasks.inference.loading.test_adopt import SMALL
from tests.unit.tasks.inference.processors import expect_refusal
from tests.unit.tasks.inference.rows_at_work import by_row

pytestmark = pytest.mark.dear


@pytest.mark.parametrize(("precision", "most"), [("bfloat16", 0.02), ("int8", 0.1)])
def test_distributions_stay_near_those_of_float32(precision: Precision, most: float) -> None:
    if expect_refusal(precision):
        return
    own, ours = (list(by_row(Engine(lowered(name)), batches()).values()) for name in ("float32", precision))
    assert 0 < mean_divergence(own, ours) < most


def test_types_and_facts() -> None:
    models = {precision: lowered(precision) for precision in PRECISIONS if not expect_refusal(precision)}
    half, full = models["bfloat16"], models["float32"]
    for precision, model in models.items():
        kept = precision != "float32" and keeps_bfloat16(CPU)
        assert model.cache_dtype == (torch.bfloat16 if kept else torch.float32)
        assert model.digest == "d"
        assert model.head_weight.dtype == torch.float32
        assert torch.equal(model.head_weight, full.head_weight)
        assert model.decoder.rotary_emb.inv_freq.dtype == torch.float32
    assert half.decoder.embed_tokens.weight.dtype == torch.bfloat16
    if "int8" in models:
        assert models["int8"].decoder.embed_tokens.weight.dtype == torch.float32


@pytest.mark.parametrize("precision", LOWERED)
def test_an_architecture_that_is_not_ours_is_refused_at_every_precision(
    precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    if expect_refusal(precision):
        return
    monkeypatch.setattr(adopt, "_logit_factor", lambda config: 1.0)
    network = GraniteForCausalLM(GraniteConfig(**SMALL, logits_scaling=3.0))
    with pytest.raises(UnsupportedModel, match="more than hidden states times its head"):
        wrap_network(network, None, name="odd", revision="1", digest="d", device=CPU, precision=precision)


def test_two_bits_are_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    if expect_refusal("int8"):
        return
    monkeypatch.setattr(linear_layers, "_LARGEST", 1)
    with refusal("PrecisionTooCoarse", match="nats") as refused:
        wrap_network(tiny_network(), None, name="tiny", revision="1", digest="d", device=CPU, precision="int8")
    assert refused.value.facts["precision"] == "int8"
    assert "float32" in refused.value.advice


def test_a_divergence_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "mean_divergence", lambda own, ours: float("nan"))
    with refusal("PrecisionTooCoarse"):
        wrap_network(tiny_network(), None, name="tiny", revision="1", digest="d", device=CPU, precision="bfloat16")


def test_divergence_is_that_of_kullback_and_leibler() -> None:
    own, ours = torch.tensor([[0.75, 0.25], [0.5, 0.5]]).log(), torch.tensor([[0.5, 0.5], [0.5, 0.5]]).log()
    expected = (0.75 * torch.tensor(1.5).log() + 0.25 * torch.tensor(0.5).log()) / 2
    assert mean_divergence([own + 3], [ours - 1]) == pytest.approx(float(expected))
    assert mean_divergence([own], [own]) == 0


@torch.inference_mode()
def test_largest_inputs_are_seen_and_the_hooks_taken_off() -> None:
    network = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    plain = copy.deepcopy(network)
    first, second = torch.tensor([[1.0, -5.0, 2.0]]), torch.tensor([[[-3.0, 0.5, 1.0]]])
    with largest_inputs(network) as largest:
        network(first)
        network(second)
    network(first * 100)
    assert largest[network[0]].tolist() == [3.0, 5.0, 2.0]
    assert torch.equal(network(first), plain(first))
    assert len(largest) == 2


@pytest.mark.slow
def test_the_public_text_fits_the_model(real: LanguageModel) -> None:
    assert 100 < len(reference_tokens(real.tokenizer, PUBLIC_TEXT, 1000)) <= LONGEST_EXAMPLE
