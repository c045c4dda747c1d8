"""Section `environment`: versions, settings, bandwidth, products with their errors, and what a launch costs."""

import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import torch

from benchmarks.gpu.networks import synchronise
from benchmarks.gpu.requirements import installed, packages
from benchmarks.gpu.section import Bench
from tasks.inference.catalogue.devices import use_full_precision

_TF32_ERROR = 2.0**-11
"""Relative rounding of an input in TF32, which has 10 bits behind the point; float32 has 2^-24."""
_BFLOAT16_ERROR = 2.0**-8
"""Relative rounding of one bfloat16 result; sums that are themselves bfloat16 are worse at this length."""


def measure(bench: Bench) -> None:
    """All rows of the section, in the settings in which models are computed."""
    use_full_precision()
    bench.row("versions", _versions)
    bench.row("settings", _settings)
    if bench.device.startswith("cuda"):
        bench.row("device", _device)
        bench.row("driver", _driver)
    bench.row("bandwidth", lambda: _bandwidth(bench))
    for dtype in (torch.bfloat16, torch.float32):
        bench.row(f"product, {_name(dtype)}", lambda dtype=dtype: _product(bench, dtype))
    bench.row("launch", lambda: _launch(bench))
    bench.row("float32 is not TF32", lambda: _float32_error(bench))
    bench.row("bfloat16 sums in float32", lambda: _bfloat16_error(bench))


def best_seconds(device: str, run: Callable[[], object], rounds: int = 5) -> float:
    """The least seconds of `run`, after one round that is not counted."""
    seconds = []
    for _ in range(rounds + 1):
        synchronise(device)
        began = time.perf_counter()
        run()
        synchronise(device)
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:])


def _versions() -> Mapping[str, Any]:
    found = {package.name: package.found or "missing" for package in packages()}
    return {"python": platform.python_version(), **found, "triton": installed("triton"), "vllm": installed("vllm")}


def _settings() -> Mapping[str, Any]:
    matmul = torch.backends.cuda.matmul
    names = ("CUBLAS_WORKSPACE_CONFIG", "PYTORCH_CUDA_ALLOC_CONF", "ALMONER_MEMORY", "NVIDIA_TF32_OVERRIDE")
    return {
        "float32 precision": torch.get_float32_matmul_precision(),
        "TF32": matmul.allow_tf32,
        "reduced bfloat16 sums": matmul.allow_bf16_reduced_precision_reduction,
        "variables": {name: os.environ[name] for name in names if name in os.environ} or "none",
    }


def _device() -> Mapping[str, Any]:
    properties = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info()
    return {
        "device": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "devices": torch.cuda.device_count(),
        "GiB": total / 2**30,
        "GiB free": free / 2**30,
    }


def _driver() -> Mapping[str, Any]:
    fields = "driver_version,clocks.max.sm,clocks.max.memory,power.limit,mig.mode.current"
    told = subprocess.run(
        ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"], capture_output=True, text=True, check=True
    )
    return dict(zip(fields.split(","), told.stdout.splitlines()[0].split(", "), strict=True))


def _bandwidth(bench: Bench) -> Mapping[str, Any]:
    source = torch.empty(2**20 if bench.small else 2**30, dtype=torch.int8, device=bench.device)
    target = torch.empty_like(source)
    seconds = best_seconds(bench.device, lambda: target.copy_(source))
    return {"bytes a second, read and written": 2 * source.nbytes / seconds}


def _product(bench: Bench, dtype: torch.dtype) -> Mapping[str, Any]:
    size = 256 if bench.small else 8192
    left, right = (torch.randn(size, size, device=bench.device).to(dtype) for _ in range(2))
    seconds = best_seconds(bench.device, lambda: left @ right)
    return {"shape": f"{size} x {size} x {size}", "operations a second": 2 * size**3 / seconds}


def _launch(bench: Bench) -> Mapping[str, Any]:
    """What an operation costs that computes next to nothing: of each, one after the other, without waiting."""
    number, count = torch.zeros(8, device=bench.device), 1000

    def launches() -> None:
        for _ in range(count):
            number.add_(1.0)

    return {"microseconds of an operation": best_seconds(bench.device, launches) / count * 1e6}


def _float32_error(bench: Bench) -> Mapping[str, Any]:
    """The largest error of a product that cannot be exact in TF32, beside float64."""
    left, right = _numbers(bench)
    error = _relative_error(left @ right, left, right)
    return {"passed": error < _TF32_ERROR / 16, "relative error": error}


def _bfloat16_error(bench: Bench) -> Mapping[str, Any]:
    left, right = (part.bfloat16() for part in _numbers(bench))
    error = _relative_error(left @ right, left, right)
    return {"passed": error < _BFLOAT16_ERROR, "relative error": error}


def _numbers(bench: Bench) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(5)
    return tuple(torch.rand(shape, device=bench.device) + 0.5 for shape in ((64, 4096), (4096, 64)))  # type: ignore[return-value]


def _relative_error(product: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> float:
    """All numbers are positive, so that no sum is small by cancellation."""
    exact = left.double() @ right.double()
    return float(((product.double() - exact).abs() / exact).max())


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
