"""Selection of the texts that a release publishes, by public criteria.

Why it costs nothing. The mechanisms of a release have drawn all of its texts, and all of them are charged. What is
published is a function of those texts and of public facts: the request and the public model. A function of the output
of a differentially private mechanism that does not look at the data again is private with the same parameters
(post-processing: Dwork and Roth, "The Algorithmic Foundations of Differential Privacy", 2014, proposition 2.1). The
numbers of texts that were left out, with their reasons, are such a function too. So the claim is that of all drawn
texts, and it covers the published ones.

What it must not read, or the sentence above is false: the corpus, its keys, sizes or labels; the logits of private
rows; anything that is computed from them, such as internal metrics. Nothing here imports `tasks.corpus`, and no
argument of `select` leads there. "Likeness to the corpus" can therefore never be a criterion.

The rule. Each text fails at most one criterion, the most severe in the order of `SELECTION_CRITERIA`:

* `nonsense`: it is empty, repeats itself or has hardly any words (`tasks.text.doubts`);
* `duplicates`: its shingles have a resemblance of `ALIKE` or more with those of an earlier text, neither nonsense
  nor itself a duplicate (Broder, "On the resemblance and containment of documents", SEQUENCES 1997, section 2);
* `prompt`: it copies six words in a row of the prompt, or answers it: a refusal, assistant talk, a placeholder;
* `identifiers`: it has an e-mail or web address, a telephone number or a long number.

Texts that fail none come first. With `perplexity`, those come first among them whose log-loss per token under the
public model is closest to the median of these texts. Both ends are bad: text that the model finds far too likely is
worn or repeats itself, text that it finds far too unlikely holds tokens that only noise has chosen (the likeliest text
is not the best one: Holtzman et al., "The Curious Case of Neural Text Degeneration", ICLR 2020; Meister et al.,
"Locally Typical Sampling", TACL 2023). The median is that of the release itself, so nothing has to be set for
a model or a domain. Without `perplexity`, and at ties, the text that was drawn first comes first.

A release has exactly as many texts as its request says, so a text that fails is published where too few pass: those
that fail the least severe criterion come first. How many were is released as well.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from statistics import median
from typing import Final

from models_db.values.requests import SELECTION_CRITERIA, Selection, SelectionCriterion
from tasks.evaluation.core.subject import ReleasedText, Scorer
from tasks.planning.selection import DRAWN, IN_DOUBT, LEFT_OUT, kept_per_label, reasons_of
from tasks.text.doubts import find_doubts
from tasks.text.shingles import Shingle, shingles

ALIKE: Final = 0.5
"""Resemblance (Jaccard similarity of 4-word shingles) from which a text counts as a duplicate of an earlier one.

