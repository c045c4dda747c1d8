"""Sessions end, and nobody may be wrong too often."""

from dataclasses import dataclass

from cli.web import sessions
from cli.web.sessions import MOST_SESSIONS, MOST_WRONG_TOKENS, PAUSE_SECONDS, SESSION_SECONDS, LoginThrottle, Sessions


@dataclass
class Hand:
    """A clock that is turned by hand."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_session_is_open_until_it_ends() -> None:
    hand = Hand()
    found = Sessions(hand)
    value = found.open()
    assert len(value) >= 43
    assert value not in repr(found)
    assert found.is_open(value)
    hand.now += SESSION_SECONDS - 1
    assert found.is_open(value)
    hand.now += 1
    assert not found.is_open(value)
    hand.now -= SESSION_SECONDS
    assert not found.is_open(value), "what has ended stays ended"


def test_other_values_are_no_sessions() -> None:
    found = Sessions(Hand())
    value = found.open()
    for other in ("", value[:-1], value + "x", "\udcff"):
        assert not found.is_open(other)
    assert found.open() != value


def test_the_oldest_session_goes_when_there_are_too_many() -> None:
    found = Sessions(Hand())
    first, second = found.open(), found.open()
    for _ in range(MOST_SESSIONS - 1):
        found.open()
    assert not found.is_open(first)
    assert found.is_open(second)


def test_who_is_wrong_too_often_waits() -> None:
    hand = Hand()
    throttle = LoginThrottle(hand)
    for number in range(MOST_WRONG_TOKENS):
        assert throttle.seconds_to_wait("192.0.2.1") == 0, number
        throttle.record_failure("192.0.2.1")
        hand.now += 1
    assert throttle.seconds_to_wait("192.0.2.1") == PAUSE_SECONDS - MOST_WRONG_TOKENS
    assert throttle.seconds_to_wait("192.0.2.2") == 0
    hand.now += PAUSE_SECONDS - MOST_WRONG_TOKENS + 0.1
    assert throttle.seconds_to_wait("192.0.2.1") == 0
    throttle.record_failure("192.0.2.1")
    assert throttle.seconds_to_wait("192.0.2.1") > 0


def test_a_neighbourhood_of_addresses_is_one() -> None:
    throttle = LoginThrottle(Hand())
    for number in range(MOST_WRONG_TOKENS):
        throttle.record_failure(f"2001:db8::{number}")
    assert throttle.seconds_to_wait("2001:db8::ffff") > 0
    assert throttle.seconds_to_wait("2001:db8:1::1") == 0
    for _ in range(MOST_WRONG_TOKENS):
        throttle.record_failure("testclient")
    assert throttle.seconds_to_wait("testclient") > 0


def test_addresses_are_not_remembered_without_bound() -> None:
    throttle = LoginThrottle(Hand())
    few, sessions.MOST_ADDRESSES = sessions.MOST_ADDRESSES, 3
    try:
        for number in range(9):
            throttle.record_failure(f"192.0.2.{number}")
        assert len(throttle._wrong) == 3
    finally:
        sessions.MOST_ADDRESSES = few
