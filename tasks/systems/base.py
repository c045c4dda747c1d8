"""Definition of a system: what it may be asked for, what it buys, how it runs, and what readers should know of it.

A system is stateless. `plan` is a pure function of public numbers: what will be invoked, in which instalments, on which
blocks. `generate` follows that plan. Price, review, card, report, dashboard and verification ask a system for whatever
differs between systems, and know none by its name (`tasks.systems.registry`).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from pydantic import BaseModel

from models_db.errors import Refused
from models_db.values.requests import ReleaseRequest
from tasks.decoding.run_context import RunContext
from tasks.planning.influence import InfluenceLevel
from tasks.planning.parameter_choices import Choice, ChoiceInputs
from tasks.systems.insights.wording import InsightWording
from tasks.values.plan import Plan, PlanInputs
from tasks.values.results import Generated


class System(ABC):
    """One system. Its loss is stated by `plan` and drawn by `generate`, side by side in one place.

    Attributes:
        name: what requests call it.
        kinds: the kinds of releases that it makes (`tasks.values.results`).
        parameters: model of a request's `parameters`; all of them are public.
        charges: whether it loses anything about governed data.
        renders_prompt: whether its rows read the request's prompt as `tasks.inference.prompt_rendering` makes it, in
            either form; others have conversations of their own.
        shows_private_text: whether the model is shown private text. One that uses the context's backend alone, never
            the engine, sets it to False and may use a model behind an API (`tasks.pricing.external_models`).
        texts_have_blocks: whether each text is made from the units of one block.
        reads_batches_by_draws_alone: whether all that reads a batch is rho-zCDP draws of tokens without a private
            state, so that a release may state what it claims while the assignment is secret (decision 0132).
        depends_on_candidates: whether the clip norm that a token needs grows with the number of candidates.
        plan_rank: its place among the systems that `almoner plan` proposes, from 1; None if it is not proposed.
        other_question: the question that it answers better than a plan of texts or topics, as `almoner plan` says it.
        summary_temperature: at which its summaries were measured (docs/summaries.md); None if none were.
        wording: of its insights; None for topics.
        templates_sentence: the card's sentence on the templates of its prompts; None for the usual one, which depends
            on `shows_private_text`.
        unused_templates: the templates of a request that none of its prompts has. A system that shows no private text
            has none of those with one, and need not say so.
        model_sentences: almoner's own words that it may put before a model, beside those of prompts.
    """

    name: str
    kinds: tuple[str, ...]
    parameters: type[BaseModel]
    charges: bool = True
    renders_prompt: bool = False
    shows_private_text: bool = True
    texts_have_blocks: bool = True
    reads_batches_by_draws_alone: bool = False
    depends_on_candidates: bool = True
    plan_rank: int | None = None
    other_question: str | None = None
    summary_temperature: Decimal | None = None
    wording: InsightWording | None = None
    templates_sentence: str | None = None
    unused_templates: tuple[str, ...] = ()
    model_sentences: tuple[str, ...] = ()

    def resolve_names(self, request: ReleaseRequest) -> ReleaseRequest:
        """Return the request with everything that it names and that only this machine could look up.

        The stored request has everything that a plan depends on, so a verifier can plan the release from it alone.

        Raises:
            UsageError, EnvironmentProblem: it is not to be found, or does not fit the request.
        """
        return request

    def choose(self, inputs: ChoiceInputs, fields: Mapping[str, Any]) -> dict[str, Choice]:
        """Return a value for each parameter that `fields` leaves out and that public facts can decide.

        Raises:
            UsageError: a fact that decides it is missing, or the other parameters do not fit.
            Refused: the amount buys nothing.
        """
        return {}

    def failure_delta_share(self, parameters: BaseModel) -> Fraction:
        """Return the share of the release's delta for failures of its mechanisms; 0 if none may fail."""
        return Fraction(0)

    def seconds_per_unit(self, parameters: BaseModel) -> float:
        """Return about how many seconds each unit takes beside the plan's rows, on two cores; for quotes alone.

        It is 0 where a unit is read in microseconds, and embedded nowhere.
        """
        return 0.0

    def influence_levels(self, parameters: Mapping[str, Any]) -> tuple[InfluenceLevel, ...]:
        """Return the measured levels of its clip norm, the largest first; none for a system that was not measured."""
        return ()

    def contradiction(
        self, parameters: BaseModel, model: tuple[str, str], prompt: Mapping[str, str | None]
    ) -> str | None:
        """Return why a stored request's model (name, SHA-256) or prompt cannot be that of its parameters, else None."""
        return None

    @abstractmethod
    def plan(self, ask: PlanInputs) -> Plan:
        """Return the plan for these public facts.

        Raises:
            Refused: the amount is too small, or the data must not be read this way.
        """

    @abstractmethod
    def generate(self, plan: Plan, parameters: BaseModel, context: RunContext) -> Generated:
        """Generate the texts of a plan."""


def not_for_governed_data(mechanism: str) -> Refused:
    """Return the error of a system that reads private text without protection."""
    return Refused(
        f"{mechanism!r} shows private text to the model without any guarantee; on governed data it is refused.",
        "Use it on a dataset registered with `--public`, or choose a private mechanism.",
        {"mechanism": mechanism},
        code="NotForGovernedData",
    )
