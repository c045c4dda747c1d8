"""Devices of a model, number of threads and precision of an accelerator's sums, decided only here.

A name means one device, or a group of devices over which the layers of a model are spread (`cuda:0-3`).
"""

import os
import re
from collections.abc import Sequence
from typing import Final

import torch

from models_db.errors import EnvironmentProblem, UsageError

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
