"""Checkpoint of a training: one safetensors file, its numbers in the tensors and the rest in its header; no pickle.

`<models folder>/adapters/.training/<name>/state.safetensors`, replaced atomically after every check on the held-out
groups. It holds the weights, the best weights, the optimiser's moments and the generator's state, so a resumed training
makes the same steps as an uninterrupted one.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from models_db.errors import UsageError
from tasks.adapters.store import adapters_folder
from tasks.adapters.training.settings import Order
from tasks.common.files import write_over

_STATE: Final = "state.safetensors"
_KEY: Final = "almoner"


@dataclass
class State:
    """A training between two steps.

    Attributes:
        step: number of finished steps.
        best_step, best_loss: the lowest loss on the held-out groups so far.
        looks_since_best: number of checks since then.
        course: the measurements, one per line of losses.jsonl.
        tensors: everything else, by name.
    """

    step: int = 0
    best_step: int = 0
    best_loss: float = float("inf")
    looks_since_best: int = 0
    course: list[dict[str, Any]] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)


def folder_of(name: str) -> Path:
    """Return the folder of the checkpoint of a training."""
    return adapters_folder() / ".training" / name


def keep(order: Order, state: State) -> None:
    """Write the checkpoint; the earlier one stays until the new one is complete."""
    facts = {name: value for name, value in vars(state).items() if name != "tensors"}
    header = json.dumps({"order": order.digest, **facts}, allow_nan=True)
    folder = folder_of(order.name)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.detach().cpu().contiguous() for name, value in state.tensors.items()}
    write_over(folder / _STATE, save(tensors, {_KEY: header}), 0o600)


def resume(order: Order) -> State | None:
    """Return the state of an interrupted training of the same order; None if there is none.

    Raises:
        TrainingDiffers: the training of that name has another order.
        CheckpointUnreadable.
    """
    path = folder_of(order.name) / _STATE
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads(file.metadata()[_KEY])
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118  # not a mapping
        stored_digest = facts.pop("order")
        state = State(**facts, tensors=tensors)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(
            f"The checkpoint of the training {order.name!r} cannot be read.",
            "Begin again with --anew.",
            {"adapter": order.name},
            code="CheckpointUnreadable",
        ) from None
    if stored_digest != order.digest:
        raise UsageError(
            f"A training named {order.name!r} was interrupted, and it has another order: other data, another model or"
            " other options.",
            "Repeat its command to go on, choose another --name, or begin again with --anew.",
            {"adapter": order.name},
            code="TrainingDiffers",
        )
    return state


def forget(name: str) -> None:
    """Remove a checkpoint, if there is one."""
    shutil.rmtree(folder_of(name), ignore_errors=True)


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return moments and step counts, by the number of the parameter."""
    state: Mapping[int, Mapping[str, Tensor]] = optimiser.state_dict()["state"]
    return {
        f"optimiser.{number}.{name}": value.clone()
        for number, values in state.items()
        for name, value in values.items()
    }


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restore the optimiser from `optimiser_tensors`."""
    whole = optimiser.state_dict()
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("optimiser."):
            _, number, name = key.split(".")
            state.setdefault(int(number), {})[name] = value
    optimiser.load_state_dict({**whole, "state": state})
