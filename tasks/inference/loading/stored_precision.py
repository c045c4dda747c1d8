"""Checkpoints in bfloat16: the networks that may be read as stored, and their computation in float32.

Read in bfloat16, weights stay in their mapped files until their layer is replaced, and no float32 copy of the whole is
made. What is compared with the network's own logits is still float32 arithmetic: each module widens its own numbers
while it is called, which is exact.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from tasks.inference.catalogue.precision import Precision
from tasks.inference.loading.row_wise_modules import is_mxfp4
from tasks.inference.network.mapped_weights import release_pages


def type_to_read(config: Any, folder: Path, precision: Precision) -> torch.dtype:
    """Return the type in which the weights in `folder` are read.

    bfloat16 where every number is stored in it (or in MXFP4, whose numbers are numbers of bfloat16 as well) and the
    layers are lowered anyway. Networks that hold constants of
    their own (Gemma's factor of embeddings) are read in float32, because the constants would be rounded, too.
    """
    stored = precision != "float32" and all(
        _is_bfloat16(file, is_mxfp4(config)) for file in folder.glob("*.safetensors")
    )
    return torch.bfloat16 if stored and not _rounds_constants(config) else torch.float32


def _is_bfloat16(file: Path, mxfp4: bool) -> bool:
    with safetensors.safe_open(file, "pt") as weights:
        types = {weights.get_slice(name).get_dtype() for name in weights.keys()}  # noqa: SIM118 - no mapping
    return types <= ({"BF16", "U8"} if mxfp4 else {"BF16"})


def _rounds_constants(config: Any) -> bool:
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, trust_remote_code=False)
    return any(buffer.dtype == torch.bfloat16 for buffer in network.buffers())


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
