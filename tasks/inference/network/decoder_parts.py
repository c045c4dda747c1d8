"""Parts of a decoder: its list of layers, and copies with other modules, which share all other weights with it."""

import copy
from collections.abc import Mapping

from torch import nn


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


def list_of_layers(decoder: nn.Module) -> nn.ModuleList | None:
    """Return the list of a decoder's layers; None if it cannot be identified."""
    count = getattr(getattr(decoder, "config", None), "num_hidden_layers", None)
    lists = [
        module
        for name, module in decoder.named_modules()
        if isinstance(module, nn.ModuleList) and name.count(".") < 2 and len(module) == count
    ]
    return lists[0] if len(lists) == 1 else None
