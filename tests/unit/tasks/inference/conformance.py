"""Comparison of the engine with transformers, row by row, over a session whose ring of columns wraps."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tasks.inference.catalogue.devices import CPU
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.shapes import Sizes
from tests.unit.tasks.inference.families import READ, adopted, network_of
from tests.unit.tasks.inference.rows_at_work import PRIVATE, PUBLIC, by_row, text

MOST_TOKENS, NEW_TOKENS = 24, 20
COMPARED = 5
"""One step in this many is compared."""
ENTRIES = {0: [text(24, 1), text(3, 2)], 9: [text(17, 3)], 20: [text(24, 4), text(9, 5)], 34: [text(20, 6)]}
"""Step -> the references of the generation that enters then; each lives for NEW_TOKENS steps."""
STEPS = 50


@dataclass(frozen=True)
class Conformance:
    """How a family does in the engine.

    Attributes:
        difference: the largest absolute difference of a logit of a public or a private row.
        logits: the largest absolute logit.
        isolated: whether every private row kept every bit beside other rows.
    """

    difference: float
    logits: float
    isolated: bool


def conformance_of(family: str, device: torch.device = CPU) -> Conformance:
    """Compare a tiny network of the family, of random weights, on `device` with the same network in transformers.

    transformers computes on the CPU.
    """
    network = network_of(*READ[family])
    plain = copy.deepcopy(network)
    model = adopted(network, device)
    difference, logits = differences(model, plain)
    return Conformance(difference, logits, is_isolated(model))


def differences(model: LanguageModel, plain: Any) -> tuple[float, float]:
    """Return the largest difference of any compared logit, and the largest logit."""
    session = Engine(model).session(Sizes.of([PUBLIC], [PRIVATE], MOST_TOKENS, NEW_TOKENS, 2), places=3)
    public: dict[int, list[int]] = {}
    private: dict[int, list[list[int]]] = {}
    difference, largest = 0.0, 0.0
    for step in range(STEPS):
        if step in ENTRIES:
            session.enter(step, PUBLIC, PRIVATE, ENTRIES[step])
            public[step] = [*PUBLIC.tokens]
            private[step] = [[*PRIVATE.around(reference)] for reference in ENTRIES[step]]
        for number in [number for number in public if step - number == NEW_TOKENS - 1]:
            session.leave(number)
            del public[number], private[number]
        if not public:
            continue
        ours = torch.cat([session.public_logits(), session.private_logits().values]).cpu()
        if step % COMPARED == 0:
            rows = [*public.values(), *(row for number in sorted(private) for row in private[number])]
            theirs = torch.stack([_next_logits(plain, row) for row in rows])
            difference = max(difference, float((ours - theirs).abs().max()))
            largest = max(largest, float(theirs.abs().max()))
        drawn = [(step * 31 + number * 7) % 280 + 8 for number in sorted(public)]
        session.advance(drawn)
        for number, token in zip(sorted(public), drawn, strict=True):
            for row in [public[number], *private[number]]:
                row.append(token)
    return difference, largest


def is_isolated(model: LanguageModel) -> bool:
    """Whether rows keep every bit while others are replaced, removed, lengthened, permuted and crowded in."""
    engine = Engine(model)
    rows: dict[str, Sequence[int]] = {"a": text(12, 1), "other": text(30, 2), "b": text(41, 3)}
    before = by_row(engine, [rows])
    crowd = {f"crowd {number}": text(5 + number, number) for number in range(9)}
    arrangements = [
        rows | {"other": text(30, 9)},
        {name: reference for name, reference in rows.items() if name != "other"},
        rows | {"other": text(70, 9)},
        dict(reversed(rows.items())),
        {"b": rows["b"], **crowd, "a": rows["a"]},
        rows | {"other": []},
    ]
    for arrangement in arrangements:
        after = by_row(engine, [arrangement])
        if not all(torch.equal(before[name], after[name]) for name in ("a", "b")):
            return False
    return True


@torch.inference_mode()
def _next_logits(network: Any, tokens: Sequence[int]) -> Tensor:
    logits: Tensor = network(torch.tensor([list(tokens)])).logits[0, -1]
    return logits
