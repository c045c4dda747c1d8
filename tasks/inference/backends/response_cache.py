"""Cache of answers, on disk before the next request: a paid answer is never requested twice.

They lie in the private folder of the run, beside its journal, and go with it: texts that nobody has approved. An answer
is found by a digest of all that was asked, and by how often the same was asked before it in this run.
"""

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from models_db.values.canonical_json import Json, digest
from tasks.inference.backends.errors import answers_unwritable
from tasks.inference.backends.interface import Completion

FILE: Final = "answers"


class Answers:
    """The answers of one run; safe to use from several threads.

    Args:
        folder: the run's private folder, which its journal makes; None keeps answers in memory alone.

    Raises:
        AnswersUnwritable: what is there cannot be read.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._occurrences: dict[str, int] = {}
        self._answers: dict[str, Completion] = {}
        self._whole = True
        if folder is not None:
            self._read(folder / FILE)

    def require_place(self) -> None:
        """Check that answers can be kept, before one is paid for.

        Raises:
            ValueError: the run has no journal yet (`RunJournal.begin`), and without one nobody goes on from here.
        """
        if self._folder is not None and not self._folder.is_dir():
            raise ValueError("answers are kept beside a journal, and it has not begun")

    def key(self, question: Mapping[str, Json]) -> str:
        """Return the key of a question that is asked now: of equal ones each has its own, in their order."""
        what = digest(dict(question))
        with self._lock:
            number = self._occurrences.get(what, 0)
            self._occurrences[what] = number + 1
        return f"{what}/{number}"

    def get(self, key: str) -> Completion | None:
        """Return the answer, if it came."""
        return self._answers.get(key)

    def keep(self, key: str, answer: Completion) -> None:
        """Store an answer; it is on disk when this returns.

        Raises:
            AnswersUnwritable.
        """
        line = {"key": key, "text": answer.text, "tokens": answer.tokens, "complete": answer.complete}
        with self._lock:
            if self._folder is not None:
                self._write(self._folder, json.dumps(line).encode() + b"\n")
            self._answers[key] = answer

    def _write(self, folder: Path, data: bytes) -> None:
        reason = None
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(folder / FILE, flags, 0o600), "ab", buffering=0) as file:
                if os.fstat(file.fileno()).st_size and not self._whole:
                    data = b"\n" + data  # a line that a kill, or a full disk, has torn off stays by itself
                self._whole = False
                written = 0
                while written < len(data):
                    written += file.write(data[written:])
                self._whole = True
                os.fsync(file.fileno())
        except OSError as problem:
            reason = problem.strerror or type(problem).__name__
        if reason is not None:
            raise answers_unwritable(reason)

    def _read(self, path: Path) -> None:
        """Read the answers that an interrupted run left; an incomplete line counts as no answer."""
        data, reason = b"", None
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return
        except OSError as problem:
            reason = problem.strerror or type(problem).__name__
        if reason is not None:
            raise answers_unwritable(reason)
        self._whole = data.endswith(b"\n")
        for line in data.split(b"\n"):
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
            answer = Completion(str(entry["text"]), int(entry["tokens"]), bool(entry["complete"]))
            self._answers[str(entry["key"])] = answer
        except (KeyError, TypeError, ValueError):
            return
