"""Notes of a plan: sentences that a reader needs beside its figures."""

from collections.abc import Iterator, Sequence

from tasks.inference.catalogue.registry import RECOMMENDED
from tasks.pricing.alternatives import Alternative, PlanTerms

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
