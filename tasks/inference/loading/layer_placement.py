"""Placement of a decoder's layers on several devices, and the transfers between them in a pass.

Everything outside the layers is on the first device, home. Hooks move what a layer is given to the layer's device: the
hidden states where the device changes, and masks, positions and angles once for each pass and device. What a module
outside the layers is given is moved home, so hidden states come back after the last layer.

A transfer copies bits. Each product of a layer has the operands, shapes and strides that it has on one device, so on
devices of one kind a pass has the same bits however its layers are spread.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from models_db.errors import UsageError


def _layers_not_spread(name: str) -> UsageError:
    return UsageError(
        f"The layers of a {name} cannot be identified, so they cannot be spread over devices.",
        "Name one device, such as cuda:0, or choose another model.",
        {"decoder": name},
        code="LayersNotSpread",
    )


@dataclass
class _PassTransfers:
    """What a pass has moved, by the object that was moved and its target; emptied when a pass begins and ends."""

    moved: dict[tuple[int, torch.device], tuple[Tensor, Tensor]] = field(default_factory=dict)

    def to_device(self, device: torch.device, held: Any) -> Any:
        """Return `held` with every tensor in it on `device`; tuples, lists and dictionaries are looked into."""
        match held:
            case Tensor():
                return held if is_at(held, device) else self._moved(held, device)
            case tuple() | list() if type(held) in (tuple, list):
                return type(held)(self.to_device(device, part) for part in held)
            case dict() if type(held) is dict:
                return {name: self.to_device(device, part) for name, part in held.items()}
            case other:
                return other

    def clear(self, *_: object) -> None:
        """Forget the tensors of a pass; as a hook it changes nothing."""
        self.moved.clear()

    def _moved(self, tensor: Tensor, device: torch.device) -> Tensor:
        key = (id(tensor), device)
        if key not in self.moved:
            self.moved[key] = tensor, send(tensor, device)  # the source is kept, so that no other object has its id
        return self.moved[key][1]


def is_at(tensor: Tensor, device: torch.device) -> bool:
    """Return whether a tensor needs no transfer to `device`."""
    return tensor.device == device


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a copy on `device`; torch lets the copy wait for what the source's device has still to compute."""
    return tensor.to(device)


def place_decoder(decoder: nn.Module, home: torch.device, layer_devices: Sequence[torch.device]) -> None:
    """Put every layer on its device and everything else on `home`, in place.

    Args:
        layer_devices: the device of each layer; none where all are on `home`.

    Raises:
        LayersNotSpread: the decoder's layers cannot be identified, or are not as many.
    """
    if not layer_devices:
        decoder.to(home)
        return
    layers = list_of_layers(decoder)
    if layers is None or len(layers) != len(layer_devices):
        raise _layers_not_spread(type(decoder).__name__)
    transfers = _PassTransfers()
    decoder.register_forward_pre_hook(transfers.clear)
    inside = {module for layer in layers for module in layer.modules()}
    for module in decoder.modules():
        if module not in inside:
            _move_own(module, home)
            if module is not decoder:  # those without weights, too: the last norm may have none
                module.register_forward_pre_hook(_receiver(transfers, home), with_kwargs=True)
    for layer, device in zip(layers, layer_devices, strict=True):
        layer.to(device)
        layer.register_forward_pre_hook(_receiver(transfers, device), with_kwargs=True)
    decoder.register_forward_hook(transfers.clear)


def _receiver(transfers: _PassTransfers, device: torch.device) -> Callable[..., Any]:
    def receive(module: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, Any]:
        return transfers.to_device(device, args), transfers.to_device(device, options)

    return receive


def _move_own(module: nn.Module, device: torch.device) -> None:
    """Move the weights and tables of a module, without those of its parts."""
    alone = copy.copy(module)
    alone._modules = {}  # `Module.to` goes into all parts; weights and tables are in dictionaries that both share
    alone.to(device)


def list_of_layers(decoder: nn.Module) -> nn.ModuleList | None:
    """Return the list of a decoder's layers; None if it cannot be identified."""
    count = getattr(getattr(decoder, "config", None), "num_hidden_layers", None)
    lists = [
        module
        for name, module in decoder.named_modules()
        if isinstance(module, nn.ModuleList) and name.count(".") < 2 and len(module) == count
    ]
    return lists[0] if len(lists) == 1 else None
