"""Quote of a release from public facts alone: its charge, the balance after it, its duration.

A quote's `body` is the complete canonical request: everything the spend gate approves, down to each instalment.
Quoting the same request twice gives the same body but for its nonce, so a run can check that what it is about to do
is what was approved.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

from pydantic import BaseModel

from models_db.services.budget import BudgetExceeded
from models_db.values.amounts import Amount, total_amount
from models_db.values.canonical_json import Json
from models_db.values.requests import PublicMetadata, ReleaseRequest, format_decimal, model_to_json, parse_model
from tasks.accounting import zcdp
from tasks.accounting.lifetime_claims import BudgetFacts
from tasks.accounting.renyi_account import OrdersBudget
from tasks.accounting.rounding import exact
from tasks.common.published_values import round_down
from tasks.evaluation.registry import Metric, needs_embedder, requested
from tasks.inference.backends.endpoints import Endpoint
from tasks.inference.catalogue import registry
from tasks.inference.catalogue.model_check import NetworkShape
from tasks.inference.prompt_spec import PromptSpec, prompt_json
from tasks.inference.structured_output.json_schema import require_schema_for
from tasks.mechanisms.registry import replace_one_loss
from tasks.planning.block_selection import Reading
from tasks.planning.influence import Influence
from tasks.planning.layout import PartParameters, groups_needed, names_of, require_parts_for, with_catalogue
from tasks.planning.parameter_choices import ChoiceInputs, PublicFacts
from tasks.planning.secret_assignment import SecretAssignment, curve_of_plan, state_secret_assignment
from tasks.planning.shared_parameters import require_precision
from tasks.pricing.charged_metrics import plan_with_metrics
from tasks.pricing.external_models import Cost, require_public_prompts, with_external_fact
from tasks.pricing.model_facts import ModelFacts, require_context, require_form, with_default_preset
from tasks.pricing.request_warnings import influence_of_request, memory_warning, units_behind
from tasks.pricing.secret_claim import LimitComparison, SecretClaim, claim_missing
from tasks.systems.base import System
from tasks.systems.registry import system_for
from tasks.values.plan import Plan, PlanInputs
from tasks.values.results import ReleaseKind

FORMAT = "almoner-request/1"

# Row-tokens per second of SmolLM2-135M on two cores, rounded down (benchmarks/inference/decoding.py): an estimate.
READ_PER_SECOND = 900
DRAWN_PER_SECOND = 90
MEASURED_PARAMETERS = 134_515_008
"""A token costs another model more or less time, in proportion to its parameters."""
START_SECONDS = 5
"""Of a run: libraries are imported, and the corpus and an embedder opened."""
LOADED_BYTES_PER_SECOND = 400_000_000


@dataclass(frozen=True)
class DatasetFacts:
    """Public facts about a dataset and its budget, from which a quote is made.

    `population` is that of the cohorts that the request reads, `blocks` the number of blocks of every cohort, and
    `budget` that of the blocks that the request reads; where those are of several cohorts, `left_by_cohort` is the
    amount that each of these has left. `orders` is the account in Rényi orders, if the policy in force limits it.
    """

    name: str
    unit_field: str | None
    relation: str
    governed: bool
    population: int | None
    blocks: int
    version: int
    version_uid: str
    budget: BudgetFacts
    public: PublicMetadata = field(default_factory=PublicMetadata)
    reading: Reading | None = None
    left_by_cohort: Mapping[int, Amount] = field(default_factory=dict)
    orders: OrdersBudget | None = None

    @property
    def read(self) -> Reading:
        """Blocks that the request reads; by default all of the first cohort."""
        return self.reading or Reading(self.blocks)

    @property
    def left(self) -> Amount:
        """Most that a request may cost."""
        return self.budget.balance.remaining


@dataclass(frozen=True)
class Quote:
    """A priced request.

    Attributes:
        request: the request that was priced, with the parameters that almoner chose.
        system, parameters, metrics: the objects that its names stand for.
        prompt: the complete wording, the same for every run of the request.
        plan: the plan of the run.
        body: the canonical request, without its nonce.
        dataset: the facts that it was priced with.
        endpoint: the endpoint of a model behind an API; None for a model on this machine.
        choices: the parameters that the request left out, each with the reason for the chosen value.
        shape: the sizes of the model; None of an endpoint's, and where they are not known.
        memory_warning: a sentence, where the model needs more memory than this machine has.
    """

    request: ReleaseRequest
    system: System
    parameters: BaseModel
    metrics: tuple[Metric, ...]
    prompt: PromptSpec
    plan: Plan
    body: Mapping[str, Json]
    dataset: DatasetFacts
    endpoint: Endpoint | None = None
    choices: Mapping[str, str] = field(default_factory=dict)
    shape: NetworkShape | None = None
    memory_warning: str | None = None

    @property
    def charged(self) -> tuple[str, ...]:
        """Names of the charged metrics, in the order of `plan.measuring`."""
        return tuple(metric.name for metric in self.metrics if metric.estimate)

    @property
    def affordable(self) -> bool:
        """Return whether every eligible block can pay, and no limit in orders is passed."""
        return self.plan.loss.fits(self.dataset.left) and (self.in_orders is None or self.in_orders.passed is None)

    @property
    def in_orders(self) -> LimitComparison | None:
        """Its charge in Rényi orders beside the limits of the policy in force; None without a limit."""
        orders, plan = self.dataset.orders, self.body["plan"]
        if orders is None or not isinstance(plan, dict):
            return None
        return LimitComparison(orders, curve_of_plan(plan), self.plan.blocks)

    @property
    def cost(self) -> Cost | None:
        """Cost at the endpoint; None if the model is on this machine."""
        return Cost.of(self.plan, self.prompt.description, self.endpoint) if self.endpoint else None

    @property
    def seconds(self) -> int:
        """Rough estimate of the run's time on two cores: start, loading, the model's rows, and the declared units.

        Where no population is declared, the time of the units comes on top (`seconds_per_unit`).
        """
        plan, lasting = self.plan, self.plan.rows - self.plan.reading_rows
        decoding = plan.rows * plan.prompt_tokens / READ_PER_SECOND + lasting * plan.steps / DRAWN_PER_SECOND
        loading, pace = 0.0, 1.0
        if self.shape is not None:
            loading = self.shape.parameters * self.shape.stored_bytes_per_number / LOADED_BYTES_PER_SECOND
            pace = self.shape.parameters / MEASURED_PARAMETERS
        units = (self.dataset.population or 0) * self.seconds_per_unit
        return round(START_SECONDS + loading + pace * decoding + units)

    @property
    def seconds_per_unit(self) -> float:
        """Rough estimate of the time that one unit takes beside the model's rows: its facets and embeddings."""
        return self.system.seconds_per_unit(self.parameters)

    def require_affordable(self) -> None:
        """Check the price against the balance, and its charge in Rényi orders against the limits.

        Raises:
            BudgetExceeded, LimitInOrdersExceeded: see `require_within_cap` and `require_within_limit`.
        """
        self.require_within_cap()
        self.require_within_limit()

    def require_within_limit(self) -> None:
        """Check the charge of an attempt from nothing against the limits in Rényi orders that the policy sets.

        Raises:
            LimitInOrdersExceeded: some block would pass one; the error says what is charged and what would fit.
        """
        compared = self.in_orders
        if compared is not None and compared.passed is not None:
            hint = f"{self._still_possible(Amount(compared.room))}."
            raise compared.refusal(self.dataset.name, self.plan.loss.rho_text, hint)

    def require_within_cap(self, paid: Amount | None = None) -> None:
        """Check the price, less the amount that earlier attempts have paid, against the balance.

        Raises:
            BudgetExceeded: the price exceeds it; the error names the epsilon that would still fit.
        """
        if not (self.plan.loss - (paid or Amount())).fits(self.dataset.left):
            remaining = self.dataset.left
            hint = self._other_cohorts() or self._still_possible(remaining)
            raise BudgetExceeded(self.dataset.name, self.plan.loss, remaining, self._where(), hint)

    def _where(self) -> str:
        """Name the cohorts with too small a balance, if the request reads several."""
        short = [
            str(cohort) for cohort, balance in self.dataset.left_by_cohort.items() if not self.plan.loss.fits(balance)
        ]
        return f"in cohort {' and in cohort '.join(short)}" if short else ""

    def _other_cohorts(self) -> str:
        """Advise to read only the cohorts that could pay, if some could."""
        able = [cohort for cohort, balance in self.dataset.left_by_cohort.items() if self.plan.loss.fits(balance)]
        if not able:
            return ""
        newest = able == [max(self.dataset.left_by_cohort)]
        cohorts = "newest" if newest else f"[{', '.join(map(str, able))}]"
        return f"The others could pay: `cohorts: {cohorts}` in the request reads them alone."

    def _still_possible(self, remaining: Amount) -> str:
        if not remaining.rho or self.request.delta is None:
            return "Nothing is left"
        epsilon = zcdp.epsilon_of(remaining.rho, self.request.delta)
        return f"A release at delta {format_decimal(self.request.delta)} could still have epsilon {round_down(epsilon)}"

    def to_json(self, *, with_balance: bool = True) -> dict[str, Json]:
        """Return the price for `--json`; without the balance it says only whether the budget affords the request."""
        loss = self.plan.loss
        return {
            "dataset": self.dataset.name,
            "unit": self.dataset.unit_field or "record",
            "relation": self.dataset.relation,
            "kind": self.request.kind,
            "mechanism": self.request.mechanism,
            "epsilon": model_to_json(self.request.epsilon),
            "delta": model_to_json(self.request.delta),
            **_asked_while_secret(self.request),
            **({"secret_assignment": self.secret_assignment.model_dump()} if self.secret_assignment else {}),
            "rho": loss.rho_text,
            "rho_replace_one": self._rho_replace_one(),
            "delta_fail": loss.delta_text,
            "facts": dict(self.plan.facts),
            **({"choices": self._choices()} if self.choices else {}),
            **({"influence": self.influence.sentence} if self.influence else {}),
            **({"units_behind": behind} if (behind := units_behind(self.body)) else {}),
            "prompt": {"description": self.prompt.description, **self._wording},
            **({"prompt_sha256": self.body["prompt_sha256"]} if "prompt_sha256" in self.body else {}),
            "public_metadata": self.body.get("public_metadata", {}),
            **self._groups(),
            "budget": {
                "epsilon_cap": self.dataset.budget.claim.epsilon,
                "delta_cap": self.dataset.budget.claim.delta,
                "rho_cap": self.dataset.budget.cap.rho_text,
                **(self._balance() if with_balance else {}),
                "affordable": self.affordable,
            },
            "cost": self.dataset.budget.cost_sentence(
                self.dataset.name, loss, affordable=self.affordable, with_balance=with_balance
            ),
            **({"external": self.cost.to_json()} if self.cost else {}),
            "expected_rows": self.plan.rows,
            "expected_texts": self.plan.samples,
            "expected_seconds": self.seconds,
            **self._seconds_of_undeclared_units(),
        }

    def _seconds_of_undeclared_units(self) -> dict[str, Json]:
        """Return the time of each unit where their number is not declared, and so not in the time of the run."""
        if self.dataset.population is not None or not self.seconds_per_unit:
            return {}
        return {"expected_seconds_per_unit": f"{self.seconds_per_unit:.4f}"}

    @property
    def influence(self) -> Influence | None:
        """Influence of the private texts on the next word, by the clip norm; None if it was not measured."""
        return influence_of_request(self.body)

    def _choices(self) -> dict[str, Json]:
        """Return the chosen parameters with their values and reasons."""
        values = model_to_json(self.parameters)
        return {
            name: {"value": values[name], "reason": reason}
            for name, reason in self.choices.items()
            if isinstance(values, dict)
        }

    @property
    def secret_assignment(self) -> SecretAssignment | None:
        """Figure while the assignment is secret, to be shown beside the unconditional epsilon; None without one."""
        delta = self.request.delta
        return None if delta is None else state_secret_assignment(self.plan.events, self.plan.assignment, exact(delta))

    def _rho_replace_one(self) -> str | None:
        """Return the loss under the replace-one relation; None for a loss with a delta of its own."""
        if self.plan.loss.delta:
            return None
        return total_amount([replace_one_loss(event) for event in self.plan.events]).rho_text

    @property
    def _wording(self) -> Mapping[str, str]:
        """Words of the rows' prompts; none for insights, which have prompts of their own."""
        return {} if ReleaseKind(self.request.kind) is ReleaseKind.INSIGHTS else self.prompt.wording

    def _groups(self) -> dict[str, Json]:
        """Return the description of each group in the prompts of summaries."""
        groups = self.parameters.groups if isinstance(self.parameters, PartParameters) else ()
        return {"groups": {group.id: group.shown for group in groups}} if groups else {}

    def _balance(self) -> dict[str, Json]:
        loss, budget, remaining = self.plan.loss, self.dataset.budget, self.dataset.left
        after = remaining - loss if loss.fits(remaining) else None
        return {
            "rho_spent": budget.spent.rho_text,
            "rho_held": budget.balance.held.rho_text,
            "rho_left_before": remaining.rho_text,
            "rho_left_after": after.rho_text if after else None,
            "epsilon_spent_before": budget.epsilon_spent,
            "epsilon_spent_after": budget.epsilon_of(budget.spent + loss),
            **(self.in_orders.to_json() if self.in_orders else {}),
        }


