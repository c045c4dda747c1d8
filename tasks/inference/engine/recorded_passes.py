"""Passes that are recorded once and replayed without Python: CUDA graphs on an accelerator, plain calls on a CPU.

A pass over a model's layers is about 45 launches for each layer, one after the other from Python, and on an H100 they
took longer than their work (docs/gpu.md). Shapes of passes are public and few, and their memory stays where it is for
as long as a ring lives, so a pass of a shape is computed as it stands the first time, recorded the second, and replayed
from then on.

What is recorded is what is launched: the same kernels on the same memory. Whether a replay gives the bits of the plain
pass is asked before a session begins, beside row isolation (`isolation.IsolationCheck.layers`); a device where it does
not, or a network whose pass cannot be recorded, goes on without (`PassRecorder.give_up`), in the same shapes.
"""

from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor


class Recording(Protocol):
    """Way of recording launches."""

    def __call__(self, compute: Callable[[], None]) -> Callable[[], None]:
        """Record what `compute` launches, without running it; return what runs it.

        Raises:
            RuntimeError: `compute` cannot be recorded.
        """


class PassRecorder:
    """Recorder of passes on one device.

    Args:
        recording: CUDA graphs on CUDA if not given, and nothing on another device.
    """

    def __init__(self, device: torch.device, recording: Recording | None = None) -> None:
        self._recording = recording or (CudaGraphs(device) if device.type == "cuda" else None)

    @property
    def records(self) -> bool:
        """Whether passes are recorded."""
        return self._recording is not None

    def give_up(self) -> None:
        """Record nothing from now on; what has been recorded is not replayed any more."""
        self._recording = None

    def record(self, compute: Callable[[], None]) -> Callable[[], None] | None:
        """Return what replays `compute`; None where this device or network cannot record it, and then give up."""
        try:
            return self._recording(compute) if self._recording else None
        except RuntimeError:  # also where memory is short: a plain pass needs less
            self.give_up()
            return None


@dataclass
class _Pass:
    """A pass that has been computed once.

    Attributes:
        inputs: memory that a replay reads; none until it is recorded.
        output: memory that a replay writes.
        replay: runs it; None until it is recorded.
    """

    output: Tensor
    inputs: tuple[Tensor, ...] = ()
    replay: Callable[[], None] | None = None


class RecordedPasses:
    """The passes over one memory: of a ring, or of a batch of rows.

    They hold that memory's addresses, so they live and die with it.

    Args:
        recorder: None where nothing is recorded, because no pass comes twice.
    """

    def __init__(self, recorder: PassRecorder | None) -> None:
        self._recorder = recorder
        self._passes: dict[Hashable, _Pass] = {}

    def run(self, key: Hashable, compute: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        """Return compute(*inputs).

        Args:
            key: names everything that `compute` depends on, but for `inputs` and the contents of tensors that keep
                their memory: shapes, slices, numbers, the model's kernels, which its copies may exchange.
            compute: launches work on the device and nothing else: it waits for no result, and keeps no tensor.

        Returns:
            what `compute` returned; valid until the next pass of this key.
        """
        if self._recorder is None or not self._recorder.records:
            self._passes.clear()  # what was recorded holds memory, and may have been given up for want of it
            return compute(*inputs)
        known = self._passes.get(key)
        if known is None:
            result = compute(*inputs)
            self._passes[key] = _Pass(torch.empty_like(result))
            return result
        if known.replay is None:
            known.inputs = tuple(tensor.clone() for tensor in inputs)
            known.replay = self._recorder.record(lambda: _store(known.output, compute(*known.inputs)))
        if known.replay is None:
            return compute(*inputs)
        for held, tensor in zip(known.inputs, inputs, strict=True):
            held.copy_(tensor)
        known.replay()
        return known.output


def _store(output: Tensor, result: Tensor) -> None:
    output.copy_(result)


class CudaGraphs:
    """CUDA graphs of one device, which share the memory of what lies between their kernels.

    Nothing of a pass is kept in that memory: it reads and writes tensors that were there before, so graphs may be
    replayed in any order, one at a time.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._smallest: Any = None

    def __call__(self, compute: Callable[[], None]) -> Callable[[], None]:
        """Implement `Recording`."""
        if self._smallest is None:
            number = torch.zeros(1, device=self._device)
            self._pool = torch.cuda.graph_pool_handle()
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]  # torch's own gap
            # torch lets a pool be used again only while a graph has it.
            self._smallest = self._captured(lambda: number.add_(1))
        try:
            graph = self._captured(compute)
        except RuntimeError:
            self._renew_generator()
            raise
        replay: Callable[[], None] = graph.replay
        return replay

    def _renew_generator(self) -> None:
        """Give the device's random generator a new state: the old one stays in a capture that failed."""
        fresh = torch.Generator(device=self._device)
        fresh.seed()
        index = torch.cuda.current_device() if self._device.index is None else self._device.index
        torch.cuda.default_generators[index].graphsafe_set_state(fresh.graphsafe_get_state())

    def _captured(self, compute: Callable[[], object]) -> Any:
        """Return the graph; unlike `torch.cuda.graph` without a collection of garbage for each.

        Another thread may use the device meanwhile.
        """
        graph, stream = torch.cuda.CUDAGraph(), self._stream
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                compute()
            except RuntimeError:
                with suppress(RuntimeError):
                    graph.capture_end()
                raise
            graph.capture_end()
        torch.cuda.current_stream(self._device).wait_stream(stream)
        return graph
