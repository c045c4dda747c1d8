"""A time limit for calls of libraries that have none."""

from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from threading import Thread
from typing import TypeVar

Result = TypeVar("Result")


def within(seconds: float, function: Callable[[], Result]) -> Result:
    """Return the result of `function`, which runs in a thread of its own; one that comes too late goes nowhere.

    Raises:
        TimeoutError: the result was not there in time.
        Exception: whatever `function` raises.
    """
    result: Future[Result] = Future()
    context = copy_context()

    def call() -> None:
        try:
            result.set_result(context.run(function))
        except BaseException as problem:  # noqa: BLE001 - it is raised again below
            result.set_exception(problem)

    Thread(target=call, daemon=True).start()
    return result.result(seconds)