def quote(request: ReleaseRequest, dataset: DatasetFacts, model: ModelFacts, policy_digest: str, code: str) -> Quote:
    """Price a request.

    Raises:
        FileInvalid: its parameters do not fit the mechanism.
        GroupUnknown, GroupsNeeded, GroupsUnexpected, ContributionBoundExceeded, GroupsContradicted: nor do its groups.
        `bad_template`, WordingUnused: its prompt is unfit, or does not fit its labels or its kind.
        FormUnsupported, ExamplesUnsupported, NoChatTemplate, MetricNeedsConversation: nor does its form, or the model.
        BadDescription, ControlTokens: its prompt spells control tokens of the model.
        LabelsNeeded: it asks for demonstrations without labels.
        SchemaNeeded, SchemaUnexpected: it asks for records without a schema, or for texts with one.
        LengthNeeded, PopulationNeeded, TooFewUnits, BudgetTooSmall: it leaves parameters out that cannot be chosen.
        NoSecretClaim: it asks for an epsilon while its assignment is secret, and its release claims none.
        TokenizerNotSupported, EndTokenMissing, TokenLimitTooSmall, FormNotWritable, FormTooLong: the model cannot write
            texts of its schema or form in so many tokens.
        ContextTooLong: texts of the requested lengths and the prompt exceed the model's context.
        ExternalModelRefused: the model is behind an API, and the system shows private text.
        UnknownModel, ModelKindMismatch, NoRevision, ModelNotPulled: a metric needs an embedder that this machine lacks.
        Refused, UsageError, PrecisionMissing: the mechanism, a metric, the amount or the precision is impossible here.
    """
    system = system_for(request.mechanism, request.kind)
    require_public_prompts(system, model.name)
    request = system.resolve_names(request)
    fields = with_catalogue(request.parameters, dataset.public.groups)
    if ReleaseKind(request.kind) is ReleaseKind.SUMMARIES and not fields.get("groups"):
        raise groups_needed()  # and not that `samples` is missing, which follows from them
    metrics = requested(request.evaluation, governed=dataset.governed)
    embedder = registry.embedder_json(request.evaluation_embedder) if needs_embedder(metrics) else None
    claim = SecretClaim.of(request)
    if claim is None:
        choices = system.choose(_choice_inputs(request, system, dataset, model, metrics), fields)
    else:

        def at(epsilon: Decimal) -> ReleaseRequest:
            return request.model_copy(update={"epsilon": epsilon})

        epsilon, choices = claim.with_choices(
            system,
            fields,
            lambda tried: system.choose(_choice_inputs(at(tried), system, dataset, model, metrics), fields),
            lambda tried, wanted: _plan(at(tried), system, wanted, dataset, metrics),
        )
        request = at(epsilon)
    if choices:
        values = {name: choice.value for name, choice in choices.items()}
        request = request.model_copy(update={"parameters": request.parameters | values})
        fields |= values
    parameters = parse_model(system.parameters, fields, f"`parameters` of {request.mechanism}")
    names = names_of(parameters)
    require_parts_for(request.kind, parameters)
    require_schema_for(request.kind, parameters)
    require_precision(parameters, external=model.endpoint is not None)
    filled_prompt = with_default_preset(request.prompt, request.kind, system, model.name, labelled=bool(names))
    prompt, written_prompt = PromptSpec.of(filled_prompt, names), prompt_json(filled_prompt, names)
    require_form(filled_prompt, system, metrics, model.name, model.check)
    rendered = model.rendered(system, prompt, parameters)
    require_context(parameters, model.check, rendered)
    model.require_writable(parameters)
    reading = dataset.read
    plan = _plan(request, system, parameters, dataset, metrics)
    if claim is not None:
        claim.require_kept(plan)
    plan = with_external_fact(reading.renumber_plan(plan), model.name, model.revision)
    public = model_to_json(dataset.public.merged_over(request.public_metadata).without_groups())
    reasons = {name: choice.reason for name, choice in choices.items()}
    body: dict[str, Json] = {
        "format": FORMAT,
        "dataset": {"name": dataset.name, "version": dataset.version, "uid": dataset.version_uid},
        "unit": dataset.unit_field or "record",
        "relation": dataset.relation,
        "governed": dataset.governed,
        "population": dataset.population,
        "blocks": dataset.blocks,
        "kind": request.kind,
        "mechanism": request.mechanism,
        "epsilon": model_to_json(request.epsilon),
        "delta": model_to_json(request.delta),
        **_asked_while_secret(request),
        "model": model.to_json(),
        "parameters": model_to_json(parameters),
        "prompt": written_prompt,
        "evaluation": list(request.evaluation),
        "plan": plan_json(plan),
        "policy": policy_digest,
        "code": code,
        **({"evaluation_share": model_to_json(request.evaluation_share)} if plan.measuring else {}),
        **({} if embedder is None else {"evaluation_embedder": embedder}),
        **reading.to_json(),
        **({"public_metadata": public} if public else {}),
        **({} if rendered is None else {"prompt_sha256": rendered.sha256}),
        **({"choices": dict(reasons)} if reasons else {}),
    }
    shape, memory = model.check.shape if model.check else None, memory_warning(model.check, parameters.model_dump())
    return Quote(
        request, system, parameters, metrics, prompt, plan, body, dataset, model.endpoint, reasons, shape, memory
    )


