"""Two pollers that both saw a run waiting: what one of them gave up the other does not begin again."""

import pytest

from flows import slots as deciding
from flows.workspace import open_workspace
from models_db.services import schedules
from tests.integration.story import Almoner
from tests.integration.test_schedules import authorised, look, scheduled


def test_what_another_poller_gave_up_meanwhile_is_not_run(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """One was busy with another schedule's run for an hour, since it looked what there is to run."""
    authorised(almoner)
    scheduled(almoner)
    workspace = open_workspace(almoner.home)
    real = schedules.unfinished
    with monkeypatch.context() as patch:
        patch.setattr("flows.running.code_digest", lambda: "c" * 64)
        patch.setattr(schedules, "unfinished", lambda *_: [])
        assert [slot["request"] for slot in look(almoner)["slots"]] == [1]
        patch.setattr(schedules, "unfinished", real)
        with workspace.database.read() as session:
            (waiting,) = schedules.unfinished(session)
        assert [run["outcome"] for run in look(almoner)["runs"]] == ["given up"]
    assert deciding.run_slot(workspace, waiting) is None
    assert almoner.ask("schedule list")[0]["used"] == 0
    assert almoner.ask("schedule show 1")["slots"][0]["state"] == "given up"
    almoner.type("run 1")  # a person still may
    assert almoner.state() == "produced"
