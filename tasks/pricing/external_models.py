"""External models: the systems that may use one, its public description, and its cost.

Prompts for such a model leave this machine, so they must hold public words and released values alone. A system declares
this itself (`shows_private_text = False`); a system without the declaration counts as one that shows private text.
"""

from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal

from models_db.errors import Refused
from models_db.values.canonical_json import Json
from models_db.values.requests import format_decimal
from tasks.common.network import is_external
from tasks.inference.backends.endpoints import Endpoint
from tasks.inference.backends.text_backend import SEES
from tasks.systems.base import System
from tasks.values.plan import Plan

FACT = "written by"
"""The public parameter of a plan that says which external model writes the texts."""

CHARACTERS_OF_A_TOKEN = 4
"""Characters per token in the estimate of the description's cost: about as many as in English."""

_A_MILLION = 1_000_000
_CENT = Decimal("0.01")


def require_public_prompts(system: System, model: str) -> None:
    """Check that nothing private would leave this machine.

    Raises:
        ExternalModelRefused: the model is behind an API, and the system shows private text.
    """
    if is_external(model) and system.shows_private_text is not False:
        raise Refused(
            f"{system.name!r} shows private text to the language model, so {model!r} is refused: it is behind an API,"
            " and private text does not leave this machine.",
            "Name a model of `almoner models list`, or a mechanism that shows released values alone.",
            {"mechanism": system.name, "model": model},
            code="ExternalModelRefused",
        )


def with_external_fact(plan: Plan, model: str, revision: str) -> Plan:
    """Return the plan with the description of an external model among its public parameters."""
    if not is_external(model):
        return plan
    return replace(plan, facts={**plan.facts, FACT: f"{SEES} ({revision})"})


@dataclass(frozen=True)
class Cost:
    """Upper bound on the requests, tokens and price of a release at an endpoint, without repeated requests.

    Attributes:
        requests: prompts.
        tokens_in, tokens_out: of prompts, by an estimate, and of answers, as many as they may have.
        money: None if no prices are declared.
        seconds: at the rate that the endpoint allows; None if it names none.
    """

    requests: int
    tokens_in: int
    tokens_out: int
    money: str | None
    seconds: int | None

    @classmethod
    def of(cls, plan: Plan, description: str, endpoint: Endpoint) -> "Cost":
        """Return the cost of a plan; all of it follows from public numbers."""
        requests = plan.prompts or plan.samples
        tokens_in = requests * (plan.prompt_tokens + -(-len(description) // CHARACTERS_OF_A_TOKEN))
        tokens_out = requests * plan.steps
        money = _money(tokens_in, tokens_out, endpoint)
        return cls(requests, tokens_in, tokens_out, money, _seconds(requests, tokens_in + tokens_out, endpoint))

    def to_json(self) -> dict[str, Json]:
        """Return the cost for `--json`."""
        return {
            "requests": self.requests,
            "tokens_in": self.tokens_in,
            "tokens_out_at_most": self.tokens_out,
            "money_at_most": self.money or "no prices are declared",
            **({} if self.seconds is None else {"seconds_at_least": self.seconds}),
        }


def _money(tokens_in: int, tokens_out: int, endpoint: Endpoint) -> str | None:
    if endpoint.price_in is None or endpoint.price_out is None:
        return None
    exact = (tokens_in * endpoint.price_in + tokens_out * endpoint.price_out) / _A_MILLION
    return f"{format_decimal(exact.quantize(_CENT, rounding=ROUND_CEILING))} {endpoint.currency}"


def _seconds(requests: int, tokens: int, endpoint: Endpoint) -> int | None:
    limits = [(requests, endpoint.per_minute), (tokens, endpoint.tokens_per_minute)]
    minimums = [-(-60 * count // most) for count, most in limits if most is not None]
    return max(minimums) if minimums else None
