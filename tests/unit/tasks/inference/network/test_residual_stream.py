"""The residual stream behind a layer, of every family: read alone, and with a vector added to it."""

from collections.abc import Sequence
from functools import cache

import tasks.inference  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import pytest
import torch
from torch import Tensor, nn

from tasks.inference.engine.row_batch import RowBatch
from tasks.inference.network.language_model import LanguageModel
from tasks.inference.network.residual_stream import LayersNotFound, first_layers, with_addition, with_modules
from tests.unit.tasks.inference.families import READ, network_of
from tests.unit.tasks.inference.fixtures import adopted
from tests.unit.tasks.inference.rows_at_work import text

CONCERNS = ("tasks/inference/engine", "tasks/inference/network")

pytestmark = pytest.mark.dear

ROWS = (text(7, 1), text(5, 2))
VECTOR = torch.linspace(-1, 1, 64)


@cache
def of_family(family: str) -> LanguageModel:
    return adopted(network_of(*READ[family]))


@torch.inference_mode()
def hidden(model: LanguageModel, rows: Sequence[Sequence[int]] = ROWS) -> Tensor:
    """float32 [rows, 7, D]; padding is zero."""
    states = RowBatch(model, len(rows), 7).read_all(rows, 7)
    for row, tokens in enumerate(rows):
        states[row, : 7 - len(tokens)] = 0.0
    return states


@torch.inference_mode()
def streams(model: LanguageModel) -> list[Tensor]:
    """What transformers' own hooks see behind each layer."""
    seen: list[Tensor] = []
    layers = next(m for m in model.decoder.modules() if isinstance(m, nn.ModuleList) and len(m) == model.layers)
    hooks = [
        layer.register_forward_hook(lambda _, given, out: seen.append(out[0] if isinstance(out, tuple) else out))
        for layer in layers
    ]
    hidden(model)
    for hook in hooks:
        hook.remove()
    for states in seen:
        for row, tokens in enumerate(ROWS):
            states[row, : 7 - len(tokens)] = 0.0
    return seen


@pytest.mark.slow_except("Llama", "gpt-oss", "Gemma 3", "Cohere 2", "GPT-2", "Falcon", "OLMo-2")
@pytest.mark.parametrize("family", READ)
def test_the_stream_behind_a_layer_is_what_the_layer_gives(family: str) -> None:
    model = of_family(family)
    seen = streams(model)
    assert len(seen) == model.layers
    for layer in range(1, model.layers + 1):
        first = model.until_layer(layer)
        assert first.layers == layer
        assert torch.equal(hidden(first), seen[layer - 1].float())
    assert torch.equal(hidden(model), hidden(model))  # nothing of it is left in the model


@pytest.mark.parametrize("family", READ)
def test_a_vector_is_added_behind_its_layer_and_nowhere_else(family: str) -> None:
    model = of_family(family)
    width, before = model.width, hidden(model)
    vector = VECTOR.repeat(-(-width // 64))[:width]
    last = model.steered(model.layers, vector)
    stream, steered = hidden(model.until_layer(model.layers)), hidden(last.until_layer(model.layers))
    moved = steered - stream
    real = torch.stack([torch.arange(7) >= 7 - len(row) for row in ROWS])
    torch.testing.assert_close(moved[real], vector.expand(int(real.sum()), -1), atol=1e-4, rtol=1e-4)
    assert torch.equal(hidden(model.steered(1, vector).until_layer(1)), hidden(model.until_layer(1)) + 0 + (
        vector * real[..., None]
    ))  # fmt: skip
    assert not torch.equal(hidden(model.steered(1, vector)), before)
    assert torch.equal(hidden(model.steered(1, torch.zeros(width))), before)
    assert torch.equal(hidden(model), before)  # the model itself adds nothing


def test_a_vector_is_added_once_however_often_a_model_is_steered() -> None:
    model = of_family("Llama")
    twice = model.steered(1, VECTOR).steered(1, -VECTOR)
    torch.testing.assert_close(hidden(twice), hidden(model), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("layer", [0, 3, -1])
def test_layers_that_the_model_has_not(layer: int) -> None:
    model = of_family("Llama")
    with pytest.raises(ValueError, match="2 layers"):
        model.until_layer(layer)
    with pytest.raises(ValueError, match="2 layers"):
        model.steered(layer, VECTOR)


@pytest.mark.parametrize("vector", [torch.zeros(63), torch.zeros(1, 64), torch.full((64,), torch.nan)])
def test_what_is_no_vector(vector: Tensor) -> None:
    with pytest.raises(ValueError, match=r"\[64\]"):
        of_family("Llama").steered(1, vector)


def test_a_decoder_that_is_built_in_another_way_is_refused_by_name() -> None:
    with pytest.raises(LayersNotFound, match="Sequential"):
        first_layers(nn.Sequential(nn.Linear(2, 2)), 1)
    with pytest.raises(LayersNotFound):
        with_addition(nn.Sequential(nn.Linear(2, 2)), 1, VECTOR)


def test_modules_deep_inside_are_replaced_in_a_copy() -> None:
    network = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    other = with_modules(network, {"0.1": nn.Identity()})
    assert isinstance(network[0][1], nn.ReLU)  # type: ignore[index]
    assert isinstance(other.get_submodule("0.1"), nn.Identity)
    assert other.get_submodule("0.0") is network.get_submodule("0.0")
