"""The process of a flow run with a tiny model that stops while a file is there: a middle to kill in.

It draws no third token, does not begin a delivery, or does not record one. Each draw of a text is written down when it
has been made.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows.orchestration import flow_run_process
from flows.releases import publish
from tasks.decoding.loop import Step
from tasks.decoding.sampling_rule import InvisibleInkRule
from tests import tiny_model

HOLD_VARIABLE = "ALMONER_TEST_HOLD"
"""Names the file that holds a run while it draws."""
HELD_AT = 2
"""How many tokens a text has when a run is held."""
BUNDLE, DELIVERY = "bundle", "delivery"
"""What a run is held before, once its publication is recorded: writing the bundle, or recording its delivery."""


def held_file(hold: Path) -> Path:
    """The file that a run writes when it is held, beside the one that holds it."""
    return hold.with_suffix(".held")


def publishing_hold(hold: Path, before: str) -> Path:
    """The file that holds a run before BUNDLE or DELIVERY."""
    return hold.with_suffix(f".{before}")


def draws_file(hold: Path) -> Path:
    """The file in which all runs write down their draws: a line is a text's number, and the draw's number in it."""
    return hold.with_suffix(".draws")


def wait_while(held: Callable[[], bool], hold: Path) -> None:
    """Wait, and say so in the file of held runs."""
    while held():
        held_file(hold).touch()
        time.sleep(0.1)


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        tiny_model.install(patch)
        draw, deliver, hold = InvisibleInkRule.next_tokens, publish.deliver, Path(os.environ[HOLD_VARIABLE])

        def draw_when_allowed(self: InvisibleInkRule, step: Step) -> list[int]:
            wait_while(lambda: hold.exists() and max(step.positions) >= HELD_AT, hold)
            tokens = draw(self, step)
            with draws_file(hold).open("a") as draws:
                for number, position in zip(step.numbers, step.positions, strict=True):
                    draws.write(f"{number} {position + self.meter.lost}\n")
            return tokens

        def deliver_when_allowed(*given: Any) -> Any:
            wait_while(publishing_hold(hold, BUNDLE).exists, hold)
            bundle = deliver(*given)
            wait_while(publishing_hold(hold, DELIVERY).exists, hold)
            return bundle

        patch.setattr(InvisibleInkRule, "next_tokens", draw_when_allowed)
        patch.setattr(publish, "deliver", deliver_when_allowed)
        flow_run_process.main()
