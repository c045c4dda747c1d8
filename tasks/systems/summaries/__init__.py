"""Private summaries of groups of units: token by token, or in one shot (PRIVACY §5).

After "Differentially Private Summarization with Large Language Models". Row, mean and draw are in
`token_level_rule`, the mechanism and its loss in `tasks.mechanisms.vectors.noisy_mean`; this file plans both releases
around them.

*Token-level* (§4.1): one noisy mean over all of a group's units for every token. A unit is read for m groups, each of
which draws T times: m T noisy sums, rho = m T C^2 / (2 sigma^2), sigma the noise on a sum. In Gaussian differential
privacy, mu = sqrt(m T) C / sigma, and rho = mu^2 / 2.

*One-shot* (§4.2, Algorithm 2): one noisy mean per group, from which a public model writes. Every unit's documents are
read once; the last hidden state becomes a vector (`adapter.represent`, of public parts alone), the vectors of a group
are clipped, averaged over a public n and noised. An adapter that was trained on public data turns that mean into soft
tokens, from which the model writes at no further cost, however long the text is.

A unit is read for m groups, k times each ("k-shot"): m k noisy sums, rho = m k C^2 / (2 sigma^2). With c centres a
unit's vector has c blocks, all but one of them zero: its norm is that of the one, so c means cost what one costs.

Nothing is drawn from private text after the means. They are stored as soon as they are drawn, so a run that is
interrupted later continues from them and pays nothing again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field

from models_db.errors import UsageError
from models_db.values.amounts import RHO_UNIT
from models_db.values.events import PrivacyEvent
from models_db.values.requests import ExactDecimal, ReleaseRequest, RequestModel, model_to_json
from tasks.accounting.rounding import decimal_above
from tasks.adapters.metadata import AdapterMeta, Digest, KnownAdapter
from tasks.adapters.store import find_adapter, load_adapter, reading_pieces, require_fit, writing_pieces
from tasks.decoding.run_context import RunContext
from tasks.inference.prompt_rendering import PromptPieces, reference_tokens
from tasks.inference.prompt_spec import LABEL, Template
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.tokens.integer_table import public_sampler
from tasks.mechanisms.vectors.noisy_mean import NoisyMean, calibrate_mean
from tasks.planning.layout import Layout, with_labels
from tasks.systems.private_decoding import (
    CalibratedMechanisms,
    ChargedSystem,
    PrivateDecodingParameters,
    PrivateDecodingSystem,
    rows_of,
    top_k_text,
)
from tasks.values.plan import Plan, PlanInputs
from tasks.values.results import Generated, ReleaseKind

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.adapters.adapter import Adapter
    from tasks.decoding.loop import BudgetMeter, ResumableSamplingRule
    from tasks.inference.engine.session import RowHidden


_EXACT = Context(prec=30, rounding=ROUND_FLOOR)
_SHOWN = Context(prec=3, rounding=ROUND_FLOOR)

CLIP_NORMS = {"public": Decimal(16), "none": Decimal(48)}
"""Clip norms for SmolLM2-135M: a row's typical difference from its public row, and its norm (docs/summaries.md)."""

NOISE = Decimal("0.3")
"""Noise on each entry of a hidden state with which SmolLM2-135M still writes sentences (docs/summaries.md)."""


class TokenLevelParameters(PrivateDecodingParameters):
    """`parameters:` of a request; all of them are public.

    Attributes:
        clip_norm: largest C; the value for SmolLM2-135M by default.
        noise: largest tolerated standard deviation of the noise on each entry of a mean: where the budget buys C only
            with more, C is lowered. Rows then contribute less, but the noise does not hide them. None: C unchanged.
    """

    clip_norm: Annotated[ExactDecimal, Field(gt=0, le=10**9)] | None = None
    noise: Annotated[ExactDecimal, Field(gt=0, le=10**9)] | None = None
    space: Literal["hidden", "logits"] = "hidden"
    centre: Literal["public", "none"] = "public"

    @property
    def reproduces_paper(self) -> bool:
        """The paper takes rows as they are."""
        return self.centre == "none"


