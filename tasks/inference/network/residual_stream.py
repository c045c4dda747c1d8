"""Residual stream of a decoder behind one of its layers: read alone, or with a vector added to it.

A decoder of transformers is a list of layers, each of which adds to the residual stream, and a final norm. Copies here
share all weights with the decoder that they are made of. They differ by hooks on copies of single modules, so it does
not matter what a family does before its layers or after them.
"""

import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from models_db.errors import UsageError


def with_modules(network: nn.Module, modules: Mapping[str, nn.Module]) -> nn.Module:
    """Return a network with these modules in the place of those of the same names, which shares all others.

    Args:
        modules: by their dotted names in `network`.
    """
    for name, module in modules.items():
        first, _, rest = name.partition(".")
        part = network._modules[first]
        if rest and part is not None:
            module = with_modules(part, {rest: module})
        twin = copy.copy(network)
        twin._modules = {**network._modules, first: module}
        network = twin
    return network


def first_layers(decoder: nn.Module, layers: int) -> nn.Module:
    """Return the first layers of a decoder: its output is the residual stream behind them, before any final norm.

    Raises:
        LayersNotFound: the decoder is built in another way.
        ValueError: it has fewer layers.
    """
    name, every = _layers_of(decoder, layers)
    seen: list[Tensor] = []

    def see(module: nn.Module, read: Any, output: Any) -> None:
        seen[:] = [output[0] if isinstance(output, tuple) else output]

    def give(module: nn.Module, read: Any, output: Any) -> Any:
        output.last_hidden_state = seen.pop()
        return output

    last = _hooked(every[layers - 1], see)
    return _hooked(with_modules(decoder, {name: nn.ModuleList([*every[: layers - 1], last])}), give)


def with_addition(decoder: nn.Module, layers: int, vector: Tensor) -> nn.Module:
    """Return a decoder that adds `vector` to the residual stream behind its first `layers` layers, at every token.

    Args:
        vector: [D], added in the type of the stream and on its device.

    Raises:
        LayersNotFound, ValueError: as `first_layers`.
    """
    name, every = _layers_of(decoder, layers)

    def add(module: nn.Module, read: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return (output[0] + vector.to(output[0]), *output[1:])
        return output + vector.to(output)

    layer = _hooked(every[layers - 1], add)
    return with_modules(decoder, {name: nn.ModuleList([*every[: layers - 1], layer, *every[layers:]])})


def _hooked(module: nn.Module, hook: Callable[[nn.Module, Any, Any], Any]) -> nn.Module:
    """Return a copy that calls `hook` with its output, after the hooks that `module` has."""
    twin = copy.copy(module)
    twin._forward_hooks = OrderedDict(module._forward_hooks)  # a copy would share them
    twin.register_forward_hook(hook)
    return twin


def _layers_of(decoder: nn.Module, layers: int) -> tuple[str, list[nn.Module]]:
    """Return the name of the list of layers, and the layers."""
    every = list_of_layers(decoder)
    if every is None:
        raise LayersNotFound(type(decoder).__name__)
    if not 1 <= layers <= len(every):
        raise ValueError(f"the decoder has {len(every)} layers, not {layers}")
    return next(name for name, module in decoder.named_modules() if module is every), list(every)


def list_of_layers(decoder: nn.Module) -> nn.ModuleList | None:
    """Return the list of a decoder's layers; None if it cannot be identified."""
    count = getattr(getattr(decoder, "config", None), "num_hidden_layers", None)
    lists = [
        module
        for name, module in decoder.named_modules()
        if isinstance(module, nn.ModuleList) and name.count(".") < 2 and len(module) == count
    ]
    return lists[0] if len(lists) == 1 else None


class LayersNotFound(UsageError):
    """A decoder without one list of its layers."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The layers of a {name} cannot be identified, so its residual stream cannot be read.",
            "Choose another model, or a mechanism that uses no hidden states, such as invisible_ink.",
            {"decoder": name},
        )
