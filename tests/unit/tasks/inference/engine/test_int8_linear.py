"""int8 layers compute exactly what their definition says, and say so where a processor cannot."""

import pytest
import torch
from torch import Tensor, nn

from tasks.inference.catalogue.devices import CPU, cpu_capabilities
from tasks.inference.engine import linear_layers
from tasks.inference.engine.linear_layers import (
    Int8Linear,
    balanced,
    quantised_channels,
    quantised_rows,
    sums_are_exact,
)
from tasks.inference.loading import weights
from tasks.inference.loading.weights import SharedProduct, quantise_layers
from tests.unit.tasks.inference.processors import expect_refusal


def layer(inputs: int = 96, channels: int = 40, bias: bool = True) -> nn.Linear:
    """A layer with random weights, some channels much louder than others."""
    linear = nn.Linear(inputs, channels, bias=bias)
    with torch.no_grad():
        linear.weight[::7] *= 30
    return linear


def by_definition(linear: nn.Linear, x: Tensor) -> Tensor:
    """The formula of the module, with sums of Python's size."""
    integers, channel_scale = quantised_channels(linear.weight.detach())
    shifted, row_scale = quantised_rows(x)
    sums = (shifted.long() - 128) @ integers.long().T
    y = sums.float() * channel_scale * row_scale
    return y if linear.bias is None else y + linear.bias.detach()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 5, 28, 64])
@torch.inference_mode()
def test_results_are_those_of_the_definition(bias: bool, rows: int) -> None:
    if expect_refusal("int8"):
        return
    linear, x = layer(bias=bias), torch.randn(rows, 96) * torch.logspace(-3, 3, rows)[:, None]
    torch.testing.assert_close(Int8Linear([linear])(x), by_definition(linear, x), rtol=1e-6, atol=1e-6)


@torch.inference_mode()
def test_results_are_near_those_of_the_layer() -> None:
    if expect_refusal("int8"):
        return
    linear, x = layer(), torch.randn(3, 5, 96)
    near, own = Int8Linear([linear])(x[:, ::2]), linear(x[:, ::2])
    assert near.shape == own.shape
    assert float((near - own).norm() / own.norm()) < 0.02


def test_rows_use_all_of_their_scale() -> None:
    integers, scale = quantised_rows(torch.tensor([[1.0, -2.0, 0.5], [1e-20, 0.0, -1e-20], [0.0, 0.0, 0.0]]))
    assert (integers.int() - 128).tolist() == [[64, -127, 32], [127, 0, -127], [0, 0, 0]]
    torch.testing.assert_close(scale[:2, 0] * 127, torch.tensor([2.0, 1e-20]))


@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
@torch.inference_mode()
def test_what_is_not_finite_stays_in_its_row(broken: float) -> None:
    if expect_refusal("int8"):
        return
    int8, x = Int8Linear([layer()]), torch.randn(6, 96)
    healthy = int8(x)
    x[2, 5] = broken
    sick = int8(x)
    assert not sick[2].isfinite().any()
    assert torch.equal(sick[[0, 1, 3, 4, 5]], healthy[[0, 1, 3, 4, 5]])


@torch.inference_mode()
def test_loud_channels_are_balanced() -> None:
    if expect_refusal("int8"):
        return
    linear, x = nn.Linear(96, 40), torch.randn(64, 96)
    x[:, 3] *= 300
    largest = x.abs().amax(0)

    def error(int8: Int8Linear) -> float:
        return float((int8(x) - linear(x)).norm())

    assert error(Int8Linear([linear], largest)) < error(Int8Linear([linear])) / 3
    silent = balanced(linear.weight.detach(), torch.where(torch.arange(96) == 9, 0.0, largest))
    assert silent.isfinite().all()
    assert bool((silent > 0).all())


class Counted(Int8Linear):
    """How often the product runs."""

    runs = 0

    def forward(self, x: Tensor) -> Tensor:
        Counted.runs += 1
        return super().forward(x)


