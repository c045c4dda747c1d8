"""Memory segment that holds the weights of a model once for all processes of a machine.

The process of a run loads the model first, copies its weights into a file in memory that has no name (memfd_create(2)),
and seals it: from then on nobody can change it, the writer included. A worker loads the model as ever, its digest
checked, and takes the segment's pages in the place of each weight whose bytes equal its own. So it computes the same
with the segment and without. Other users cannot reach the segment, and the system frees it with the last process that
has it open or mapped, however that process ends.

Weights that oneDNN has packed are read through the pages as well, by torch's C interface for blobs (AOTInductor's shim,
which is stable between versions); it is tried once in a process. Where it or sealed memory is missing, which is
everywhere but on Linux, every process keeps a copy of its own.
"""

import ctypes
import fcntl
import mmap
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Self, TypeAlias
from weakref import finalize

import torch
from torch import Tensor

Share: TypeAlias = Callable[[Tensor], Tensor]
"""Returns a tensor with the same bytes as its argument, or the argument itself."""

SMALLEST = 1 << 16
"""Bytes; smaller weights stay where they are, because each takes whole pages of the segment."""

_SEALS = ("F_SEAL_SHRINK", "F_SEAL_GROW", "F_SEAL_WRITE", "F_SEAL_SEAL")


def keep_private(tensor: Tensor) -> Tensor:
    """Return the tensor itself: there is no segment."""
    return tensor


