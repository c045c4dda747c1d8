"""Endpoints of OpenAI's chat completions: the settings that a home stores of each, never a secret.

A request names one as `external:NAME`. Its approval covers every setting that decides the readers of the prompts
and the source of the answers: address, model, the name of the variable with the key, proxy, certificates. Rates,
timeouts and prices may change without a new approval.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal
from urllib.parse import SplitResult

from pydantic import Field, model_validator

from models_db.errors import UsageError
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
