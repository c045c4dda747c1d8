"""Alternatives of a plan: complete requests for one dataset and one claim, from more texts to better texts.

Those of one epsilon cost the same rho, and differ in how many units stand behind a text: at the same rho the clip norm
is proportional to the references B (PRIVACY §4.1), and a population of n units has about n / B texts of B units each.
Every alternative aims at one level of `tasks.planning.influence`. Where the population has units to spare, the last one
claims half the epsilon and makes up for it with references. Each is priced as a request is, by the function that
the caller gives, so its figures are those of a price, and what cannot be priced is never proposed.

Notes of a plan are sentences that a reader needs beside its figures (`notes_of`).

A plan is a function of public facts and of what its caller asks for. No text and no count of the corpus is read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

from models_db.errors import AlmonerError, UsageError
from models_db.values.canonical_json import Json
from models_db.values.requests import ReleaseRequest, format_decimal, model_to_json, parse_model
from tasks.analysis.keywords.expected_keywords import EXPECTED, SOME_KEYWORDS
from tasks.inference.catalogue.registry import RECOMMENDED
from tasks.planning.influence import MEASURED_CANDIDATES, InfluenceLevel, clip_norm_of, level_named
from tasks.planning.parameter_choices import (
    PROBE_REFERENCES,
    clip_norm_per_reference,
    fit_samples,
    references_for,
)
from tasks.pricing.quote import Quote
from tasks.pricing.rehearsed_shares import ExpectedShare, expected_shares
from tasks.pricing.request_warnings import LEAST_REFERENCES
from tasks.systems.base import System
from tasks.systems.registry import SYSTEMS
from tasks.values.results import TEXT_KINDS, ReleaseKind

LEAST_SAMPLES = 5
"""Fewest texts that are proposed where a plan names no number."""
PROBE_SAMPLES = 1_000_000
"""Texts of the request that prices one reference: enough for any number of blocks and labels."""
ROUNDS_OF_REFERENCES = 8
"""Prices at most by which the references are found that reach a level by the claim while the assignment is secret."""
LEAST_EPSILON = Decimal("0.1")
"""Least epsilon that is proposed."""
MOST_SAMPLES = 1000
"""Most texts that are proposed where a plan names no number: a steward reads what is released."""
PLANNED_KINDS = (*TEXT_KINDS, ReleaseKind.INSIGHTS)
LEAST_POPULATION_OF_TOPICS = 1000
"""Topics are for "at least some thousand people" (docs/insights.md)."""
UNITS_PER_CLUSTER = 100
"""k = n/100 is a good start (docs/insights.md)."""
FEWEST_CLUSTERS, MOST_CLUSTERS = 4, 64
METRICS_BY_KIND: Mapping[str, tuple[str, ...]] = {ReleaseKind.RECORDS: ("records", "length")}
DEFAULT_METRICS = ("length", "distinct")
"""Metrics of a plan of any other kind."""


@dataclass(frozen=True)
class PlanTerms:
    """Terms that every alternative of a plan must meet.

    Attributes:
        dataset: name of the dataset.
        model: name of the model.
        kind: one of PLANNED_KINDS.
        epsilon, delta: the claim of every alternative.
        epsilon_while_secret: the most that alternatives may claim while their assignment is secret, and what their
            budget is calibrated to then, within `epsilon`; those that make no such claim have it as their epsilon.
        population: number of units, declared or assumed by the caller; public.
        mechanisms: those that the policy allows; None for all.
        metrics: metrics that the policy requires.
        samples: most texts; None for as many as fit.
        max_new_tokens: T; None for the chosen one.
        temperature: of every text; None for the chosen one.
        labels: public labels of the texts.
        seconds: the longest estimated time; None for any.
        record_schema: JSON schema of records; None for other kinds.
        description: description of the texts for the model; public.
        examples: public examples of texts, which every row reads.
        completion: whether texts are completions, because the model has no usable chat template.
        price: the price of a request here and now.
    """

    dataset: str
    model: str
    kind: str
    epsilon: Decimal
    delta: Decimal
    population: int
    description: str
    price: Callable[[ReleaseRequest], Quote]
    mechanisms: tuple[str, ...] | None = None
    metrics: tuple[str, ...] = ()
    samples: int | None = None
    max_new_tokens: int | None = None
    temperature: Decimal | None = None
    labels: tuple[str, ...] = ()
    record_schema: Mapping[str, Json] | None = None
    examples: tuple[str, ...] = ()
    completion: bool = False
    seconds: int | None = None
    epsilon_while_secret: Decimal | None = None

    @property
    def sampling_parameters(self) -> dict[str, Any]:
        """Return the length and the temperature, as far as they are wanted and not chosen."""
        wanted = {"max_new_tokens": self.max_new_tokens, "temperature": self.temperature}
        return {name: value for name, value in wanted.items() if value is not None}

    @property
    def text_parameters(self) -> dict[str, Any]:
        """Return the parameters of a request about its labels and its records."""
        asked: dict[str, Any] = {"labels": list(self.labels)} if self.labels else {}
        if self.record_schema is not None:
            asked |= {"schema": dict(self.record_schema), "constrained": True}
        return asked

    @property
    def claim(self) -> str:
        """Return the epsilon that alternatives are calibrated to, in words."""
        if self.epsilon_while_secret is None:
            return f"epsilon {self.epsilon:f}"
        return f"epsilon {self.epsilon_while_secret:f} while the assignment is secret"

    @property
    def prompt(self) -> dict[str, Any]:
        """Return the prompt; topics use its description alone."""
        if self.kind not in TEXT_KINDS:
            return {"description": self.description}
        form = {"form": "completion"} if self.completion else {}
        return {"description": self.description, **form, **({"examples": self.examples} if self.examples else {})}

    @property
    def needs_examples(self) -> bool:
        """Return whether its texts lack public examples; records have a schema in their place, and topics no texts."""
        return self.kind in TEXT_KINDS and self.record_schema is None and not self.examples

    @property
    def with_half_the_epsilon(self) -> "PlanTerms | None":
        """Return the terms with half of that epsilon; None if it is too little to be proposed."""
        asked = self.epsilon_while_secret
        half = rounded_epsilon((self.epsilon if asked is None else asked) / 2)
        if half < LEAST_EPSILON:
            return None
        return replace(self, epsilon=half) if asked is None else replace(self, epsilon_while_secret=half)

    def claim_of(self, mechanism: str) -> dict[str, Decimal]:
        """Return the fields of a request by a mechanism that state its claim."""
        asked = self.epsilon_while_secret
        if asked is None:
            return {"epsilon": self.epsilon, "delta": self.delta}
        if not SYSTEMS[mechanism].reads_batches_by_draws_alone:
            return {"epsilon": min(self.epsilon, asked), "delta": self.delta}
        return {"epsilon": self.epsilon, "delta": self.delta, "epsilon_while_secret": asked}


@dataclass(frozen=True)
class Alternative:
    """One complete request.

    Attributes:
        name: what is different about it, in a word or two.
        quote: its price.
    """

    name: str
    quote: Quote

    @property
    def samples(self) -> int:
        """Number of texts, or of topics at most."""
        return self.quote.plan.samples

    @property
    def references(self) -> int | None:
        """B; None for topics."""
        return getattr(self.quote.parameters, "references", None)

    @property
    def tokens(self) -> int | None:
        """Most tokens of all texts together; None for topics."""
        length = getattr(self.quote.parameters, "max_new_tokens", None)
        return None if self.references is None or length is None else self.samples * length

    @property
    def judgement(self) -> str:
        """Return the expected quality as text: for texts by the clip norm, for topics by the expected keywords."""
        influence = self.quote.influence
        if influence is not None:
            return influence.sentence
        facts = self.quote.plan.facts
        return (
            f"Keywords to expect: {facts.get(EXPECTED, 'those of the public set')}. The size of a topic has"
            f" a standard deviation of {facts['standard deviation of a size']} units; topics of fewer than"
            f" {facts['smallest cluster']} are left out."
        )

    @property
    def expected_shares(self) -> tuple[ExpectedShare, ...]:
        """Share of the way from the public model to no privacy, by rehearsals of this clip norm.

        None for topics and for records: rehearsals were of free texts.
        """
        influence, request = self.quote.influence, self.quote.request
        if influence is None or ReleaseKind(request.kind) is ReleaseKind.RECORDS:
            return ()
        norm = float(influence.clip_norm) * float(influence.filled)
        clipping = getattr(self.quote.parameters, "clipping", None)
        return expected_shares(norm, request.model, request.mechanism, clipping)

    @property
    def request(self) -> dict[str, Json]:
        """The request as its author writes it, with every value that matters written out."""
        request, stored = self.quote.request, model_to_json(self.quote.parameters)
        written = {name: model_to_json(getattr(request, name)) for name in request.stored_fields}
        written.pop("evaluation_share", None)
        parameters = dict(request.parameters)
        if isinstance(stored, dict) and self.references is not None:
            parameters |= {name: stored[name] for name in _WRITTEN_OUT if name in stored}
        return {**written, "parameters": model_to_json(parameters)}


_WRITTEN_OUT = ("samples", "references", "max_new_tokens", "temperature", "top_k")


def plan_alternatives(terms: PlanTerms) -> tuple[Alternative, ...]:
    """Return the complete requests of a plan, the one with most texts first, the one with less epsilon last.

    Raises:
        InvalidPlan: the kind is not planned, or a number is out of range.
        PopulationTooSmall: no alternative is of use for so few units.
        TimeTooShort: the fewest texts that are proposed cannot be drawn in that time.
        MechanismsForbidden: the policy allows no mechanism that makes this kind of release.
        As `tasks.pricing.quote.quote`.
    """
    _require_plannable(terms)
    if terms.kind == ReleaseKind.INSIGHTS:
        return tuple(_topics(terms))
    system = _best_system(terms)
    probe = terms.price(_text_request(terms, system, PROBE_SAMPLES, PROBE_REFERENCES))
    return _Texts(terms, system, probe).alternatives()


def topics_alternative(terms: PlanTerms) -> Alternative | None:
    """Return topics instead of texts for the same claim; None if they are not allowed, or no keyword would do."""
    if terms.population < LEAST_POPULATION_OF_TOPICS or terms.labels:
        return None
    try:
        (only,) = _topics(replace(terms, kind=ReleaseKind.INSIGHTS))
    except AlmonerError:
        return None  # an offer beside the texts: where it cannot be priced, it is none
    return only if only.quote.plan.facts.get(EXPECTED, "").startswith(SOME_KEYWORDS) else None


def _require_plannable(terms: PlanTerms) -> None:
    if terms.kind not in PLANNED_KINDS:
        raise invalid_plan(f"Plans are made for {', '.join(PLANNED_KINDS)}, not for {terms.kind!r}.")
    if terms.kind == ReleaseKind.INSIGHTS and terms.labels:
        raise invalid_plan("Topics have no labels: leave labels and their allocation out, or plan texts.")
    if terms.kind == ReleaseKind.INSIGHTS and terms.examples:
        raise invalid_plan("Topics have no examples of texts: leave the examples out, or plan texts.")
    if (terms.kind == ReleaseKind.RECORDS) != (terms.record_schema is not None):
        raise invalid_plan(
            "Records need a schema, and nothing else has one: give `--kind records` and `--schema` both."
        )
    if terms.kind == ReleaseKind.RECORDS and terms.max_new_tokens is None:
        raise invalid_plan("Records need a token limit: give about twice the tokens of a typical record, `--tokens T`.")
    if terms.population < 1:
        raise invalid_plan("A population is at least 1.")


def _best_system(terms: PlanTerms) -> System:
    """Return the best system that the policy allows: one of rank 1 loses to no other at equal epsilon."""
    ranked = {
        system.plan_rank: system
        for name, system in SYSTEMS.own.items()
        if system.plan_rank is not None and terms.kind in system.kinds
        if terms.mechanisms is None or name in terms.mechanisms
    }
    if not ranked:
        raise _mechanisms_forbidden(terms.kind, terms.mechanisms or ())
    return ranked[min(ranked)]


def _request(terms: PlanTerms, mechanism: str, parameters: Mapping[str, Any]) -> ReleaseRequest:
    written = {
        "dataset": terms.dataset,
        "kind": terms.kind,
        "mechanism": mechanism,
        **terms.claim_of(mechanism),
        "model": terms.model,
        "parameters": dict(parameters),
        "prompt": terms.prompt,
        "evaluation": tuple(dict.fromkeys((*METRICS_BY_KIND.get(terms.kind, DEFAULT_METRICS), *terms.metrics))),
    }
    return parse_model(ReleaseRequest, written, "The plan", "docs/planning.md")


def _text_request(terms: PlanTerms, system: System, samples: int, references: int) -> ReleaseRequest:
    parameters = {
        **terms.text_parameters,
        "samples": samples,
        "references": references,
        **terms.sampling_parameters,
        **({"top_k": MEASURED_CANDIDATES} if system.depends_on_candidates else {}),
    }
    return _request(terms, system.name, parameters)


def _topics(terms: PlanTerms) -> Iterator[Alternative]:
    system = _best_system(terms)
    if terms.population < LEAST_POPULATION_OF_TOPICS:
        raise PopulationTooSmall(terms.population, LEAST_POPULATION_OF_TOPICS, "topics that several people share")
    count = min(max(terms.population // UNITS_PER_CLUSTER, FEWEST_CLUSTERS), MOST_CLUSTERS)
    parameters = {"clusters": {"count": count}}
    yield Alternative("topics", terms.price(_request(terms, system.name, parameters)))


@dataclass(frozen=True)
class _Texts:
    """Alternatives of texts, by the clip norm that one reference buys."""

    terms: PlanTerms
    system: System
    probe: Quote

    @property
    def levels(self) -> tuple[InfluenceLevel, ...]:
        """Levels that alternatives aim at, the lowest first."""
        table = self.system.influence_levels({})
        named = (level_named(table, name) for name in ("clearly", "strongly", "almost fully"))
        return tuple(level for level in named if level is not None)

    @property
    def slope(self) -> Fraction:
        """Clip norm of one reference."""
        return clip_norm_per_reference(self.probe.plan.facts)

    @property
    def cells(self) -> int:
        """Number of splits into batches: each has one text at least."""
        return len(self.probe.plan.blocks) * max(1, len(self.terms.labels))

    @property
    def least_samples(self) -> int:
        """Fewest texts of an alternative."""
        return max(self.cells, min(self.terms.samples or LEAST_SAMPLES, LEAST_SAMPLES))

    def alternatives(self) -> tuple[Alternative, ...]:
        """Price the alternatives, without repetitions."""
        self._require_population()
        sizes = dict.fromkeys(self._sizes())
        in_time = dict.fromkeys(fitted for size in sizes if (fitted := self._in_time(size)))
        if not in_time:
            shortest = min(self._price(self.least_samples, references).seconds for _, references in sizes)
            raise _time_too_short(self.terms.seconds or 0, shortest)
        alternatives = _named([self._price(*size) for size in in_time])
        balanced = next((one for one in alternatives if one.name == "balanced"), None)
        return (*alternatives, *(self._cheaper(balanced) if balanced else ()))

    def _cheaper(self, balanced: Alternative) -> Iterator[Alternative]:
        """Yield the balanced alternative at half the epsilon, if the population has enough units for as many texts."""
        terms = self.terms.with_half_the_epsilon
        if terms is None:
            return
        probe = terms.price(_text_request(terms, self.system, PROBE_SAMPLES, PROBE_REFERENCES))
        cheaper = _Texts(terms, self.system, probe)
        size = balanced.samples, cheaper.references(cheaper.levels[-2])
        if self.terms.population // size[1] >= size[0] and cheaper._in_time(size) == size:
            yield Alternative("half the epsilon", cheaper._price(*size))

    def references(self, level: InfluenceLevel) -> int:
        """Fewest references that reach a level."""
        return self._references[level]

    @cached_property
    def _references(self) -> Mapping[InfluenceLevel, int]:
        return {level: self._references_for(level) for level in self.levels}

    def _references_for(self, level: InfluenceLevel) -> int:
        """Return the fewest references that reach a level.

        By the claim while the assignment is secret, a reference buys less the more there are: larger batches are fewer,
        and hide less. Then a price with so many of them says how many more are needed, until none is.
        """
        found = max(LEAST_REFERENCES, references_for(level.clip_norm, self.slope))
        if "epsilon_while_secret" not in self.terms.claim_of(self.system.name):
            return found
        for _ in range(ROUNDS_OF_REFERENCES):
            norm = clip_norm_of(self._price(self._most_texts(found), found).plan.facts)
            needed = found if norm is None else references_for(level.clip_norm, Fraction(norm) / found)
            if needed <= found or self.terms.population < needed * self.least_samples:
                return max(needed, found)
            found = needed
        return found

    def _most_texts(self, references: int) -> int:
        """Return how many texts of so many references are proposed."""
        wanted, possible = self.terms.samples, self.terms.population // references
        if wanted is not None and self.cells <= wanted <= possible:
            return wanted
        return fit_samples(possible, MOST_SAMPLES if wanted is None else wanted, self.cells)

    def _require_population(self) -> None:
        references, texts = self.references(self.levels[0]), self.least_samples
        if self.terms.population < texts * references:
            sought = f"{texts} text{'s' if texts > 1 else ''} of {references} references each"
            length = getattr(self.probe.parameters, "max_new_tokens", 0)
            raise PopulationTooSmall(
                self.terms.population,
                texts * references,
                f"{sought}, at {self.terms.claim}, delta {self.terms.delta:f} and {length} tokens a text,",
            )

    def _sizes(self) -> Iterator[tuple[int, int]]:
        """Yield texts and references of each alternative, most texts first."""
        population = self.terms.population
        for level in self.levels:
            references = self.references(level)
            if population // references >= self.least_samples:
                yield self._most_texts(references), references

    def _in_time(self, size: tuple[int, int]) -> tuple[int, int] | None:
        """Return as many of the texts as can be drawn in time; None if the fewest that are proposed cannot."""
        samples, references = size
        limit = self.terms.seconds
        while limit is not None and (seconds := self._price(samples, references).seconds) > limit:
            if samples <= self.least_samples:
                return None
            samples = max(self.least_samples, fit_samples(samples * limit // seconds, samples - 1, self.cells))
        return samples, references

    def _price(self, samples: int, references: int) -> Quote:
        return self.terms.price(_text_request(self.terms, self.system, samples, references))


def _named(quotes: Sequence[Quote]) -> tuple[Alternative, ...]:
    """Name the alternatives by their place: from most texts, or least time, to the best texts."""
    more = "more texts" if quotes[0].plan.samples > quotes[-1].plan.samples else "quicker"
    names = {1: ("the one that fits",), 2: (more, "better texts"), 3: (more, "balanced", "better texts")}
    return tuple(Alternative(name, quote) for name, quote in zip(names[len(quotes)], quotes, strict=True))


def invalid_plan(message: str) -> UsageError:
    """Return the error of a plan with terms that no plan supports."""
    return UsageError(
        message, "See docs/planning.md, or write the request yourself (docs/requests.md).", code="InvalidPlan"
    )


class PopulationTooSmall(UsageError):
    """Too few units for a release of any use."""

    def __init__(self, population: int, smallest: int, sought: str) -> None:
        super().__init__(
            f"A population of {population} is too small for a release of use: {sought} need {smallest} units.",
            f"The smallest population that would do is {smallest}. Fewer or shorter texts (`--samples`, `--tokens`)"
            " need fewer units; so does more epsilon, which weakens everybody's protection.",
            {"population": population, "smallest": smallest},
        )


def _time_too_short(limit: int, least: int) -> UsageError:
    return UsageError(
        f"The smallest release takes about {least} s on two cores, and the plan allows {limit} s.",
        f"Allow at least {least} s with `--time`, or ask for shorter texts with `--tokens`.",
        {"seconds": limit, "least": least},
        code="TimeTooShort",
    )


def _mechanisms_forbidden(kind: str, allowed: Sequence[str]) -> UsageError:
    return UsageError(
        f"The policy allows no mechanism that plans of kind {kind!r} use; it allows {', '.join(allowed)}.",
        "Write the request with an allowed mechanism (docs/requests.md), or ask an admin about the policy.",
        {"kind": kind, "allowed": list(allowed)},
        code="MechanismsForbidden",
    )


def rounded_epsilon(epsilon: Decimal) -> Decimal:
    """Return an epsilon, for people,: rounded down to a half from 2 on, to a tenth from 0.1 on, else to 0.01."""
    step = Decimal("0.5") if epsilon >= 2 else Decimal("0.1") if epsilon >= Decimal("0.1") else Decimal("0.01")
    return Decimal(format_decimal(epsilon // step * step))


EXAMPLES_NEEDED = (
    "Every text needs two public examples in the prompt, which help most (docs/requests.md): `--examples` reads a file"
    " of them, and without it a written request has two places for them."
)
COMPLETION_FORM = "{model} has no usable chat template, so the requests have `prompt.form: completion`."
RECORDS_NEED_ROOM = (
    "A record that comes near the token limit has its last fields shortened or filled up: `--tokens` is best at twice a"
    " typical record (docs/records.md)."
)
READ_TEXTS = {
    "qwen2.5-coder-1.5b-instruct": (
        "coherent texts. At epsilon 4, 6 of 6 dialogues and, with two examples, 10 of 10 discharge summaries were; the"
        " model's texts without any private text were as often"
    ),
    "gemma3-270m": (
        "coherent texts where they are short. At epsilon 4 with two examples, 15 of 20 notes were, and about a third of"
        " dialogues and reviews"
    ),
    "smollm2-135m-instruct": (
        "texts about the subject, but few of its kind. At epsilon 4, 5 of 20 short notes with two examples were"
        " coherent, and no dialogue or review"
    ),
}
"""What to expect of a model, as readers judged its texts (docs/utility.md#read-blind, docs/models.md)."""
CLAIM_NOTE = (
    "The clip norm follows from the claim while the assignment is secret. The more batches a release has, the larger is"
    " the unconditional epsilon at the same claim, and with it the cost; it is what holds if the assignment gets out."
)


def verdict(terms: PlanTerms, alternatives: Sequence[Alternative]) -> str:
    """Return what to expect of a plan's texts or topics, in words of texts."""
    if all(one.references is None for one in alternatives):
        return "Expect names of subjects that many people share, with noisy counts; nothing that few people wrote."
    expected = READ_TEXTS.get(terms.model, "nobody has read texts of this model blind, so rehearse first")
    return f"Expect of {terms.model}: {expected}."


def notes_of(terms: PlanTerms, alternatives: Sequence[Alternative], *, declared: bool, groups: int = 0) -> list[str]:
    """Return notes that a reader needs beside the figures.

    Args:
        declared: whether the dataset declares the population; else a release buys a noisy count.
        groups: number of public groups in the dataset's catalogue.
    """
    notes: list[str] = []
    texts = [one for one in alternatives if one.references is not None]
    if texts:
        notes += _prompt_notes(terms)
        if terms.epsilon_while_secret is not None:
            notes.append(CLAIM_NOTE)
        if terms.samples is not None and (most := max(one.samples for one in texts)) < terms.samples:
            notes.append(
                f"{terms.samples} texts were wanted; no more than {most} are of use or fit into the time: with fewer"
                " people behind a text, expect the public model's own texts."
            )
    if not declared:
        notes.append("No population is declared: the release buys a noisy count of the units at 1/500 of its rho.")
    if groups:
        notes.append(
            f"The dataset declares {groups} public groups: `kind: summaries` makes one text for each"
            " (docs/summaries.md)."
        )
    return notes


def _prompt_notes(terms: PlanTerms) -> Iterator[str]:
    """Yield notes about the model, the form, the schema and the examples of the requests."""
    if terms.model == RECOMMENDED[-1]:
        better = RECOMMENDED[0]
        yield (
            f"{terms.model} is the small stand-in. {better} writes better texts: take it with `--model`, after `almoner"
            f" models pull {better}`."
        )
    if terms.completion:
        yield COMPLETION_FORM.format(model=terms.model)
    if terms.record_schema is not None:
        yield RECORDS_NEED_ROOM
    elif terms.needs_examples:
        yield EXAMPLES_NEEDED
