"""Claim of a plan: the delta and the epsilon where its author names none."""

from dataclasses import dataclass
from decimal import Decimal

from flows.datasets.budget_view import load_budget
from flows.workspace.workspace import Workspace
from models_db.errors import Refused
from models_db.policies.policy import EffectiveRules
from tasks.accounting import zcdp
from tasks.accounting.renyi_account import bounds_of
from tasks.common.published_values import round_down
from tasks.pricing.alternatives import PlanTerms, PopulationTooSmall, rounded_epsilon

SHARES = {4: "a quarter of the rho that is left of", 2: "half the rho that is left of", 1: "all that is left of"}
"""Divisors of the remaining budget: a plan without an epsilon claims the first share that is of use."""
SMALLEST_DELTA = Decimal("1e-15")


def default_delta(population: int, lifetime: Decimal, rules: EffectiveRules) -> tuple[Decimal, str]:
    """Return the power of ten that policy and lifetime claim allow, at most 1/(100 population), and the reason."""
    most = min(Decimal(1) / (100 * population), lifetime)
    if rules.release is not None:
        most = min(most, rules.release.delta_max)
    power = max(Decimal(1).scaleb(most.adjusted()), SMALLEST_DELTA)
    return power, "the power of ten at or below 1/(100 x population), the lifetime delta and the policy's limit"


@dataclass(frozen=True)
class RemainingBudget:
    """Remaining budget for one release.

    Attributes:
        rho: remaining rho of the budget.
        most: the most that the policy allows one release; None for any.
        epsilon_max: the policy's limit.
        is_used: whether anything has been spent or reserved.
    """

    rho: int
    most: int | None
    epsilon_max: Decimal | None
    delta: Decimal
    is_used: bool

    @classmethod
    def of(cls, workspace: Workspace, terms: PlanTerms) -> "RemainingBudget":
        """Read the budget and the policy.

        A limit in Rényi orders counts as if every plan had its rho at each order; with a claim while the assignment is
        secret, only the price of each plan says what it is charged there.
        """
        budget, rules = load_budget(workspace, terms.dataset), workspace.policy.rules_for(terms.dataset)
        return cls(
            rho=budget.rho_admitted if terms.epsilon_while_secret is None else budget.balance.remaining.rho,
            most=bounds_of(rules).rho_max,
            epsilon_max=rules.release.epsilon_max if rules.release else None,
            delta=terms.delta,
            is_used=budget.balance.remaining != budget.balance.cap,
        )

    @property
    def described(self) -> str:
        """Return the remaining budget for one release, as text."""
        rho = self.rho if self.most is None else min(self.rho, self.most)
        return "nothing" if rho <= 0 else f"epsilon {round_down(zcdp.epsilon_of(rho, self.delta))}"

    def epsilon(self, share: int) -> tuple[Decimal, str]:
        """Return the epsilon of one part in `share` of it, for people, and the reason; 0 if nothing is left."""
        rho = self.rho // share
        held = self.most is not None and self.most < rho
        rho = min(rho, self.most) if self.most is not None else rho
        if rho <= 0:
            return Decimal(0), ""
        epsilon = rounded_epsilon(zcdp.epsilon_of(rho, self.delta))
        if self.epsilon_max is not None and self.epsilon_max < epsilon:
            epsilon, held = self.epsilon_max, True
        return epsilon, "the most that the policy allows one release" if held else f"{SHARES[share]} the budget"


def budget_exhausted(name: str, left: str, reason: PopulationTooSmall | None = None) -> Refused:
    """Return the refusal of a plan whose budget, or the part of it that one release may take, is used up."""
    use = "" if reason is None else f"; that is of use from {reason.facts['smallest']} units on"
    return Refused(
        f"Of the budget of dataset {name!r} too little is left for a release: {left}{use}.",
        f"See the budget with `almoner budget show {name}`. Spent budget never comes back; stewards can raise the"
        " cap (`almoner dataset cap`), which weakens the promise to everybody.",
        {"dataset": name, "left": left},
        code="BudgetExhausted",
    )


def epsilon_needed(name: str) -> Refused:
    """Return the refusal of a plan without an epsilon, for a person who may not see the remaining budget."""
    return Refused(
        f"The policy hides the remaining budget of {name!r} from analysts, so no share of it is proposed.",
        "Name an epsilon: `--epsilon 2`.",
        {"dataset": name},
        code="EpsilonNeeded",
    )
