"""A network with other modules in the place of some."""

import tasks.inference  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from torch import nn

from tasks.inference.network.decoder_parts import with_modules

CONCERNS = ("tasks/inference/network",)


def test_modules_deep_inside_are_replaced_in_a_copy() -> None:
    network = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    other = with_modules(network, {"0.1": nn.Identity()})
    assert isinstance(network[0][1], nn.ReLU)  # type: ignore[index]
    assert isinstance(other.get_submodule("0.1"), nn.Identity)
    assert other.get_submodule("0.0") is network.get_submodule("0.0")
