"""How a plain function becomes a Prefect task when, and only when, it is called inside a Prefect flow run.

Everything works without Prefect: outside a flow run the function is simply called, and Prefect is not even imported.
Inside one, the task never retries, never caches and never stores its result: a retry would charge twice, and a
stored result or a captured print would put private text into Prefect's database.

Whatever goes wrong inside, other than an error of ours, may quote private text; it leaves as a `TaskFailed` that
names only its type and place.
"""

import functools
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from models_db.errors import AlmonerError, EnvironmentProblem

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_ROOT = Path(__file__).parent.parent


class TaskFailed(EnvironmentProblem):
    """Something unforeseen went wrong while private text was at hand; the details stay inside."""

    def __init__(self, task: str, kind: str, place: str) -> None:
        super().__init__(
            f"The step {task!r} failed with {kind} at {place}; its message is withheld, because it may quote"
            " private text.",
            "Run `almoner doctor`; if that finds nothing, report the type and the place.",
            {"task": task, "kind": kind, "place": place},
        )


def private_task(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """`function` as a task of the current flow run, if there is one; with scrubbed errors in any case."""

    @functools.wraps(function)
    def scrubbed(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except AlmonerError as problem:
            raise problem from None  # what led to it may quote private text, and a traceback would print it
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as problem:  # noqa: BLE001 - no message gets through, not even a Rust panic's
            failed = TaskFailed(function.__name__, type(problem).__name__, _place(problem))
        raise failed

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if not _in_flow_run():
            return scrubbed(*args, **kwargs)
        from prefect import task
        from prefect.cache_policies import NO_CACHE

        shell = task(retries=0, cache_policy=NO_CACHE, persist_result=False, log_prints=False)(scrubbed)
        return shell(*args, **kwargs)

    return call


def _in_flow_run() -> bool:
    if "prefect" not in sys.modules:
        return False
    from prefect.context import FlowRunContext

    return FlowRunContext.get() is not None


def _place(problem: BaseException) -> str:
    """The innermost frame of ours, as file:line; paths below the installation only."""
    frames = [f for f in traceback.extract_tb(problem.__traceback__) if Path(f.filename).is_relative_to(_ROOT)]
    own = [f for f in frames if "site-packages" not in f.filename]
    return f"{Path(own[-1].filename).relative_to(_ROOT)}:{own[-1].lineno}" if own else "an unknown place"
