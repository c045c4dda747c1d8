"""Text backend over HTTP: OpenAI's chat completions, as vLLM, llama.cpp and others serve them.

Prompts leave this machine, so this is for systems alone that show the model public words and released values
(`tasks.pricing.external_models`). An endpoint that is down, slow, busy or malformed is asked again after a while, and
then given up by name; received answers are kept, and a resumed run asks only for the missing ones.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from models_db.values.canonical_json import Json
from tasks.inference.backends.api_key import Key, key_for
from tasks.inference.backends.endpoints import Endpoint
from tasks.inference.backends.errors import endpoint_failed
from tasks.inference.backends.interface import SEES, Completion, Sampling
from tasks.inference.backends.rate_limit import PATIENCE, RateLimit, wait_after
from tasks.inference.backends.request import HOPELESS, TransportError, ask, client_for, message
from tasks.inference.backends.response_cache import Answers

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