def _plan(
    request: ReleaseRequest,
    system: System,
    parameters: BaseModel,
    dataset: DatasetFacts,
    metrics: Sequence[Metric],
) -> Plan:
    """Return the plan of a request's texts and metrics, its blocks numbered from 0."""
    amount = _amount(request, system, parameters)
    inputs = PlanInputs(amount, parameters, dataset.blocks, dataset.population, dataset.governed)
    ask = dataset.read.restrict_inputs(inputs)
    return plan_with_metrics(system, ask, metrics, request.evaluation_share)


def _asked_while_secret(request: ReleaseRequest) -> dict[str, Json]:
    asked = request.epsilon_while_secret
    return {} if asked is None else {"epsilon_while_secret": model_to_json(asked)}


def _choice_inputs(
    request: ReleaseRequest,
    system: System,
    dataset: DatasetFacts,
    model: ModelFacts,
    metrics: Sequence[Metric],
) -> ChoiceInputs:
    """Return the public facts that the parameters which a request leaves out are chosen from."""
    reading = dataset.read
    read = reading.restrict_inputs(
        PlanInputs(None, request, dataset.blocks, dataset.population, governed=dataset.governed)
    )
    public = dataset.public.merged_over(request.public_metadata)
    context = model.check.shape.context if model.check and model.check.shape else None
    charged = any(metric.estimate for metric in metrics)

    def amount(parameters: BaseModel) -> Amount | None:
        whole = _amount(request, system, parameters)
        if whole is None or not charged:
            return whole
        return Amount(int(whole.rho * (1 - request.evaluation_share)), whole.delta)

    facts = PublicFacts(read.population, read.blocks, public.typical_words, context)
    return ChoiceInputs(request.kind, facts, amount)


