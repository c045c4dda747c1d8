"""How often an endpoint is asked, on a clock of the tests'."""

from datetime import UTC, datetime

import pytest

from tasks.inference.backends.request import LONGEST_WAIT, RateLimit, retry_after, wait_after


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_without_limits_everybody_is_next() -> None:
    pace = RateLimit(None, None, Clock())
    assert [pace.turn(1000) for _ in range(3)] == [0, 0, 0]


def test_never_more_requests_a_minute_than_was_said() -> None:
    clock = Clock()
    pace = RateLimit(30, None, clock)
    assert [pace.turn(1) for _ in range(4)] == [0, 2, 4, 6]
    clock.now += 100
    assert [pace.turn(1) for _ in range(2)] == [0, 2]  # a pause earns no burst


def test_never_more_tokens_a_minute_than_was_said() -> None:
    pace = RateLimit(60, 600, Clock())
    assert [pace.turn(tokens) for tokens in (5, 50, 5, 0)] == [0, 1, 6, 7]


def test_who_asks_to_be_left_alone_is_left_alone_by_all() -> None:
    clock = Clock()
    pace = RateLimit(None, None, clock)
    pace.hold(10)
    pace.hold(3)
    assert pace.turn(1) == 10
    clock.now += 11
    assert pace.turn(1) == 0


def test_waits_double_up_to_a_longest_one() -> None:
    waits = [wait_after(attempt) for attempt in range(12)]
    assert waits[:4] == [0.5, 1, 2, 4]
    assert waits[-1] == LONGEST_WAIT
    assert wait_after(10**6) == LONGEST_WAIT


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (None, None), ("7", 7.0), (" 0 ", 0.0), ("soon", None), ("-3", None), ("1.5", None),
        ("", None), ("\u0663", None),
        ("Sat, 01 Jan 2000 00:00:30 GMT", 30.0), ("Sat, 01 Jan 2000 00:00:30", 30.0),
        ("Fri, 31 Dec 1999 23:59:00 GMT", 0.0),
        ("9" * 400, 999999999.0),
        (f"Mon, 01 Jan {'9' * 20} 00:00:00 GMT", None), (f"Mon, 01 Jan 2000 00:00:00 +{'9' * 20}", None),
    ],
)  # fmt: skip
def test_retry_after_in_seconds_or_as_a_date(said: str | None, seconds: float | None) -> None:
    assert retry_after(said, lambda: datetime(2000, 1, 1, tzinfo=UTC)) == seconds
