"""Base of systems with private rows: one batch of units behind each text, token by token (PRIVACY §3, §4).

A system adds its own parameters, the mechanisms that its share of the budget buys, and the rule that draws a token.
All else is here: the split into batches, the noisy count that it may need, instalments, prompts, rows, facts.

Where no population is declared, the first mechanism of the release is a noisy count of the units at 1/500 of its
rho: the number of batches must be public, and so it is bought, not read off the data (docs/decisions/0002).
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, Field

from models_db.services.budget import InvocationPlan
from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from models_db.values.requests import ExactDecimal as Decimals
from models_db.values.requests import format_decimal, parse_model
from tasks.accounting.rounding import decimal_above
from tasks.corpus.store import Place, UnitDocuments
from tasks.decoding.run_context import RunContext
from tasks.inference.prompt_rendering import PromptPieces, prompts_for, reference_tokens
from tasks.inference.structured_output.form import FormParameters, form_facts, form_of
from tasks.inference.structured_output.json_schema import RecordParameters, constraint_facts
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.counts import noisy_count
from tasks.mechanisms.counts.noisy_count import NoisyCount, calibrate_count
from tasks.mechanisms.tokens.integer_table import budget_too_small
from tasks.planning.influence import level_named
from tasks.planning.layout import BatchLayout, Layout, PartParameters, layout_of, part_facts, with_labels
from tasks.planning.parameter_choices import (
    MOST_SAMPLES,
    PROBE_REFERENCES,
    Choice,
    ChoiceInputs,
    clip_norm_per_reference,
    fit_samples,
    population_needed,
    references_for,
    too_few_units,
    units_per_text,
)
from tasks.planning.shared_parameters import (
    PrecisionParameters,
    SentenceCompletionParameters,
    completion_facts,
    precision_facts,
)
from tasks.systems.base import System
from tasks.systems.text_parameter_choices import choose_for_texts
from tasks.values.plan import BatchAssignment, Plan, PlanInputs
from tasks.values.results import TEXT_KINDS, Generated, GeneratedText

if TYPE_CHECKING:  # pricing a request must not load torch
    from tasks.decoding.loop import BudgetMeter, Constraint, DrawMeter, GenerationJob, ResumableSamplingRule
    from tasks.inference.engine.shapes import Sizes

COUNT_SHARE = 500
"""Divisor of a release's rho: this part buys the noisy count."""
USUAL_REFERENCES = 8
"""References of a system whose clip norm is not measured."""


class PrivateDecodingParameters(
    RecordParameters, FormParameters, SentenceCompletionParameters, PrecisionParameters, PartParameters
):
    """`parameters:` that all these systems have; every one is public."""

    samples: Annotated[int, Field(ge=1, le=1_000_000)]
    references: Annotated[int, Field(ge=1, le=100_000)]
    max_new_tokens: Annotated[int, Field(ge=1, le=100_000)]
    temperature: Annotated[Decimals, Field(gt=0, le=100)]
    top_k: Annotated[int, Field(ge=0)] = 100
    max_reference_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 256
    batches: Annotated[int, Field(ge=1)] | None = None
    instalment: Annotated[int, Field(ge=1)] = 16

    @property
    def tokens_per_text(self) -> int:
        """The most tokens of a text, with those that are not drawn or cost nothing."""
        return self.max_new_tokens + self.completion_tokens

    @property
    def row_tokens(self) -> int:
        """The most tokens of a private row beside its prompt: the reference, then the text that is written."""
        return self.max_reference_tokens + self.tokens_per_text

    @property
    def draws_per_text(self) -> int:
        """The most draws that one text takes: as many as it has tokens, or as many as its form leaves a choice."""
        form = form_of(self)
        return self.max_new_tokens if form is None else form.draws(self.slot_tokens)

    @property
    def draws(self) -> int:
        """The most draws that read one unit: a text's, as often as a unit is read."""
        return self.draws_per_text * self.groups_per_unit


