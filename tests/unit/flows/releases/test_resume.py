"""What an interrupted run left is held against what the ledger says is paid."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from flows.releases import resume
from flows.releases.resume import ResumePoint, load_resume_point
from models_db.values.amounts import Amount
from tasks.decoding.journal import Contents, JournalUnfit
from tests.support import planned

# The count, and two mechanisms that are armed together for draws: four instalments of as many draws.
COUNT = planned(Amount(5), mechanism="noisy_count")
DRAWS = replace(planned(*[Amount(10)] * 4), event=SimpleNamespace(count=4, loss=Amount(40)))  # type: ignore[arg-type]
TESTS = replace(planned(*[Amount(1)] * 4), event=SimpleNamespace(count=4, loss=Amount(4)))  # type: ignore[arg-type]
GIVEN: dict[str, Any] = {"invocations": (COUNT, DRAWS, TESTS), "samples": 3, "steps": 8, "texts_per_unit": 1}
PLAN: Any = SimpleNamespace(**GIVEN, all_invocations=(COUNT, DRAWS, TESTS))
REQUEST: Any = SimpleNamespace(id=1, digest="d")
SPLIT_KEY = bytes(range(32))
LEFT = Contents("d", [1], SPLIT_KEY, 1, {"batches_per_block": "3"}, armed=2, tokens={0: [7, 8], 2: [9]}, kept={0: (1,)})


def going_on(monkeypatch: pytest.MonkeyPatch, left: Contents, *armed: int) -> ResumePoint:
    """With so many instalments of each invocation armed."""
    found = {sequence: set(range(number)) for sequence, number in enumerate(armed) if number}
    monkeypatch.setattr(resume.budget, "armed_instalments", lambda session, request_id, attempts: found)
    return load_resume_point(None, REQUEST, PLAN, left)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("armed", "draws", "paid"),
    [((1, 2, 2), 2, 27), ((1, 3, 3), 3, 38), ((1, 3, 2), 2, 37)],
    ids=["written down", "the step is missing", "killed between two mechanisms"],
)
def test_what_is_paid_is_what_the_ledger_says(monkeypatch: Any, armed: Any, draws: int, paid: int) -> None:
    found = going_on(monkeypatch, LEFT, *armed)
    assert (found.first, found.last, found.paid, found.drawn) == (1, 1, armed, 3)
    assert (found.state.armed, found.state.lost) == (draws, 1)
    assert found.remaining_of(PLAN) == Amount(paid)


def test_each_attempt_that_went_on_costs_a_draw(monkeypatch: Any) -> None:
    found = going_on(monkeypatch, replace(LEFT, attempts=[2, 3, 5], since=2), 1, 4, 4)
    assert (found.first, found.last, found.state.lost) == (2, 5, 3)
    assert found.split_key == SPLIT_KEY
    assert "Going on from attempt 5: 3 of 24 tokens are drawn; 3 draws of each unfinished text are lost." in str(found)
    assert found.to_json() == {
        "attempt": 5, "tokens_drawn": 3, "tokens_at_most": 24, "draws_lost_per_text": 3
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "armed"),
    [
        ({"request": "e"}, (1, 2, 2)),
        ({}, (1, 1, 1)),  # more steps than the ledger knows of
        ({}, (1, 4, 4)),  # steps are missing
        ({"attempts": [1, 2], "since": 0}, (1, 4, 4)),
        ({}, (1, 4, 2)),  # two mechanisms are armed together
        ({}, (0, 2, 2)),  # the count was not paid
        ({"first": 4}, (1, 2, 2)),
        ({"tokens": {3: [7]}}, (1, 2, 2)),
        ({"tokens": {0: [7] * 9}}, (1, 2, 2)),
        ({"attempts": [1, 2, 3, 4], "since": 3}, (1, 2, 2)),  # no draw is left
    ],
)
def test_what_does_not_fit_is_refused(monkeypatch: Any, changes: Any, armed: Any) -> None:
    with pytest.raises(JournalUnfit):
        going_on(monkeypatch, replace(LEFT, **changes), *armed)


def test_an_instalment_that_was_left_out_is_refused(monkeypatch: Any) -> None:
    found = {0: {0}, 1: {0, 2}, 2: {0, 1}}
    monkeypatch.setattr(resume.budget, "armed_instalments", lambda session, request_id, attempts: found)
    with pytest.raises(JournalUnfit):
        load_resume_point(None, REQUEST, PLAN, LEFT)  # type: ignore[arg-type]


def test_a_metric_that_was_paid_is_not_taken_for_draws(monkeypatch: Any) -> None:
    metrics = planned(Amount(3), mechanism="noisy_histogram"), planned(Amount(3), mechanism="noisy_histogram")
    plan: Any = SimpleNamespace(**GIVEN, all_invocations=(*PLAN.all_invocations, *metrics))
    armed = {0: {0}, 1: {0, 1}, 2: {0, 1}, 3: {0}}
    monkeypatch.setattr(resume.budget, "armed_instalments", lambda session, request_id, attempts: armed)
    found = load_resume_point(
        None, REQUEST, plan, replace(LEFT, begun={"dp_length"}, results={"dp_length": {"name": 1}})
    )  # type: ignore[arg-type]
    assert (found.paid, found.state.armed, found.remaining_of(plan)) == ((1, 2, 2, 1, 0), 2, Amount(27 + 3))
    assert (found.begun, found.results) == (frozenset({"dp_length"}), {"dp_length": {"name": 1}})


@pytest.mark.parametrize(("released", "fits"), [({}, True), ({"noisy_means": "x"}, False)])
def test_mechanisms_of_one_release_may_be_unpaid_unless_all_was_released_at_the_beginning(
    monkeypatch: Any, released: dict[str, str], fits: bool
) -> None:
    plan: Any = SimpleNamespace(**{**GIVEN, "invocations": (COUNT, COUNT)}, all_invocations=(COUNT, COUNT))
    left = Contents("d", [1], SPLIT_KEY, 2, released)
    monkeypatch.setattr(resume.budget, "armed_instalments", lambda *given: {0: {0}})
    if fits:
        found = load_resume_point(None, REQUEST, plan, left)  # type: ignore[arg-type]
        assert (found.paid, found.state.lost) == ((1, 0), 0)
    else:
        with pytest.raises(JournalUnfit):
            load_resume_point(None, REQUEST, plan, left)  # type: ignore[arg-type]


@pytest.mark.parametrize(("lost", "enough"), [(1, True), (2, False), (3, False)])
def test_of_a_unit_in_two_groups_a_text_has_half_of_the_draws(monkeypatch: Any, lost: int, enough: bool) -> None:
    plan: Any = SimpleNamespace(**{**vars(PLAN), "texts_per_unit": 2})
    left = replace(LEFT, attempts=list(range(1, lost + 1)), since=lost - 1)
    monkeypatch.setattr(resume.budget, "armed_instalments", lambda *given: {0: {0}, 1: {0, 1}, 2: {0, 1}})
    if enough:
        assert load_resume_point(None, REQUEST, plan, left).state.lost == lost  # type: ignore[arg-type]
    else:
        with pytest.raises(JournalUnfit, match="no draw is left for a text"):
            load_resume_point(None, REQUEST, plan, left)  # type: ignore[arg-type]
