"""Two processes that both saw something waiting: what one of them has done meanwhile the other finds when it acts."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from flows.releases.propose import price_for_home
from flows.schedules.slots import UNFINISHED_RUN_REASON, decide_due_slot, run_request
from flows.workspace.workspace import open_workspace
from tests.integration.story import Almoner
from tests.integration.test_schedules import authorised, look, scheduled, slots


def test_what_another_process_gave_up_meanwhile_is_not_run(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """One was busy with another schedule's run for an hour, since it looked what there is to run."""
    authorised(almoner)
    scheduled(almoner)
    workspace = open_workspace(almoner.home)
    decide_due_slot(workspace, 1, datetime.now(UTC))
    with monkeypatch.context() as patch:
        patch.setattr("flows.releases.attempt.code_digest", lambda: "c" * 64)
        assert [run["outcome"] for run in look(almoner)["runs"]] == ["given up"]
    assert run_request(workspace, 1) is None
    assert almoner.ask("schedule list")[0]["used"] == 0
    assert almoner.ask("schedule show 1")["slots"][0]["state"] == "given up"
    almoner.type("run 1")  # a person still may
    assert almoner.state() == "produced"


def test_an_earlier_slot_that_was_asked_for_meanwhile_skips_the_later_one(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one process prices a slot, another asks for the one before."""
    authorised(almoner)
    scheduled(almoner, "--every 1m")
    workspace, now = open_workspace(almoner.home), datetime.now(UTC)
    real = price_for_home

    def slowly(*given: Any) -> Any:
        monkeypatch.setattr("flows.schedules.slots.price_for_home", real)
        first = decide_due_slot(workspace, 1, now - timedelta(minutes=2))
        assert first is not None
        assert first.request == 1
        return real(*given)

    monkeypatch.setattr("flows.schedules.slots.price_for_home", slowly)
    decided = decide_due_slot(workspace, 1, now)
    assert decided is not None
    assert (decided.request, decided.skipped) == (None, UNFINISHED_RUN_REASON)
    assert slots(almoner) == [(1, None), (None, UNFINISHED_RUN_REASON)]


def test_a_runner_whose_home_has_not_the_data_leaves_the_slot_to_another(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two runners each has its own datasets: the other's slots are no failed runs, and use up no authorisation."""
    authorised(almoner, runs=1)
    scheduled(almoner)
    (version,) = almoner.home.corpora.iterdir()
    version.rename(almoner.folder / "elsewhere")
    began: list[object] = []
    with monkeypatch.context() as patch:
        patch.setattr("flows.schedules.slots.execute_request", lambda *given, **_: began.append(given))
        for _ in range(2):
            ran = look(almoner)["runs"]
            assert [(run["outcome"], run["reason"]) for run in ran] == [("not now", "VersionMissing")]
    assert began == []  # each would be a failed flow run on Prefect's page, each time
    assert almoner.state() == "approved"
    assert almoner.ask("schedule list")[0]["used"] == 0
    (almoner.folder / "elsewhere").rename(version)
    assert [run["outcome"] for run in look(almoner)["runs"]] == ["produced"]
