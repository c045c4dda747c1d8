"""The process of a flow run: where the texts of errors go that Prefect does not learn."""

import sys
from uuid import UUID, uuid4

import pytest

from flows.orchestration import flow_run_process
from tasks.common.progress import tell


def test_texts_of_errors_are_on_the_error_stream(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, run = [], uuid4()

    def fail(flow_run_id: UUID, flow_name: str) -> None:
        asked.append((flow_run_id, flow_name))
        tell("publish: StoreDenied: The store denies access.")

    monkeypatch.setattr(sys, "argv", ["flow_run_process", str(run), "release"])
    monkeypatch.setattr(flow_run_process, "interrupt_at_end_of_input", lambda: None)
    monkeypatch.setattr(flow_run_process, "run_flow_run", fail)
    flow_run_process.main()
    assert asked == [(run, "release")]
    assert capsys.readouterr().err == "publish: StoreDenied: The store denies access.\n"
