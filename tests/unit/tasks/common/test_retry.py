"""What is tried again, how often, and what ends at once."""

import errno
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

import pytest

from models_db.errors import AlmonerError, EnvironmentProblem, Refused
from tasks.common.faults import SECONDS_BEFORE_RETRIES, TaskFailed, is_temporary, retry
from tasks.common.progress import listening
from tasks.corpus.store import store_busy, store_unreadable
from tasks.inference.backends.endpoints import endpoint_failed
from tasks.inference.catalogue.registry import ModelNotPulled
from tasks.object_storage.address import Address
from tasks.object_storage.errors import StoreDenied, bucket_missing, store_unreachable
from tests.faults import Failing, temporary, waits

STORE = Address("bucket", "key")


def wrapping(cause: BaseException) -> BaseException:
    """What a library makes of an error of the system."""
    problem = OSError("Can't load it")
    problem.__cause__ = cause
    return problem


@pytest.mark.parametrize(
    "problem",
    [
        temporary(), OSError(errno.ESTALE, ""), OSError(errno.EHOSTUNREACH, ""), BlockingIOError(errno.EAGAIN, ""),
        ConnectionResetError(), ConnectionRefusedError(), BrokenPipeError(), TimeoutError(), FutureTimeout(),
        store_busy(), store_unreachable(STORE, "no answer"), wrapping(temporary()),
        endpoint_failed("EndpointUnreachable", "there", "reason"),
        endpoint_failed("EndpointTimeout", "there", "reason"),
        endpoint_failed("EndpointBusy", "there", "reason"),
        endpoint_failed("EndpointServerError", "there", "reason"),
    ],
    ids=repr,
)  # fmt: skip
def test_faults_that_may_pass(problem: BaseException) -> None:
    assert is_temporary(problem)
    assert TaskFailed.of("step", problem).temporary


@pytest.mark.parametrize(
    "problem",
    [
        FileNotFoundError(errno.ENOENT, ""), PermissionError(errno.EACCES, ""), OSError(errno.ENOSPC, ""), OSError(),
        ValueError(), MemoryError(), RuntimeError("CUDA error"), wrapping(ValueError()),
        Refused("no"), EnvironmentProblem("no"), ModelNotPulled("a"), store_unreadable(), StoreDenied(STORE, "no"),
        bucket_missing(STORE), endpoint_failed("EndpointRejectedRequest", "there", "reason"),
        endpoint_failed("EndpointRedirects", "there", "reason"),
        endpoint_failed("EndpointAnswerMalformed", "there", "reason"),
    ],
    ids=repr,
)  # fmt: skip
def test_what_no_time_mends(problem: BaseException) -> None:
    assert not is_temporary(problem)
    assert not TaskFailed.of("step", problem).temporary


def test_a_named_error_is_judged_by_itself_and_not_by_its_cause() -> None:
    refusal = Refused("a rule forbids it")
    refusal.__cause__ = temporary()
    assert not is_temporary(refusal)
    assert not AlmonerError("anything").temporary


def test_a_step_that_fails_twice_is_tried_again_with_growing_delays() -> None:
    step, lines = Failing(lambda: 5, temporary(), ConnectionResetError("zanzibarquux")), list[str]()
    with waits() as seconds, listening(lambda *_: None, lines.append):
        assert retry(step, "length") == 5
    assert (step.calls, seconds) == (3, [10, 20])
    assert lines == [
        "length: OSError; it costs nothing, and is tried again in 10 seconds.",
        "length: ConnectionResetError; it costs nothing, and is tried again in 20 seconds.",
    ]


def test_a_fault_that_stays_is_raised_after_four_retries() -> None:
    faults = [temporary() for _ in range(9)]
    last, step = faults[4], Failing(lambda: 5, *faults)
    with waits() as seconds, pytest.raises(OSError) as raised:
        retry(step, "length")
    assert raised.value is last
    assert (step.calls, tuple(seconds)) == (5, SECONDS_BEFORE_RETRIES)


@pytest.mark.parametrize("problem", [ValueError(), Refused("no"), KeyboardInterrupt(), FileNotFoundError(errno.ENOENT)])
def test_anything_else_ends_at_once(problem: BaseException) -> None:
    step: Any = Failing(lambda: 5, problem)
    with waits() as seconds, pytest.raises(type(problem)):
        retry(step, "length")
    assert (step.calls, seconds) == (1, [])


def test_a_permanent_fault_after_a_temporary_one_ends_the_retries() -> None:
    step = Failing(lambda: 5, temporary(), ValueError())
    with waits() as seconds, pytest.raises(ValueError):
        retry(step, "length")
    assert (step.calls, seconds) == (2, [10])
