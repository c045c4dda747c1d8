"""Replacement of a network's linear layers by ones of a given precision, in place."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from tasks.inference.catalogue.precision import Precision
from tasks.inference.kernels.dense_linear import DenseLinear
from tasks.inference.network.capabilities import can_pack, check_available
from tasks.inference.network.int8_linear import Int8Linear
from tasks.inference.network.mapped_weights import release_pages
from tasks.inference.network.packed_linear import PackedLinear, WidenedLinear, widened

# Layers that transformers feeds one and the same tensor: quantised once, and multiplied in one product.
_ONE_INPUT = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


class SharedProduct:
    """One product for several layers of the same input, kept until each of them has taken its part."""

    def __init__(self, linears: Sequence[nn.Linear], largest: Tensor | None) -> None:
        self._product = Int8Linear(linears, largest)
        self._sizes = [linear.out_features for linear in linears]
        self._input: Tensor | None = None
        self._parts: dict[int, Tensor] = {}

    def part(self, number: int, x: Tensor) -> Tensor:
        """Return the result of layer `number`: float32 [..., K] -> float32 [..., its N], a view of the whole."""
        if x is not self._input or number not in self._parts:
            self._input, self._parts = x, dict(enumerate(self._product(x).split(self._sizes, dim=-1)))
        layer = self._parts.pop(number)
        if not self._parts:
            self._input = None
        return layer


class Part(nn.Module):
    """One layer of a shared product."""

    def __init__(self, shared: SharedProduct, number: int) -> None:
        super().__init__()
        self._shared, self._number = shared, number

    def forward(self, x: Tensor) -> Tensor:
        """`x`: float32 [..., K] -> float32 [..., N]."""
        return self._shared.part(self._number, x)


@torch.no_grad()
def quantise_layers(
    network: nn.Module,
    precision: Precision,
    device: torch.device,
    ranges: Mapping[nn.Module, Tensor] | None = None,
) -> None:
    """Give every linear layer inside `network` the weights of `precision`, in place, as `device` multiplies them.

    The network stays where it is.

    Args:
        network: in float32 or in bfloat16, which it keeps where no layer is replaced (`widen_parameters`).
        ranges: the largest magnitude of each input channel of a layer on public texts, float32 [in features].

    Raises:
        PrecisionMissing: int8 where this device cannot add it exactly.
    """
    check_available(precision, device)
    if precision == "bfloat16":
        # Parameters only: tables of angles stay in float32.
        for parameter in network.parameters():
            parameter.data = parameter.data.to(torch.bfloat16)
    if precision == "int8":
        _quantise(network, ranges or {})
    elif can_pack(device):
        _replace(network, _packing(precision, device))
    else:
        _replace(network, DenseLinear)


def widen_parameters(network: nn.Module) -> None:
    """Give every parameter of a network float32 numbers, one after the other and where it is, in place."""
    for parameter in network.parameters():
        stored = parameter.data
        if stored.dtype == torch.bfloat16:
            parameter.data = stored.float()
            release_pages(stored)


def _packing(precision: Precision, device: torch.device) -> Callable[[nn.Linear], nn.Module]:
    """Return what makes a packed layer of `precision`, float32 or bfloat16, of one in float32 or bfloat16."""
    wide = precision == "float32"
    kind = PackedLinear if wide or can_pack(device, torch.bfloat16) else WidenedLinear

    def pack(linear: nn.Linear) -> nn.Module:
        layer = kind(widened(linear) if wide else linear)
        release_pages(linear.weight)
        return layer

    return pack


def _replace(network: nn.Module, kind: Callable[[nn.Linear], nn.Module]) -> None:
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, kind(child))


def _quantise(network: nn.Module, ranges: Mapping[nn.Module, Tensor]) -> None:
    for parent in list(network.modules()):
        linears = {name: child for name, child in parent.named_children() if type(child) is nn.Linear}
        for names in _ONE_INPUT:
            if linears.keys() >= set(names) and len({linears[name].in_features for name in names}) == 1:
                together = [linears.pop(name) for name in names]
                shared = SharedProduct(together, ranges.get(together[0]))
                for number, name in enumerate(names):
                    setattr(parent, name, Part(shared, number))
                for linear in together:
                    release_pages(linear.weight)
        for name, linear in linears.items():
            setattr(parent, name, Int8Linear([linear], ranges.get(linear)))
            release_pages(linear.weight)
