"""Questions at the keyboard."""

import io
import os
import sys
from collections.abc import Iterator

import pytest

from cli.framework import prompts
from cli.framework.prompts import confirm, read_passphrase
from tests.refusals import refusal


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Standard input is a terminal; what is written to this descriptor is typed there."""
    keyboard, screen = os.openpty()
    with open(screen, closefd=True) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield keyboard
    os.close(keyboard)


def piped(monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    monkeypatch.setattr(sys, "stdin", None if text is None else io.StringIO(text))


@pytest.mark.parametrize("line", ["clinic\n", "clinic", "  clinic \n", "clinic\nsomething else\n"])
def test_the_name_may_be_piped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str) -> None:
    piped(monkeypatch, line)
    confirm("clinic", "Type it")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("line", ["", "\n", "  \n", None])
def test_nothing_is_no_confirmation(monkeypatch: pytest.MonkeyPatch, line: str | None) -> None:
    piped(monkeypatch, line)
    with refusal("ConfirmationMissing") as refused:
        confirm("clinic", "Type it")
    assert "echo NAME | almoner approve" in refused.value.advice
    assert "--confirm NAME" in refused.value.advice


@pytest.mark.parametrize("line", ["clinc\n", "Clinic\n", "clinic2\n", "yes\n", "clin\x00ic\n", "x" * 5000])
def test_another_name_is_no_confirmation(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    piped(monkeypatch, line)
    with refusal("ConfirmationWrong"):
        confirm("clinic", "Type it")


def test_two_ways_to_write_one_letter_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    piped(monkeypatch, "cafe\u0301\n")
    confirm("caf\u00e9", "Type it")


@pytest.mark.parametrize("line", ["clinic\n", "other\n", None])
def test_a_given_name_is_compared_in_place_of_the_line(monkeypatch: pytest.MonkeyPatch, line: str | None) -> None:
    piped(monkeypatch, line)
    confirm("clinic", "Type it", "clinic")
    with refusal("ConfirmationWrong"):
        confirm("clinic", "Type it", "other")
    with refusal("ConfirmationMissing"):
        confirm("clinic", "Type it", " ")


def test_a_given_name_is_compared_at_a_terminal_and_not_asked(
    terminal: int, capsys: pytest.CaptureFixture[str]
) -> None:
    os.write(terminal, b"clinic\n")
    with refusal("ConfirmationWrong"):
        confirm("clinic", "Type it", "other")
    assert capsys.readouterr() == ("", "")


def test_bytes_that_are_no_text_are_no_confirmation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"clinic\xff\n"), encoding="utf-8"))
    with refusal("ConfirmationWrong"):
        confirm("clinic", "Type it")


def test_a_name_with_more_behind_a_long_blank_is_no_confirmation(monkeypatch: pytest.MonkeyPatch) -> None:
    piped(monkeypatch, "clinic" + " " * 994 + "-other\n")
    with refusal("ConfirmationWrong"):
        confirm("clinic", "Type it")


def test_at_a_terminal_the_question_is_put_beside_the_answer(terminal: int, capsys: pytest.CaptureFixture[str]) -> None:
    os.write(terminal, b"clinic\n")
    confirm("clinic", "Type it")
    assert capsys.readouterr() == ("", "Type it: ")


def test_at_a_terminal_the_end_of_input_is_no_confirmation(terminal: int) -> None:
    os.write(terminal, b"\x04")
    with refusal("ConfirmationMissing"):
        confirm("clinic", "Type it")


def test_a_passphrase_needs_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    piped(monkeypatch, "secret\n")
    with refusal("PassphraseMissing", match="no terminal"):
        read_passphrase()


def test_a_passphrase_is_asked_without_showing_it(terminal: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(prompts.getpass, "getpass", lambda prompt, stream: asked.append((prompt, stream)) or "secret")
    assert read_passphrase() == "secret"
    assert asked == [("Passphrase of the key file: ", sys.stderr)]