@dataclass(frozen=True)
class CalibratedMechanisms:
    """The mechanisms that a system's budget pays for.

    Attributes:
        events: the mechanisms, invoked equally often; an instalment of one is armed together with the same of all.
        facts: their public parameters, for people.
    """

    events: tuple[PrivacyEvent, ...]
    facts: Mapping[str, str]


Parameters = TypeVar("Parameters", bound=PrivateDecodingParameters)


class ChargedSystem(System, Generic[Parameters]):
    """A system that buys mechanisms for its share of the budget; how texts come out of them is its own."""

    kinds: tuple[str, ...] = TEXT_KINDS

    @abstractmethod
    def calibrate(self, rho: int, settings: Parameters) -> CalibratedMechanisms:
        """Return the mechanisms that cost at most `rho` (units of 1e-12) together.

        Raises:
            BudgetTooSmall: they cannot do anything at that price.
        """

    def choose(self, inputs: ChoiceInputs, fields: Mapping[str, Any]) -> dict[str, Choice]:
        """Choose as `tasks.systems.text_parameter_choices.choose_for_texts` does, with its errors."""
        return choose_for_texts(self, inputs, fields, self._choose_sizes)

    def _choose_sizes(self, inputs: ChoiceInputs, filled: dict[str, Any], missing: list[str]) -> dict[str, Choice]:
        """Choose the texts, and the references of each, from the declared population."""
        settings = self._typed(parse_model(self.parameters, filled, f"`parameters` of {self.name}"))
        cells, population = inputs.facts.blocks * max(1, len(settings.labels)), inputs.facts.population
        if population is None:
            raise population_needed([name for name in ("samples", "references") if name in missing])
        strong, full = self._useful_references(settings, inputs.amount(settings))
        choices = {}
        samples = settings.samples
        if "samples" in missing:
            each = strong if "references" in missing else settings.references
            samples = fit_samples(population // each, MOST_SAMPLES, cells)
            choices["samples"] = Choice(samples, _samples_reason(samples, population, each))
        if "references" in missing:
            units = units_per_text(population, samples, cells, settings.batches)
            if units < 1:
                raise too_few_units(population, samples)
            chosen = min(units, full)
            why = f"each text has about {units} of the declared {population} units"
            more = "" if units <= full else "; more references would add next to nothing"
            choices["references"] = Choice(chosen, why + more)
        return choices

    def _useful_references(self, settings: Parameters, amount: Amount | None) -> tuple[int, int]:
        """Return the references from which on the private texts move the next word strongly, and fully.

        Both are USUAL_REFERENCES for a system that charges nothing, or whose clip norm was not measured.

        Raises:
            BudgetTooSmall: the amount buys no draw.
        """
        levels = self.influence_levels(settings.model_dump())
        strong = level_named(levels, "strongly")
        if amount is None or strong is None:
            return USUAL_REFERENCES, USUAL_REFERENCES
        full = level_named(levels, "almost fully") or strong
        of_probe = self.calibrate(amount.rho, settings.model_copy(update={"references": PROBE_REFERENCES}))
        slope = clip_norm_per_reference(of_probe.facts)
        return references_for(strong.clip_norm, slope), references_for(full.clip_norm, slope)

    def plan(self, ask: PlanInputs) -> Plan:
        """Buy what `ask.amount` affords, after the count if one is needed.

        Raises:
            BudgetTooSmall: it affords nothing, or no share for the count.
            BlockWithoutSample: fewer samples than blocks.
        """
        settings, layout = self._settings_and_layout(ask.parameters, ask.blocks)
        amount = ask.amount or Amount()
        count = self._count(settings, ask)
        counting = [InvocationPlan(count.event(), (count.loss(),))] if count else []
        paid = count.loss() if count else Amount()
        bought = self.calibrate(amount.rho - paid.rho, settings)
        size = settings.instalment * settings.groups_per_unit
        drawing = [InvocationPlan(event, instalments(event, size)) for event in bought.events]
        return Plan(
            invocations=(*counting, *drawing),
            blocks=tuple(range(ask.blocks)),
            samples=settings.samples,
            facts={
                **_facts(settings),
                **bought.facts,
                **completion_facts(settings),
                **_split_facts(settings, ask, layout, count),
            },
            rows=_expected_rows(settings, ask, layout),
            steps=settings.tokens_per_text,
            prompt_tokens=settings.max_reference_tokens,
            texts_per_unit=settings.groups_per_unit,
            assignment=self._assignment(settings, ask, layout, counted=count is not None),
        )

    def _count(self, settings: Parameters, ask: PlanInputs) -> NoisyCount | None:
        """Return what counts the units where no number is known."""
        if settings.batches or settings.groups or ask.population:
            return None
        return _count(ask.amount or Amount(), settings)

    def _assignment(
        self, settings: Parameters, ask: PlanInputs, layout: Layout, *, counted: bool
    ) -> BatchAssignment | None:
        """Return the split if its assignment is worth a claim, with the batches that are known before the count.

        Looks at internal figures of public data are not recorded, so its releases have none. One batch hides nothing.
        """
        if not (self.reads_batches_by_draws_alone and ask.governed and isinstance(layout, BatchLayout)):
            return None
        most = layout.most_in_a_block
        batches = most if counted else _batches_per_block(settings, ask, layout)
        return BatchAssignment(batches, most) if batches > 1 else None

    def _typed(self, parameters: BaseModel) -> Parameters:
        if not isinstance(parameters, self.parameters):
            raise TypeError(f"parameters of {type(self).__name__} are needed, not {type(parameters).__name__}")
        settings: Parameters = parameters  # type: ignore[assignment]  # as was checked
        return settings

    def _settings_and_layout(self, parameters: BaseModel, blocks: int) -> tuple[Parameters, Layout]:
        settings = self._typed(parameters)
        return settings, layout_of(settings, settings.samples, blocks)


class PrivateDecodingSystem(ChargedSystem[Parameters]):
    """A system whose texts are drawn token by token, each from one batch of units."""

    renders_prompt = True
    every_token_is_a_draw = True
    """True if a text has as many tokens as draws, so that a lost draw shortens it."""

    @abstractmethod
    def rule(
        self, events: Sequence[PrivacyEvent], settings: Parameters, meter: "BudgetMeter", rng: RandomSource
    ) -> "ResumableSamplingRule":
        """Return the sampling rule with the mechanisms of `events`; `meter` admits each draw before rows are read."""

    def figures(self, texts: Sequence[GeneratedText]) -> Mapping[str, str]:
        """Return the released figures of all texts together: functions of their facts, named in `RELEASED_FIGURES`."""
        return {}

    def generate(self, plan: Plan, parameters: BaseModel, context: RunContext) -> Generated:
        """Count if planned, split, then draw.

        Raises:
            ContextTooLong, BadDescription, ControlTokens, NoChatTemplate: the prompts do not fit the model.
            TokenizerNotSupported, TokenLimitTooSmall, EndTokenMissing: nor can its tokens write records of the schema.
            LabelsNotKept: labels are declared, and the version has none.
            RowsNotIsolated, NotEnoughMemory: this device cannot draw. None of these has armed anything.
            MemoryRanOut: it could not go on.
        """
        from tasks.decoding.generate import open_decoder
        from tasks.decoding.loop import DecodingSpec
        from tasks.decoding.sentence_completion import completion_figures, sentence_completion

        settings, layout = self._settings_and_layout(parameters, len(plan.blocks))
        lost = context.earlier.lost if self.charges else 0
        prompts = _Prompts.of(settings, context, lost if self.every_token_is_a_draw else 0)
        if settings.names:
            context.corpus.require_labels()
        first = int(plan.invocations[0].event.mechanism == noisy_count.MECHANISM)
        events = [invocation.event for invocation in plan.invocations[first:]]
        rule = partial(self.rule, events, settings, rng=context.rng)
        completion = sentence_completion(settings.completion_tokens, settings.temperature, settings.top_k, context.rng)
        drawing = DecodingSpec(prompts.sizes, rule, prompts.constraint, context.prompt.end, completion)
        with open_decoder(context, drawing, plan.samples, context.earlier, lost) as draw_texts:
            split = _split(plan, first, settings, layout, context)
            texts = draw_texts(
                prompts.jobs(settings, context, split), _paid_meter(plan, first, settings, context, lost)
            )
        labelled = with_labels(texts, split.layout.labels_of_texts(settings.names))
        return Generated(labelled, {**split.released, **self.figures(texts), **completion_figures(texts)})


def _paid_meter(
    plan: Plan, first: int, settings: PrivateDecodingParameters, context: RunContext, lost: int
) -> "DrawMeter":
    """Meters the draws by the invocations from number `first` on, behind what earlier attempts have drawn and lost."""
    from tasks.decoding.loop import DrawMeter

    def arm(instalment: int) -> None:
        for sequence in range(first, len(plan.invocations)):
            context.arm(sequence, instalment)

    draws = plan.invocations[first].event.count // settings.groups_per_unit
    meter = DrawMeter(settings.instalment, draws, arm, armed=context.earlier.armed, lost=lost)
    meter.admit(0)  # paid before the first private byte is read
    return meter


@dataclass(frozen=True)
class _Split:
    """The public split of each block, the batches that each text is made of, and the figures that it follows from."""

    layout: Layout
    per_block: int
    released: Mapping[str, str]


@dataclass(frozen=True)
class _Prompts:
    """The public parts of every row, of sizes that the model can take.

    Attributes:
        pieces: the prompts of public and private rows, for each label or group; one pair where there are none.
        constraint: what holds records to their schema.
    """

    pieces: tuple[tuple[PromptPieces, PromptPieces], ...]
    sizes: "Sizes"
    constraint: "Constraint | None"

    @classmethod
    def of(cls, settings: PrivateDecodingParameters, context: RunContext, lost: int) -> "_Prompts":
        """Prompts and sizes of texts that are `lost` tokens shorter than was asked for."""
        # Heavy imports wait until something is generated: pricing a request must stay quick.
        from tasks.inference.engine.shapes import Sizes
        from tasks.inference.structured_output.grammar_constraint import constraint_for

        model = context.engine.model
        pieces = tuple(prompts_for(model.tokenizer, context.prompt, label) for label in settings.shown or (None,))
        public, private = zip(*pieces, strict=True)
        # A form's constraint shortens slots by what is lost; every other text is as much shorter.
        length = settings.tokens_per_text - (lost if settings.form is None else 0)
        sizes = Sizes.of(public, private, settings.max_reference_tokens, length, settings.references)
        sizes.check_fits(model)
        return cls(pieces, sizes, constraint_for(settings, model, settings.max_new_tokens, lost))

    def jobs(
        self, settings: PrivateDecodingParameters, context: RunContext, split: _Split
    ) -> "Iterator[GenerationJob]":
        """Yield one job for each text; the units of all texts are read here once, at the first job."""
        from tasks.decoding.loop import GenerationJob

        tokenizer = context.engine.model.tokenizer

        def tokens(unit: UnitDocuments) -> tuple[int, ...]:
            return reference_tokens(tokenizer, unit.text, settings.max_reference_tokens)

        sources = split.layout.sources()
        units = rows_of(sources, split.per_block, settings, context)
        for source, members in zip(sources, units, strict=True):
            public, private = self.pieces[source[0][1]]
            yield GenerationJob(public, private, tuple(map(tokens, members)))


def rows_of(
    sources: Sequence[Sequence[Place]], per_block: int, settings: PartParameters, context: RunContext
) -> Iterator[list[UnitDocuments]]:
    """Yield the units that each text is made of; those of all texts are read at once, when the first is asked for."""
    places = [place for source in sources for place in source]
    batches = context.corpus.batches(
        context.scheme, context.split, per_block, places, settings.names, settings.groups_per_unit
    )
    for source in sources:
        yield [unit for place in source for unit in batches[place]]


def instalments(event: PrivacyEvent, size: int) -> tuple[Amount, ...]:
    """Return the loss of `event` in instalments of `size` invocations; the last one may be smaller.

    Every invocation of an event costs a whole number of units, so its part of the sum is exact.
    """
    each = Amount(event.loss.rho // event.count, event.loss.delta // event.count)
    if each * event.count != event.loss:
        raise ValueError(f"the invocations of {event.mechanism} do not cost the same")
    whole, rest = divmod(event.count, size)
    return (*[each * size] * whole, *([each * rest] if rest else []))


def _samples_reason(samples: int, population: int, references: int) -> str:
    if samples * references <= population:
        most = " at most" if samples < MOST_SAMPLES else f", {MOST_SAMPLES} at most"
        return f"{references} references each from the declared {population} units{most}"
    return f"one for each block and label; the declared {population} units are few"


def top_k_text(top_k: int) -> str:
    """Return a number of candidates as text for people."""
    return str(top_k or "whole vocabulary")


def _split(plan: Plan, first: int, settings: PrivateDecodingParameters, layout: Layout, context: RunContext) -> _Split:
    """Return the split that was planned, that a count drawn here leads to, or that an earlier attempt has released."""
    released = dict(context.earlier.released)
    if not released:
        released = _numbers(plan, settings, layout, context)
        context.journal.begin(first, released)
    return _Split(layout, int(released["batches_per_block"]), released)


def _numbers(plan: Plan, settings: PrivateDecodingParameters, layout: Layout, context: RunContext) -> dict[str, str]:
    """Return the number of batches of a block: as planned, or from a count that is drawn here."""
    if plan.invocations[0].event.mechanism != noisy_count.MECHANISM:
        return {"batches_per_block": plan.facts["batches per block"]}
    units = _counted(plan, context)
    per_block = layout.per_block(units, settings.references)
    return {"noisy_population": str(units), "batches_per_block": str(per_block)}


def _counted(plan: Plan, context: RunContext) -> int:
    context.arm(0, 0)
    count = NoisyCount.from_event(plan.invocations[0].event)
    return count.draw(context.corpus.unit_count(), context.rng)


def _count(amount: Amount, settings: PrivateDecodingParameters) -> NoisyCount:
    if amount.rho < COUNT_SHARE:
        raise budget_too_small(settings.max_new_tokens, settings.references)
    return calibrate_count(amount.rho // COUNT_SHARE)


def _expected_rows(settings: PrivateDecodingParameters, ask: PlanInputs, layout: Layout) -> int:
    """Public rows and references in one step; with a declared population, its share of the batches that are read."""
    if ask.population and not settings.groups and (settings.batches or layout.most_in_a_block):
        per_block = _batches_per_block(settings, ask, layout)
        return settings.samples + round(ask.population * settings.samples / (layout.cells * per_block))
    return settings.samples * (1 + settings.references)


def _facts(settings: PrivateDecodingParameters) -> dict[str, str]:
    return {
        **part_facts(settings),
        **constraint_facts(settings),
        **form_facts(settings),
        **precision_facts(settings),
        "samples": str(settings.samples),
        "references B": str(settings.references),
        "temperature": format_decimal(settings.temperature),
        "reference tokens": str(settings.max_reference_tokens),
        "draws per instalment": str(settings.instalment),
    }


def _split_facts(
    settings: PrivateDecodingParameters, ask: PlanInputs, layout: Layout, count: NoisyCount | None
) -> dict[str, str]:
    if count is not None:
        noise = f"sigma {format(decimal_above(count.sigma, 1), 'f')}, rho {count.loss().rho_text}"
        return {"batches per block": f"from a noisy count of the units ({noise})"}
    return {"batches per block": str(_batches_per_block(settings, ask, layout))}


def _batches_per_block(settings: PrivateDecodingParameters, ask: PlanInputs, layout: Layout) -> int:
    """Return the number of batches of a label in a block, as declared or from the declared population."""
    declared = settings.batches or layout.per_block(ask.population or 0, settings.references)
    return max(declared, layout.most_in_a_block)
