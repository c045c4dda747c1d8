"""Device of tensors, number of threads and precision of an accelerator's sums, decided only here."""

import os

import torch

from models_db.errors import EnvironmentProblem, UsageError


class UnknownDevice(UsageError):
    """An unknown device name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no device {name!r}.", "Use auto, cpu, cuda or cuda:N.", {"device": name})


class DeviceMissing(EnvironmentProblem):
    """A device that this machine does not have."""

    def __init__(self, name: str) -> None:
        super().__init__(f"This machine has no device {name!r}.", "Use --device auto.", {"device": name})


class BadThreads(UsageError):
    """ALMONER_THREADS is not a positive integer."""

    def __init__(self, value: str) -> None:
        super().__init__(f"ALMONER_THREADS={value!r} is not a positive integer.", "Unset it, or give a number.")


def choose_device(name: str = "auto") -> torch.device:
    """`auto` is CUDA where present, else the CPU.

    Raises:
        UnknownDevice: the name is not `auto`, `cpu`, `cuda` or `cuda:N`.
        DeviceMissing: this machine has no such accelerator.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (name != kind and not (kind == "cuda" and index.isdecimal())):
        raise UnknownDevice(name)
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise DeviceMissing(name)
    return torch.device(name)


def devices_for(name: str, count: int) -> list[torch.device]:
    """Return a device per process: `auto` and `cuda` distribute all accelerators, other names mean one device.

    Raises:
        UnknownDevice, DeviceMissing: as `choose_device`.
    """
    device = choose_device(name)
    if device.type != "cuda" or device.index is not None:
        return [device] * count
    return [torch.device("cuda", number % torch.cuda.device_count()) for number in range(count)]


def use_threads() -> int:
    """Let torch compute with ALMONER_THREADS threads, or with its own choice where unset; return their number."""
    if value := os.environ.get("ALMONER_THREADS", ""):
        if not value.isdecimal() or int(value) == 0:
            raise BadThreads(value)
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
