"""Checks of a request against the policy. A check returns nothing or raises, so no answer can be overlooked."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from models_db.errors import Refused
from models_db.policies.policy import POLICY_PAGE, EffectiveRules
from models_db.values.amounts import Amount, total_amount
from models_db.values.requests import format_decimal


@dataclass(frozen=True)
class PolicyBounds:
    """A policy's limits on amounts as integers of the ledger, rounded down; None: no such limit.

    Attributes:
        rho_max, delta_max: the most one release may charge, in 1e-12 and 1e-18.
    """

    rho_max: int | None = None
    delta_max: int | None = None


@dataclass(frozen=True)
class PolicySubject:
    """Parts of a request that a policy restricts."""

    dataset: str
    mechanism: str
    model: str
    epsilon: Decimal | None
    delta: Decimal | None
    population: int | None
    evaluation: tuple[str, ...]
    loss: Amount
    epsilon_while_secret: Decimal | None = None

    @classmethod
    def from_request(cls, body: Mapping[str, Any]) -> "PolicySubject":
        """Read the subject from a canonical request; submission and run read the same body."""
        parts = [part for invocation in body["plan"]["invocations"] for part in invocation["instalments"]]
        return cls(
            dataset=body["dataset"]["name"],
            mechanism=body["mechanism"],
            model=body["model"]["name"],
            epsilon=_decimal_or_none(body["epsilon"]),
            epsilon_while_secret=_decimal_or_none(body.get("epsilon_while_secret")),
            delta=_decimal_or_none(body["delta"]),
            population=body["population"],
            evaluation=tuple(body["evaluation"]),
            loss=total_amount([Amount(int(part["rho"]), int(part["delta"])) for part in parts]),
        )


@dataclass(frozen=True)
class BrokenRule:
    """Rule that a request breaks: the requested and the allowed value, and advice."""

    rule: str
    asked: str
    allowed: str
    advice: str

    def to_json(self) -> dict[str, str]:
        """Return the rule for `--json`."""
        return {"rule": self.rule, "asked": self.asked, "allowed": self.allowed, "advice": self.advice}


def require_allowed(rules: EffectiveRules, bounds: PolicyBounds, subject: PolicySubject) -> None:
    """Check a request against the rules for its dataset.

    Raises:
        PolicyForbids: with every rule that it breaks.
    """
    broken = [
        *_choice_violations(rules, subject),
        *_claim_violations(rules, subject),
        *_amount_violations(bounds, subject),
    ]
    if any(rule.rule.startswith("release.") for rule in broken):  # who claims too much is told in those figures
        broken = [rule for rule in broken if rule.rule != "release"]
    if broken:
        raise _forbidden(subject.dataset, broken)


def _choice_violations(rules: EffectiveRules, subject: PolicySubject) -> Iterator[BrokenRule]:
    for rule, value, allowed in (
        ("mechanisms", subject.mechanism, rules.mechanisms),
        ("models", subject.model, rules.models),
    ):
        if allowed is not None and value not in allowed:
            yield BrokenRule(rule, value, ", ".join(allowed), f"use one of {', '.join(allowed)}")
    missing = [metric for metric in rules.required if metric not in subject.evaluation]
    if missing:
        evaluations = ", ".join(subject.evaluation) or "nothing"
        needed = ", ".join(rules.required)
        yield BrokenRule("evaluation.required", evaluations, needed, f"add {', '.join(missing)} to `evaluation`")


def _claim_violations(rules: EffectiveRules, subject: PolicySubject) -> Iterator[BrokenRule]:
    if rules.release is not None:
        for rule, value, most in (
            ("release.epsilon_max", subject.epsilon, rules.release.epsilon_max),
            ("release.delta_max", subject.delta, rules.release.delta_max),
        ):
            if value is not None and value > most:
                allowed = format_decimal(most)
                yield BrokenRule(rule, format_decimal(value), f"at most {allowed}", f"ask for {allowed} or less")
        yield from _secret_claim_violations(rules.release.epsilon_while_secret_max, subject)
    if rules.delta_below_population and subject.delta is not None:
        yield from _population_violations(subject, subject.delta)


def _secret_claim_violations(most: Decimal | None, subject: PolicySubject) -> Iterator[BrokenRule]:
    """Yield the limit on the claim while the assignment is secret, which counts as the request asks for it.

    A release claims no more than its request asks for (`tasks.pricing.secret_claim`), and never more than its
    unconditional epsilon.
    """
    asked = [epsilon for epsilon in (subject.epsilon, subject.epsilon_while_secret) if epsilon is not None]
    if most is not None and asked and min(asked) > most:
        allowed = format_decimal(most)
        advice = f"write `epsilon_while_secret: {allowed}` or less, or ask for an `epsilon` of at most that"
        yield BrokenRule("release.epsilon_while_secret_max", format_decimal(min(asked)), f"at most {allowed}", advice)


def _population_violations(subject: PolicySubject, delta: Decimal) -> Iterator[BrokenRule]:
    rule = "delta_below_population"
    if subject.population is None:
        yield BrokenRule(
            rule,
            format_decimal(delta),
            "below 1/population, and the dataset declares no population",
            "register data with --population, or let an admin lift the rule for this dataset",
        )
    elif delta * subject.population >= 1:
        most = f"1/{subject.population}"
        yield BrokenRule(rule, format_decimal(delta), f"below {most}", f"ask for a delta below {most}")


def _amount_violations(bounds: PolicyBounds, subject: PolicySubject) -> Iterator[BrokenRule]:
    most = Amount(_limit_or_any(bounds.rho_max), _limit_or_any(bounds.delta_max))
    if not subject.loss.fits(most):
        yield BrokenRule(
            "release", _amount_text(subject.loss), f"at most {_amount_text(most)}", "ask for a smaller epsilon or delta"
        )


def _limit_or_any(limit: int | None) -> int:
    return 2**63 - 1 if limit is None else limit


def _amount_text(amount: Amount) -> str:
    return f"rho {amount.rho_text}" + (f", delta {amount.delta_text}" if amount.delta else "")


def _decimal_or_none(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)


def _forbidden(dataset: str, broken: list[BrokenRule]) -> Refused:
    violations = "; ".join(f"`{rule.rule}`: asked {rule.asked}, allowed {rule.allowed}" for rule in broken)
    return Refused(
        f"The policy does not allow this request on {dataset!r}: {violations}.",
        f"To do: {'; '.join(rule.advice for rule in broken)}. The rules: `almoner policy show`, {POLICY_PAGE}.",
        {"dataset": dataset, "broken": [rule.to_json() for rule in broken]},
        code="PolicyForbids",
    )
