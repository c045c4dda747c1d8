"""Journal of a run's draws, on disk before the next draw, so that a killed run can resume (decision 0023).

A request has one journal, in quarantine: its tokens are outputs of mechanisms that nobody has approved. Its first line
says what was released before the first draw, and holds the secret key of the split into batches
(`tasks.corpus.partition.BatchSplit`), which ends with the journal. Each further one holds the tokens of one step of all
live generations, and the state of their rule, or says that a mechanism of one release
(`tasks.decoding.run_context`) begins to draw, or has its result. A line is on disk before the next
step begins. So when a process dies, at most one draw of each generation is missing, and a resumed run skips one draw
of every generation (`ResumeState.lost`).

Each line begins with the SHA-256 of the digest before it and of its own content. A line that is torn off at the end is
a step that was lost; anything else that does not fit is refused. A process with an open journal holds an exclusive
flock on it, which dies with its process: no two runs ever draw on what is paid.
"""

import fcntl
import hashlib
import json
import os
import shutil
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from models_db.errors import EnvironmentProblem, Refused
from tasks.common.files import sync_folder
from tasks.corpus.keys import KEY_BYTES

FORMAT: Final = "almoner-journal/3"
FILE: Final = "journal"
_DIGEST = 64


@dataclass(frozen=True)
class ResumeState:
    """The results of the attempts that a run resumes; empty for a first attempt.

    Attributes:
        released: what was released before the first draw.
        tokens: the tokens that each generation has drawn, by number, the end token included.
        kept: what the rule has kept of each of them.
        armed: instalments of the draws that are paid for.
        lost: draws of every generation that may have been made and are missing.
    """

    released: Mapping[str, str] = field(default_factory=dict)
    tokens: Mapping[int, Sequence[int]] = field(default_factory=dict)
    kept: Mapping[int, Sequence[float]] = field(default_factory=dict)
    armed: int = 0
    lost: int = 0


@dataclass
class Contents:
    """The content of a journal.

    Attributes:
        request: digest of the approved request.
        attempts: the attempt that began it, and those that went on from it.
        split_key: secret, the key of the split into batches.
        first: sequence number of the first invocation that is armed for draws.
        released, tokens, kept: as in `ResumeState`.
        armed: instalments of the draws that were armed at the last step.
        since: attempts that went on after it and have not written down a step.
        begun: the mechanisms of one release that began to draw, by name.
        results: what they have released.
        unicode: version of Unicode of the Python that began it.
    """

    request: str
    attempts: list[int]
    split_key: bytes = field(repr=False)
    first: int
    released: dict[str, str]
    armed: int = 0
    since: int = 0
    tokens: dict[int, list[int]] = field(default_factory=dict)
    kept: dict[int, tuple[float, ...]] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    results: dict[str, Any] = field(default_factory=dict)
    unicode: str = unicodedata.unidata_version

    @classmethod
    def of(cls, lines: Sequence[Any]) -> "Contents":
        """Read the lines.

        Raises:
            KeyError, TypeError, ValueError: they are not a journal's.
        """
        head = lines[0]
        if head["format"] != FORMAT:
            raise ValueError("the format is another")
        split_key = bytes.fromhex(head["split_key"])
        if len(split_key) != KEY_BYTES:
            raise ValueError("the key of the split has another length")
        contents = cls(
            str(head["request"]),
            [int(head["attempt"])],
            split_key,
            int(head["first"]),
            dict(head["released"]),
            unicode=str(head["unicode"]),
        )
        for line in lines[1:]:
            contents._add(line)
        return contents

    def _add(self, line: Mapping[str, Any]) -> None:
        if "attempt" in line:
            self.attempts.append(int(line["attempt"]))
            self.since += 1
            return
        if "drawing" in line:
            self.begun.add(str(line["drawing"]))
            return
        if "released" in line:
            self.results[str(line["released"])] = line["result"]
            return
        self.armed, self.since = int(line["armed"]), 0
        for number, token, *kept in line["drawn"]:
            self.tokens.setdefault(int(number), []).append(int(token))
            self.kept[int(number)] = tuple(kept)


class RunJournal:
    """Interface of a journal of releases and draws. This one stores nothing; `Journal` is on disk when it returns."""

    def begin(self, first: int, released: Mapping[str, str]) -> None:
        """Record, before the first draw, the first invocation armed for draws, and the values released so far."""

    def step(self, armed: int, drawn: Mapping[int, Sequence[float]]) -> None:
        """Record a step: the armed instalments, and each live generation's token and state of its rule."""

    def drawing(self, name: str) -> None:
        """A mechanism of one release begins to draw."""

    def result(self, name: str, result: Any) -> None:
        """Record the result of a step that was released."""


