"""Text backend over HTTP: OpenAI's chat completions, as vLLM, llama.cpp and others serve them.

Prompts leave this machine, so this is for systems alone that show the model public words and released values
(`tasks.pricing.external_models`). An endpoint that is down, slow, busy or malformed is asked again after a while, and
then given up by name.

A paid answer is never requested twice: received answers are on disk before the next request, and a resumed run asks
only for the missing ones. They lie in the private folder of the run, beside its journal, and go with it: texts that
nobody has approved. An answer is found by a digest of all that was asked, and by how often the same was asked before it
in this run.
"""

import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx

from models_db.values.canonical_json import Json, digest
from tasks.inference.backends.endpoints import Endpoint, Key, answers_unwritable, endpoint_failed, key_for
from tasks.inference.backends.request import (
    HOPELESS,
    PATIENCE,
    RateLimit,
    TransportError,
    ask,
    client_for,
    message,
    wait_after,
)
from tasks.inference.backends.text_backend import SEES, Completion, Sampling

ANSWERS_FILE: Final = "answers"


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
            self._read(folder / ANSWERS_FILE)

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
            with open(os.open(folder / ANSWERS_FILE, flags, 0o600), "ab", buffering=0) as file:
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


BYTES_OF_A_TOKEN = 3
"""Bytes per token, for an upper estimate of a prompt's tokens if tokens per minute are limited."""


@dataclass(frozen=True)
class HttpBackend:
    """A `TextBackend` that asks an endpoint. Its repr shows no key.

    Attributes:
        answers: the received ones, also those of an interrupted run.
        progress: called with the numbers of answers received and expected.
        sleep: waits on an event for so many seconds.
    """

    endpoint: Endpoint
    key: Key | None = field(repr=False)
    answers: Answers = field(repr=False)
    pace: RateLimit = field(repr=False)
    progress: Callable[[str, int, int], None] = field(default=lambda what, done, total: None, repr=False)
    sleep: Callable[[threading.Event, float], object] = field(default=threading.Event.wait, repr=False)
    external: bool = True

    @classmethod
    def of(cls, endpoint: Endpoint, folder: Path | None, progress: Callable[[str, int, int], None]) -> "HttpBackend":
        """Return a backend that keeps its answers in a run's private folder.

        Raises:
            EndpointKeyMissing: the variable that holds its key is not set.
            EndpointUnreachable: its certificates cannot be read.
            AnswersUnwritable: the answers of an interrupted run cannot be read.
        """
        client_for(endpoint).close()  # errors of the configuration are raised before anything is spent
        pace = RateLimit(endpoint.per_minute, endpoint.tokens_per_minute)
        return cls(endpoint, key_for(endpoint), Answers(folder), pace, progress)

    @property
    def name(self) -> str:
        """The name of the backend in a release record."""
        return f"{SEES} ({self.endpoint.revision})"

    def require_ready(self, prompts: Sequence[str], how: Sampling) -> None:
        """Implement `TextBackend.require_ready`; a resumed run finds the answers on disk.

        Raises:
            EndpointFailure, AnswersUnwritable: as `write`.
        """
        self.write(prompts, how)

    def write(self, prompts: Sequence[str], how: Sampling) -> list[Completion]:
        """Implement `TextBackend.write`.

        Raises:
            EndpointFailure: after as many attempts as are configured.
            AnswersUnwritable: an answer cannot be kept; no further one is asked for.
        """
        keys = [self.answers.key(self._question(prompt, how)) for prompt in prompts]
        missing = [number for number, key in enumerate(keys) if self.answers.get(key) is None]
        if missing:
            self.answers.require_place()
            with client_for(self.endpoint) as client:
                _Asking(self, client, how, len(prompts)).all([(keys[n], prompts[n]) for n in missing])
        answers = [self.answers.get(key) for key in keys]
        return [answer for answer in answers if answer is not None]

    def _question(self, prompt: str, how: Sampling) -> dict[str, Json]:
        return {
            "endpoint": self.endpoint.digest,
            "prompt": prompt,
            "system": how.system,
            "max_new_tokens": how.max_new_tokens,
            "temperature": str(how.temperature),
            "top_k": how.top_k,
        }


class _Asking:
    """The requests of one call, several at once; the first failure stops the others."""

    def __init__(self, backend: HttpBackend, client: httpx.Client, how: Sampling, total: int) -> None:
        self._backend, self._client, self._how, self._total = backend, client, how, total
        self._stop = threading.Event()

    def all(self, missing: Sequence[tuple[str, str]]) -> None:
        """Ask, and keep every answer.

        Raises:
            EndpointFailure, AnswersUnwritable: the first failure, when the requests that are on their way have ended.
        """
        received = self._total - len(missing)
        self._backend.progress("answers", received, self._total)
        with ThreadPoolExecutor(self._backend.endpoint.at_once, thread_name_prefix="endpoint") as pool:
            try:
                futures = [pool.submit(self._stopping, key, prompt) for key, prompt in missing]
                for done, future in enumerate(as_completed(futures), 1):
                    future.result()
                    self._backend.progress("answers", received + done, self._total)
            finally:
                self._stop.set()
                pool.shutdown(wait=True, cancel_futures=True)

    def _stopping(self, key: str, prompt: str) -> None:
        try:
            self._request_text(key, prompt)
        except BaseException:
            self._stop.set()
            raise

    def _request_text(self, key: str, prompt: str) -> None:
        """Request one text until it arrives or another request has failed."""
        endpoint, request_body = self._backend.endpoint, message(self._backend.endpoint, prompt, self._how)
        tokens = self._how.max_new_tokens + len(prompt.encode()) // BYTES_OF_A_TOKEN
        for attempt in range(endpoint.attempts):
            self._wait(self._backend.pace.turn(tokens))
            if self._stop.is_set():
                return
            outcome = ask(self._client, endpoint, self._backend.key, request_body, self._how)
            if isinstance(outcome, Completion):
                self._backend.answers.keep(key, outcome)
                return
            self._after(outcome, attempt)

    def _after(self, trouble: TransportError, attempt: int) -> None:
        """Wait before the next attempt.

        Raises:
            EndpointFailure: there is none.
        """
        endpoint = self._backend.endpoint
        last = attempt + 1 >= endpoint.attempts
        if last or trouble.code in HOPELESS or (trouble.wait or 0.0) > PATIENCE:
            raise endpoint_failed(trouble.code, endpoint.name, trouble.reason, attempt + 1)
        if trouble.wait is not None:
            self._backend.pace.hold(trouble.wait)
        else:
            self._wait(wait_after(attempt))

    def _wait(self, seconds: float) -> None:
        """Wait for `seconds`, unless another request fails meanwhile."""
        if seconds > 0:
            self._backend.sleep(self._stop, seconds)
