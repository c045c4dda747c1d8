"""Quoted time beside processor time: stages of progress, what is run again, every system's price, and the table."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

SCRIPTS = ("insights.time_quotes",)


@pytest.fixture
def module(bench: dict[str, ModuleType]) -> ModuleType:
    return bench["insights.time_quotes"]


def test_a_stage_lasts_from_its_first_report_to_its_last(module: ModuleType) -> None:
    seen = [
        ("facets", 0, 9, 1.0),
        ("tokens", 1, 4, 1.5),
        ("facets", 9, 9, 3.0),
        ("tokens", 4, 4, 6.0),
        ("end", 1, 1, 7.0),
    ]
    assert list(module._stages(seen)) == [("facets", 2, 2.0), ("tokens", 2, 4.5), ("end", 1, 0.0)]
    assert list(module._stages([])) == []


def test_a_system_that_the_file_has_is_not_run_again(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known, missing = "simple_clio", "urania, `tfidf`"
    path = tmp_path / "times.jsonl"
    line = {"system": known, "units": 600, "quoted": 49, "processor": 70.0, "progress": [["facets", 2, 0.1]]}
    path.write_text(json.dumps(line) + "\n")
    started: list[str] = []

    def run(command: list[str], **_: object) -> SimpleNamespace:
        started.append(command[-1])
        return SimpleNamespace(
            stdout="a warning\n" + json.dumps(line | {"system": command[-1], "processor": 98.0}) + "\n"
        )

    monkeypatch.setattr(module.subprocess, "run", run)
    monkeypatch.setattr(sys, "argv", ["time_quotes", "--to", str(path), "--systems", known, missing])
    module.main()
    assert started == [missing]
    assert [json.loads(each)["system"] for each in path.read_text().splitlines()] == [known, missing]
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| simple_clio | 600 | 49 | 70 | 0.70 | facets (2) |",
        "| urania, `tfidf` | 600 | 49 | 98 | 0.50 | facets (2) |",
    ]


def test_every_system_has_a_price_as_a_request_has_it(module: ModuleType) -> None:
    priced = {name: module.quoted(name) for name in module.SYSTEMS}
    assert all(each.seconds > 0 for each in priced.values())
    assert priced["question_histogram, keywords"].seconds < priced["question_histogram, model"].seconds
    assert priced["simple_clio"].plan.loss.rho == 0
    kinds = {priced[name].request.kind for name in ("keyphrase_seeding", "private_evolution", "steering_vector")}
    assert kinds == {"synthetic_corpus"}
    assert priced["token_level_summary"].request.kind == "summaries"
    assert priced["token_level_summary"].plan.samples == len(module.GROUPS)
    assert 0 < priced["urania, `public`"].plan.loss.rho <= priced["urania, `public`"].plan.amount.rho
