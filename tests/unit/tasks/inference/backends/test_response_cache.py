"""Answers on disk: found again by what was asked, however a run ended."""

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tasks.inference.backends import chat_completions as module
from tasks.inference.backends.chat_completions import ANSWERS_FILE, Answers
from tasks.inference.backends.text_backend import Completion
from tests.refusals import refusal

ONE, TWO = Completion("first\ntext \u00e9", 3, True), Completion("second", 2, False)


def test_they_are_found_again_and_nobody_else_may_read_them(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    answers = Answers(folder)
    with pytest.raises(ValueError, match="journal"):
        answers.require_place()
    assert not folder.exists()
    folder.mkdir()
    answers.require_place()
    answers.keep(answers.key({"prompt": "a"}), ONE)
    again = Answers(folder)
    assert again.get(again.key({"prompt": "a"})) == ONE
    assert again.get(again.key({"prompt": "b"})) is None
    assert stat.S_IMODE((folder / ANSWERS_FILE).stat().st_mode) == 0o600


def test_equal_questions_have_answers_of_their_own_in_their_order(tmp_path: Path) -> None:
    answers = Answers(tmp_path)
    keys = [answers.key({"prompt": "a"}) for _ in range(2)]
    assert keys[0] != keys[1]
    answers.keep(keys[1], TWO)  # the second came first
    again = Answers(tmp_path)
    assert [again.get(again.key({"prompt": "a"})) for _ in range(3)] == [None, TWO, None]


def test_a_line_that_a_kill_has_torn_is_an_answer_that_did_not_come(tmp_path: Path) -> None:
    answers = Answers(tmp_path)
    keys = [answers.key({"prompt": prompt}) for prompt in "abc"]
    answers.keep(keys[0], ONE)
    answers.keep(keys[1], TWO)
    path = tmp_path / ANSWERS_FILE
    path.write_bytes(path.read_bytes()[:-9])
    again = Answers(tmp_path)
    keys = [again.key({"prompt": prompt}) for prompt in "abc"]
    assert [again.get(key) for key in keys] == [ONE, None, None]
    again.keep(keys[2], TWO)
    again.keep(keys[1], TWO)
    assert [Answers(tmp_path).get(key) for key in keys] == [ONE, TWO, TWO]


def test_a_line_that_a_full_disk_has_torn_does_not_take_the_next_answer_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are on their way when the first does not fit, and they are paid for."""
    answers, real = Answers(tmp_path), open
    keys = [answers.key({"prompt": prompt}) for prompt in "ab"]

    class Full:
        """Takes some bytes, and then no more."""

        def __init__(self, file: Any) -> None:
            self.file, self.taken = file, 0

        def __enter__(self) -> "Full":
            return self

        def __exit__(self, *error: object) -> None:
            self.file.close()

        def fileno(self) -> int:
            return int(self.file.fileno())

        def write(self, data: bytes) -> int:
            if self.taken:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.taken = self.file.write(data[:9])
            return self.taken

    with monkeypatch.context() as patch:
        patch.setattr(module, "open", lambda *given, **more: Full(real(*given, **more)), raising=False)
        with refusal("AnswersUnwritable", match="No space left"):
            answers.keep(keys[0], ONE)
    answers.keep(keys[1], TWO)
    assert [Answers(tmp_path).get(key) for key in keys] == [None, TWO]


def test_a_damaged_line_is_asked_for_again(tmp_path: Path) -> None:
    (tmp_path / ANSWERS_FILE).write_bytes(b'\xff\n[]\n{"key": 1}\nnull\n')
    answers = Answers(tmp_path)
    answers.keep(answers.key({"prompt": "a"}), ONE)
    again = Answers(tmp_path)
    assert again.get(again.key({"prompt": "a"})) == ONE


def test_what_cannot_be_kept_is_told_without_the_answer(tmp_path: Path) -> None:
    os.symlink(tmp_path / "elsewhere", tmp_path / ANSWERS_FILE)
    with refusal("AnswersUnwritable"):
        Answers(tmp_path)
    inside_a_file = tmp_path / "file"
    inside_a_file.touch()
    answers = Answers(tmp_path / "none" / "deeper")
    with refusal("AnswersUnwritable") as refused:
        answers.keep(answers.key({"prompt": "a"}), ONE)
    assert ONE.text not in refused.value.diagnostics()
    assert refused.value.__cause__ is None


def test_without_a_folder_they_stay_in_memory() -> None:
    answers = Answers(None)
    key = answers.key({"prompt": "a"})
    answers.keep(key, ONE)
    assert answers.get(key) == ONE
