"""Devices of a model, what each can do, its number of threads and the precision of its sums, all decided here.

A name means one device, or a group of devices over which the layers of a model are spread (`cuda:0-3`).

What a device can is tried once in a process, by computing. An instruction set's name is not enough. torch, oneDNN and
the processor each have a say (and environment variables such as ONEDNN_MAX_CPU_ISA another), so every product that a
precision needs is computed once on small public numbers and compared with its definition; an error or another result
means that it is missing. What the processor calls its instructions is kept for messages alone.

| precision | on a CPU | on CUDA |
| --- | --- | --- |
| float32 | always | always |
| bfloat16 | always: products of packed bfloat16 where they work, else widened ones (`WidenedLinear`) | where it works |
| int8 | where its sums are exact | never |
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import torch
from torch import Tensor, nn

from models_db.errors import EnvironmentProblem, UsageError
from tasks.inference.catalogue.model_check import Precision, PrecisionMissing
from tasks.inference.engine.linear_layers import PackedLinear, has_int8_product, has_packed_product, sums_are_exact

_GROUP: Final = re.compile(r"cuda:([0-9]+)-([0-9]+)")


def _unknown_device(name: str) -> UsageError:
    return UsageError(
        f"There is no device {name!r}.",
        "Use auto, cpu, cuda, cuda:N or cuda:A-B.",
        {"device": name},
        code="UnknownDevice",
    )


def _device_missing(name: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"This machine has no device {name!r}.", "Use --device auto.", {"device": name}, code="DeviceMissing"
    )


def _group_not_divisible(name: str, devices: int, workers: int) -> UsageError:
    return UsageError(
        f"The {devices} devices of {name!r} cannot be divided evenly among {workers} workers.",
        "Choose a number of --workers that divides the number of devices, or --device cuda for one GPU each.",
        {"device": name, "devices": devices, "workers": workers},
        code="GroupNotDivisible",
    )


def choose_devices(name: str = "auto") -> tuple[torch.device, ...]:
    """Return the devices that a name means, at least one; `auto` is CUDA where present, else the CPU.

    `cuda:A-B` means the devices A to B, both included, of this machine.

    Raises:
        UnknownDevice: the name is not `auto`, `cpu`, `cuda`, `cuda:N` or `cuda:A-B` with A < B.
        DeviceMissing: this machine lacks one of them.
    """
    if name == "auto":
        return (torch.device("cuda" if torch.cuda.is_available() else "cpu"),)
    if group := _GROUP.fullmatch(name):
        first, last = map(int, group.groups())
        if first >= last:
            raise _unknown_device(name)
        if last >= torch.cuda.device_count():
            raise _device_missing(name)
        return tuple(torch.device("cuda", index) for index in range(first, last + 1))
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (name != kind and not (kind == "cuda" and index.isdecimal())):
        raise _unknown_device(name)
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise _device_missing(name)
    return (torch.device(name),)


def choose_device(name: str = "auto") -> torch.device:
    """Return the one device that a name means.

    Raises:
        UnknownDevice, DeviceMissing: as `choose_devices`.
        OneDeviceNeeded: the name means several.
    """
    devices = choose_devices(name)
    if len(devices) > 1:
        raise UsageError(
            f"The devices {name!r} are several, and only the layers of a language model are spread over several.",
            "Name one device, such as cuda:0.",
            {"device": name},
            code="OneDeviceNeeded",
        )
    return devices[0]


def name_of(devices: Sequence[torch.device]) -> str:
    """Return the name of one device, or of several: `cuda:0-3` where they follow each other."""
    first, last = devices[0], devices[-1]
    if len(devices) == 1:
        return str(first)
    numbers = [device.index for device in devices]
    if all(device.type == "cuda" for device in devices) and numbers == [*range(first.index, last.index + 1)]:
        return f"cuda:{first.index}-{last.index}"
    return ", ".join(map(str, devices))


def every_accelerator() -> tuple[torch.device, ...]:
    """Return all accelerators of this machine; none where it has none."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return tuple(torch.device("cuda", index) for index in range(count))


def devices_for(name: str, count: int) -> list[str]:
    """Return the name of the device, or of the group of devices, of each of `count` processes.

    `auto` and `cuda` deal out all accelerators, which processes share if there are few. A group is divided evenly, so
    that no device has two processes. Other names mean one device for all.

    Raises:
        UnknownDevice, DeviceMissing: as `choose_devices`.
        GroupNotDivisible: a group has devices left over, or fewer than processes.
    """
    devices = choose_devices(name)
    if len(devices) > 1:
        each, left_over = divmod(len(devices), count)
        if not each or left_over:
            raise _group_not_divisible(name, len(devices), count)
        return [name_of(devices[first : first + each]) for first in range(0, len(devices), each)]
    device = devices[0]
    if device.type != "cuda" or device.index is not None:
        return [str(device)] * count
    return [f"cuda:{number % torch.cuda.device_count()}" for number in range(count)]


def use_threads() -> int:
    """Let torch compute with ALMONER_THREADS threads, or with its own choice where unset; return their number."""
    if value := os.environ.get("ALMONER_THREADS", ""):
        if not value.isdecimal() or int(value) == 0:
            raise UsageError(
                f"ALMONER_THREADS={value!r} is not a positive integer.",
                "Unset it, or give a number.",
                code="BadThreads",
            )
        torch.set_num_threads(int(value))
    return torch.get_num_threads()


def use_full_precision() -> None:
    """Let products on CUDA be those of their type, with sums in float32: before a network is read or computed with.

    float32 is not rounded to TF32 (10 bits behind the point), by matrix products or by convolutions, and sums of
    bfloat16 and float16 are not kept in these types, as split sums of cuBLAS are where that is allowed. The variable
    has a say before torch has, and holds for processes that this one starts.
    """
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


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
