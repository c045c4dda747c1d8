"""Plan of a release: complete requests side by side for a dataset, its budget and its policy. Spends nothing.

Everything that a plan rests on is public or the budget: no text and no count of the corpus is read.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field
from sqlalchemy.orm import Session

from flows.audit.lifetime_claims import lifetime_of
from flows.datasets.budget import load_budget
from flows.governance.policy import hides_balances, redact_refusals, require_policy
from flows.releases.propose import find_model, price_request
from flows.workspace.workspace import Workspace
from flows.workspace.yaml_files import file_unwritable, new_file
from models_db.errors import Refused, UsageError
from models_db.policies.policy import EffectiveRules
from models_db.services import cohorts, datasets
from models_db.tables import Dataset
from models_db.values.canonical_json import Json
from models_db.values.requests import (
    EXAMPLE_PLACEHOLDER,
    ExactDecimal,
    PromptExample,
    PublicMetadata,
    ReleaseRequest,
    RequestKind,
    RequestModel,
    format_decimal,
    parse_model,
)
from tasks.accounting import zcdp
from tasks.accounting.renyi_account import bounds_of
from tasks.common.files import write_over
from tasks.common.published_values import figure, round_down
from tasks.inference.catalogue.registry import recommended_model
from tasks.pricing.alternatives import (
    LEAST_EPSILON,
    Alternative,
    PlanTerms,
    PopulationTooSmall,
    invalid_plan,
    notes_of,
    plan_alternatives,
    rounded_epsilon,
    topics_alternative,
    verdict,
)
from tasks.pricing.quote import Quote
from tasks.pricing.request_warnings import setting_warnings
from tasks.release.claim import guessing_bounds
from tasks.values.results import TEXT_KINDS

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


DEFAULT_MINUTES = Decimal(480)
NO_GPU_TIMES = "almoner estimates times for processors only, not for GPUs."


class PlanOptions(RequestModel):
    """Options of a plan, all optional.

    Attributes:
        labels: public labels of the texts.
        epsilon_while_secret: the most that the release may claim while its assignment is secret; the budget is then
            calibrated to it, and `epsilon` is the most that the unconditional claim may be.
        record_schema: JSON schema of records, for their kind; `schema` as an option.
        population: a public number of units, where the dataset declares none.
        model: by default the recommended one that is installed and that the policy allows.
        examples: public examples of texts, as in `prompt.examples` of a request.
        minutes: the longest estimated time on two cores; by default eight hours.
        device: where the release is to be run; for a GPU no time is estimated, because none was measured.
    """

    epsilon: Annotated[ExactDecimal, Field(gt=0)] | None = None
    epsilon_while_secret: Annotated[ExactDecimal, Field(gt=0)] | None = None
    delta: Annotated[ExactDecimal, Field(gt=0, lt=1)] | None = None
    kind: RequestKind = "synthetic_corpus"
    samples: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    tokens: Annotated[int, Field(ge=1, le=100_000)] | None = None
    temperature: Annotated[ExactDecimal, Field(gt=0, le=100)] | None = None
    labels: tuple[str, ...] = ()
    record_schema: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    population: Annotated[int, Field(ge=1, le=10**12)] | None = None
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    minutes: Annotated[ExactDecimal, Field(gt=0, le=1_000_000)] | None = None
    device: Literal["cpu", "cuda"] = "cpu"
    description: Annotated[str, Field(min_length=1, max_length=4000)] | None = None
    examples: Annotated[tuple[PromptExample, ...], Field(min_length=1, max_length=20)] | None = None


@dataclass(frozen=True)
class ReleasePlan:
    """The requests of a plan.

    Attributes:
        terms: what they were planned for.
        reasons: of the epsilon, the delta and the description that the plan's author left out, why they are what they
            are.
        with_balance: whether the policy lets its reader see what is left of the budget.
        notes: what a reader has to know beside the figures.
        device: where the release is to be run.
    """

    terms: PlanTerms
    alternatives: tuple[Alternative, ...]
    reasons: dict[str, str]
    notes: list[str]
    with_balance: bool
    device: str

    @property
    def verdict(self) -> str:
        """Return what to expect, in words of texts."""
        return verdict(self.terms, self.alternatives)

    def choice(self, number: int) -> Alternative:
        """Return the alternative of that number, from 1.

        Raises:
            NoSuchAlternative: there are fewer.
        """
        if not 1 <= number <= len(self.alternatives):
            raise UsageError(
                f"The plan has no alternative {number}; it has 1 to {len(self.alternatives)}.",
                "Choose one with `--choice N`.",
                {"last": len(self.alternatives)},
                code="NoSuchAlternative",
            )
        return self.alternatives[number - 1]

    def needs_examples(self, number: int) -> bool:
        """Return whether that alternative has texts, and nobody has given examples of them."""
        return self.terms.needs_examples and self.choice(number).references is not None

    def to_json(self) -> dict[str, Json]:
        """Return the plan for programs."""
        terms = self.terms
        return {
            "dataset": terms.dataset,
            "population": terms.population,
            "epsilon": format_decimal(terms.epsilon),
            "epsilon_while_secret": (
                None if terms.epsilon_while_secret is None else format_decimal(terms.epsilon_while_secret)
            ),
            "delta": format_decimal(terms.delta),
            "model": terms.model,
            "device": self.device,
            "verdict": self.verdict,
            "reasons": dict(self.reasons),
            "alternatives": [self._alternative(number, one) for number, one in enumerate(self.alternatives, 1)],
            "notes": list(self.notes),
        }

    def _alternative(self, number: int, one: Alternative) -> dict[str, Json]:
        influence = one.quote.influence
        price = one.quote.to_json(with_balance=self.with_balance)
        return {
            "number": number,
            "name": one.name,
            "request": one.request,
            "choices": price.pop("choices", {}),
            "texts": one.samples,
            "references": one.references,
            "tokens": one.tokens,
            "clip_norm": None if influence is None else str(influence.clip_norm),
            "influence": None if influence is None else influence.level.name,
            "judgement": one.judgement,
            "rehearsed": [share.to_json() for share in one.expected_shares],
            "guess_right_at_most": figure(best_guess(one)),
            "price": price,
        }


def best_guess(one: Alternative) -> Decimal:
    """Return in percent how often a guess whether somebody is in the data is right at most, by the claim."""
    request = one.quote.request
    _, right = guessing_bounds(request.epsilon or Decimal(0), request.delta or Decimal(0))
    return right


def plan_release(workspace: Workspace, name: str, options: PlanOptions) -> ReleasePlan:
    """Plan a release of a dataset.

    Raises:
        DatasetUnknown, NothingIngested: there is no such dataset or version.
        PopulationUndeclared, PopulationContradicted: the dataset declares no population, or another one.
        BudgetExhausted: the budget is used up, or what is left of it is of no use.
        EpsilonNeeded: none is given, and the policy hides from the caller what is left to take a share of.
        InvalidPlan, PopulationTooSmall, TimeTooShort, MechanismsForbidden: nothing of use can be planned.
        BudgetExceeded, BudgetRefused, PolicyForbids: the budget or the policy does not allow the claim.
        As `flows.releases.propose.price_request`.
    """
    with workspace.database.read() as session:
        dataset = datasets.find_dataset(session, name)
        hidden = hides_balances(session, workspace.actor)
        population, declared = _population(session, dataset, options)
        public, lifetime = PublicMetadata.stored(dataset.public_metadata), lifetime_of(session, dataset)
    rules = workspace.policy.rules_for(name)
    reasons: dict[str, str] = {}
    delta = options.delta
    if delta is None:
        delta, reasons["delta"] = default_delta(population, Decimal(lifetime.delta), rules)
    model = options.model or recommended_model(rules.models, chat=options.kind not in TEXT_KINDS)
    terms = PlanTerms(
        dataset=name,
        model=model,
        kind=options.kind,
        epsilon=options.epsilon or Decimal(0),
        delta=delta,
        population=population,
        description=options.description or public.description or f"A text of the collection {name}.",
        price=partial(_allowed_price, workspace),
        mechanisms=rules.mechanisms,
        metrics=tuple(rules.required),
        samples=options.samples,
        max_new_tokens=options.tokens,
        temperature=options.temperature,
        labels=options.labels,
        record_schema=options.record_schema,
        examples=options.examples or (),
        completion=_has_no_template(workspace, model),
        seconds=_seconds(options),
        epsilon_while_secret=options.epsilon_while_secret or _limit_while_secret(rules),
    )
    if options.epsilon is None and options.epsilon_while_secret is not None:
        terms, reasons["epsilon"] = _within_the_rest(workspace, terms, hidden=hidden)
        texts = plan_alternatives(terms)
    elif options.epsilon is None:
        terms, texts, reasons["epsilon"] = _share_of_the_rest(workspace, terms, hidden=hidden)
    else:
        texts = plan_alternatives(terms)
    topics = topics_alternative(terms) if terms.kind == "synthetic_corpus" else None
    offers = texts if topics is None else (*texts, topics)
    alternatives = tuple(offer for offer in offers if not any(setting_warnings(offer.quote.body)))
    if not alternatives:
        raise invalid_plan(f"No request of these terms says much about the corpus. {_first_warning(offers)}")
    if options.description is None:
        reasons["description"] = _description_reason(public)
    device = [NO_GPU_TIMES] if options.device == "cuda" else []
    notes = notes_of(terms, alternatives, declared=declared, groups=len(public.groups))
    return ReleasePlan(terms, alternatives, reasons, [*notes, *device], not hidden, options.device)


def _first_warning(offers: Sequence[Alternative]) -> str:
    return next(warning for offer in offers for warning in setting_warnings(offer.quote.body))


def _has_no_template(workspace: Workspace, model: str) -> bool:
    """Return whether the model is one of this machine without a usable chat template: it can only complete texts."""
    check = find_model(workspace, model).check
    return check is not None and bool(check.template_problem)


def _limit_while_secret(rules: EffectiveRules) -> Decimal | None:
    """Return the policy's limit on what one release claims while its assignment is secret: plans keep within it."""
    return None if rules.release is None else rules.release.epsilon_while_secret_max


