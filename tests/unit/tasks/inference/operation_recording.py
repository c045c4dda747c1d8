"""Recording of a pass on a CPU as a CUDA graph records it: every operation, on the memory that it had then.

Nothing that changes memory runs while it is recorded, a number of Python's is frozen, and what asks for a value fails
as a stream that is being captured does. So a pass that works here depends on its tensors' contents alone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "item")
"""Operations whose result decides a shape or a number in Python."""


class OperationRecording:
    """`network.recorded_passes.Recording`; counts what it recorded and how often that was replayed."""

    def __init__(self) -> None:
        self.recorded = self.replays = 0

    def __call__(self, compute: Callable[[], None]) -> Callable[[], None]:
        with _Recording() as recording:
            compute()
        self.recorded += 1
        return lambda: self._replay(recording.calls)

    @torch.inference_mode()
    def _replay(self, calls: Sequence[tuple[Any, Any, Any, Any]]) -> None:
        self.replays += 1
        for operation, arguments, options, results in calls:
            found = operation(*arguments, **options)
            for held, new in zip(_tensors(results), _tensors(found) if results is not None else [], strict=True):
                if held.numel():
                    held.copy_(new)


class _Recording(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        selects = func.overloadpacket.__name__ == "index" and any(
            isinstance(part, Tensor) and part.dtype == torch.bool for part in args[1]
        )
        if func.overloadpacket.__name__ in WAITS or selects:
            raise RuntimeError(f"{func} waits for a result, which a stream that is being captured cannot")
        if func._schema.is_mutable:
            self.calls.append((func, args, options, None))
            return args[0]
        results = func(*args, **options)
        self.calls.append((func, args, options, results))
        return results


def _tensors(results: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(results) if isinstance(leaf, Tensor)]
