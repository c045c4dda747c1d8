"""The life of a request, told once: moves, gates, and where a request ends."""

from models_db.values.request_state import (
    DECIDED,
    LEGAL_TRANSITIONS,
    STATES_AT_A_GATE,
    UNRUN_STATES,
    WAITS_AT,
    Gate,
    RequestState,
)


def test_every_state_is_reached_from_a_draft_and_no_move_is_there_twice() -> None:
    reached = {RequestState.DRAFT}
    while further := {after for before, after in LEGAL_TRANSITIONS if before in reached} - reached:
        reached |= further
    assert reached == set(RequestState)
    assert len(LEGAL_TRANSITIONS) == len(set(LEGAL_TRANSITIONS))


def test_a_request_waits_at_one_gate_at_a_time_and_goes_on_from_each() -> None:
    waiting = [state for states in WAITS_AT.values() for state in states]
    assert len(waiting) == len(set(waiting))
    assert set(WAITS_AT) == set(Gate) - {Gate.PROPOSAL}
    for state in (*UNRUN_STATES, *STATES_AT_A_GATE):
        assert any(before is state for before, _ in LEGAL_TRANSITIONS)


def test_what_is_decided_never_waits_again() -> None:
    after = {later for before, later in LEGAL_TRANSITIONS if before in DECIDED}
    assert after <= set(DECIDED)
    assert not set(DECIDED) & {state for states in WAITS_AT.values() for state in states}


def test_states_and_gates_are_stored_shown_and_signed_as_their_words() -> None:
    for word in (*RequestState, *Gate):
        assert f"{word}" == str(word) == word.value