def written_request(body: Mapping[str, Any]) -> ReleaseRequest:
    """Return the request behind a canonical body: quoted with the same facts, it gives that body again.

    All parameters are written out in it, so nothing is chosen again, and the new body has no `choices`.

    A body without cohorts was made when there was one; a later request from it still reads that one alone.
    """
    fields = {"cohorts": [1]} | {name: body[name] for name in ReleaseRequest.model_fields if name in body}
    fields |= {"dataset": body["dataset"]["name"], "model": body["model"]["name"]}
    if "evaluation_embedder" in body:
        fields["evaluation_embedder"] = body["evaluation_embedder"]["name"]
    return ReleaseRequest.model_validate(fields)


def plan_json(plan: Plan) -> Json:
    """Return the charged part of a plan for the request: every event and every instalment."""
    return {
        "blocks": list(plan.blocks),
        "facts": dict(plan.facts),
        "invocations": [
            {
                "event": invocation.event.to_json(),
                "instalments": [{"rho": str(part.rho), "delta": str(part.delta)} for part in invocation.instalments],
            }
            for invocation in plan.all_invocations
        ],
        **({} if plan.assignment is None else {"assignment": asdict(plan.assignment)}),
    }


def _amount(request: ReleaseRequest, system: System, parameters: BaseModel) -> Amount | None:
    if not system.charges:
        return None
    if request.epsilon is None or request.delta is None:
        raise claim_missing(request.mechanism)
    return zcdp.release_amount(request.epsilon, request.delta, system.failure_delta_share(parameters))
