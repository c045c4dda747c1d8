"""Traces: what may be said, how coarse times are, and that nothing happens while they are off."""

import re
import time
from pathlib import Path

import pytest

from flows.observability import tracing
from flows.observability.tracing import DURATION_STEPS, FlowTrace
from models_db.errors import Refused
from tasks.common.progress import listening

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "observability.md").read_text()
ADDRESS = "http://localhost:9/v1/traces"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[list[tracing.Span]]:
    """What would be sent."""
    found: list[list[tracing.Span]] = []
    monkeypatch.setenv(tracing.COLLECTOR_VARIABLE, ADDRESS)
    monkeypatch.setattr(tracing, "send_trace", lambda spans, *_: found.append(spans))
    return found


@tracing.traced("execute")
def working(outcome: BaseException | None = None) -> str:
    tracing.set_request(7)
    with tracing.stage("hold"):
        tracing.count_instalment(total=2)
    with tracing.stage("generate"):
        tracing.count_instalment(total=2)
        if outcome is not None:
            raise outcome
    return "the patient Ann Smith"


def test_off_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(tracing.COLLECTOR_VARIABLE, raising=False)
    monkeypatch.setattr(tracing, "send_trace", lambda *_: pytest.fail("something was sent"))
    assert working() == "the patient Ann Smith"
    assert tracing._current_trace.get() is None


def test_a_flow_is_one_trace(sent: list[list[tracing.Span]]) -> None:
    assert working() == "the patient Ann Smith"
    [[flow, hold, generate]] = sent
    assert dict(flow.attributes) == {
        "almoner.flow": "execute", "almoner.request": 7, "almoner.instalments": 2, "almoner.outcome": "done",
        "almoner.at_most_seconds": 60,
    }  # fmt: skip
    assert [hold.name, generate.name] == ["hold", "generate"]
    assert "Ann" not in repr(sent)


def test_an_error_leaves_its_name(sent: list[list[tracing.Span]]) -> None:
    class Unfit(Refused):
        pass

    for problem, name in (
        (Unfit("Ann Smith has a cough"), "Unfit"),
        (ValueError("Ann Smith"), "ValueError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ):
        with pytest.raises(type(problem)):
            working(problem)
        flow, hold, generate = sent[-1]
        assert [each.attributes["almoner.outcome"] for each in (flow, hold, generate)] == [name, "done", name]
        assert [each.failed for each in (flow, hold, generate)] == [True, False, True]
    assert "Ann" not in repr(sent)


def test_times_are_told_in_steps() -> None:
    assert [tracing.duration_step(s) for s in (0, 59.9, 60, 60.1, 3599, 43200, 43201, 10**7)] == [
        60, 60, 60, 300, 3600, 43200, 86400, 86400,
    ]  # fmt: skip
    trace = FlowTrace("execute", 0, stages={"generate": (61.3, "done")})
    for seconds in (61.3, 299.0, 123.456):
        trace.stages["generate"] = (seconds, "done")
        assert tracing.trace_spans(trace, seconds) == tracing.trace_spans(trace, 200)


def test_what_is_not_on_the_list_is_left_out() -> None:
    assert tracing.allowed_attributes({
        "almoner.flow": "execute",
        "almoner.units": 12,
        "almoner.stage": "Ann Smith",
        "almoner.outcome": "the text of Ann Smith",
        "almoner.request": -1,
        "almoner.instalments": None,
        "almoner.at_most_seconds": 61,
    }) == {"almoner.flow": "execute"}  # fmt: skip


def test_the_page_lists_what_may_be_said() -> None:
    rows = dict(re.findall(r"^\| `(almoner\.\w+)` \| [^|]+ \| (.+) \|$", PAGE, re.MULTILINE))
    assert set(rows) == set(tracing.ALLOWED_ATTRIBUTES)
    assert [int(step) for step in re.findall(r"\d+", rows["almoner.at_most_seconds"])] == [
        *DURATION_STEPS,
        tracing.LONGEST_STEP,
    ]
    for name in (*tracing.FLOWS, *tracing.STAGES):
        assert f"`{name}`" in PAGE.partition("The spans are ")[2]


@pytest.mark.parametrize("address", ["http://collector:4318/v1/traces", "ftp://localhost/x", "collector", "https://"])
def test_traces_are_not_sent_in_the_clear(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv(tracing.COLLECTOR_VARIABLE, address.replace("//c", "//me:secret@c"))
    with pytest.raises(tracing.UnencryptedCollector) as caught:
        working()
    assert "secret" not in f"{caught.value.diagnostics()} {caught.value.facts}"


@pytest.mark.parametrize("address", ["https://collector.clinic.example/v1/traces", "http://127.0.0.1:4318/v1/traces"])
def test_behind_tls_or_on_this_machine_they_may(address: str) -> None:
    tracing.require_sendable(address)


def test_without_the_extra_nothing_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tracing.COLLECTOR_VARIABLE, ADDRESS)
    monkeypatch.setattr(tracing, "find_spec", lambda _: None)
    with pytest.raises(tracing.TelemetryMissing):
        working()


def test_who_waits_is_told_once_that_a_trace_was_not_sent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody listens on the port: no address, no traceback, no line for each try."""
    monkeypatch.setenv(tracing.COLLECTOR_VARIABLE, ADDRESS)
    monkeypatch.setattr(tracing, "SECONDS_TO_SEND", 0.2)
    said: list[str] = []
    with listening(lambda *_: None, said.append):
        assert working() == "the patient Ann Smith"
    assert [line.partition(":")[0] for line in said] == ["The trace could not be sent"]
    assert caplog.text == ""


def test_a_collector_that_is_not_there_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError("no route")

    monkeypatch.setenv(tracing.COLLECTOR_VARIABLE, ADDRESS)
    monkeypatch.setattr(tracing, "send_trace", broken)
    begun = time.time()
    assert working() == "the patient Ann Smith"
    assert time.time() >= begun
