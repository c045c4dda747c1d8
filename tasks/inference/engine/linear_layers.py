"""Linear layers: dense, packed once for oneDNN, or in int8. A row's result depends on that row and the weights alone.

*Dense.* The weight as it is, multiplied by torch's own product or by the fixed-order kernel.

*Packed.* torch's CPU float32 `linear` calls MKL, which packs the weights on every call and, on AMD processors, reaches
about a third of the speed of oneDNN on weights packed beforehand (measured: 28 rows x 576 x 1536, 115 against 276
GFLOP/s on two cores). It is also safer: MKL gave a row other bits in other positions of a batch at 5, 6, 7 and 9 to
11 rows, oneDNN at none from 1 to 64, and PRIVACY §4.2 needs a row's bits to be its own.

*int8.* Weights have one scale per output channel, and activations one scale per ROW.

    y[r, n] = row_scale[r] * (channel_scale[n] * sum_k q[r, k] * w[n, k]) + bias[n]
    q[r, k] = round(x[r, k] / balance[k] / row_scale[r]),   row_scale[r] = max_k |x[r, k] / balance[k]| / 127

The sum is an integer and exact, whatever order a kernel adds in; everything else is elementwise. So a row's result is
a function of that row and the weights alone (PRIVACY §4.2 point 1). One scale for the whole tensor, as most
libraries' dynamic quantisation has it, would couple the rows: the loudest row decides how all others are rounded.

The balance is public and fixed: some channels are a hundred times as loud as others in every text, and alone they
would use up a row's scale. Each is divided by the square root of how loud it was on a public text, relative to its
weights, and its weights are multiplied (Xiao et al., SmoothQuant, 2023, eq. 4, with alpha 0.5).

oneDNN's product of unsigned activations with weights packed beforehand is the fast one on a CPU with VNNI (measured:
28 rows x 576 x 3072, 3 times its float32 product; signed activations fall back to a loop 1000 times slower), so rows
are shifted by 128, which oneDNN takes out again in integers.

CPUs without VNNI add each two neighbours in 16 bits first (the instruction VPMADDUBSW), and larger sums saturate. So a
channel's scale is chosen such that the magnitudes of two neighbouring weights, inputs 2j and 2j + 1, are 128 together
at most: 255 x 128 = 32,640 is below 2^15, whatever the row. `sums_are_exact` asks the device.
"""

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor, nn

from tasks.inference.kernels.kernel_choice import FIXED_ORDER, PACKED, KernelName


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


_LARGEST = 127
_SHIFT = 128
# Kernels cut long sums into blocks; with a multiple of this many inputs no block begins inside a pair.
_BLOCK = 4
# Takes the place of the largest magnitude of rows and channels that are all zero.
_TINY = 1e-30
# The number of rows the packing is laid out for; any number may be multiplied.


def quantised_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return each row rounded to integers -127..127 of its own scale.

    A row with a NaN or an infinity gets a scale that is not finite, so that its results are not finite either.

    Args:
        x: float32 [rows, K].

    Returns:
        uint8 [rows, K], the integers plus 128; and the scale of one unit, float32 [rows, 1].
    """
    scale = x.abs().amax(1, keepdim=True).clamp_min_(_TINY).div_(_LARGEST)
    integers = (x / scale).round_().to(torch.int8)
    # Flipping the highest bit adds 128 and reads the result as unsigned.
    return integers.view(torch.uint8).bitwise_xor_(_SHIFT), scale


def quantised_channels(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return each output channel rounded to integers of its own scale: float32 [N, K] -> int8 [N, K], float32 [N].

    Two neighbours have magnitudes of 127 together before they are rounded, so of 128 at most afterwards.
    """
    pairs = nn.functional.pad(weight.abs(), (0, weight.shape[1] % 2)).reshape(len(weight), -1, 2).sum(2)
    scale = pairs.amax(1).clamp_min_(_TINY) / _LARGEST
    return (weight / scale[:, None]).round_().to(torch.int8), scale


def balanced(weight: Tensor, largest: Tensor) -> Tensor:
    """Return the divisor of each input channel: float32 [N, K] weights, float32 [K] magnitudes -> float32 [K].

    A channel without activations on the public texts counts as a hundredth of the mean, in case it is active later.
    """
    quietest = (largest.mean() / 100).clamp_min(_TINY)
    loudness = largest.clamp_min(float(quietest)) / weight.abs().amax(0).clamp_min(1e-5)
    balance = loudness.sqrt()
    return balance / balance.mean()


