"""Baselines of every private system: the public model alone, and no privacy at all."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field

from models_db.services.budget import InvocationPlan
from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from models_db.values.requests import ExactDecimal, format_decimal
from tasks.decoding.run_context import RunContext
from tasks.inference.prompt_rendering import PromptPieces, is_cut, prompts_for, reference_tokens
from tasks.inference.structured_output.form import FormParameters, form_facts
from tasks.inference.structured_output.json_schema import RecordParameters, constraint_facts
from tasks.mechanisms.core.uncharged import uncharged
from tasks.planning.layout import PartParameters, layout_of, part_facts, with_labels
from tasks.planning.parameter_choices import Choice, ChoiceInputs, fit_samples
from tasks.planning.shared_parameters import (
    PrecisionParameters,
    SentenceCompletionParameters,
    completion_facts,
    precision_facts,
)
from tasks.systems.base import System, not_for_governed_data
from tasks.systems.private_decoding import top_k_text
from tasks.systems.text_parameter_choices import choose_for_texts
from tasks.values.plan import Plan, PlanInputs
from tasks.values.results import TEXT_KINDS, Generated, ReleaseKind

if TYPE_CHECKING:  # pricing a request must not load torch
    from tasks.decoding.loop import Constraint


class BaselineParameters(
    RecordParameters,
    FormParameters,
    SentenceCompletionParameters,
    PrecisionParameters,
    PartParameters,
):
    """`parameters:` of a baseline. Those of private systems are accepted, so that one file runs with any mechanism.

    Parameters that a baseline does not use come last. Written ones are part of the stored request like anything else.
    """

    samples: Annotated[int, Field(ge=1, le=1_000_000)]
    max_new_tokens: Annotated[int, Field(ge=1, le=100_000)]
    temperature: Annotated[ExactDecimal, Field(gt=0, le=100)]
    top_k: Annotated[int, Field(ge=0)] = 100
    max_reference_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 256
    references: Annotated[int, Field(ge=1)] = 1
    batches: Annotated[int, Field(ge=1)] | None = None
    instalment: Annotated[int, Field(ge=1)] | None = None
    clipping: Literal["log_probability", "logit"] | None = None
    private_tokens: Annotated[int, Field(ge=1)] | None = None
    threshold: ExactDecimal | None = None
    test_share: ExactDecimal | None = None
    public_temperature: ExactDecimal | None = None
    order: ExactDecimal | None = None
    radius: ExactDecimal | None = None
    screening_weight: ExactDecimal | None = None
    screening_noise: ExactDecimal | None = None
    screening_threshold: ExactDecimal | None = None
    clip_norm: ExactDecimal | None = None
    noise: ExactDecimal | None = None
    space: Literal["hidden", "logits"] | None = None
    centre: Literal["public", "none"] | None = None
    adapter: str | None = None
    shots: Annotated[int, Field(ge=1)] | None = None

    @property
    def reproduces_paper(self) -> bool:
        """With the clipping of InvisibleInk's paper, texts are compared with that paper's."""
        return self.clipping == "logit"


USUAL_SAMPLES = 20


class _Baseline(System):
    """Properties that the two baselines share."""

    kinds: tuple[str, ...] = (*TEXT_KINDS, ReleaseKind.SUMMARIES)
    parameters: type[BaseModel] = BaselineParameters
    charges = False
    renders_prompt = True
    summary_temperature = Decimal("0.1")

    def choose(self, inputs: ChoiceInputs, fields: Mapping[str, Any]) -> dict[str, Choice]:
        """Choose as `tasks.systems.text_parameter_choices.choose_for_texts` does, with its errors."""
        return choose_for_texts(self, inputs, fields, self._choose_samples)

    def _choose_samples(self, inputs: ChoiceInputs, filled: dict[str, Any], missing: list[str]) -> dict[str, Choice]:
        settings = BaselineParameters.model_validate(filled)
        cells = inputs.facts.blocks * max(1, len(settings.labels))
        chosen = fit_samples(USUAL_SAMPLES, max(USUAL_SAMPLES, cells), cells)
        return {"samples": Choice(chosen, f"enough to compare with; {self.name} claims no privacy")}


class PublicOnly(_Baseline):
    """The public model and the public prompt; no private text is read, nothing is charged."""

    name = "public_only"

    def plan(self, ask: PlanInputs) -> Plan:
        """Return a plan that charges nothing.

        Raises:
        """
        return _plan(ask, uncharged(self.name))

    def generate(self, plan: Plan, parameters: BaseModel, context: RunContext) -> Generated:
        """Draw from the public logits alone."""
        from tasks.inference.structured_output.grammar_constraint import constraint_for

        settings = _typed_parameters(parameters)
        prompts = {label: public for label, (public, _) in _prompts(settings, context).items()}
        labels = layout_of(settings, settings.samples, len(plan.blocks)).labels_of_texts(settings.names)
        constraint = constraint_for(settings, context.engine.model, settings.max_new_tokens)
        return _generate(settings, [list(prompts[label].tokens) for label in labels], labels, context, constraint)


class NonPrivate(_Baseline):
    """Documents of the corpus in the prompt, no protection: for data that is public, as the upper reference.

    One document for each text; for a summary all documents of its group, one after another.
    """

    name = "non_private"

    def plan(self, ask: PlanInputs) -> Plan:
        """Return a plan without any guarantee.

        Raises:
            NotForGovernedData: the dataset is not marked public.
        """
        if ask.governed:
            raise not_for_governed_data(self.name)
        return _plan(ask, uncharged(self.name))

    def generate(self, plan: Plan, parameters: BaseModel, context: RunContext) -> Generated:
        """Draw each text from the model that has read its document or documents, of its label or group if it has one.

        A corpus with fewer documents makes fewer texts, and a group without any has none. Since nothing is claimed, the
        result says how many documents were longer than the limit.

        Raises:
            LabelsNotKept: labels or groups are declared, and the version has none; nothing was armed.
        """
        from tasks.inference.structured_output.grammar_constraint import constraint_for

        settings, tokenizer = _typed_parameters(parameters), context.engine.model.tokenizer
        prompts = _prompts(settings, context)
        constraint = constraint_for(settings, context.engine.model, settings.max_new_tokens)
        if settings.names:
            context.corpus.require_labels()
        context.arm(0, 0)
        documents = {name: _documents(context, name, together=bool(settings.groups)) for name in prompts}
        filled: list[list[int]] = []
        labels: list[str | None] = []
        cut = 0
        for label in layout_of(settings, settings.samples, len(plan.blocks)).labels_of_texts(settings.names):
            if (text := next(documents[label], None)) is None:
                continue
            reference = reference_tokens(tokenizer, text, settings.max_reference_tokens)
            cut += is_cut(tokenizer, text, settings.max_reference_tokens)
            filled.append(list(prompts[label][1].around(reference)))
            labels.append(label)
        texts = _generate(settings, filled, labels, context, constraint, armed=True)
        return replace(texts, released={"references_cut": str(cut), **texts.released})


def _prompts(settings: BaselineParameters, context: RunContext) -> dict[str | None, tuple[PromptPieces, PromptPieces]]:
    """Return the prompts of public and private rows for each label or group; for None if there are neither."""
    tokenizer = context.engine.model.tokenizer
    shown_names = zip(settings.names, settings.shown, strict=True) if settings.names else [(None, None)]
    return {name: prompts_for(tokenizer, context.prompt, shown) for name, shown in shown_names}


def _documents(context: RunContext, name: str | None, *, together: bool) -> Iterator[str]:
    """Return the documents of a label or group, which fill its prompts: one by one, or all of them in one."""
    texts = context.corpus.texts(name)
    if not together:
        return texts
    joined = "\n\n".join(texts)
    return iter([joined] if joined else [])


def _generate(
    settings: BaselineParameters,
    prompts: list[list[int]],
    labels: Sequence[str | None],
    context: RunContext,
    constraint: "Constraint | None",
    *,
    armed: bool = False,
) -> Generated:
    from tasks.decoding.public_sampling import PublicSampling, draw_public_texts
    from tasks.decoding.sentence_completion import completion_figures

    if not armed:
        context.arm(0, 0)
    how = PublicSampling(
        settings.max_new_tokens,
        settings.temperature,
        settings.top_k,
        settings.completion_tokens,
    )
    texts = draw_public_texts(context, prompts, how, constraint)
    return Generated(with_labels(texts, labels), completion_figures(texts))


def _typed_parameters(parameters: BaseModel) -> BaselineParameters:
    if not isinstance(parameters, BaselineParameters):
        raise TypeError(f"parameters of a baseline are needed, not {type(parameters).__name__}")
    return parameters


def _plan(ask: PlanInputs, event: PrivacyEvent) -> Plan:
    settings = _typed_parameters(ask.parameters)
    steps = settings.max_new_tokens + settings.completion_tokens
    layout_of(settings, settings.samples, ask.blocks)  # refuses fewer samples than blocks or labels
    return Plan(
        invocations=(InvocationPlan(event, (Amount(),)),),
        blocks=tuple(range(ask.blocks)),
        samples=settings.samples,
        facts={
            **part_facts(settings),
            **constraint_facts(settings),
            **form_facts(settings),
            **precision_facts(settings),
            "samples": str(settings.samples),
            "tokens per text": str(settings.max_new_tokens),
            "temperature": format_decimal(settings.temperature),
            "top k": top_k_text(settings.top_k),
            **completion_facts(settings),
        },
        rows=settings.samples,
        steps=steps,
        prompt_tokens=settings.max_reference_tokens,
    )
