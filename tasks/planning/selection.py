"""Selection of the texts that a release publishes: what a request may ask for, from public facts alone.

A release with `selection` draws `samples` texts, each from a batch of its own, and publishes the best `keep` of them
(`tasks.evaluation.selection`). Batches are disjoint, so the number of drawn texts does not change what one unit is
charged: all that is drawn is charged, and the claim is about all of it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from pydantic import BaseModel

from models_db.errors import UsageError
from models_db.values.requests import Selection
from tasks.planning.label_allocation import allocate
from tasks.values.plan import Plan
from tasks.values.release_kinds import ReleaseKind

KINDS: Final = (ReleaseKind.SYNTHETIC_CORPUS, ReleaseKind.DEMONSTRATIONS)
"""Kinds whose texts are running text, one beside the other, so that some of them can be left out."""

NUMBERS_OF_TEXTS: Final = "texts_"
"""Beginning of the names of figures of a selection, which are whole numbers of texts."""
DRAWN: Final = f"{NUMBERS_OF_TEXTS}drawn"
LEFT_OUT: Final = f"{NUMBERS_OF_TEXTS}left_out_"
"""Beginning of the names of the numbers of texts that a selection has left out; a reason follows."""
IN_DOUBT: Final = f"{NUMBERS_OF_TEXTS}published_in_doubt"
SURPLUS: Final = "surplus"
"""Reason of texts that fail no criterion and were drawn last."""

SELECTING_MECHANISMS: Final = frozenset({"private_evolution"})
"""Mechanisms that select their texts themselves, by noisy votes of the units."""


def require_selection(
    selection: Selection | None, kind: str, mechanism: str, parameters: BaseModel, *, external: bool
) -> None:
    """Check that a request of that kind, with these parameters, can publish a selection of its texts.

    Args:
        external: whether the request's model is behind an API, so that this machine cannot score texts under it.

    Raises:
        SelectionUnfit: the kind, the mechanism, a form or the model do not allow it.
        KeepTooLarge: more texts are to be kept than are drawn.
        KeepTooSmall: there are more labels than texts to be kept.
    """
    if selection is None:
        return
    if kind not in KINDS:
        raise SelectionUnfit(f"a release of kind {kind!r} has none to spare", f"Kinds that have: {', '.join(KINDS)}.")
    if mechanism in SELECTING_MECHANISMS:
        raise SelectionUnfit(
            f"{mechanism!r} selects its texts itself, by noisy votes", "Leave `selection` out of the request."
        )
    if getattr(parameters, "form", None) is not None:
        raise SelectionUnfit(
            "texts of a form have their words in common, and all would count as duplicates",
            "Leave `selection` or `parameters.form` out of the request.",
        )
    if external and "perplexity" in selection.criteria:
        raise SelectionUnfit(
            "`perplexity` is that of the request's model, and this one is behind an API",
            "Name the other criteria: `criteria: [nonsense, duplicates, prompt, identifiers]`.",
        )
    samples, labels = int(getattr(parameters, "samples", 0)), tuple(getattr(parameters, "labels", ()))
    if selection.keep > samples:
        raise KeepTooLarge(selection.keep, samples)
    if selection.keep < len(labels):
        raise KeepTooSmall(selection.keep, len(labels))


def reasons_of(selection: Selection) -> tuple[str, ...]:
    """Return the reasons for which a selection leaves texts out, at last that of texts that fail none."""
    last = "perplexity" if "perplexity" in selection.criteria else SURPLUS
    return (*(criterion for criterion in selection.criteria if criterion != last), last)


def published_texts(selection: Selection | None, samples: int) -> int:
    """Return how many of `samples` drawn texts a release publishes."""
    return samples if selection is None else min(selection.keep, samples)


def with_selection_fact(plan: Plan, selection: Selection | None) -> Plan:
    """Return the plan with the selection among its public parameters, where there is one."""
    if selection is None:
        return plan
    fact = f"{selection.keep} of {plan.samples}, selected by {', '.join(selection.criteria)}"
    return replace(plan, facts={**plan.facts, "texts published": fact})


def kept_per_label(keep: int, labels: Sequence[str | None]) -> Mapping[str | None, int]:
    """Return how many texts of each label are kept: in proportion to those drawn, by largest remainders.

    Which label a drawn text has follows from the request, or from a released histogram, and so do these numbers. Ties
    go to the label that comes first. Where there is one for each, no label loses all its texts.

    Args:
        keep: of all labels together, at most `len(labels)`.
        labels: the label of each drawn text; None for all where there are no labels.

    >>> kept_per_label(4, ["a", "a", "a", "b", "b", "b"])
    {'a': 2, 'b': 2}
    """
    drawn = Counter(labels)
    kept = allocate(keep, list(drawn.values()), minimum=int(keep >= len(drawn)))
    return dict(zip(drawn, kept, strict=True))


class SelectionUnfit(UsageError):
    """A selection in a request whose texts cannot be selected."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(f"The request has a `selection` of its texts, and {reason}.", advice, {"reason": reason})


class KeepTooLarge(UsageError):
    """More texts to be kept than are drawn."""

    def __init__(self, keep: int, samples: int) -> None:
        super().__init__(
            f"`selection.keep` is {keep}, and the request draws {samples} texts.",
            f"Raise `parameters.samples` above {keep}, which costs time and no more of the budget, or keep fewer.",
            {"keep": keep, "samples": samples},
        )


class KeepTooSmall(UsageError):
    """Fewer texts to be kept than there are labels."""

    def __init__(self, keep: int, labels: int) -> None:
        super().__init__(
            f"`selection.keep` is {keep}, and the request has {labels} labels: each keeps at least one text.",
            f"Keep at least {labels} texts, or declare fewer labels.",
            {"keep": keep, "labels": labels},
        )
