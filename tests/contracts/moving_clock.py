"""A clock for tests that can be moved: everything the ledger's services ask for the time of sees it."""

import sys
from datetime import datetime, timedelta, tzinfo
from types import TracebackType
from typing import Any

import pytest

SEEN_BY = ("models_db", "tests.support", "tests.contracts")


class MovingClock:
    """Inside, the time is `ahead` of this machine's."""

    def __init__(self, ahead: timedelta = timedelta()) -> None:
        self.ahead = ahead
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> "MovingClock":
        clock = self

        class Moved(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Any:
                return datetime.now(tz) + clock.ahead

        for name, module in list(sys.modules.items()):
            if name.startswith(SEEN_BY) and name != __name__ and vars(module).get("datetime") is datetime:
                self._patch.setattr(module, "datetime", Moved)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patch.undo()
