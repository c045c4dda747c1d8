"""Errors of endpoints. No message contains an answer, a key or a prompt."""

from collections.abc import Mapping
from typing import Final, Literal

from models_db.errors import EnvironmentProblem

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

_WORDS: Final[Mapping[EndpointFailure, tuple[str, str]]] = {
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
    happened, advice = _WORDS[code]
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
