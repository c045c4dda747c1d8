"""Endpoints of OpenAI's chat completions: the settings that a home stores (never a secret), their keys and errors.

A request names one as `external:NAME`. Its approval covers every setting that decides the readers of the prompts
and the source of the answers: address, model, the name of the variable with the key, proxy, certificates. Rates,
timeouts and prices may change without a new approval. No log, exception or repr ever shows a key, and no message
contains an answer, a key or a prompt.
"""

import os
import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal
from urllib.parse import SplitResult

from pydantic import Field, model_validator

from models_db.errors import EnvironmentProblem, UsageError
from models_db.values.canonical_json import Json, digest
from models_db.values.requests import ExactDecimal, RequestModel, TextLine, model_to_json
from tasks.common.network import PREFIX, Address, Variable, is_loopback, split_url

PAGE: Final = "docs/external-models.md"


Price = Annotated[ExactDecimal, Field(ge=0, le=1_000_000)]


class Endpoint(RequestModel):
    """One endpoint. Prices are for a million tokens."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
    url: Address
    model: Annotated[TextLine, Field(max_length=200)]
    licence: TextLine = "not declared"
    key_env: Variable | None = None
    allow_http: bool = False
    proxy: Address | None = None
    ca_file: TextLine | None = None
    token_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"  # noqa: S105 - no password
    per_minute: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    tokens_per_minute: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    at_once: Annotated[int, Field(ge=1, le=64)] = 4
    timeout: Annotated[int, Field(ge=1, le=3600)] = 120
    attempts: Annotated[int, Field(ge=1, le=20)] = 5
    price_in: Price | None = None
    price_out: Price | None = None
    currency: Annotated[str, Field(pattern="^[A-Z]{3}$")] = "USD"

    pace: ClassVar[frozenset[str]] = frozenset({
        "per_minute", "tokens_per_minute", "at_once", "timeout", "attempts", "price_in", "price_out", "currency",
    })  # fmt: skip
    """Settings that may change between an approval and the run."""

    @model_validator(mode="after")
    def _safe(self) -> "Endpoint":
        if self._parts.scheme == "http" and not self.allow_http and not all(map(is_loopback, self._on_the_way)):
            raise ValueError(
                "plain http goes to this machine alone: anybody on the way could read what is sent, and the key; use"
                " https, or say --allow-http (allow_http)"
            )
        if (self.price_in is None) != (self.price_out is None):
            raise ValueError("say both prices or none (price_in, price_out)")
        return self

    @property
    def _parts(self) -> SplitResult:
        return split_url(self.url)

    @property
    def host_name(self) -> str:
        """The host, without its port."""
        return str(self._parts.hostname)

    @property
    def _on_the_way(self) -> list[str]:
        """The hosts that read what is sent by plain http: a proxy is one, wherever it sends it."""
        return [self.host_name, *([] if self.proxy is None else [str(split_url(self.proxy).hostname)])]

    @property
    def host(self) -> str:
        """The host as records name it, with its port if one is written."""
        return self._parts.netloc.lower()

    @property
    def revision(self) -> str:
        """Return the model and its host in place of a revision, because only the provider knows the weights."""
        return f"{self.model} at {self.host}"

    @property
    def approved(self) -> dict[str, Json]:
        """Everything that an approval covers."""
        fields = model_to_json(self)
        if not isinstance(fields, dict):
            raise TypeError("an endpoint is a mapping")
        return {name: value for name, value in fields.items() if name not in self.pace}

    @property
    def digest(self) -> str:
        """SHA-256 of it, in canonical form."""
        return digest({"format": "almoner-endpoint/1", **self.approved})

    @property
    def completions(self) -> str:
        """The URL of the chat completions."""
        return f"{self.url}/chat/completions"


def endpoint_of(model: str, endpoints: Mapping[str, Endpoint]) -> Endpoint:
    """Return the endpoint that a request's `model` names.

    Raises:
        EndpointUnknown: there is none of that name in this home.
    """
    name = model.removeprefix(PREFIX)
    if name not in endpoints:
        raise EndpointUnknown(name, sorted(endpoints))
    return endpoints[name]


class EndpointUnknown(UsageError):
    """A name that no endpoint of this home has."""

    def __init__(self, name: str, endpoint_names: list[str]) -> None:
        super().__init__(
            f"There is no endpoint {name!r} in this home.",
            f"Known: {', '.join(endpoint_names) or 'none'}. Add one with `almoner models endpoint add`.",
            {"endpoint": name, "known": endpoint_names},
        )


SHORTEST_KEY: Final = 8
"""Characters of a key that is looked for in answers. Servers that need none are given a word in its place."""

_KEY_PATTERN: Final = re.compile(r"[\x21-\x7e]{1,4000}", re.ASCII)


class Key:
    """A secret that its holder reads by name; its repr shows stars."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return "Key('***')"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a key is not stored and not sent")

    @property
    def header(self) -> str:
        """The value of `Authorization`."""
        return f"Bearer {self._text}"

    def is_in(self, text: str) -> bool:
        """Return whether a text repeats the key; one that any text may hold (`EMPTY`, `none`) is too short to count."""
        return len(self._text) >= SHORTEST_KEY and self._text in text