class Int8Linear(nn.Module):
    """`x @ weight.T + bias` in int8 (inference on a CPU): float32 [..., K] -> float32 [..., N].

    Args:
        linears: layers of one input; their outputs stand side by side in N. Their own weights are not kept.
        largest: float32 [K], each input channel's largest magnitude on public texts; without it nothing is balanced.
    """

    def __init__(self, linears: Sequence[nn.Linear], largest: Tensor | None = None) -> None:
        super().__init__()
        weight = torch.cat([linear.weight.detach().float() for linear in linears])
        balance = torch.ones(weight.shape[1]) if largest is None else balanced(weight, largest)
        self.balance = balance.reciprocal()
        integers, self.scale = quantised_channels(weight * balance)
        self.channels, self.inputs = integers.shape
        self.packed = _packed(nn.functional.pad(integers, (0, -self.inputs % _BLOCK)))
        self.zeros = torch.zeros(self.channels, dtype=torch.int32)
        self.bias = _joined_bias(linears)

    def forward(self, x: Tensor) -> Tensor:
        """`x`: float32 [..., K] -> float32 [..., N]."""
        rows, scale = quantised_rows(x.reshape(-1, self.inputs) * self.balance)
        if extra := -self.inputs % _BLOCK:
            rows = nn.functional.pad(rows, (0, extra), value=_SHIFT)
        y = _product(rows, self.packed, self.scale, self.zeros).mul_(scale)
        if self.bias is not None:
            y.add_(self.bias)
        return y.view(*x.shape[:-1], self.channels)


def _packed(integers: Tensor) -> Tensor:
    """Return int8 [N, K] in oneDNN's layout."""
    packed: Tensor = torch.ops.onednn.qlinear_prepack(integers, [_ROWS_HINT, integers.shape[1]])
    return packed


def _product(rows: Tensor, packed: Tensor, scale: Tensor, zeros: Tensor) -> Tensor:
    """Return the exact sums, each rounded to float32 and times its channel's scale: float32 [rows, N]."""
    product: Tensor = torch.ops.onednn.qlinear_pointwise.default(
        rows, 1.0, _SHIFT, packed, scale, zeros, None, 1.0, 0, torch.float32, "none", [], ""
    )
    return product


def _joined_bias(linears: Sequence[nn.Linear]) -> Tensor | None:
    if all(linear.bias is None for linear in linears):
        return None
    parts = [linear.weight.new_zeros(linear.out_features) if linear.bias is None else linear.bias for linear in linears]
    return torch.cat([part.detach().float() for part in parts])


def has_int8_product(device: torch.device) -> bool:
    """Return whether this torch build has oneDNN's product of quantised rows for `device`."""
    onednn = torch.ops.onednn
    return has_packed_product(device) and hasattr(onednn, "qlinear_prepack") and hasattr(onednn, "qlinear_pointwise")


@cache
def sums_are_exact() -> bool:
    """Return whether this CPU adds int8 products exactly, tested on the largest ones of both signs."""
    return all(_adds_exactly(inputs) for inputs in (96, 260, 1536, 2052))


def _adds_exactly(inputs: int) -> bool:
    """Return whether sums over so many inputs are exact for weights and rows that are as large as they may be.

    The magnitudes of neighbours are 128 together, in all shares: other neighbours than inputs 2j and 2j + 1, or more of
    them in one sum of 16 bits, saturate.
    """
    channels = 96
    share = (torch.arange(inputs // 2) * 31 + torch.arange(channels)[:, None] * 17) % (_LARGEST + 2)
    share[0::3], share[1::3] = _LARGEST, 1
    signs = torch.where(torch.arange(channels)[:, None, None] % 2 == 0, 1, -1).expand(-1, inputs // 2, 2).clone()
    signs[2::6, :, 1] *= -1
    weight = (torch.stack([share, _LARGEST + 1 - share], 2).clamp(max=_LARGEST) * signs).flatten(1)
    rows = torch.full((33, inputs), 255, dtype=torch.uint8)
    rows[1::3] = 1
    rows[2::3, ::7] = 77
    rows[3] = torch.where(weight[2] > 0, 255, 1)
    packed = _packed(weight.to(torch.int8))
    product = _product(rows, packed, torch.ones(channels), torch.zeros(channels, dtype=torch.int32))
    sums = (rows.long() - _SHIFT) @ weight.T
    return torch.equal(product, sums.float())
