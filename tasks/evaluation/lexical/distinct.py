"""distinct-n: the variety of the released texts."""

from collections.abc import Sequence

from tasks.evaluation.core import jackknife
from tasks.evaluation.core.embedded_texts import figure
from tasks.evaluation.core.intervals import Interval
from tasks.evaluation.core.subject import EvaluationInput
from tasks.text.words import words
from tasks.values.results import MetricResult, MetricValue

ORDERS = (1, 2, 3)


def distinct(subject: EvaluationInput) -> MetricResult:
    """Distinct-1, -2 and -3 over all texts together; null if there is not one word. N-grams stay inside a text."""
    tokens = [words(text.text) for text in subject.texts]
    total = sum(map(len, tokens))
    values: dict[str, MetricValue] = {"words": total}
    for n in ORDERS:
        values |= figure(f"distinct_{n}", *_distinct_share(tokens, n)) if total else figure(f"distinct_{n}", None, None)
    summary = ", ".join(f"distinct-{n} {values[f'distinct_{n}']}" for n in ORDERS)
    return MetricResult(
        name="distinct",
        exposure="public",
        values=values,
        source="Li, Galley, Brockett, Gao, Dolan, 'A Diversity-Promoting Objective Function for Neural Conversation"
        " Models', NAACL 2016, section 5",
        method="number of different n-grams of words in all texts together, divided by the number of words;"
        f" 95 % jackknife over {jackknife.GROUPS} groups of texts, Student's t",
        line=summary if total else "no words",
    )


def _distinct_share(tokens: Sequence[Sequence[str]], n: int) -> tuple[float, Interval | None]:
    """Return distinct-n of the texts, and its jackknife interval."""
    groups = min(jackknife.GROUPS, len(tokens))
    parts = ([text for place, text in enumerate(tokens) if place % groups != group] for group in range(groups))
    without = [_share(part, n) for part in parts if any(part)]
    share = _share(tokens, n)
    return share, jackknife.share_interval(share, without)


def _share(tokens: Sequence[Sequence[str]], n: int) -> float:
    # Li et al. divide by the number of words for every n, not by the number of n-grams.
    return len(_ngrams(tokens, n)) / sum(map(len, tokens))


def _ngrams(tokens: Sequence[Sequence[str]], n: int) -> set[tuple[str, ...]]:
    return {tuple(text[i : i + n]) for text in tokens for i in range(len(text) - n + 1)}
