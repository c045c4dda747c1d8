"""How varied the released texts are: distinct-n."""

from tasks.evaluation.results import MetricResult, Value, rounded
from tasks.evaluation.subject import Subject
from tasks.evaluation.words import words

ORDERS = (1, 2, 3)


def distinct(subject: Subject) -> MetricResult:
    """Distinct-1, -2 and -3 over all texts together; null where there is not one word. N-grams stay inside a text."""
    tokens = [words(text.text) for text in subject.texts]
    total = sum(map(len, tokens))
    values: dict[str, Value] = {"words": total}
    for n in ORDERS:
        # Li et al. divide by the number of words for every n, not by the number of n-grams.
        values[f"distinct_{n}"] = rounded(len(_ngrams(tokens, n)) / total, 4) if total else None
    shown = ", ".join(f"distinct-{n} {values[f'distinct_{n}']}" for n in ORDERS)
    return MetricResult(
        name="distinct",
        exposure="public",
        values=values,
        source="Li, Galley, Brockett, Gao, Dolan, 'A Diversity-Promoting Objective Function for Neural Conversation"
        " Models', NAACL 2016, section 5",
        method="number of different n-grams of words in all texts together, divided by the number of words",
        line=shown if total else "no words",
    )


def _ngrams(tokens: list[list[str]], n: int) -> set[tuple[str, ...]]:
    return {tuple(text[i : i + n]) for text in tokens for i in range(len(text) - n + 1)}
