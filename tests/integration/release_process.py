"""The process of a flow run with a tiny model that draws nothing while a file is there: a middle in which to kill."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from flows.orchestration import flow_run_process
from tasks.generation.decoding.invisible_ink_rule import InvisibleInkRule
from tests import tiny_model

HOLD_VARIABLE = "ALMONER_TEST_HOLD"
"""Names the file."""


def held_file(hold: Path) -> Path:
    """The file that a run writes when it is held, beside the one that holds it."""
    return hold.with_suffix(".held")


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        tiny_model.install(patch)
        draw, hold = InvisibleInkRule.next_tokens, Path(os.environ[HOLD_VARIABLE])

        def draw_when_allowed(self: InvisibleInkRule, session: Any) -> Any:
            while hold.exists():
                held_file(hold).touch()
                time.sleep(0.1)
            return draw(self, session)

        patch.setattr(InvisibleInkRule, "next_tokens", draw_when_allowed)
        flow_run_process.main()