class TokenLevelSummary(PrivateDecodingSystem[TokenLevelParameters]):
    """The system `token_level_summary`."""

    name: str = "token_level_summary"
    kinds: tuple[str, ...] = (ReleaseKind.SUMMARIES,)
    parameters: type[BaseModel] = TokenLevelParameters
    summary_temperature = Decimal("0.1")

    def resolve_names(self, request: ReleaseRequest) -> ReleaseRequest:
        """Fill in the default clip norm and noise: later defaults must not change a stored request."""
        parameters = request.parameters
        centre = parameters.get("centre", "public")
        if parameters.get("clip_norm") is not None or centre not in list(CLIP_NORMS):
            return request  # invalid values are reported by the parameters' own validation
        uses_differences = centre == "public" and parameters.get("space", "hidden") == "hidden"
        tolerated_noise = {"noise": NOISE} if uses_differences else {}
        return request.model_copy(
            update={"parameters": {**tolerated_noise, **parameters, "clip_norm": CLIP_NORMS[centre]}}
        )

    def calibrate(self, rho: int, settings: TokenLevelParameters) -> CalibratedMechanisms:
        """Calibrate the noisy mean with the least noise that m T draws afford.

        Raises:
            NoiseInvalid, MeanInvalid: only noise is affordable, or the clip norm is out of range.
            TokenDrawInvalid: the temperature is out of range.
        """
        public_sampler(settings.temperature)  # refused now, not after something has been spent
        norm = settings.clip_norm or CLIP_NORMS[settings.centre]
        if settings.noise is not None:
            norm = min(norm, affordable_clip_norm(rho, settings.draws, settings.references, settings.noise))
        mean = calibrate_mean(rho, settings.draws, norm)
        facts = {
            "draws per text T": str(settings.draws_per_text),
            "top k": top_k_text(settings.top_k),
            "mean of": {"hidden": "last hidden states", "logits": "logits of the candidates"}[settings.space],
            "rows are taken": {"public": "as differences from the public row", "none": "as they are"}[settings.centre],
            **mean_facts(mean, settings.references, settings.draws),
        }
        return CalibratedMechanisms((mean.event(settings.draws),), facts)

    def rule(
        self, events: Sequence[PrivacyEvent], settings: TokenLevelParameters, meter: "BudgetMeter", rng: RandomSource
    ) -> "ResumableSamplingRule":
        """Return the sampling rule: one noisy mean for each token."""
        from tasks.systems.summaries.token_level_rule import TokenLevelRule

        return TokenLevelRule(
            mechanism=NoisyMean.from_event(events[0]),
            public_draw=public_sampler(settings.temperature),
            references=settings.references,
            top_k=settings.top_k,
            space=settings.space,
            centre=settings.centre,
            rng=rng,
            meter=meter,
        )


def affordable_clip_norm(rho: int, draws: int, references: int, noise: Decimal) -> Decimal:
    """Return the largest clip norm for which `rho` (units of 1e-12) buys at most `noise`: C = s n sqrt(2 rho / T).

    Three digits, rounded down; at least 1e-9, at which the mechanism reports that nothing is affordable.

    Args:
        noise: s, the standard deviation of the noise on each entry of a mean.
    """
    clip_norm = noise * references * (Decimal(2 * rho) / (draws * RHO_UNIT)).sqrt(_EXACT)
    return max(_SHOWN.plus(clip_norm), Decimal("1e-9"))


def mean_facts(mean: NoisyMean, references: int, draws: int, entries: int | None = None) -> dict[str, str]:
    """Return the public parameters of a release of noisy means, for people.

    Args:
        entries: number of entries of a mean, if known before the model is loaded.
    """
    noise = decimal_above(mean.sigma / references, 6)
    length = (
        {} if entries is None else {"length of the noise on a mean": f"about {noise * Decimal(entries).sqrt():.1f}"}
    )
    return {
        "clip norm C": format(decimal_above(mean.clip_norm, 6), "f"),
        "noise on each entry of a mean": format(noise, "f"),
        **length,
        "rho per mean": mean.loss().rho_text,
        "mu of Gaussian differential privacy": format(decimal_above(Fraction(mean.gdp_mu(draws)), 6), "f"),
    }


MEANS = "noisy_means"
"""Journal key of the means of all groups: float32, little-endian, in base 64."""


TEMPLATES = (
    "The model was given these templates, with `{description}` and `{label}` filled in. In place of `{reference}` it"
    " was given no text, but the soft tokens that the adapter made from the noisy mean of a group. The parameters"
    " below give the words in which it had read the private texts, one at a time (`documents are read as`):"
)


