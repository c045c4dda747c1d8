"""Challenges of a sign-in: nobody displaces or shuts out anybody; each counts once, for five minutes, here alone."""

from cli.web.sessions import (
    CHALLENGE_BYTES,
    CHALLENGE_SECONDS,
    MOST_SESSIONS_OF_A_PERSON,
    MOST_SIGN_INS,
    PersonSessions,
    SignInChallenges,
)
from models_db.services.audit.chain import Actor
from tests.refusals import refusal
from tests.unit.cli.web.test_sessions import Hand

SUE, TOM = Actor(1, "sue"), Actor(2, "tom")


def test_a_challenge_counts_once() -> None:
    challenges = SignInChallenges(Hand())
    first, second = challenges.issue(), challenges.issue()
    assert first != second
    assert len(first) == CHALLENGE_BYTES != 32, "none is the challenge of a decision"
    assert [challenges.use(first, SUE), challenges.use(first, SUE), challenges.use(first, TOM)] == [True, False, False]
    assert challenges.use(second, TOM)


def test_a_challenge_ends() -> None:
    hand = Hand()
    challenges = SignInChallenges(hand)
    made = challenges.issue()
    hand.now += CHALLENGE_SECONDS - 0.01
    assert challenges.is_valid(made)
    hand.now += 0.01
    assert not challenges.is_valid(made)
    assert not challenges.use(made, SUE)


def test_a_used_challenge_is_remembered_as_long_as_it_is_valid() -> None:
    hand = Hand()
    challenges = SignInChallenges(hand)
    made = challenges.issue()
    hand.now += CHALLENGE_SECONDS - 1
    assert challenges.use(made, SUE)
    hand.now += 0.9
    assert challenges.is_valid(made)
    assert not challenges.use(made, SUE)


def test_every_changed_bit_and_every_other_length_is_refused() -> None:
    challenges = SignInChallenges(Hand())
    made = challenges.issue()
    number = int.from_bytes(made, "big")
    changed = [(number ^ (1 << bit)).to_bytes(len(made), "big") for bit in range(8 * len(made))]
    shorter = [made[:end] for end in range(len(made))]
    assert not any(challenges.is_valid(one) for one in (*changed, *shorter, made + b"\0"))
    assert challenges.is_valid(made)


def test_the_challenge_of_another_process_is_refused() -> None:
    hand = Hand()
    assert not SignInChallenges(hand).is_valid(SignInChallenges(hand).issue())


def test_who_asks_for_many_displaces_none_and_costs_no_memory() -> None:
    challenges = SignInChallenges(Hand())
    made = challenges.issue()
    for _ in range(5000):
        challenges.issue()
    assert challenges._used == {}
    assert challenges.use(made, SUE)


def test_one_person_signs_in_so_often_and_others_notice_nothing() -> None:
    hand = Hand()
    challenges = SignInChallenges(hand)
    for _ in range(MOST_SIGN_INS):
        assert challenges.use(challenges.issue(), SUE)
    refused = challenges.issue()
    with refusal("SignInsTooMany"):
        challenges.use(refused, SUE)
    assert challenges.use(challenges.issue(), TOM)
    assert len(challenges._used) == MOST_SIGN_INS + 1
    hand.now += CHALLENGE_SECONDS
    assert challenges.use(challenges.issue(), SUE)
    assert len(challenges._used) == 1


def test_the_sessions_of_one_person_close_no_session_of_another() -> None:
    sessions = PersonSessions(Hand())
    tom, first, second = sessions.open(TOM, 2), sessions.open(SUE, 1), sessions.open(SUE, 1)
    for _ in range(MOST_SESSIONS_OF_A_PERSON - 1):
        sessions.open(SUE, 1)
    assert sessions.find(first) is None
    assert sessions.find(second) is not None
    assert sessions.find(tom) is not None
