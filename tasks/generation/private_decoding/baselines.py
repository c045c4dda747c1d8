"""Baselines of every private system: the public model alone, and no privacy at all."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, Field

from models_db.services.lifecycle.ledger import InvocationPlan
from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from models_db.values.requests import ExactDecimal, format_decimal
from tasks.generation.decoding.run_context import RunContext
from tasks.generation.private_decoding.base import top_k_text
from tasks.inference.prompts.render import PromptPieces, is_cut, prompts_for, reference_tokens
from tasks.inference.structured_output.form_parameters import FormParameters, form_facts
from tasks.inference.structured_output.schema_parameters import RecordParameters, constraint_facts
from tasks.mechanisms.core.uncharged import uncharged
from tasks.mechanisms.tokens import sampler as samplers
from tasks.planning.batches import layout_of, with_labels
from tasks.planning.labels_and_groups import PartParameters, part_facts
from tasks.planning.precision_parameters import PrecisionParameters, precision_facts
from tasks.values.generated import Generated
from tasks.values.plan import GeneratorDefaults, NotForGovernedData, Plan, PlanInputs
from tasks.values.release_kinds import TEXT_KINDS, ReleaseKind

if TYPE_CHECKING:  # pricing a request must not load torch
    from tasks.generation.decoding.loop import Constraint


class BaselineParameters(RecordParameters, FormParameters, PrecisionParameters, PartParameters):
    """`parameters:` of a baseline. Those of private systems are accepted, so that one file runs with any mechanism.

    What a baseline does not use comes last. Where it is written it is part of the stored request like anything else.
    """

    samples: Annotated[int, Field(ge=1, le=1_000_000)]
    max_new_tokens: Annotated[int, Field(ge=1, le=100_000)]
    temperature: Annotated[ExactDecimal, Field(gt=0, le=100)]
    top_k: Annotated[int, Field(ge=0)] = 100
    max_reference_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 256
    sampler: samplers.Kind | None = None
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


class _Baseline(GeneratorDefaults):
    """What both say of themselves."""

    kinds: tuple[str, ...] = (*TEXT_KINDS, ReleaseKind.SUMMARIES)
    parameters: type[BaseModel] = BaselineParameters
    charges = False


class PublicOnly(_Baseline):
    """The public model and the public prompt; no private text is read, nothing is charged."""

    name = "public_only"

    def plan(self, ask: PlanInputs) -> Plan:
        """A plan that charges nothing."""
        return _plan(ask, uncharged(self.name))

    def generate(self, plan: Plan, parameters: BaseModel, bench: RunContext) -> Generated:
        """Draw from the public logits alone."""
        from tasks.inference.structured_output.schema_constraint import constraint_for

        wanted = _asked(parameters)
        prompts = {label: public for label, (public, _) in _prompts(wanted, bench).items()}
        labels = layout_of(wanted, wanted.samples, len(plan.blocks)).labels_of_texts(wanted.names)
        constraint = constraint_for(wanted, bench.engine.model, wanted.max_new_tokens)
        return _generate(wanted, [list(prompts[label].tokens) for label in labels], labels, bench, constraint)


class NonPrivate(_Baseline):
    """Documents of the corpus in the prompt, no protection: for data that is public, as the upper reference.

    One document for each text; for a summary all documents of its group, one after another.
    """

    name = "non_private"

    def plan(self, ask: PlanInputs) -> Plan:
        """A plan without any guarantee.

        Raises:
            NotForGovernedData: the dataset is not marked public.
        """
        if ask.governed:
            raise NotForGovernedData(self.name)
        return _plan(ask, uncharged(self.name))

    def generate(self, plan: Plan, parameters: BaseModel, bench: RunContext) -> Generated:
        """Draw each text from the model that has read its document or documents, of its label or group if it has one.

        A corpus with fewer documents makes fewer texts, and a group without any has none. Since nothing is claimed, it
        is told how many documents were longer than the limit.

        Raises:
            LabelsNotKept: labels or groups are declared, and the version has none; nothing was armed.
        """
        from tasks.inference.structured_output.schema_constraint import constraint_for

        wanted, tokenizer = _asked(parameters), bench.engine.model.tokenizer
        prompts = _prompts(wanted, bench)
        constraint = constraint_for(wanted, bench.engine.model, wanted.max_new_tokens)
        if wanted.names:
            bench.corpus.require_labels()
        bench.arm(0, 0)
        documents = {name: _documents(bench, name, together=bool(wanted.groups)) for name in prompts}
        filled: list[list[int]] = []
        labels: list[str | None] = []
        cut = 0
        for label in layout_of(wanted, wanted.samples, len(plan.blocks)).labels_of_texts(wanted.names):
            if (text := next(documents[label], None)) is None:
                continue
            reference = reference_tokens(tokenizer, text, wanted.max_reference_tokens)
            cut += is_cut(tokenizer, text, wanted.max_reference_tokens)
            filled.append(list(prompts[label][1].around(reference)))
            labels.append(label)
        made = _generate(wanted, filled, labels, bench, constraint, armed=True)
        return replace(made, released={"references_cut": str(cut)})


def _prompts(wanted: BaselineParameters, bench: RunContext) -> dict[str | None, tuple[PromptPieces, PromptPieces]]:
    """The prompts of public and private rows for each label or group; for None where there are neither."""
    tokenizer = bench.engine.model.tokenizer
    told = zip(wanted.names, wanted.shown, strict=True) if wanted.names else [(None, None)]
    return {name: prompts_for(tokenizer, bench.prompt, shown) for name, shown in told}


def _documents(bench: RunContext, name: str | None, *, together: bool) -> Iterator[str]:
    """What the prompts of a label or group are filled with: its documents one by one, or all of them in one."""
    texts = bench.corpus.texts(name)
    if not together:
        return texts
    joined = "\n\n".join(texts)
    return iter([joined] if joined else [])


def _generate(
    wanted: BaselineParameters,
    prompts: list[list[int]],
    labels: Sequence[str | None],
    bench: RunContext,
    constraint: "Constraint | None",
    *,
    armed: bool = False,
) -> Generated:
    from tasks.generation.decoding.public_sampling import PublicSampling, draw_public_texts

    if not armed:
        bench.arm(0, 0)
    how = PublicSampling(wanted.max_new_tokens, wanted.temperature, wanted.top_k, wanted.sampler or samplers.DEFAULT)
    return Generated(with_labels(draw_public_texts(bench, prompts, how, constraint), labels))


def _asked(parameters: BaseModel) -> BaselineParameters:
    if not isinstance(parameters, BaselineParameters):
        raise TypeError(f"parameters of a baseline are needed, not {type(parameters).__name__}")
    return parameters


def _plan(ask: PlanInputs, event: PrivacyEvent) -> Plan:
    wanted = _asked(ask.parameters)
    layout_of(wanted, wanted.samples, ask.blocks)  # refuses fewer samples than blocks or labels
    return Plan(
        invocations=(InvocationPlan(event, (Amount(),)),),
        blocks=tuple(range(ask.blocks)),
        samples=wanted.samples,
        facts={
            **part_facts(wanted),
            **constraint_facts(wanted),
            **form_facts(wanted),
            **precision_facts(wanted),
            "samples": str(wanted.samples),
            "tokens per text": str(wanted.max_new_tokens),
            "temperature": format_decimal(wanted.temperature),
            "top k": top_k_text(wanted.top_k),
        },
        rows=wanted.samples,
        steps=wanted.max_new_tokens,
        prompt_tokens=wanted.max_reference_tokens,
    )
