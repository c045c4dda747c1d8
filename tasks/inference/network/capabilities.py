"""Capabilities of this machine's devices: each is tried once in a process, by computing.

An instruction set's name is not enough. torch, oneDNN and the processor each have a say (and environment variables
such as ONEDNN_MAX_CPU_ISA another), so every product that a precision needs is computed once on small public numbers
and compared with its definition; an error or another result means that it is missing. What the processor calls its
instructions is kept for messages alone.

| precision | on a CPU | on CUDA |
| --- | --- | --- |
| float32 | always | always |
| bfloat16 | always: products of packed bfloat16 where they work, else widened ones (`packed_linear`) | where it works |
| int8 | where its sums are exact | never |
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from tasks.inference.catalogue.precision import Precision, PrecisionMissing
from tasks.inference.network.int8_linear import has_int8_product, sums_are_exact
from tasks.inference.network.packed_linear import PackedLinear, has_packed_product

CPU = torch.device("cpu")

_NOTABLE = (
    "avx2",
    "fma3",
    "avx_vnni",
    "avx_ne_convert",
    "avx512_f",
    "avx512_bw",
    "avx512_vnni",
    "avx512_bf16",
    "amx_bf16",
)
_INPUTS, _CHANNELS, _ROWS = 96, 80, 9


@dataclass(frozen=True)
class CpuCapabilities:
    """Capabilities of this processor, with this build of torch and in this environment.

    Attributes:
        instructions: names of its instruction sets, for display.
        packed: types of weights that oneDNN's packed product accepts and multiplies correctly.
        int8_product: whether torch has a product of quantised rows.
        int8_exact: whether the sums of that product are exact.
    """

    instructions: tuple[str, ...]
    packed: frozenset[torch.dtype]
    int8_product: bool
    int8_exact: bool


@cache
def cpu_capabilities() -> CpuCapabilities:
    """Ask the processor; the answer is kept as long as the process lives."""
    product = has_int8_product(CPU)
    return CpuCapabilities(
        instructions=_instructions(),
        packed=frozenset(dtype for dtype in (torch.float32, torch.bfloat16) if _packs(dtype)),
        int8_product=product,
        int8_exact=product and _works(sums_are_exact),
    )


def can_pack(device: torch.device, dtype: torch.dtype = torch.float32) -> bool:
    """Return whether the packed product of weights of `dtype` works on `device`."""
    return device.type == "cpu" and dtype in cpu_capabilities().packed


def keeps_bfloat16(device: torch.device) -> bool:
    """Return whether numbers of `device` that are said to be bfloat16 are kept so; a CPU without its products widens.

    There torch multiplies keys and values in bfloat16 in a loop, six times slower than in float32.
    """
    return device.type != "cpu" or can_pack(device, torch.bfloat16)


def is_available(precision: Precision, device: torch.device) -> bool:
    """Return whether `device` computes in `precision`."""
    return not _missing(precision, device)


def check_available(precision: Precision, device: torch.device) -> None:
    """Check that `device` can compute in `precision`.

    Raises:
        PrecisionMissing: it has no kernels for it, or none that add exactly.
    """
    if reason := _missing(precision, device):
        raise PrecisionMissing(precision, str(device), reason)


def require_available(precision: Precision) -> None:
    """Check that some device of this machine can compute in `precision`: before a request is priced or started.

    Raises:
        PrecisionMissing: none can; with the reason of each.
    """
    if reason := missing_everywhere(precision):
        raise PrecisionMissing(precision, " and ".join(map(str, _devices())), reason)


def missing_everywhere(precision: Precision) -> str:
    """Return why no device of this machine computes in `precision`, with the reason of each; empty if one does."""
    reasons = [_missing(precision, device) for device in _devices()]
    return "; ".join(map(str, reasons)) if all(reasons) else ""


def _devices() -> Sequence[torch.device]:
    """Return the kinds of devices that this machine has."""
    return [CPU, torch.device("cuda")] if torch.cuda.is_available() else [CPU]


def _missing(precision: Precision, device: torch.device) -> str | None:
    """Return the reason why `device` cannot compute in `precision`; None if it can."""
    if precision == "int8":
        return _missing_int8(device)
    if precision == "bfloat16" and device.type == "cuda" and not _cuda_multiplies_bfloat16(device):
        major, minor = torch.cuda.get_device_capability(device)
        return f"its products of bfloat16 fail (compute capability {major}.{minor})"
    return None


def _missing_int8(device: torch.device) -> str | None:
    if device.type != "cpu" or not cpu_capabilities().int8_product:
        return "torch has no product of quantised rows for it"
    if not cpu_capabilities().int8_exact:
        instructions = ", ".join(cpu_capabilities().instructions) or "unknown"
        return f"its sums of int8 products are not exact (its instruction sets: {instructions})"
    return None


def _instructions() -> tuple[str, ...]:
    """Return the instruction sets of note, as torch names them; none if it cannot tell."""
    ask: Callable[[], dict[str, object]] | None = getattr(torch.cpu, "get_capabilities", None)
    listed = ask() if ask else {}
    return tuple(name for name in _NOTABLE if listed.get(name))


def _packs(dtype: torch.dtype) -> bool:
    """Return whether the packed product of weights of `dtype` is correct, with and without a bias."""
    return has_packed_product(CPU) and _works(lambda: all(_product_is_right(dtype, bias) for bias in (True, False)))


@torch.inference_mode()
def _product_is_right(dtype: torch.dtype, bias: bool) -> bool:
    linear = nn.Linear(_INPUTS, _CHANNELS, bias=bias, dtype=dtype)
    for parameter in linear.parameters():
        parameter.copy_(_numbers(*parameter.shape))
    x = _numbers(_ROWS, _INPUTS).to(dtype)
    product = PackedLinear(linear)(x)
    return product.dtype == dtype and _is_near(product, _exact(x, linear.weight, linear.bias))


@cache
def _cuda_multiplies_bfloat16(device: torch.device) -> bool:
    x, weight = (_numbers(rows, _INPUTS).to(torch.bfloat16) for rows in (_ROWS, _CHANNELS))

    def product() -> Tensor:
        return nn.functional.linear(x.to(device), weight.to(device)).cpu()

    return _works(lambda: _is_near(product(), _exact(x, weight)))


def _works(ask: Callable[[], bool]) -> bool:
    """Return the answer; no where asking fails, which is how torch says that instructions are missing."""
    try:
        return ask()
    except (RuntimeError, NotImplementedError):
        return False


def _numbers(*shape: int) -> Tensor:
    """Fixed public numbers between -1 and 1, float32."""
    return (torch.arange(torch.Size(shape).numel(), dtype=torch.float32) * 1.7).sin().view(shape)


def _exact(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the product in float64."""
    return nn.functional.linear(x.double(), weight.double(), None if bias is None else bias.double())


def _is_near(result: Tensor, exact: Tensor) -> bool:
    """Return whether nothing but rounding of the result (bfloat16 has 8 bits) stands between them."""
    return bool(torch.allclose(result.double(), exact, rtol=0.01, atol=0.01))
