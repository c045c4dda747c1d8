"""A training that fits into a test: the tiny model, and a planted task that can only be done by reading the mean."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from tasks.adapters.training.data import Example, Order, TrainingData, TrainingSettings, default_wording
from tasks.adapters.training.frozen_model import FrozenNetwork, freeze
from tasks.adapters.training.loop import Lessons
from tasks.adapters.training.train import lessons_of
from tests.tiny_model import NAME, tiny_model, tiny_network

KINDS = ("aaaa", "zzzz")


def planted(groups: int = 12) -> TrainingData:
    """Half of the groups write of one thing and half of another, and summaries name it."""
    made = []
    for number in range(groups):
        kind = KINDS[number % 2]
        documents = tuple(f"{kind * 3} {number} {place}" for place in range(4))
        made.append(Example(documents, kind, None, f"group {number}"))
    return TrainingData("planted.jsonl", "b" * 64, tuple(made))


@cache
def network() -> FrozenNetwork:
    """The tiny model's weights, to train through."""
    return freeze(tiny_network(seed=7, spread=0.2)[0], torch.device("cpu"), torch.float32)


def order(name: str = "planted", **changes: Any) -> Order:
    """A short training of a small adapter."""
    settings: dict[str, Any] = {
        "soft_tokens": 3, "words": 1, "dimensions": 6, "hidden_units": 16, "steps": 40, "batch": 4, "check_every": 10,
        "patience": 99, "noise_most": "0.3", "max_reference_tokens": 24, "max_summary_tokens": 8,
        "precision": "float32", "learning_rate": "0.02",
    }  # fmt: skip
    return Order(
        name=name,
        model=NAME,
        model_digest=tiny_model().digest,
        data_sha256="b" * 64,
        licence="CC0-1.0",
        wording=default_wording("it", labelled=False),
        settings=TrainingSettings.model_validate(settings | changes),
    )


def lessons(wanted: Order, data: TrainingData | None = None) -> Lessons:
    """The planted task, read by the tiny model."""
    return lessons_of(data or planted(), wanted, tiny_model())


def after(steps: int, then: Callable[[], None]) -> Callable[[str, int, int], None]:
    """Call `then` when so many steps of a training are made."""

    def report(what: str, done: int, total: int) -> None:
        if what == "training" and done == steps:
            then()

    return report