class UsedAdapter(RequestModel):
    """Adapter of a stored request: its meta data, and the digest that also covers its tensors."""

    sha256: Digest
    meta: AdapterMeta


class OneShotParameters(PrivateDecodingParameters):
    """`parameters:` of a request; all of them are public.

    Attributes:
        adapter: in a request file, the name or digest of an adapter of this machine.
        clip_norm: C; the adapter's own suggestion by default.
        shots: k noisy means at a k-th of the budget, each made into soft tokens, which are averaged.
    """

    adapter: UsedAdapter
    clip_norm: Annotated[ExactDecimal, Field(gt=0, le=10**9)] | None = None
    shots: Annotated[int, Field(ge=1, le=1000)] = 1

    @property
    def draws_per_text(self) -> int:
        """Number of noisy means of one group."""
        return self.shots


class OneShotSummary(ChargedSystem[OneShotParameters]):
    """The system `one_shot_summary`."""

    name: str = "one_shot_summary"
    kinds: tuple[str, ...] = (ReleaseKind.SUMMARIES,)
    parameters: type[BaseModel] = OneShotParameters
    summary_temperature = Decimal("0.3")
    templates_sentence = TEMPLATES
    unused_templates = ("public",)  # it has no public rows with another prompt

    def resolve_names(self, request: ReleaseRequest) -> ReleaseRequest:
        """Fill in the adapter's facts: its wording, its clip norm, and the payment of all means in one instalment.

        Raises:
            AdapterUnknown, AdapterAmbiguous, AdapterDamaged: the adapter is not on this machine.
            AdapterUnfit: it belongs to another model.
            AdapterPromptDiffers: the request states another prompt than the adapter's.
            AdapterUnlabelled: its prompt has no place for the subject of a group.
        """
        requested_adapter = request.parameters.get("adapter")
        reference = requested_adapter.get("sha256") if isinstance(requested_adapter, Mapping) else requested_adapter
        if not isinstance(reference, str):
            return request  # the parameters' own validation reports it
        adapter = find_adapter(reference)
        require_fit(adapter, request.model)
        _require_worded(adapter, request)
        defaults = {
            "clip_norm": adapter.meta.clip_norm,
            "max_reference_tokens": adapter.meta.max_reference_tokens,
            "instalment": request.parameters.get("shots", 1),
        }
        used = model_to_json(UsedAdapter(sha256=adapter.digest, meta=adapter.meta))
        words = {"system": adapter.meta.wording.system, "private": adapter.meta.wording.private}
        return request.model_copy(
            update={
                "parameters": {**defaults, **request.parameters, "adapter": used},
                "prompt": request.prompt.model_copy(update=words),
            }
        )

    def contradiction(
        self, parameters: BaseModel, model: tuple[str, str], prompt: Mapping[str, str | None]
    ) -> str | None:
        """Model and prompt are those of the adapter, whose digest covers them: a record may not state others."""
        if not isinstance(parameters, OneShotParameters):
            return None
        adapter = parameters.adapter.meta
        if model != (adapter.model, adapter.model_digest):
            return "its adapter belongs to another model"
        if any(prompt.get(name) != getattr(adapter.wording, name) for name in ("description", "system", "private")):
            return "its adapter was trained with another prompt"
        return None

    def plan(self, ask: PlanInputs) -> Plan:
        """Plan as every charged system; private rows are read once."""
        plan = super().plan(ask)
        return replace(plan, reading_rows=plan.rows - plan.samples)

    def calibrate(self, rho: int, settings: OneShotParameters) -> CalibratedMechanisms:
        """Calibrate the noisy mean with the least noise that m k draws afford.

        Raises:
            NoiseInvalid, MeanInvalid: only noise is affordable, or the clip norm is out of range.
            TokenDrawInvalid: the temperature is out of range.
        """
        public_sampler(settings.temperature)  # refused now, not after something has been spent
        meta = settings.adapter.meta
        mean = calibrate_mean(rho, settings.draws, settings.clip_norm or meta.clip_norm)
        facts = {
            "tokens per text": str(settings.max_new_tokens),
            "top k": top_k_text(settings.top_k),
            "means per group k": str(settings.shots),
            "adapter": f"{meta.name}, SHA-256 {settings.adapter.sha256}",
            "adapter trained on": _declared_public(meta),
            "adapter's centres and dimensions": f"{meta.centres}, {meta.dimensions}",
            "soft tokens": str(meta.soft_tokens),
            "documents are read as": meta.wording.reading_private + " " + meta.wording.reading_opening,
            **mean_facts(mean, settings.references, settings.draws, meta.vector_width),
        }
        return CalibratedMechanisms((mean.event(settings.draws),), facts)

    def generate(self, plan: Plan, parameters: BaseModel, context: RunContext) -> Generated:
        """Draw the means, or take those of an interrupted run, and generate texts from them.

        Raises:
            AdapterUnknown, AdapterDamaged, AdapterUnfit: the adapter cannot be used here.
            AdapterChanged: it is not the adapter of the request.
            ContextTooLong, ControlTokens, NoChatTemplate: the prompts do not fit the model.
            RowsNotIsolated, NotEnoughMemory: this device cannot process them.
            LabelsNotKept: the version has no groups. None of these has armed anything.
        """
        from tasks.decoding.public_sampling import PublicSampling, draw_public_texts
        from tasks.decoding.sentence_completion import completion_figures
        from tasks.inference.structured_output.grammar_constraint import constraint_for

        settings, layout = self._settings_and_layout(parameters, len(plan.blocks))
        adapter = load_adapter(_adapter_of_request(settings), context.engine.model)
        context.corpus.require_labels()
        constraint = constraint_for(settings, context.engine.model, settings.max_new_tokens)
        reading, prompts = _Reading.of(settings, adapter, context), _prompts(settings, adapter, context)
        means = _means(plan, settings, layout, reading, context)
        noise = float(NoisyMean.from_event(plan.invocations[0].event).sigma) / settings.references
        writing = _writing(adapter, means, noise, context)
        sampling = PublicSampling(
            settings.max_new_tokens,
            settings.temperature,
            settings.top_k,
            completion_tokens=settings.completion_tokens,
        )
        texts = draw_public_texts(writing, prompts, sampling, constraint)
        return Generated(with_labels(texts, layout.labels_of_texts(settings.names)), completion_figures(texts))