@torch.inference_mode()
def test_layers_of_one_input_share_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    if expect_refusal("int8"):
        return
    monkeypatch.setattr(weights, "Int8Linear", Counted)
    Counted.runs = 0
    layers = [layer(channels=40), layer(channels=24, bias=False), layer(channels=8)]
    shared, x, other = SharedProduct(layers, None), torch.randn(7, 96), torch.randn(7, 96)
    parts = [shared.part(number, x) for number in (2, 0, 1)]
    assert Counted.runs == 1
    for part, linear in zip(parts, (layers[2], layers[0], layers[1]), strict=True):
        assert torch.equal(part, Int8Linear([linear])(x))
    assert not shared._parts
    assert shared._input is None
    assert torch.equal(shared.part(0, x), parts[1])
    assert torch.equal(shared.part(1, other), Int8Linear([layers[1]])(other))
    assert torch.equal(shared.part(1, x), parts[2])
    assert Counted.runs == 4


def test_every_layer_is_replaced() -> None:
    if expect_refusal("int8"):
        return
    gate = nn.ModuleDict({"gate_proj": nn.Linear(8, 16), "up_proj": nn.Linear(8, 16), "down_proj": nn.Linear(16, 8)})
    network = nn.Sequential(gate, nn.ModuleDict({"q_proj": nn.Linear(8, 8)}), nn.LayerNorm(8))
    quantise_layers(network, "int8", CPU)
    assert not [module for module in network.modules() if isinstance(module, nn.Linear)]
    assert len([module for module in network.modules() if isinstance(module, weights.Part)]) == 2
    assert len([module for module in network.modules() if isinstance(module, Int8Linear)]) == 2


@pytest.mark.parametrize("inputs", [1, 2, 7, 96, 577])
def test_no_pair_of_neighbours_exceeds_sixteen_bits(inputs: int) -> None:
    """Whatever the row is, VPMADDUBSW adds them without saturation; and a channel uses all that this allows."""
    weight = torch.randn(64, inputs) * torch.logspace(-30, 30, 64)[:, None]
    weight[0] = 0
    weight[1] = 63.5
    integers, scale = quantised_channels(weight)
    pairs = nn.functional.pad(integers.long().abs(), (0, inputs % 2)).unflatten(1, (-1, 2)).sum(2).amax(1)
    assert int(pairs.max()) * 255 < 2**15
    assert bool((pairs[1:] >= 126).all())
    assert integers[0].count_nonzero() == 0
    torch.testing.assert_close(integers * scale[:, None], weight, rtol=0, atol=float(scale.max()) / 2)


@torch.inference_mode()
def test_any_number_of_inputs_is_multiplied() -> None:
    if expect_refusal("int8"):
        return
    for inputs in (1, 3, 258, 577):
        linear, x = layer(inputs), torch.randn(3, inputs)
        torch.testing.assert_close(Int8Linear([linear])(x), by_definition(linear, x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("first", "exact"), [(0, True), (1, False)])
def test_other_pairs_than_those_of_neighbours_are_noticed(
    first: int, exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a processor that adds pairs in 16 bits, and in one that begins its pairs at the second input."""

    def pairwise(rows: Tensor, packed: Tensor, scale: Tensor, zeros: Tensor) -> Tensor:
        weight = packed.to_dense().long().T
        products = nn.functional.pad(rows.long()[:, None] * weight, (first, first)).unflatten(2, (-1, 2)).sum(3)
        return (products.clamp(-(2**15), 2**15 - 1).sum(2) - 128 * weight.sum(1)).float() * scale

    if expect_refusal("int8"):
        return
    assert linear_layers._adds_exactly(96)
    monkeypatch.setattr(linear_layers, "_product", pairwise)
    assert linear_layers._adds_exactly(96) is exact


def test_sums_that_saturate_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def saturating(rows: Tensor, packed: Tensor, scale: Tensor, zeros: Tensor) -> Tensor:
        """Sums that stop at 23 bits."""
        return real(rows, packed, scale, zeros).clamp(-(2.0**23), 2.0**23)

    real = linear_layers._product
    assert sums_are_exact.__wrapped__() == cpu_capabilities().int8_exact
    monkeypatch.setattr(linear_layers, "_product", saturating)
    assert not sums_are_exact.__wrapped__()
