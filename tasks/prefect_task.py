"""Decorator that runs a plain function as a Prefect task when, and only when, a Prefect flow run calls it.

Everything works without Prefect: outside a flow run the function is simply called, and Prefect is not even imported.
Inside one, the task never retries, never caches and never stores its result: a retry would charge twice, and a
stored result or a captured print would put private text into Prefect's database.

An exception that is not an `AlmonerError` may quote private text; it is replaced by a `TaskFailed` that names only its
type and place.
"""

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from models_db.errors import AlmonerError
from tasks.common.faults import TaskFailed

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def private_task(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Wrap `function` as a task of the current flow run, if there is one; errors are scrubbed in any case."""

    @functools.wraps(function)
    def scrubbed(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except AlmonerError as problem:
            raise problem from None  # its cause may quote private text, and a traceback would print it
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as problem:  # noqa: BLE001 - no message passes, not even a Rust panic's
            failed = TaskFailed.of(function.__name__, problem)
        raise failed

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if not is_in_flow_run():
            return scrubbed(*args, **kwargs)
        from prefect import task
        from prefect.cache_policies import NO_CACHE

        shell = task(retries=0, cache_policy=NO_CACHE, persist_result=False, log_prints=False)(scrubbed)
        return shell(*args, **kwargs)

    return call


def is_in_flow_run() -> bool:
    """Return whether a Prefect flow run is under way; Prefect is not imported to find out."""
    if "prefect" not in sys.modules:
        return False
    from prefect.context import FlowRunContext

    return FlowRunContext.get() is not None