def _declared_public(meta: AdapterMeta) -> str:
    """Return the declared training data, which stewards and readers must trust: an adapter does not show its source."""
    training = meta.training
    return f"{training.file}, SHA-256 {training.sha256}, declared to be public, licence: {training.licence}"


def _means(
    plan: Plan, settings: OneShotParameters, layout: Layout, reading: "_Reading", context: RunContext
) -> "Tensor":
    """Return the noisy means of all groups, float32 [G, k, c * r]: of an interrupted run, or drawn here."""
    import torch

    from tasks.common.array_encoding import array_of, text_of

    shape = (len(settings.groups), settings.shots, settings.adapter.meta.vector_width)
    if MEANS in context.earlier.released:
        stored = array_of(context.earlier.released[MEANS], "<f4")
        return torch.tensor(stored.reshape(shape))
    mechanism = NoisyMean.from_event(plan.invocations[0].event)
    for instalment in range(len(plan.invocations[0].instalments)):
        context.arm(0, instalment)  # paid before the first private byte is read
    means = torch.stack(list(reading.means(mechanism, settings, layout, context)))
    text = text_of(means.numpy(), "<f4")
    context.journal.begin(len(plan.invocations), {MEANS: text})
    return means


class _Reading:
    """Public parts of the rows in which documents are read, in sizes that the model can take."""

    def __init__(self, adapter: "Adapter", pieces: Sequence[Any], sizes: Any) -> None:
        self.adapter, self.pieces, self.sizes = adapter, pieces, sizes

    @classmethod
    def of(cls, settings: OneShotParameters, adapter: "Adapter", context: RunContext) -> "_Reading":
        """Build prompts and sizes; a prompt that does not fit is refused here, before anything is spent."""
        from tasks.inference.engine.hidden_states import ready_to_read
        from tasks.inference.engine.shapes import Sizes

        model, wording = context.engine.model, adapter.meta.wording
        pieces = [reading_pieces(model.tokenizer, wording, shown) for shown in settings.shown]
        sizes = Sizes.of(pieces, pieces, settings.max_reference_tokens, 1, settings.references)
        sizes.check_fits(model)
        ready_to_read(context.engine, sizes)
        return cls(adapter, pieces, sizes)

    def means(
        self, mechanism: NoisyMean, settings: OneShotParameters, layout: Layout, context: RunContext
    ) -> "Iterable[Tensor]":
        """Yield for each group its k noisy means, float32 [k, c * r]; the armed amounts pay for them."""
        from tasks.inference.engine.hidden_states import last_hidden

        references = list(_references(settings, layout, context))
        states = last_hidden(context.engine, self.pieces, references, self.sizes)
        for done, rows in enumerate(states, 1):
            yield self._of_group(mechanism, settings, rows, context.rng)
            context.progress("groups", done, len(self.pieces))

    def _of_group(
        self, mechanism: NoisyMean, settings: OneShotParameters, rows: "RowHidden", rng: RandomSource
    ) -> "Tensor":
        import torch

        from tasks.systems.summaries.token_level_rule import noisy_means

        vectors = self.adapter.represent(rows.values, rows.valid)
        cpu_rows = type(rows)(vectors, torch.zeros_like(rows.generation).cpu(), rows.valid.cpu())
        shots = [noisy_means(mechanism, vectors, cpu_rows, 1, settings.references, rng) for _ in range(settings.shots)]
        return torch.cat(shots)