@dataclass(frozen=True)
class _Layout:
    """Layout of a tensor in bytes; `packed` is oneDNN's description of its blocks, empty for a dense tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    nbytes: int
    packed: bytes

    @classmethod
    def of(cls, tensor: Tensor) -> Self:
        shape = tuple(tensor.shape)
        if not tensor.is_mkldnn:
            return cls(tensor.dtype, shape, tensor.nbytes, b"")
        description = torch.ops.mkldnn._get_mkldnn_serialized_md(tensor)
        return cls(tensor.dtype, shape, torch.ops.mkldnn._nbytes(tensor), description.numpy().tobytes())


@dataclass
class WeightSegment:
    """One model's weights in memory, written by the first load and read by all others; a message may carry it.

    Attributes:
        path: the file, as another process of the same user opens it: a descriptor of the process that made it.
        inode: device and number of the file, so that no other one is taken for it.
        number: that descriptor; None in other processes.
        entries: offset and layout of each weight, in the order of loading.
        sealed: True once the segment is complete and cannot be changed any more.
    """

    path: Path
    inode: tuple[int, int]
    number: int | None = None
    entries: list[tuple[int, _Layout]] = field(default_factory=list)
    sealed: bool = False

    @classmethod
    def create(cls) -> "WeightSegment | None":
        """Return an empty segment; None if the system cannot seal memory."""
        if not hasattr(os, "memfd_create") or not all(hasattr(fcntl, seal) for seal in _SEALS):
            return None
        number = os.memfd_create("weights", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.fchmod(number, 0o600)
        segment = cls(Path(f"/proc/{os.getpid()}/fd/{number}"), _inode(number), number)
        finalize(segment, os.close, number)
        return segment

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "number": None}

    @property
    def nbytes(self) -> int:
        """Bytes of all weights in it."""
        return sum(layout.nbytes for _, layout in self.entries)

    def join(self) -> Share:
        """Return the share of one load: it writes weights into the segment in order, or reads them once sealed."""
        if self.sealed:
            return _Reader(self).share
        return keep_private if self.number is None else partial(self._write, self.number)

    def seal(self) -> None:
        """Make the segment unchangeable; only its writer's first call does anything."""
        if self.number is not None and not self.sealed:
            fcntl.fcntl(self.number, fcntl.F_ADD_SEALS, _all_seals())
            self.sealed = True

    def open(self) -> int | None:
        """Return a descriptor of the sealed file; None if this process cannot open it, or it is another file."""
        try:
            number = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        if _inode(number) == self.inode and _is_sealed(number):
            return number
        os.close(number)
        return None

    def _write(self, number: int, tensor: Tensor) -> Tensor:
        if not _can_share(tensor):
            return tensor
        layout = _Layout.of(tensor)
        offset = -(-os.fstat(number).st_size // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        source, written = memoryview(_bytes_at(tensor, layout.nbytes)).cast("B"), 0
        while written < layout.nbytes:
            written += os.pwrite(number, source[written:], offset + written)
        self.entries.append((offset, layout))
        return _mapped(number, offset, layout)


class _Reader:
    """Takes the weights of one load from a sealed segment."""

    def __init__(self, segment: WeightSegment) -> None:
        self._number = segment.open()
        if self._number is not None:
            finalize(self, os.close, self._number)
        self._entries = iter(segment.entries)

    def share(self, tensor: Tensor) -> Tensor:
        """Return the segment's pages with the bytes of `tensor`, or `tensor` itself where they have others."""
        if self._number is None or not _can_share(tensor):
            return tensor
        offset, layout = next(self._entries, (0, None))
        if layout is None or layout != _Layout.of(tensor):
            return tensor
        mapped = _mapped(self._number, offset, layout)
        return mapped if _equal_bytes(mapped, tensor, layout.nbytes) else tensor


def _can_share(tensor: Tensor) -> bool:
    if tensor.device.type != "cpu":
        return False
    if tensor.is_mkldnn:
        return can_map_packed() and torch.ops.mkldnn._nbytes(tensor) >= SMALLEST
    return tensor.is_contiguous() and tensor.nbytes >= SMALLEST


def _address(tensor: Tensor) -> int:
    return int(torch.ops.mkldnn.data_ptr(tensor) if tensor.is_mkldnn else tensor.data_ptr())


def _bytes_at(tensor: Tensor, nbytes: int) -> Any:
    return (ctypes.c_char * nbytes).from_address(_address(tensor))


def _equal_bytes(one: Tensor, other: Tensor, nbytes: int) -> bool:
    compare = ctypes.CDLL(None).memcmp
    addresses = (ctypes.c_void_p(_address(tensor)) for tensor in (one, other))
    return int(compare(*addresses, ctypes.c_size_t(nbytes))) == 0


def _mapped(number: int, offset: int, layout: _Layout) -> Tensor:
    """Return a tensor on the pages of a file; a write to it would stay in this process."""
    readable = mmap.PROT_READ | mmap.PROT_WRITE
    pages = mmap.mmap(number, layout.nbytes, mmap.MAP_PRIVATE, readable, offset=offset)
    if not layout.packed:
        return torch.frombuffer(pages, dtype=layout.dtype).view(layout.shape)
    tensor = _packed_at(ctypes.addressof(ctypes.c_char.from_buffer(pages)), layout)
    tensor.pages = pages  # type: ignore[attr-defined]  # torch does not own them: they live as long as the tensor
    return tensor


def _packed_at(address: int, layout: _Layout) -> Tensor:
    """Return oneDNN's packed tensor at an address, without a copy."""
    shim, sizes = _shim(), (ctypes.c_int64 * len(layout.shape))
    handle = ctypes.c_void_p()
    problem = shim.aoti_torch_create_tensor_from_blob_v2(
        ctypes.c_void_p(address),
        ctypes.c_int64(len(layout.shape)),
        sizes(*layout.shape),
        sizes(*[0] * len(layout.shape)),
        ctypes.c_int64(0),
        ctypes.c_int32(getattr(shim, f"aoti_torch_dtype_{str(layout.dtype).removeprefix('torch.')}")()),
        ctypes.c_int32(shim.aoti_torch_device_type_cpu()),
        ctypes.c_int32(0),
        ctypes.byref(handle),
        ctypes.c_int32(shim.aoti_torch_layout__mkldnn()),
        ctypes.c_char_p(layout.packed),
        ctypes.c_int64(len(layout.packed)),
    )
    if problem or not handle.value:
        raise RuntimeError("torch made no packed tensor of these bytes")
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    tensor: Tensor = torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr(capsule(handle, None, None))
    return tensor


@cache
def _shim() -> ctypes.CDLL:
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))


@cache
@torch.no_grad()
def can_map_packed() -> bool:
    """Return whether packed weights can be read through pages, tried on small public numbers."""
    try:
        rows = (torch.arange(9 * 64, dtype=torch.float32) * 1.7).sin().view(9, 64)
        packed = torch.ops.mkldnn._reorder_linear_weight((torch.arange(80 * 64.0) * 0.3).cos().view(80, 64), 32)
        layout = _Layout.of(packed)
        pages = mmap.mmap(-1, layout.nbytes)
        pages[:] = bytes(_bytes_at(packed, layout.nbytes))
        mapped = _packed_at(ctypes.addressof(ctypes.c_char.from_buffer(pages)), layout)
        own, theirs = (torch.ops.mkldnn._linear_pointwise(rows, one, None, "none", [], "") for one in (packed, mapped))
        return torch.equal(own, theirs)
    except (AttributeError, OSError, RuntimeError, NotImplementedError):
        return False


def _all_seals() -> int:
    seals: Sequence[int] = [getattr(fcntl, seal) for seal in _SEALS]
    return sum(seals)


def _is_sealed(number: int) -> bool:
    return fcntl.fcntl(number, fcntl.F_GET_SEALS) & _all_seals() == _all_seals()


def _inode(number: int) -> tuple[int, int]:
    stat = os.fstat(number)
    return stat.st_dev, stat.st_ino
