"""Notes of a plan: sentences that a reader needs beside its figures."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction

from models_db.values.requests import format_decimal
from tasks.accounting.zcdp import release_amount
from tasks.mechanisms.counts.noisy_count import calibrate_count
from tasks.planning.label_allocation import LabelAllocation
from tasks.pricing.alternatives import LEAST_POPULATION_OF_TOPICS, Alternative, PlanTerms
from tasks.pricing.influence import clip_norm_of, short_norm
from tasks.pricing.quote import Quote
from tasks.values.insight import margin_of_error
from tasks.values.release_kinds import TEXT_KINDS

EXAMPLES_HELP = (
    "Two public examples in `prompt.examples`, which you write yourself, helped texts more than any other wording"
    " (docs/requests.md); `--examples` reads a file of them."
)
COMPLETION_FORM = (
    "{model} has no usable chat template, so the requests have `prompt.form: completion`. Topics need a model that has"
    " one."
)
RECORDS_NEED_ROOM = (
    "The judgement was measured on free texts, without a schema. A record that comes near the token limit has its last"
    " fields shortened or filled up: `--tokens` is best at twice a typical record (docs/records.md)."
)
COMPLETIONS_NEED_EXAMPLES = (
    "A base model learns the kind of text from public examples: write two or three in `prompt.examples`, or give a file"
    " of them with `--examples` (docs/requests.md)."
)
NEXT_WORD_ALONE = (
    "The judgement is about the next word. It was measured with SmolLM2-135M, and whole texts may show less: at clip"
    " norms of 1.3 to 2.3 drawn reviews were closer to real ones than the public model's, short dialogues were not"
    " (docs/planning.md). `public_only` shows at no charge what the model writes by itself."
)
TEMPERATURE_MEASURED = (
    "Measured with SmolLM2-135M at epsilon 4: at temperature 0.7 instead of 1, the perplexity of texts was"
    " 9.2 [8.6, 9.9] instead of 22.3 [20.2, 24.5] on mts_dialog, and 10.1 [8.8, 11.3] instead of 27.3 [24.9, 30.1] on"
    " Yelp, at a clip norm 0.7 times as large (docs/utility.md)."
)
CLAIM_NOTE = (
    "The clip norm follows from the claim while the assignment is secret. The more batches a release has, the larger is"
    " the unconditional epsilon at the same claim, and with it the cost; it is what holds if the assignment gets out."
)


def notes_of(terms: PlanTerms, alternatives: Sequence[Alternative], *, declared: bool, groups: int = 0) -> list[str]:
    """Return notes that a reader needs beside the figures.

    Args:
        declared: whether the dataset declares the population; else a release buys a noisy count.
        groups: number of public groups in the dataset's catalogue.
    """
    notes = []
    texts = [one for one in alternatives if one.references is not None]
    if texts:
        notes.append(_rows_note(texts))
        notes.append(NEXT_WORD_ALONE)
        notes.append("Times are those of SmolLM2-135M on two cores; a larger model takes longer.")
        notes += _prompt_notes(terms)
        if terms.samples is not None and max(one.samples for one in texts) < terms.samples:
            most = max(one.samples for one in texts)
            notes.append(f"{terms.samples} texts were wanted; no more than {most} are of use or fit into the time.")
        if "max_new_tokens" in texts[0].quote.choices and terms.kind in TEXT_KINDS:
            reason = texts[0].quote.choices["max_new_tokens"]
            notes.append(f"The length of a text is chosen: {reason}. `--tokens T` sets another.")
        notes.append(_temperature_note(texts[0].quote))
        if len(terms.labels) > 1:
            notes.append(_labels_note(terms, texts[0].quote))
    if not declared:
        notes.append("No population is declared: the release buys a noisy count of the units at 1/500 of its rho.")
    if terms.population < LEAST_POPULATION_OF_TOPICS and texts:
        notes.append("Topics (`--kind insights`) need some thousand people; this population is too small for them.")
    if groups:
        notes.append(
            f"The dataset declares {groups} public groups: `kind: summaries` makes one text for each"
            " (docs/summaries.md)."
        )
    return notes


def _prompt_notes(terms: PlanTerms) -> Iterator[str]:
    """Yield notes about the form, the schema and the examples of the requests."""
    if terms.completion:
        yield COMPLETION_FORM.format(model=terms.model)
    if terms.record_schema is not None:
        yield RECORDS_NEED_ROOM
    elif not terms.examples:
        yield COMPLETIONS_NEED_EXAMPLES if terms.completion else EXAMPLES_HELP


def _temperature_note(quote: Quote) -> str:
    """Return where the temperature comes from, and what another one would change."""
    if "temperature" in quote.choices:
        return (
            f"Temperature 1 is chosen, {quote.choices['temperature']}. A lower one makes plainer texts and buys a"
            f" smaller clip norm: `--temperature 0.7` compares. {TEMPERATURE_MEASURED}"
        )
    return f"The judgement of the clip norm was measured at temperature 1. {TEMPERATURE_MEASURED}"


def _labels_note(terms: PlanTerms, quote: Quote) -> str:
    """Return what a proportional allocation of the texts to the labels would buy, and whether it is of use."""
    if terms.proportional:
        return f"Texts per label are {quote.plan.facts['texts per label']} (docs/requests.md)."
    epsilon, share = quote.request.epsilon or Decimal(0), LabelAllocation(method="proportional").share
    rho = int(Fraction(share) * release_amount(epsilon, terms.delta).rho)
    margin = margin_of_error(Decimal(float(calibrate_count(rho).sigma)))
    each = terms.population // len(terms.labels)
    use = "" if margin <= each else " The margin is larger than that: here it is of little use."
    return (
        "Each label has equally many texts. `label_allocation: {method: proportional}` shares them out as the corpus"
        f" has labels, for {format_decimal(share * 100)} % of rho: each count has a margin of"
        f" \N{PLUS-MINUS SIGN}{margin} units, of about {each} units a label (docs/requests.md).{use}"
    )


def _rows_note(texts: Sequence[Alternative]) -> str:
    norms = [clip_norm_of(one.quote.plan.facts) for one in texts]
    pairs = ", ".join(
        f"{one.references} references buy a clip norm of {short_norm(norm)}"
        for one, norm in zip(texts, norms, strict=True)
        if norm is not None and one.quote.request.epsilon == texts[0].quote.request.epsilon
    )
    if texts[0].quote.request.epsilon_while_secret is not None:
        return CLAIM_NOTE
    return f"Texts of one epsilon cost the same. The clip norm grows with the references at no further charge: {pairs}."