Of 400 real news items of AG's corpus, cut to 48 tokens, no two had more than 0.37, and of 72 drawn ones no two had more
than 0.03: what lies above a half is no coincidence of a domain.
"""

CRITERION_OF_DOUBT: Final[Mapping[str, SelectionCriterion]] = {
    "empty": "nonsense",
    "repeats itself": "nonsense",
    "hardly any words": "nonsense",
    "copies the prompt": "prompt",
    "refusal": "prompt",
    "placeholder": "prompt",
    "assistant talk": "prompt",
    "e-mail address": "identifiers",
    "web address": "identifiers",
    "long number": "identifiers",
    "telephone number": "identifiers",
}
"""Criterion that each doubt belongs to."""

_DECIMALS = 3
"""Places to which log-losses are compared: scores of one text differ by about 1e-5 with what is scored beside it."""


@dataclass(frozen=True)
class Selected:
    """Outcome of a selection.

    Attributes:
        places: of the published texts among the drawn ones, ascending.
        left_out: the number of texts that were left out, for each reason (`tasks.planning.selection.reasons_of`).
        in_doubt: the number of published texts that fail a criterion.
    """

    places: tuple[int, ...]
    left_out: Mapping[str, int]
    in_doubt: int

    @property
    def figures(self) -> dict[str, str]:
        """The figures as a release has them (`tasks.release.record.RELEASED_FIGURES`)."""
        counts = {f"{LEFT_OUT}{reason}": count for reason, count in self.left_out.items()}
        drawn = len(self.places) + sum(self.left_out.values())
        figures = {DRAWN: drawn, **counts, IN_DOUBT: self.in_doubt}
        return {name: str(figure) for name, figure in figures.items()}


def select(
    texts: Sequence[ReleasedText], selection: Selection, prompt: tuple[str, ...], score: Scorer | None = None
) -> Selected:
    """Select the texts that are published; a function of the arguments alone.

    Args:
        texts: all that were drawn, in their public order, with their public labels.
        prompt: the public passages that a text may have been copied from.
        score: log-likelihoods under the public model; needed for `perplexity`.

    Raises:
        ValueError: `perplexity` is a criterion, and there is no scorer.
    """
    failed = failed_criteria([text.text for text in texts], selection, prompt)
    sound = [place for place, criterion in enumerate(failed) if criterion is None]
    distances = dict.fromkeys(sound, 0.0)
    if "perplexity" in selection.criteria:
        if score is None:
            raise ValueError("the criterion perplexity needs a public model")
        distances = dict(zip(sound, distances_to_median(score([texts[place].text for place in sound])), strict=True))
    order = sorted(range(len(texts)), key=lambda place: (_severity(failed[place]), distances.get(place, 0.0), place))
    room = dict(kept_per_label(min(selection.keep, len(texts)), [text.label for text in texts]))
    kept = set()
    for place in order:
        if room[texts[place].label]:
            room[texts[place].label] -= 1
            kept.add(place)
    reasons = reasons_of(selection)
    left_out = Counter(failed[place] or reasons[-1] for place in range(len(texts)) if place not in kept)
    in_doubt = sum(failed[place] is not None for place in kept)
    return Selected(tuple(sorted(kept)), {reason: left_out[reason] for reason in reasons}, in_doubt)


def failed_criteria(
    texts: Sequence[str], selection: Selection, prompt: tuple[str, ...]
) -> list[SelectionCriterion | None]:
    """Return the most severe criterion of the request that each text fails; None for a text that fails none."""
    doubts = [{CRITERION_OF_DOUBT[doubt] for doubt in find_doubts(text, prompt)} for text in texts]
    nonsense = [("nonsense" in selection.criteria and "nonsense" in found) for found in doubts]
    if "duplicates" in selection.criteria:
        originals = [place for place, is_nonsense in enumerate(nonsense) if not is_nonsense]
        for place in duplicates([texts[place] for place in originals]):
            doubts[originals[place]].add("duplicates")
    allowed = [criterion for criterion in SELECTION_CRITERIA if criterion in selection.criteria]
    return [next((criterion for criterion in allowed if criterion in found), None) for found in doubts]


def duplicates(texts: Sequence[str]) -> list[int]:
    """Return the places of texts that resemble an earlier one which is itself no duplicate, ascending.

    Time grows with the shingles that texts share, not with the square of their number.
    """
    found: list[int] = []
    sizes: dict[int, int] = {}
    holders: dict[Shingle, list[int]] = defaultdict(list)
    for place, text in enumerate(texts):
        own = shingles(text)
        shared = Counter(holder for shingle in own for holder in holders.get(shingle, ()))
        if any(count >= ALIKE * (len(own) + sizes[holder] - count) for holder, count in shared.items()):
            found.append(place)
            continue
        sizes[place] = len(own)
        for shingle in own:
            holders[shingle].append(place)
    return found


def distances_to_median(scores: Sequence[tuple[float, int]]) -> list[float]:
    """Return how far each text's log-loss per token is from their median, in nats; inf for a text without a score.

    Args:
        scores: as `Scorer` returns them.
    """
    losses = [-total / count if count > 0 and isfinite(total) else None for total, count in scores]
    scored = [loss for loss in losses if loss is not None]
    middle = median(scored) if scored else 0.0
    return [inf if loss is None else round(abs(loss - middle), _DECIMALS) for loss in losses]


def _severity(criterion: SelectionCriterion | None) -> int:
    """Return 0 for a text that fails no criterion, and more the more severe the one is that it fails."""
    return 0 if criterion is None else len(SELECTION_CRITERIA) - SELECTION_CRITERIA.index(criterion)
