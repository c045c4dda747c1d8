"""Named private rows, and what the engine says about each of them over some steps."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tasks.inference.engine.engine import Engine
from tasks.inference.engine.shapes import Sizes
from tasks.inference.prompt_rendering import PromptPieces

Rows = Sequence[Mapping[str, Sequence[int]]]
"""[generation] name of the row -> tokens of its reference."""

PUBLIC = PromptPieces((1, 20, 21, 22, 23), (24, 25))
PRIVATE = PromptPieces((1, 20, 21, 26, 27, 28, 29), (30, 31, 32))
MOST = 70
DRAWN = (40, 41, 42)


def text(length: int, salt: int, vocabulary: int = 300) -> list[int]:
    """A made-up reference."""
    return [(salt * 61 + 17 * index * index + 5 * index) % (vocabulary - 10) + 8 for index in range(length)]


def by_row(
    engine: Engine,
    rows: Rows,
    *,
    nominal: int = 3,
    candidates: Tensor | None = None,
    hidden: bool = False,
    public: PromptPieces = PUBLIC,
    private: PromptPieces = PRIVATE,
    most: int = MOST,
    drawn: Sequence[int] = DRAWN,
) -> dict[str, Tensor]:
    """What every valid row says after the prompt and after each drawn token, logits or `hidden` states.

    Returns:
        name -> float32 [steps, K].
    """
    sizes = Sizes.of([public], [private], most, len(drawn) + 1, nominal)
    session = engine.session(sizes, places=len(rows))
    for number, batch in enumerate(rows):
        session.enter(number, public, private, list(batch.values()))
    names = [name for batch in rows for name in batch]
    found: dict[str, list[Tensor]] = {name: [] for name in names}
    for token in [*drawn, None]:
        session.public_logits()
        said = session.private_hidden() if hidden else session.private_logits(candidates)
        for name, values, valid in zip(names, said.values, said.valid, strict=True):
            if valid:
                found[name].append(values)
        if token is not None:
            session.advance([token] * len(rows))
    return {name: torch.stack(steps) for name, steps in found.items() if steps}
