"""PRIVACY §10.1: a network is read only if every module of it is known to act on rows one by one."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from models_db.errors import AlmonerError
from tasks.inference.catalogue.registry import UnsupportedModel
from tasks.inference.loading.load_model import require_supported
from tasks.inference.loading.row_wise_modules import ROWWISE, require_rowwise
from tests.unit.tasks.inference.families import READ, REFUSED, UNKNOWN, adopted, config_of, network_of
from tests.unit.tasks.inference.fixtures import tiny_network

pytestmark = [pytest.mark.dear, pytest.mark.contract]


@pytest.mark.parametrize("family", READ)
def test_every_family_is_read(family: str, tmp_path: Path) -> None:
    """From its configuration alone; what it then computes: `network/test_conformance.py`."""
    config_of(*READ[family]).save_pretrained(tmp_path)
    require_supported(family, tmp_path)


@pytest.mark.parametrize("family", REFUSED)
def test_every_other_family_is_refused_by_name(family: str, tmp_path: Path) -> None:
    kind, changes, said = REFUSED[family]
    config_of(kind, changes).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModel, match=said) as refusal:
        require_supported(family, tmp_path)
    assert refusal.value.exit_code == 2
    assert refusal.value.facts["model"] == family
    with pytest.raises(UnsupportedModel):
        adopted(network_of(kind, changes))


@pytest.mark.parametrize("architecture", UNKNOWN)
def test_an_unknown_architecture_is_refused_by_name(architecture: str, tmp_path: Path) -> None:
    config, said = UNKNOWN[architecture]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModel, match=said) as refusal:
        require_supported("odd", tmp_path)
    assert refusal.value.exit_code == 2
    assert "Llama, Mistral" in refusal.value.advice
    assert "how to ask for another" in refusal.value.advice


MULTIMODAL = {
    "LLaVA": {"model_type": "llava"},
    "Qwen2.5-VL": {"model_type": "qwen2_5_vl"},
    "Llama 4": {"model_type": "llama4"},
}


@pytest.mark.parametrize("model", MULTIMODAL)
def test_models_of_images_are_refused_by_name(model: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MULTIMODAL[model]))
    with pytest.raises(UnsupportedModel) as refusal:
        require_supported(model, tmp_path)
    reasons = ("reads images", "sends rows to experts", "makes no language model")
    assert any(reason in refusal.value.message for reason in reasons)


MALFORMED: dict[str, Any] = {
    "vocab_size": [None, 0, -1, "many", 10**30],
    "hidden_size": [None, 0, -64, [64]],
    "num_attention_heads": [0, 3.5, None],
    "num_hidden_layers": [-1, "two", 10_000_000],
    "num_key_value_heads": [0, 3],
    "max_position_embeddings": [None, 0, 10**30],
    "hidden_act": ["no such function", 7],
    "rope_parameters": [
        {"rope_type": "proportional"},
        {"rope_type": "unheard of"},
        {"rope_type": 3},
        5,
        {"rope_type": "default", "rope_theta": math.nan},
        {"rope_type": "linear", "factor": 0.0, "rope_theta": 10000.0},
    ],
    "sliding_window": ["wide", -3],
    "layer_types": [["linear_attention"] * 2, "full"],
    "quantization_config": [{"quant_method": "awq"}],
    "head_dim": [0, "x"],
    "rms_norm_eps": ["small", math.nan, math.inf, -1e-6, 0.0],
    "dtype": ["float99"],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field in MALFORMED for value in MALFORMED[field]])
def test_a_malformed_configuration_has_a_named_refusal(field: str, value: object, tmp_path: Path) -> None:
    """Never a traceback: refused from the file, or, where that is no matter of the file, once there are weights."""
    written = config_of("llama", {}).to_dict() | {field: value}
    (tmp_path / "config.json").write_text(json.dumps(written))
    with pytest.raises(AlmonerError) as refusal:
        require_supported("odd", tmp_path)
    assert "odd" in refusal.value.message


class Normalised(nn.Module):
    """A part that a row shares with all others."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.norm = inner, nn.BatchNorm1d(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner: torch.Tensor = self.inner(x)
        return inner


def test_a_normalisation_over_the_batch_is_refused_wherever_it_is() -> None:
    network = tiny_network()
    layer = network.model.layers[1]
    layer.mlp = nn.Sequential(layer.mlp, nn.BatchNorm1d(64))
    with pytest.raises(UnsupportedModel, match=r"model\.layers\.1\.mlp\.1 \(BatchNorm1d\) normalises over the rows"):
        adopted(network)


def test_a_class_of_somebody_is_refused_whatever_it_is_called() -> None:
    network = tiny_network()
    network.model.layers[0].mlp = type("LlamaMLP", (Normalised,), {})(network.model.layers[0].mlp)
    with pytest.raises(UnsupportedModel, match="normalises over the rows"):
        require_rowwise("odd", network)
    plain = type("Linear", (nn.Linear,), {})(64, 300, bias=False)
    network = tiny_network()
    network.set_output_embeddings(plain)
    with pytest.raises(UnsupportedModel, match=r"lm_head \(Linear\) is not known"):
        require_rowwise("odd", network)


def test_what_is_listed_exists() -> None:
    """A name that transformers does not have any more would wait for another class to take it."""
    for name in ROWWISE:
        module, _, kind = name.rpartition(".")
        assert hasattr(__import__(module, fromlist=[kind]), kind), name