def key_for(endpoint: Endpoint) -> Key | None:
    """Return the key of an endpoint that has one, from the variable that its configuration names.

    Raises:
        EndpointKeyMissing: the variable is not set, or holds something that is no key.
    """
    if endpoint.key_env is None:
        return None
    value = os.environ.get(endpoint.key_env, "").strip()
    if not value:
        raise endpoint_key_missing(endpoint.name, endpoint.key_env, "is not set")
    if not _KEY_PATTERN.fullmatch(value):
        raise endpoint_key_missing(endpoint.name, endpoint.key_env, "holds spaces or characters that no key has")
    return Key(value)


_GO_ON: Final = "Paid budget stays paid, and received answers are kept: go on with `almoner run`"


EndpointFailure = Literal[
    "EndpointUnreachable",
    "EndpointTimeout",
    "EndpointBusy",
    "EndpointServerError",
    "EndpointRejectedRequest",
    "EndpointRedirects",
    "EndpointAnswerMalformed",
]
"""The codes of the errors of an endpoint that fails to answer a request.

EndpointUnreachable: it cannot be connected to, or the connection broke off. EndpointTimeout: it did not answer in time.
EndpointBusy: it asks for a longer pause than almoner waits. EndpointServerError: an error of its own (HTTP 5xx).
EndpointRejectedRequest: it rejects the request (HTTP 4xx). EndpointRedirects: it redirects to an address that no
steward approved, so the redirect is not followed. EndpointAnswerMalformed: its answer is malformed.
"""

_MAY_PASS: Final[frozenset[EndpointFailure]] = frozenset(
    {"EndpointUnreachable", "EndpointTimeout", "EndpointBusy", "EndpointServerError"}
)

_FAILURE_WORDS: Final[Mapping[EndpointFailure, tuple[str, str]]] = {
    "EndpointUnreachable": (
        "cannot be reached",
        "See that it runs and that its address is right (`almoner models endpoint list`).",
    ),
    "EndpointTimeout": (
        "does not answer in time",
        "Give it more time (`--timeout` of `almoner models endpoint add --replace`), or ask less at once.",
    ),
    "EndpointBusy": (
        "answers no more for now",
        "Ask less often (`--per-minute` of `almoner models endpoint add --replace`), or later.",
    ),
    "EndpointServerError": ("has an error of its own", "Its operator has to see to it."),
    "EndpointRejectedRequest": (
        "does not take the request",
        "Check address, model and key (`almoner models endpoint list`); some servers know no top_k, and 0 sends none.",
    ),
    "EndpointRedirects": (
        "points to another address",
        "Redirects are not followed. Configure the right address, and have it approved.",
    ),
    "EndpointAnswerMalformed": (
        "gives malformed answers",
        "Check that the address is OpenAI-compatible (`.../v1`), and that the model can do this.",
    ),
}
"""What happened, and the beginning of the advice."""


def endpoint_failed(code: EndpointFailure, endpoint: str, reason: str, attempts: int = 1) -> EnvironmentProblem:
    """Return the error of an endpoint that failed to answer a request."""
    happened, advice = _FAILURE_WORDS[code]
    again = "" if attempts == 1 else f" ({attempts} attempts)"
    return EnvironmentProblem(
        f"The endpoint {endpoint!r} {happened}: {reason}{again}.",
        f"{advice} {_GO_ON}.",
        {"endpoint": endpoint, "reason": reason, "attempts": attempts},
        code=code,
        temporary=code in _MAY_PASS,
    )


def endpoint_key_missing(endpoint: str, variable: str, reason: str) -> EnvironmentProblem:
    """Return the error of a variable without a key that an endpoint's configuration names."""
    return EnvironmentProblem(
        f"The endpoint {endpoint!r} needs a key from the environment variable {variable}, which {reason}.",
        f"Set {variable} where almoner runs. Nothing was spent.",
        {"endpoint": endpoint, "variable": variable},
        code="EndpointKeyMissing",
    )


def answers_unwritable(reason: str) -> EnvironmentProblem:
    """Return the error of answers of an endpoint that cannot be kept."""
    return EnvironmentProblem(
        f"The answers of an endpoint cannot be stored in quarantine: {reason}.",
        "Make room, then go on with `almoner run`.",
        {"reason": reason},
        code="AnswersUnwritable",
    )
