"""Experts of gpt-oss: what transformers computes, and no row meets another; checkpoints in MXFP4."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tasks.inference.catalogue.precision import PrecisionMissing
from tasks.inference.catalogue.registry import UnsupportedModel
from tasks.inference.engine.engine import Engine
from tasks.inference.isolation.check import IsolationCheck
from tasks.inference.loading.loading import load, require_supported
from tasks.inference.loading.network_shape import shape_of
from tasks.inference.network import attention
from tasks.inference.network.row_wise_experts import RowWiseExperts, replace_experts
from tests.unit.tasks.inference.conformance import differences, is_isolated
from tests.unit.tasks.inference.families import READ, adopted, network_of
from tests.unit.tasks.inference.fixtures import NAME
from tests.unit.tasks.inference.rows_at_work import by_row, text

CONCERNS = ("tasks/inference/loading", "tasks/inference/network")

pytestmark = [pytest.mark.dear, pytest.mark.contract]

KIND, CHANGES = READ["gpt-oss"]
ROWS = [{"a": text(12, 1, 250), "b": text(30, 2, 250)}]
# Positive numbers of FP4 with two bits of exponent and one of mantissa; bit 3 is the sign.
FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def _random_network(**changes: Any) -> Any:
    """Every number random, biases too."""
    network = network_of(KIND, {**CHANGES, **changes})
    generator = torch.Generator().manual_seed(5)
    for parameter in network.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.3
    return network


@torch.inference_mode()
def test_experts_give_what_transformers_computes() -> None:
    theirs = _random_network().model.layers[0]
    x = torch.randn(3, 7, 64)
    expected, weights = theirs.mlp(x)
    replace_experts(theirs)
    assert type(theirs.mlp) is RowWiseExperts
    mixed, own_weights = theirs.mlp(x)
    assert float((mixed - expected).abs().max()) < 1e-5
    assert torch.allclose(own_weights.flatten(0, 1), weights, atol=1e-6)
    assert float((mixed - theirs.mlp(torch.zeros_like(x))[0]).abs().max()) > 0.1


@torch.inference_mode()
def test_an_expert_that_a_token_did_not_choose_cannot_reach_it() -> None:
    layers = _random_network().model
    replace_experts(layers)
    experts = layers.layers[0].mlp
    x = torch.randn(1, 9, 64)
    before, _ = experts(x)
    chosen = experts.router(x).topk(2, dim=-1).indices
    experts.outer[0].weight.data.fill_(torch.nan)
    after, _ = experts(x)
    touched = (chosen == 0).any(-1)
    assert touched.any()
    assert not touched.all()
    assert torch.equal(before[~touched], after[~touched])
    assert after[touched].isnan().all()


def test_a_sink_that_is_left_out_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = _random_network()
    model = adopted(_random_network())
    assert model.sinks
    monkeypatch.setattr(attention, "_softmax", lambda scores, _: torch.softmax(scores, dim=-1))
    assert differences(model, plain)[0] > 0.01


def test_a_sink_is_a_column_without_a_value() -> None:
    scores, sinks = torch.randn(2, 3, 4, 16) * 5, torch.tensor([-3.0, 0.0, 40.0])
    scores[0, :, :, 5:] = -torch.inf
    column = sinks.view(1, 3, 1, 1).expand(2, 3, 4, 1)
    expected = torch.softmax(torch.cat([scores, column], dim=-1), dim=-1)[..., :-1]
    assert torch.allclose(attention._softmax(scores, sinks), expected, atol=1e-7)


class Gathered(nn.Module):
    """A broken twin: each expert is multiplied with the tokens that chose it, and with no others."""

    def __init__(self, whole: RowWiseExperts) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        whole, rows = self.whole, x.flatten(0, -2)
        logits, experts = whole.router(rows).topk(whole.chosen, dim=-1)
        weights, mixed = torch.softmax(logits, dim=-1), torch.zeros_like(rows)
        for number, (inner, outer) in enumerate(zip(whole.inner, whole.outer, strict=True)):
            row, place = torch.where(experts == number)
            if len(row):
                mixed[row] += outer(whole._gated(inner(rows[row]))) * weights[row, place, None]
        return mixed.view_as(x), weights


def test_experts_that_count_their_tokens_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """In products of torch's own, whose last bits follow from the number of rows."""
    for question in ("layers", "attention", "head", "candidates"):  # the device is not asked: it would read rows alone
        monkeypatch.setattr(IsolationCheck, question, lambda *_, **__: None)
    model = adopted(_random_network(num_local_experts=3, num_experts_per_tok=1, intermediate_size=640))
    assert is_isolated(model)
    model.use_next_kernels()
    for layer in model.decoder.layers:
        layer.mlp = Gathered(layer.mlp)
    assert not is_isolated(model)


def test_other_mixtures_are_refused_as_before() -> None:
    with pytest.raises(UnsupportedModel, match="sends rows to experts"):
        adopted(network_of("mixtral", {"num_local_experts": 3}))


def _pack(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return blocks, scales and the numbers that they stand for, of [E, in, out]: rounded towards zero."""
    rows = weight.transpose(1, 2)
    groups = rows.reshape(*rows.shape[:2], -1, 32)
    exponents = torch.floor(torch.log2(groups.abs().amax(-1) / 4.0))
    scaled = groups / torch.exp2(exponents)[..., None]
    codes = torch.searchsorted(FP4, scaled.abs().contiguous(), right=True) - 1
    numbers = FP4[codes] * scaled.sign() * torch.exp2(exponents)[..., None]
    nibbles = (codes + 8 * (scaled < 0)).to(torch.uint8)
    blocks = nibbles[..., ::2] | (nibbles[..., 1::2] << 4)
    return blocks, (exponents + 127).to(torch.uint8), numbers.reshape(rows.shape).transpose(1, 2)


@pytest.fixture
def packed(snapshot: Path) -> tuple[Path, Any]:
    """The folder of a gpt-oss whose experts are stored in MXFP4, and a network of the same numbers in bfloat16."""
    network = _random_network(intermediate_size=64)
    for parameter in network.parameters():  # and no table of angles
        parameter.data = parameter.data.to(torch.bfloat16)
    network.save_pretrained(snapshot)
    weights = load_file(snapshot / "model.safetensors")
    for name in [name for name in weights if name.endswith(("gate_up_proj", "down_proj"))]:
        blocks, scales, numbers = _pack(weights.pop(name).float())
        network.get_parameter(name).data = numbers.to(torch.bfloat16)
        weights[f"{name}_blocks"], weights[f"{name}_scales"] = blocks, scales
    save_file(weights, snapshot / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((snapshot / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (snapshot / "config.json").write_text(json.dumps(config))
    for parameter in network.parameters():
        parameter.data = parameter.data.float()
    return snapshot, network


def test_mxfp4_is_read_as_the_numbers_it_stands_for(packed: tuple[Path, Any]) -> None:
    folder, plain = packed
    ours, same, other = (
        by_row(Engine(model), ROWS)
        for model in (load(NAME, "cpu"), adopted(plain), adopted(_random_network(intermediate_size=64)))
    )
    for name in ("a", "b"):
        written = ours[name].shape[-1]  # the tokenizer has fewer ids than the network
        assert torch.allclose(ours[name], same[name][..., :written], atol=1e-5)
        assert not torch.allclose(ours[name], other[name][..., :written], atol=0.01)
    shape = shape_of(require_supported(NAME, folder))
    with safe_open(folder / "model.safetensors", "pt") as stored:
        sizes = [stored.get_tensor(name).nbytes for name in stored.keys()]  # noqa: SIM118 - it is no mapping
    assert shape.parameters * shape.stored_bytes_per_number == pytest.approx(sum(sizes))


@pytest.mark.slow
def test_mxfp4_in_fewer_bits(packed: tuple[Path, Any]) -> None:
    for precision in ("bfloat16", "int8"):
        try:
            model = load(NAME, "cpu", precision)
        except PrecisionMissing:
            assert precision == "int8"
            continue
        assert model.precision == precision
        engine = Engine(model)
        before, after = (
            by_row(engine, [rows]) for rows in (ROWS[0], {"b": ROWS[0]["b"], "c": text(60, 4, 250), "a": []})
        )
        assert torch.equal(before["b"], after["b"])


@pytest.mark.parametrize("method", ["awq", "gptq", "bitsandbytes", "fp8", None])
def test_other_quantisation_of_gpt_oss_is_refused(packed: tuple[Path, Any], method: str | None) -> None:
    folder, _ = packed
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"]["quant_method"] = method
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModel, match="quantised"):
        require_supported(NAME, folder)
