"""Linear layers with a dense weight, multiplied by torch's own product or by the fixed-order kernel."""

from functools import cache

import torch
from torch import Tensor, nn

from tasks.inference.kernels.kernel_order import FIXED_ORDER, KernelName


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, kernels: KernelName) -> Tensor:
    """Return x @ weight.T + bias by `kernels`: [..., K], [N, K] and [N] -> [..., N], all of one type."""
    if kernels != FIXED_ORDER:
        return nn.functional.linear(x, weight, bias)
    from tasks.inference.kernels import linear_kernel  # it imports Triton

    return linear_kernel.linear(x, weight, bias)


def linear_of_chosen(x: Tensor, weight: Tensor, bias: Tensor | None, chosen: Tensor, kernels: KernelName) -> Tensor:
    """Return x[r] . weight[chosen[r, n]] + bias[chosen[r, n]]: [R, K], [V, K], [V] and int64 [R, N] -> [R, N]."""
    if kernels != FIXED_ORDER:
        products = torch.bmm(weight[chosen], x[:, :, None])[:, :, 0]
        return products if bias is None else products + bias[chosen]
    from tasks.inference.kernels import linear_kernel  # it imports Triton

    return linear_kernel.linear_of_chosen(x, weight, bias, chosen)


class DenseLinear(nn.Module):
    """`x @ weight.T + bias` with the weight as it is.

    Args:
        linear: the layer to replace; its weight and bias are shared.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self._kernels: KernelName = "plain"

    def use(self, kernels: KernelName) -> None:
        """Multiply by these kernels from now on."""
        self._kernels = kernels

    def forward(self, x: Tensor) -> Tensor:
        """`x`: [..., in features] -> [..., out features], both of the weight's type."""
        return linear(x, self.weight, self.bias, self._kernels)


_ROWS, _INPUTS, _CHANNELS = 9, 96, 80
_QUERIES = 32  # times two heads: the widest block of queries (`attention_kernel`)


@cache
def fixed_order_works(device: torch.device, head_size: int) -> bool:
    """Return whether Triton compiles the fixed-order kernels for `device` and they compute what they should.

    Asked once in a process for each size of a head, with small public numbers; a compiler that is missing or fails says
    no. So does a device whose processors have too little shared memory for the widest block of attention: at a head
    size of 256 in bfloat16 it takes 120 KiB, and a GPU of compute capability 8.6 or 8.9 has 99.
    """
    try:
        return all(_is_right(device, dtype, head_size) for dtype in (torch.float32, torch.bfloat16))
    except Exception:  # noqa: BLE001 - Triton, its compilers and the driver each raise their own; nothing private is here
        return False


@torch.inference_mode()
def _is_right(device: torch.device, dtype: torch.dtype, head_size: int) -> bool:
    from tasks.inference.kernels import attention_kernel  # it imports Triton

    def numbers(*shape: int) -> Tensor:
        return (torch.arange(torch.Size(shape).numel(), dtype=torch.float32) * 1.7).sin().view(shape).to(dtype)

    def is_near(result: Tensor, exact: Tensor) -> bool:
        return torch.allclose(result.cpu().double(), exact, rtol=0.01, atol=0.01)

    x, weight, bias = numbers(_ROWS, _INPUTS), numbers(_CHANNELS, _INPUTS), numbers(_CHANNELS)
    product = linear(x.to(device), weight.to(device), bias.to(device), FIXED_ORDER)
    query, key, value = (
        numbers(2, 4, _QUERIES, head_size),
        numbers(2, 2, 48, head_size),
        numbers(2, 2, 48, head_size) / 2,
    )
    mask = torch.zeros(2, 1, _QUERIES, 48)
    mask[1, :, :, :20] = -torch.inf
    there = [part.to(device) for part in (query, key, value, mask)]
    mixed = attention_kernel.attention(there[0], there[1], there[2], there[3], 1 / head_size)
    scores = (query.double() / head_size).view(2, 2, 2 * _QUERIES, head_size) @ key.double().transpose(2, 3)
    weights = (scores.view(2, 4, _QUERIES, 48) + mask).softmax(-1)
    exact = (weights.view(2, 2, -1, 48) @ value.double()).view(2, 4, _QUERIES, head_size).transpose(1, 2)
    return is_near(product, nn.functional.linear(x.double(), weight.double(), bias.double())) and is_near(mixed, exact)
