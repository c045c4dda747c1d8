"""Public description of an unforeseen error near private text: its type and its place, never its message."""

import traceback
from pathlib import Path

from models_db.errors import EnvironmentProblem
from tasks.common.retry import is_temporary

_ROOT = Path(__file__).parents[2]


class TaskFailed(EnvironmentProblem):
    """An unforeseen error near private text; its details are not shown."""

    def __init__(self, task: str, kind: str, place: str) -> None:
        super().__init__(
            f"The step {task!r} failed with {kind} at {place}; its message is withheld, because it may quote"
            " private text.",
            "Run `almoner doctor`; if that finds nothing, report the type and the place.",
            {"task": task, "kind": kind, "place": place},
        )

    @classmethod
    def of(cls, task: str, problem: BaseException) -> "TaskFailed":
        """Return the error that describes `problem` without its text; it is temporary if the problem is."""
        failed = cls(task, type(problem).__name__, _place(problem))
        failed.temporary = is_temporary(problem)
        return failed


def _place(problem: BaseException) -> str:
    """Return the innermost frame of almoner, as file:line; paths below the installation only."""
    frames = [f for f in traceback.extract_tb(problem.__traceback__) if Path(f.filename).is_relative_to(_ROOT)]
    own_frames = [f for f in frames if "site-packages" not in f.filename]
    if not own_frames:
        return "an unknown place"
    return f"{Path(own_frames[-1].filename).relative_to(_ROOT)}:{own_frames[-1].lineno}"