class Journal(RunJournal):
    """The journal of one request, in a folder of its own. Close it, or use it as a context.

    Args:
        folder: made with the journal and removed with it.
        request_id: named in errors.
    """

    def __init__(self, folder: Path, request_id: int) -> None:
        self._folder, self._request_id = folder, request_id
        self._file: int | None = None
        self._last = ""
        self._request, self._attempt, self._split_key = "", 0, b""

    def assign(self, request: str, attempt: int, split_key: bytes) -> None:
        """Name the approved request, by its digest, the attempt that writes from here on, and the key of its split."""
        self._request, self._attempt, self._split_key = request, attempt, split_key

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def open(self) -> Contents | None:
        """Return the contents that an interrupted run left, if any, and lock the journal until `close`.

        Raises:
            JournalInUse: another process has it open.
            JournalUnfit: it is damaged; or a public rule might give a document another label in this Python than in
                the one that began it, and a unit would be read in a second batch.
            JournalUnwritable: the disk does not let go of a line that was torn.
        """
        try:
            self._file = os.open(self._folder / FILE, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError:
            raise JournalUnfit(self._request_id, "it cannot be opened") from None
        self._lock()
        with open(os.dup(self._file), "rb") as file:
            data = file.read()
        whole, _, torn = data.rpartition(b"\n")
        if torn:
            with self._writing():
                os.ftruncate(self._file, len(data) - len(torn))
                os.fsync(self._file)
        try:
            contents = Contents.of([self._checked(line) for line in whole.split(b"\n")])
        except (KeyError, TypeError, ValueError):
            raise JournalUnfit(self._request_id, "it is damaged") from None
        if contents.unicode != unicodedata.unidata_version:
            own = f"it was begun with Unicode {contents.unicode}, and this Python has {unicodedata.unidata_version}"
            raise JournalUnfit(self._request_id, f"{own}, in which words may be others")
        return contents

    def begin(self, first: int, released: Mapping[str, str]) -> None:
        """Make the journal of the assigned attempt, before its first draw; it is on disk when this returns.

        Args:
            first, released: as in `Contents`.

        Raises:
            JournalUnwritable: the disk does not take it.
        """
        with self._writing():
            self._folder.mkdir(mode=0o700, exist_ok=True)
            new = self._folder / f"{FILE}.new"
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.open(new, flags, 0o600)
            self._lock()
            self._last = ""
            head = {"format": FORMAT, "request": self._request, "attempt": self._attempt}
            head |= {"split_key": self._split_key.hex(), "unicode": unicodedata.unidata_version}
            self._write({**head, "first": first, "released": dict(released)})
            os.rename(new, self._folder / FILE)
            sync_folder(self._folder)
            sync_folder(self._folder.parent)

    def go_on(self) -> None:
        """The assigned attempt goes on from here; to be called before it arms anything for draws.

        Raises:
            JournalUnwritable: the disk does not take it.
        """
        with self._writing():
            self._write({"attempt": self._attempt})

    def step(self, armed: int, drawn: Mapping[int, Sequence[float]]) -> None:
        """Record one step of all live generations; it is on disk when this returns.

        Args:
            armed: instalments of the draws that are armed.
            drawn: for each generation its token, and what its rule keeps of it.

        Raises:
            JournalUnwritable: the disk does not take it.
        """
        with self._writing():
            self._write({"armed": armed, "drawn": [[number, *values] for number, values in sorted(drawn.items())]})

    def drawing(self, name: str) -> None:
        """A mechanism of one release begins to draw; it is on disk when this returns.

        Raises:
            JournalUnwritable: the disk does not take it.
        """
        with self._writing():
            self._write({"drawing": name})

    def result(self, name: str, result: Any) -> None:
        """Record the result that a step released: JSON, on disk when this returns. The step cannot be drawn again.

        Raises:
            JournalUnwritable: the disk does not take it.
        """
        with self._writing():
            self._write({"released": name, "result": result})

    def discard(self) -> None:
        """Remove it for good.

        Raises:
            JournalUnwritable: it cannot be removed.
        """
        with self._writing():
            if self._folder.exists():
                shutil.rmtree(self._folder)
                sync_folder(self._folder.parent)
        self.close()

    def close(self) -> None:
        """Let others have it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _lock(self) -> None:
        if self._file is None:
            raise ValueError("the journal is not open")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JournalInUse(self._request_id) from None

    def _checked(self, line: bytes) -> Any:
        """Return the content of a line, if its digest follows from the line before."""
        digest, content = line[:_DIGEST].decode("ascii"), line[_DIGEST + 1 :]
        if digest != self._following(content) or line[_DIGEST : _DIGEST + 1] != b" ":
            raise ValueError("the digests do not fit")
        self._last = digest
        return json.loads(content)

    def _write(self, body: Mapping[str, Any]) -> None:
        if self._file is None:
            raise ValueError("the journal is not open")
        content = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
        self._last = self._following(content)
        data = b"%s %s\n" % (self._last.encode(), content)
        while data:
            data = data[os.write(self._file, data) :]
        os.fsync(self._file)

    def _following(self, content: bytes) -> str:
        return hashlib.sha256(self._last.encode() + b"\0" + content).hexdigest()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise JournalUnwritable(self._request_id, error.strerror or type(error).__name__) from None


class JournalUnfit(Refused):
    """The journal of an interrupted run cannot be resumed."""

    def __init__(self, request_id: int, reason: str) -> None:
        super().__init__(
            f"The draws of the interrupted run of request {request_id} cannot be used: {reason}. Nothing was spent.",
            f"Draw and pay everything again: `almoner run {request_id} --anew`.",
            {"request": request_id, "reason": reason},
        )


class JournalInUse(Refused):
    """Another process works on the request, although the ledger names none."""

    def __init__(self, request_id: int) -> None:
        super().__init__(
            f"A process that was considered dead still works on request {request_id}.",
            "Wait until it ends, or end it, and go on; or draw and pay everything again:"
            f" `almoner run {request_id} --anew`.",
            {"request": request_id},
        )


class JournalUnwritable(EnvironmentProblem):
    """The journal of a run cannot be written."""

    def __init__(self, request_id: int, reason: str) -> None:
        super().__init__(
            f"The draws of request {request_id} cannot be stored in quarantine: {reason}.",
            f"Make room, then go on with `almoner run {request_id}`.",
            {"request": request_id, "reason": reason},
        )
