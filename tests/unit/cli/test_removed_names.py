"""Whoever types a removed command or option, or writes a removed setting, learns what takes its place."""

import pytest

import cli.command_table
from cli.app import main
from cli.command_table import REMOVED_COMMANDS
from models_db.values.requests import REMOVED_SETTINGS, ReleaseRequest, RequestModel, parse_model
from tests.refusals import refusal


@pytest.mark.parametrize(("line", "name"), [("frobnicate", "frobnicate"), ("approve 3 --window x", "approve --window")])
def test_a_removed_name_is_explained(
    line: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli.command_table, "REMOVED_COMMANDS", {name: "Use another."})
    assert answer(line, monkeypatch, capsys).endswith("for it was removed. Use another.")
    monkeypatch.setattr(cli.command_table, "REMOVED_COMMANDS", {})
    assert "removed" not in answer(line, monkeypatch, capsys)


@pytest.mark.parametrize("name", REMOVED_COMMANDS)
def test_no_removed_name_is_left(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answer(name, monkeypatch, capsys).endswith(f"for it was removed. {REMOVED_COMMANDS[name]}")


@pytest.mark.parametrize("setting", [name for name in REMOVED_SETTINGS if ": " not in name])
def test_a_removed_setting_is_explained(setting: str) -> None:
    with refusal("FileInvalid") as refused:
        parse_model(RequestModel, {setting: 3, "other": 4}, "the file")
    assert refused.value.facts["problems"] == [
        f"{setting}: it was removed: {REMOVED_SETTINGS[setting]}",
        "other: extra inputs are not permitted",
    ]


@pytest.mark.parametrize("value", [name for name in REMOVED_SETTINGS if ": " in name])
def test_a_removed_value_is_explained(value: str) -> None:
    setting, _, removed = value.partition(": ")
    with refusal("FileInvalid") as refused:
        parse_model(ReleaseRequest, {setting: removed}, "the file")
    assert f"{setting}: it was removed: {REMOVED_SETTINGS[value]}" in refused.value.facts["problems"]


def answer(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """The message that a command line gets under --json, without the options that it could have meant."""
    monkeypatch.setattr("sys.argv", ["almoner", *line.split(), "--json"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    return str(capsys.readouterr().out.split('"message": "')[1].split('",\n')[0].split(" (Possible")[0])
