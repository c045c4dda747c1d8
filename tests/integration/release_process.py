"""The process of a flow run with a tiny model that draws no third token while a file is there: a middle to kill in.

Each draw of a text is written down when it has been made.
"""

import os
import time
from pathlib import Path

import pytest

from flows.orchestration import flow_run_process
from tasks.generation.decoding.invisible_ink_rule import InvisibleInkRule
from tasks.generation.decoding.loop import Step
from tests import tiny_model

HOLD_VARIABLE = "ALMONER_TEST_HOLD"
"""Names the file."""
HELD_AT = 2
"""How many tokens a text has when a run is held."""


def held_file(hold: Path) -> Path:
    """The file that a run writes when it is held, beside the one that holds it."""
    return hold.with_suffix(".held")


def draws_file(hold: Path) -> Path:
    """The file in which all runs write down their draws: a line is a text's number, and the draw's number in it."""
    return hold.with_suffix(".draws")


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        tiny_model.install(patch)
        draw, hold = InvisibleInkRule.next_tokens, Path(os.environ[HOLD_VARIABLE])

        def draw_when_allowed(self: InvisibleInkRule, step: Step) -> list[int]:
            while hold.exists() and max(step.positions) >= HELD_AT:
                held_file(hold).touch()
                time.sleep(0.1)
            tokens = draw(self, step)
            with draws_file(hold).open("a") as draws:
                for number, position in zip(step.numbers, step.positions, strict=True):
                    draws.write(f"{number} {position + self.meter.lost}\n")
            return tokens

        patch.setattr(InvisibleInkRule, "next_tokens", draw_when_allowed)
        flow_run_process.main()
