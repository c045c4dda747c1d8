"""Linear layers with weights packed once for oneDNN.

torch's CPU float32 `linear` calls MKL, which packs the weights on every call and, on AMD processors, reaches about
a third of the speed of oneDNN on weights packed beforehand (measured: 28 rows x 576 x 1536, 115 against 276
GFLOP/s on two cores). It is also safer: MKL gave a row other bits in other positions of a batch at 5, 6, 7 and 9 to
11 rows, oneDNN at none from 1 to 64, and PRIVACY §4.2 needs a row's bits to be its own.
"""

import torch
from torch import Tensor, nn

from tasks.inference.kernels.kernel_order import PACKED, KernelName

# The number of rows the packing is laid out for. Any number may be multiplied; measured speeds differ by a few percent.
_ROWS_HINT = 32


class PackedLinear(nn.Module):
    """`x @ weight.T + bias` with the weight held in oneDNN's blocked layout (inference on a CPU).

    In float32, or in bfloat16 with sums in float32: the weight decides. Which of them work here: `capabilities`.

    Args:
        linear: the layer to replace; its own weight is not kept.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _ROWS_HINT)
        self.bias = linear.bias
        self.plain: Tensor | None = None

    def use(self, kernels: KernelName) -> None:
        """Multiply by these kernels from now on; what is unpacked for torch's own product stays so."""
        if kernels != PACKED and self.plain is None:
            self.plain = self.packed.to_dense()
            del self.packed

    def forward(self, x: Tensor) -> Tensor:
        """`x`: [..., in features] -> [..., out features], both of the weight's type."""
        if self.plain is not None:
            return nn.functional.linear(x, self.plain, self.bias)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return product


class WidenedLinear(nn.Module):
    """A bfloat16 layer for processors without packed bfloat16 (those with AVX2 alone): float32 inside.

    The numbers are those of `PackedLinear` in bfloat16 up to the order of the sums: weights and inputs have been
    rounded to bfloat16, whose products are exact in float32; sums are in float32 and are rounded once. It is as fast
    as float32 and needs as much memory; its rows are isolated as those of float32 are. torch's own bfloat16 product
    is a loop many times slower there.

    Args:
        linear: the layer to replace, in bfloat16; its own weight is not kept.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.product = PackedLinear(widened(linear))

    def forward(self, x: Tensor) -> Tensor:
        """`x`: bfloat16 [..., in features] -> bfloat16 [..., out features]."""
        y: Tensor = self.product(x.float())
        return y.to(x.dtype)


def widened(linear: nn.Linear) -> nn.Linear:
    """Return the same numbers in float32, in a layer of their own."""
    return frozen_linear(linear.weight.detach().float(), None if linear.bias is None else linear.bias.detach().float())


def frozen_linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """Return a layer with these weights, frozen: [N, K] and [N]."""
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        linear.bias = nn.Parameter(bias, requires_grad=False)
    return linear


def has_packed_product(device: torch.device) -> bool:
    """Return whether this torch build has oneDNN's packed product for `device`; not whether the product is correct."""
    return (
        device.type == "cpu"
        and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]  # torch's own gap
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )
