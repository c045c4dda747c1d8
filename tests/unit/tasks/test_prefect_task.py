"""The shell around work that sees private text: what it lets through, and what it keeps inside."""

import logging
import traceback
from typing import Any

import pytest

from models_db.errors import EnvironmentProblem, Refused
from tasks.common.faults import TaskFailed
from tasks.prefect_task import private_task

pytestmark = [pytest.mark.dear, pytest.mark.contract]

PRIVATE = "Anna Example, (555) 0100"


def test_a_task_is_a_plain_function_outside_a_flow() -> None:
    @private_task
    def doubled(number: int, *, times: int = 2) -> int:
        """Twice as much."""
        return number * times

    assert doubled(21) == 42
    assert doubled(2, times=5) == 10
    assert doubled.__name__ == "doubled"
    assert doubled.__doc__ == "Twice as much."


class Panic(BaseException):
    """As libraries written in Rust raise."""


def chained() -> None:
    try:
        raise KeyError(PRIVATE)
    except KeyError as first:
        raise RuntimeError(PRIVATE) from first


@pytest.mark.parametrize(
    "error", [ValueError(PRIVATE), UnicodeDecodeError("utf-8", PRIVATE.encode(), 0, 1, PRIVATE), Panic(PRIVATE)]
)
def test_what_goes_wrong_leaves_as_a_type_and_a_place(error: BaseException) -> None:
    @private_task
    def work() -> None:
        raise error

    with pytest.raises(TaskFailed) as failed:
        work()
    said = "".join(traceback.format_exception(failed.value))
    assert PRIVATE not in said
    assert type(error).__name__ in failed.value.message
    assert "tests/unit/tasks/test_prefect_task.py:" in str(failed.value.facts["place"])
    assert failed.value.__cause__ is None
    assert failed.value.__context__ is None
    assert isinstance(failed.value, EnvironmentProblem)


def test_a_chain_of_errors_stays_inside_as_a_whole() -> None:
    with pytest.raises(TaskFailed) as failed:
        private_task(chained)()
    assert PRIVATE not in "".join(traceback.format_exception(failed.value))


def test_an_error_of_ours_comes_through_without_what_led_to_it() -> None:
    @private_task
    def work() -> None:
        try:
            raise ValueError(PRIVATE)
        except ValueError:
            raise Refused("A rule said no.", "Ask for less.")  # noqa: B904 - forgetting `from None` is what is tested

    with pytest.raises(Refused, match="A rule said no") as refused:
        work()
    assert PRIVATE not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize("signal", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_is_no_failure(signal: type[BaseException]) -> None:
    @private_task
    def work() -> None:
        raise signal

    with pytest.raises(signal):
        work()


def test_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    @private_task
    def work(text: str) -> Any:
        raise ValueError(text)

    with pytest.raises(TaskFailed):
        work(PRIVATE)
    assert caplog.text == ""
