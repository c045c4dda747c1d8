"""Claims while the assignment is secret: the unconditional epsilon of a request, and the policy's limits in orders.

A plan's charge in Rényi orders, compared with the limits of the policy in force, before anybody approves or pays. The
ledger's guard compares the same integers when an attempt begins, and decides.

Unconditional epsilon of a request whose author asks by the epsilon while the assignment is secret.
`epsilon_while_secret` bounds what a release claims while the assignment of units to texts is secret. The budget is
calibrated to the largest unconditional epsilon at which the planned release claims no more than that. It becomes the
request's own epsilon: limits, caps and guards refer to it as they do to every other, and it is what a leak leaves.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pydantic import BaseModel

from models_db.errors import UsageError
from models_db.values.amounts import RenyiCurve
from models_db.values.canonical_json import Json
from models_db.values.requests import ReleaseRequest, format_decimal, parse_model
from models_db.writes.database_errors import LimitInOrdersExceeded
from tasks.accounting.renyi_account import OrdersBudget
from tasks.accounting.rounding import exact
from tasks.accounting.zcdp import LARGEST_EPSILON
from tasks.common.published_values import round_up
from tasks.planning.parameter_choices import Choice
from tasks.planning.secret_assignment import costs_at_most
from tasks.systems.base import System
from tasks.values.plan import Plan


@dataclass(frozen=True)
class LimitComparison:
    """What an attempt from nothing is charged on each of its blocks, beside the account that it would be charged to."""

    orders: OrdersBudget
    curve: RenyiCurve
    blocks: Sequence[int]

    @property
    def passed(self) -> tuple[Decimal, Decimal] | None:
        """The claim (epsilon, delta) that some block would pass; None if all hold."""
        return self.orders.passed_by(self.curve, self.blocks)

    @property
    def count(self) -> int | None:
        """How many such attempts the limits admit; None for any number."""
        return self.orders.count(self.curve, self.blocks)

    @property
    def room(self) -> int:
        """The rho, in units of 1e-12, of which every plan would fit the limit with the least room."""
        return self.orders.room(self._shown, self.blocks)

    @property
    def _shown(self) -> tuple[Decimal, Decimal]:
        return self.passed or self.orders.strictest(self.blocks)

    def refusal(self, dataset: str, asked: str, hint: str) -> LimitInOrdersExceeded:
        """Return the refusal; `asked` is the rho of the plan, `hint` says what would fit."""
        limit, charged = self._figures()
        return LimitInOrdersExceeded.of_price(dataset, asked, limit, charged, hint)

    def to_json(self) -> dict[str, Json]:
        """Return the limit with the least room, and what is charged of it before and with the request."""
        limit, charged = self._figures()
        return {
            "epsilon_limit_while_secret": limit[0],
            "delta_limit_while_secret": limit[1],
            "epsilon_charged_before": charged[0],
            "epsilon_charged_after": charged[1],
        }

    def _figures(self) -> tuple[tuple[str, str], tuple[str, str]]:
        epsilon, delta = self._shown
        before, after = (self.orders.epsilon(delta, self.blocks, curve) for curve in (None, self.curve))
        return (format_decimal(epsilon), format_decimal(delta)), (round_up(str(before)), round_up(str(after)))


STEP = Decimal("0.001")
"""Unconditional epsilons are tried at multiples of this above the requested one."""
PRECISION = 1000
"""The search ends within one part in so many of the epsilon; the clip norm differs by half of that."""


@dataclass(frozen=True)
class SecretClaim:
    """What is asked of a release while its assignment is secret.

    Attributes:
        epsilon: the most that it may claim then.
        delta: of both claims.
        most: the most that its unconditional epsilon may be; None for any.
        mechanism: name of the system, for errors.
    """

    epsilon: Decimal
    delta: Decimal
    most: Decimal | None
    mechanism: str

    @classmethod
    def of(cls, request: ReleaseRequest) -> "SecretClaim | None":
        """Return what a request asks for while its assignment is secret; None if it does not ask by that.

        Raises:
            ClaimMissing: it has no delta.
        """
        if request.epsilon_while_secret is None:
            return None
        if request.delta is None:
            raise claim_missing(request.mechanism)
        return cls(request.epsilon_while_secret, request.delta, request.epsilon, request.mechanism)

    def with_choices(
        self,
        system: System,
        fields: Mapping[str, Any],
        choices_at: Callable[[Decimal], dict[str, Choice]],
        plan_at: Callable[[Decimal, BaseModel], Plan],
    ) -> tuple[Decimal, dict[str, Choice]]:
        """Return the unconditional epsilon, and the parameters that the request leaves out.

        The epsilon follows from the parameters, and parameters that are left out are chosen by it. So they are chosen
        for the epsilon that was asked for, then once more for the one that follows; the one that is returned follows
        from the parameters that are.

        Args:
            fields: the parameters that the request has.
            choices_at: the parameters that are chosen at an unconditional epsilon.
            plan_at: the plan at an unconditional epsilon with these parameters.

        Raises:
            NoSecretClaim: the release claims nothing for the secrecy of an assignment.
            FileInvalid: the parameters do not fit the mechanism.
            As the arguments.
        """
        if not system.charges:
            raise _no_secret_claim(self.mechanism)

        def epsilon_for(choices: Mapping[str, Choice]) -> Decimal:
            values = {**fields, **{name: choice.value for name, choice in choices.items()}}
            parameters = parse_model(system.parameters, values, f"`parameters` of {self.mechanism}")
            return self.unconditional_epsilon(lambda epsilon: plan_at(epsilon, parameters))

        choices = choices_at(self.epsilon if self.most is None else min(self.epsilon, self.most))
        epsilon = epsilon_for(choices)
        if choices:
            choices = choices_at(epsilon)
            epsilon = epsilon_for(choices)
        return epsilon, choices

    def unconditional_epsilon(self, plan_at: Callable[[Decimal], Plan]) -> Decimal:
        """Return the largest unconditional epsilon whose plan claims no more than `epsilon` while secret.

        Each one that is returned was tried. `most` itself is returned if it fits, so that a stored request, which has
        both, is priced again to the same.

        Args:
            plan_at: the plan at an unconditional epsilon.

        Raises:
            NoSecretClaim: the plan claims nothing for the secrecy of an assignment.
            As `plan_at`.
        """
        if self.most is not None and self._fits(plan_at(self.most)):
            return self.most
        least = self.epsilon  # a claim while the assignment is secret is never above the unconditional one
        fits, passes = 0, int((Decimal(LARGEST_EPSILON if self.most is None else self.most) - least) / STEP) + 1
        step = min(passes - 1, int(least / STEP) + 1)
        while passes - fits > max(1, fits // PRECISION):
            if self._fits(plan_at(least + step * STEP)):
                fits = step
                step = min(2 * step, passes - 1)
            else:
                passes = step
            step = step if fits < step < passes else (fits + passes) // 2
        if not self._fits(plan_at(least + fits * STEP)):
            raise ArithmeticError("a claim while the assignment is secret is above the unconditional one")
        return least + fits * STEP

    def require_kept(self, plan: Plan) -> None:
        """Check that the plan that a price ends with claims no more than `epsilon` while its assignment is secret.

        Raises:
            NoSecretClaim: it claims nothing for the secrecy of an assignment.
            ArithmeticError: it claims more, which would be a fault of the search.
        """
        if not self._fits(plan):
            raise ArithmeticError(f"a plan claims more than epsilon {self.epsilon} while its assignment is secret")

    def _fits(self, plan: Plan) -> bool:
        fits = costs_at_most(plan.events, plan.assignment, self.epsilon, exact(self.delta))
        if fits is None:
            raise _no_secret_claim(self.mechanism)
        return fits


def _no_secret_claim(mechanism: str) -> UsageError:
    return UsageError(
        f"The request asks for an epsilon while the assignment is secret, and this release by {mechanism!r} has no"
        " such claim.",
        "Write `epsilon` alone. Such a claim needs governed data, several batches, and a mechanism that reads them"
        " by token draws alone: invisible_ink or private_icl (docs/requests.md).",
        {"mechanism": mechanism},
        code="NoSecretClaim",
    )


def claim_missing(mechanism: str) -> UsageError:
    """Return the error of a request without epsilon or delta for a mechanism that charges."""
    return UsageError(
        f"{mechanism!r} needs an epsilon and a delta in the request.",
        "Add both, for example `epsilon: 4.0` and `delta: 1.0e-7`.",
        {"mechanism": mechanism},
        code="ClaimMissing",
    )