def _seconds(options: PlanOptions) -> int | None:
    """Return the longest estimated time; None for a GPU, for which none is estimated.

    Raises:
        InvalidPlan: a time is given for a GPU.
    """
    if options.device == "cpu":
        return int((DEFAULT_MINUTES if options.minutes is None else options.minutes) * 60)
    if options.minutes is not None:
        raise invalid_plan(f"`--time` is for a plan on processors: {NO_GPU_TIMES} Leave it out with --device cuda.")
    return None


def _share_of_the_rest(
    workspace: Workspace, terms: PlanTerms, *, hidden: bool
) -> tuple[PlanTerms, tuple[Alternative, ...], str]:
    """Plan with the smallest useful share (SHARES) of the remaining budget.

    Args:
        hidden: whether the policy hides from the caller what is left.
    """
    if hidden:
        raise epsilon_needed(terms.dataset)
    rest = RemainingBudget.of(workspace, terms)
    refusal: PopulationTooSmall | None = None
    for share in SHARES:
        epsilon, reason = rest.epsilon(share)
        if epsilon >= LEAST_EPSILON:
            planned = replace(terms, epsilon=epsilon)
            try:
                return planned, plan_alternatives(planned), reason
            except PopulationTooSmall as problem:
                refusal = problem
    if refusal is None or rest.is_used:
        raise budget_exhausted(terms.dataset, rest.described, refusal)
    raise refusal


