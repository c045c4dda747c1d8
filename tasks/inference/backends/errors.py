"""Errors of endpoints. No message contains an answer, a key or a prompt."""

from collections.abc import Mapping
from typing import Final

from models_db.errors import EnvironmentProblem

_GO_ON: Final = "Paid budget stays paid, and received answers are kept: go on with `almoner run`"


class EndpointFailed(EnvironmentProblem):
    """An endpoint failed to answer a request."""

    happened = "failed"
    advice_first = ""

    def __init__(self, endpoint: str, reason: str, attempts: int = 1) -> None:
        again = "" if attempts == 1 else f" ({attempts} attempts)"
        super().__init__(
            f"The endpoint {endpoint!r} {self.happened}: {reason}{again}.",
            f"{self.advice_first} {_GO_ON}.".strip(),
            {"endpoint": endpoint, "reason": reason, "attempts": attempts},
        )


class EndpointUnreachable(EndpointFailed):
    """The endpoint cannot be connected to, or the connection broke off."""

    temporary = True
    happened = "cannot be reached"
    advice_first = "See that it runs and that its address is right (`almoner models endpoint list`)."


class EndpointTimeout(EndpointFailed):
    """The endpoint did not answer in time."""

    temporary = True
    happened = "does not answer in time"
    advice_first = "Give it more time (`--timeout` of `almoner models endpoint add --replace`), or ask less at once."


class EndpointBusy(EndpointFailed):
    """The endpoint asks for a longer pause than almoner waits."""

    temporary = True
    happened = "answers no more for now"
    advice_first = "Ask less often (`--per-minute` of `almoner models endpoint add --replace`), or later."


class EndpointServerError(EndpointFailed):
    """Errors of its own (HTTP 5xx)."""

    temporary = True
    happened = "has an error of its own"
    advice_first = "Its operator has to see to it."


class EndpointRejectedRequest(EndpointFailed):
    """The endpoint rejects the request (HTTP 4xx)."""

    happened = "does not take the request"
    advice_first = (
        "Check address, model and key (`almoner models endpoint list`); some servers know no top_k, and 0 sends none."
    )


class EndpointRedirects(EndpointFailed):
    """The endpoint redirects to an address that no steward approved, so the redirect is not followed."""

    happened = "points to another address"
    advice_first = "Redirects are not followed. Configure the right address, and have it approved."


class EndpointAnswerMalformed(EndpointFailed):
    """A malformed answer."""

    happened = "gives malformed answers"
    advice_first = "Check that the address is OpenAI-compatible (`.../v1`), and that the model can do this."


FAILURES: Final[Mapping[str, type[EndpointFailed]]] = {
    "unreachable": EndpointUnreachable,
    "slow": EndpointTimeout,
    "busy": EndpointBusy,
    "broken": EndpointServerError,
    "declines": EndpointRejectedRequest,
    "moved": EndpointRedirects,
    "nonsense": EndpointAnswerMalformed,
}
"""Every kind of trouble by the name that `backends.request` gives it."""


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
