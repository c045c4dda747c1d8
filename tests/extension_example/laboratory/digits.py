"""Metric of released texts: the share of their characters that are digits."""

from tasks.evaluation.evaluation_input import EvaluationInput
from tasks.evaluation.registry import Metric
from tasks.values.results import MetricResult, rounded

NAME = "laboratory.digits"


def digits(subject: EvaluationInput) -> MetricResult:
    """Return the share; null without any character. It reads released texts alone, so it is `public`."""
    characters = "".join(text.text for text in subject.texts)
    share = sum(map(str.isdigit, characters)) / len(characters) if characters else None
    return MetricResult(
        name=NAME,
        exposure="public",
        values={"share": rounded(share, 4)},
        source="descriptive statistics",
        method="digits over characters of all released texts",
        line="no texts" if share is None else f"{share:.1%} of the characters are digits",
    )


DIGITS = Metric(NAME, "public", digits)
