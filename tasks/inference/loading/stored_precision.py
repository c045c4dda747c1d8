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

from tasks.inference.network.mapped_weights import release_pages


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