def _within_the_rest(workspace: Workspace, terms: PlanTerms, *, hidden: bool) -> tuple[PlanTerms, str]:
    """Return the terms with the most that the unconditional claim may be, by the remaining budget and the policy."""
    if hidden:
        raise epsilon_needed(terms.dataset)
    rest = RemainingBudget.of(workspace, terms)
    most, _ = rest.epsilon(1)
    if most < LEAST_EPSILON:
        raise budget_exhausted(terms.dataset, rest.described)
    return replace(terms, epsilon=most), "the most that budget and policy allow; each alternative has what it needs"


def _allowed_price(workspace: Workspace, request: ReleaseRequest) -> Quote:
    """Return the price of a request that policy and budget allow."""
    priced = price_request(workspace, request)
    require_policy(workspace.policy, priced.body)
    with redact_refusals(workspace):
        priced.require_affordable()
    return priced


def _population(session: Session, dataset: Dataset, options: PlanOptions) -> tuple[int, bool]:
    """Return the population of a plan, and whether the dataset declares it."""
    declared = cohorts.population(session, dataset, cohorts.resolve_cohorts(session, dataset, None))
    if declared is not None:
        if options.population not in (None, declared):
            raise UsageError(
                f"The dataset {dataset.name!r} declares a population of {declared}; its requests rest on that figure.",
                "Leave --population out.",
                {"dataset": dataset.name, "declared": declared},
                code="PopulationContradicted",
            )
        return declared, True
    if options.population is None:
        raise UsageError(
            f"The dataset {dataset.name!r} declares no population, and a plan may not count the corpus.",
            f"Plan with a public figure: `almoner plan {dataset.name} --population N`; the release then buys a noisy"
            " count. A new dataset declares it when it is registered: `almoner dataset register NAME ... --population"
            " N`.",
            {"dataset": dataset.name},
            code="PopulationUndeclared",
        )
    return options.population, False