def _references(settings: OneShotParameters, layout: Layout, context: RunContext) -> Iterable[list[tuple[int, ...]]]:
    """Yield for each group the tokens of its units' documents."""
    tokens = partial(
        reference_tokens, context.engine.model.tokenizer, max_reference_tokens=settings.max_reference_tokens
    )
    for units in rows_of(layout.sources(), 1, settings, context):
        yield [tokens(unit.text) for unit in units]


def _prompts(settings: OneShotParameters, adapter: "Adapter", context: RunContext) -> list[tuple[int, ...]]:
    """Return for each group the prompt with its soft tokens; too long ones are refused before anything is spent."""
    from tasks.inference.engine.shapes import Sizes

    model, size = context.engine.model, adapter.meta.soft_tokens
    pieces = [writing_pieces(model.tokenizer, adapter.meta.wording, shown) for shown in settings.shown]
    firsts = range(model.vocabulary, model.vocabulary + size * len(pieces), size)
    prompts = [piece.around(tuple(range(first, first + size))) for piece, first in zip(pieces, firsts, strict=True)]
    Sizes.of([PromptPieces((), prompt) for prompt in prompts], [], 0, settings.max_new_tokens).check_fits(model)
    return prompts


def _writing(adapter: "Adapter", means: "Tensor", noise: float, context: RunContext) -> RunContext:
    """Return a run context whose model has the soft tokens of all groups."""
    import torch

    from tasks.inference.engine.engine import Engine

    soft = [torch.stack([adapter.soft_tokens(mean, noise) for mean in shots]).mean(0) for shots in means]
    # The models of other processes lack these tokens.
    engine = Engine(context.engine.model.with_soft_tokens(torch.cat(soft)), memory=context.engine.memory)
    return replace(context, engine=engine, workers=None)


def _adapter_of_request(settings: OneShotParameters) -> KnownAdapter:
    """Return the adapter of this machine with the digest of the request, which covers its meta data."""
    adapter = find_adapter(settings.adapter.sha256)
    if adapter.meta != settings.adapter.meta:
        raise UsageError(
            f"The request describes the adapter {adapter.meta.name!r} differently from the adapter's own file.",
            "Submit it again with the adapter's name.",
            {"adapter": adapter.digest},
            code="AdapterChanged",
        )
    return adapter


def _require_worded(adapter: KnownAdapter, request: ReleaseRequest) -> None:
    """Check that the prompt that the request states is the one that the model gets."""
    prompt, wording = request.prompt, adapter.meta.wording
    for name in ("description", "system", "private"):
        requested_text = getattr(prompt, name)
        if requested_text is not None and requested_text != getattr(wording, name):
            raise UsageError(
                f"`prompt.{name}` differs from the prompt that the adapter {adapter.meta.name!r} was trained with.",
                f"Use {getattr(wording, name)!r}, or train an adapter with your prompt.",
                {"adapter": adapter.digest, "field": name},
                code="AdapterPromptDiffers",
            )
    if LABEL not in Template.read("private", wording.private).places:
        raise UsageError(
            f"The adapter {adapter.meta.name!r} was trained without the subject of a group in its prompt.",
            "Give every line of its training file an `about`, and train it again. See docs/adapters.md.",
            {"adapter": adapter.digest},
            code="AdapterUnlabelled",
        )
