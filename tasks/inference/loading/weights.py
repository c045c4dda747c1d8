"""Weights of a network: read as they are stored, in mapped files, until its linear layers are replaced in place.

Networks whose checkpoints are in bfloat16 may be read as stored. Then weights stay in their mapped files until their
layer is replaced by one of the precision that is asked for, and no float32 copy of the whole is made. What is compared
with the network's own logits is still float32 arithmetic: each module widens its own numbers while it is called, which
is exact.

The system counts the pages of a mapped file as memory of the process until it needs them, and keeps them once for all
processes; pages that were read once need not stay resident. A layer that has made a packed copy of its weights says so,
and the peak of loading is that of the copies alone.
"""

import ctypes
import mmap
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from tasks.inference.catalogue.devices import can_pack, check_available
from tasks.inference.catalogue.model_check import Precision
from tasks.inference.engine.linear_layers import DenseLinear, Int8Linear, PackedLinear, WidenedLinear, widened


def type_to_read(config: Any, folder: Path) -> torch.dtype:
    """Return the type in which the weights in `folder` are read, for every precision of the layers.

    bfloat16 where every number is stored in it: a layer is then given its precision by itself, float32 too. Constants
    that a network makes for itself would be rounded: where they cannot be made again (`restore_constants`), the network
    is read in float32.
    """
    stored = all(map(_is_bfloat16, folder.glob("*.safetensors")))
    return torch.bfloat16 if stored and _keeps_constants(config) else torch.float32


def _is_bfloat16(file: Path) -> bool:
    with safetensors.safe_open(file, "pt") as weights:
        types = {weights.get_slice(name).get_dtype() for name in weights.keys()}  # noqa: SIM118 - no mapping
    return types <= {"BF16"}


def _keeps_constants(config: Any) -> bool:
    """Return whether `restore_constants` knows the numbers that a network of this configuration makes for itself."""
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, trust_remote_code=False)
    return all(
        _is_stored(module, name) or _is_factor(module, name) for module, name, _ in _buffers_in_bfloat16(network)
    )


def restore_constants(network: nn.Module) -> None:
    """Give the buffers of a network that was read in bfloat16 the numbers that they have in one read in float32.

    The factor by which Gemma multiplies embeddings is made anew. What the files hold (the constants of xIELU) is
    widened, which is exact.
    """
    for module, name, buffer in _buffers_in_bfloat16(network):
        factor = torch.tensor(module.scalar_embed_scale) if _is_factor(module, name) else buffer
        setattr(module, name, factor.float())


def _buffers_in_bfloat16(network: nn.Module) -> list[tuple[nn.Module, str, Tensor]]:
    return [
        (module, name, buffer)
        for module in network.modules()
        for name, buffer in module.named_buffers(recurse=False)
        if buffer.dtype == torch.bfloat16
    ]


def _is_stored(module: nn.Module, name: str) -> bool:
    return name not in module._non_persistent_buffers_set


def _is_factor(module: nn.Module, name: str) -> bool:
    """Return whether a buffer is the factor of a table of embeddings (Gemma, Gemma 2 and 3, VaultGemma)."""
    return name == "embed_scale" and is_scaled_table(module)


def is_scaled_table(module: nn.Module) -> bool:
    """Return whether a module looks rows up in a table and multiplies them with a factor of its own."""
    return isinstance(module, nn.Embedding) and hasattr(module, "scalar_embed_scale")


@contextmanager
def float32_arithmetic(network: nn.Module) -> Iterator[None]:
    """Let a network compute in float32 inside, in any precision of its weights; a float32 network stays as it is."""
    hooks = [hook for module in network.modules() for hook in _widen(module)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _widen(module: nn.Module) -> Iterator[Any]:
    """Yield the handles of hooks on a module that has bfloat16 numbers of its own."""
    own = [parameter for parameter in module.parameters(recurse=False) if parameter.dtype == torch.bfloat16]
    if not own:
        return
    if type(module) is nn.Embedding:  # a table is looked up, not computed with
        yield module.register_forward_hook(lambda _, __, output: output.float())
        return
    if is_scaled_table(module):  # nor is this one, and the product is that of float32
        yield module.register_forward_hook(_scaled_rows)
        return
    stored: list[Tensor] = []

    def widen(*_: Any) -> None:
        for parameter in own:
            stored.append(parameter.data)
            parameter.data = parameter.data.float()

    def restore(*_: Any) -> None:
        for parameter, data in zip(own, stored, strict=True):
            parameter.data = data
            release_pages(data)
        stored.clear()

    yield module.register_forward_pre_hook(widen)
    yield module.register_forward_hook(restore, always_call=True)


def _scaled_rows(table: Any, inputs: tuple[Tensor, ...], _: Tensor) -> Tensor:
    """Return the rows of a scaled table, multiplied in float32, in the place of those multiplied in bfloat16."""
    factor: Tensor = table.embed_scale
    return nn.functional.embedding(inputs[0], table.weight, table.padding_idx).float() * factor


_MAPPINGS = Path("/proc/self/maps")
_WEIGHTS = ".safetensors"
_BLOBS = "/blobs/"
"""Folder of Hugging Face's cache where the files are that a snapshot links to."""


def release_pages(weight: Tensor) -> None:
    """Let the system forget the pages of `weight`, if it lies in a mapped file of weights, which nothing writes to.

    A later read gets the same numbers from the file. Other memory is left alone, and so is everything on
    systems without Linux's list of mappings.
    """
    start = -(-weight.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (weight.data_ptr() + weight.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if weight.device.type == "cpu" and start < end and _file_at(start, end) is not None:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)


def file_of(weight: Tensor) -> Path | None:
    """Return the file of weights in which `weight` is mapped; None for other memory, and where that cannot be told."""
    return _file_at(weight.data_ptr(), weight.data_ptr() + weight.nbytes) if weight.device.type == "cpu" else None


def is_protected(file: Path) -> bool:
    """Return whether only this user and the system's administrator can write to a file."""
    try:
        status = file.stat()
    except OSError:
        return False
    others = stat.S_IWGRP | stat.S_IWOTH
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & others


def _file_at(start: int, end: int) -> Path | None:
    """Return the one file of weights that is mapped to all of these addresses."""
    if not _MAPPINGS.is_file():
        return None
    for line in _MAPPINGS.read_text(encoding="utf-8", errors="replace").splitlines():
        addresses, _, rest = line.partition(" ")
        first, _, last = addresses.partition("-")
        if int(first, 16) <= start and end <= int(last, 16):
            path = rest[rest.find("/") :] if "/" in rest else ""
            return Path(path) if path.endswith(_WEIGHTS) or _BLOBS in path else None
    return None


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