def _description_reason(public: PublicMetadata) -> str:
    if public.description:
        return "the dataset's declared description"
    return "no description is declared; say with --description what kind of texts they are"


def parse_options(given: dict[str, Any]) -> PlanOptions:
    """Return the options of a plan; those that are None are left out.

    Raises:
        FileInvalid: one of them is out of range; all of them are named.
    """
    written = {name: value for name, value in given.items() if value is not None}
    return parse_model(PlanOptions, written, "The plan", "docs/planning.md")


def parse_minutes(time: str | None) -> int | None:
    """Return a time such as `45m`, `8h` or `1h30m` in minutes; None if there is none.

    Raises:
        InvalidPlan: the time is not of that form.
    """
    if time is None:
        return None
    form = re.fullmatch(r"(?=.)(?:([0-9]{1,5})h)?(?:([0-9]{1,5})m)?", time)
    if form is None:
        raise invalid_plan(f"The time {time!r} is invalid: write 45m, 8h or 1h30m.")
    hours, minutes = form.groups(default="0")
    return 60 * int(hours) + int(minutes)


EXAMPLES = [f"{EXAMPLE_PLACEHOLDER}: {text}." for text in ("a text that you invent", "another one")]
"""Examples of a request whose author gave none; it is refused until they are replaced."""


def write_request(path: Path, plan: ReleasePlan, number: int, *, force: bool = False) -> None:
    """Write one of the alternatives as a request file.

    Args:
        force: whether an earlier file is replaced.

    Raises:
        NoSuchAlternative: the plan has fewer.
        FileUnwritable: the file exists, or cannot be written.
    """
    one = plan.choice(number)
    comments = [f"Planned for {plan.terms.dataset} and a population of {plan.terms.population}: {one.name}."]
    request = dict(one.request)
    if plan.needs_examples(number):
        request["prompt"] = {**plan.terms.prompt, "examples": EXAMPLES}
        comments.append("Replace both examples by short texts of the kind you want. Invent them: they are public.")
    comments += [one.judgement, "Price it with `almoner release request FILE --dry-run`; it spends nothing."]
    text = "".join(f"# {_one_line(comment)}\n" for comment in comments) + _yaml(request)
    if not force:
        with new_file(path) as out:
            out.write(text.encode())
        return
    try:
        write_over(path, text.encode(), 0o600)
    except OSError as problem:
        raise file_unwritable(path, problem.strerror or type(problem).__name__) from None


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _yaml(request: dict[str, Json]) -> str:
    written: dict[str, object] = {**request, **dict(_numbers(request))}
    parameters = request["parameters"]
    if isinstance(parameters, dict):
        written["parameters"] = {**parameters, **dict(_numbers(parameters))}
    return yaml.safe_dump(written, sort_keys=False, allow_unicode=True, width=120)


def _numbers(fields: Mapping[str, Json]) -> Iterator[tuple[str, int | float]]:
    """Yield the decimals of a request as numbers, which is how people write them."""
    for name in ("epsilon", "epsilon_while_secret", "delta", "temperature"):
        value = fields.get(name)
        if isinstance(value, str) and Decimal(repr(float(value))) == Decimal(value):
            yield name, int(value) if "." not in value else float(value)
