"""Share of released texts with an unfilled placeholder of a template."""

from tasks.evaluation.core.intervals import wilson
from tasks.evaluation.core.subject import EvaluationInput
from tasks.text.doubts import has_placeholder
from tasks.values.results import MetricResult, MetricValue, rounded


def placeholder_leak(subject: EvaluationInput) -> MetricResult:
    """Return the share of texts with at least one placeholder, with a 95 % interval; null without texts."""
    texts = [text.text for text in subject.texts]
    leaking = sum(map(has_placeholder, texts))
    share, (low, high) = (leaking / len(texts), wilson(leaking, len(texts))) if texts else (None, (None, None))
    values: dict[str, MetricValue] = {
        "texts": len(texts),
        "leaking": leaking,
        "leaking_share": rounded(share, 4),
        "leaking_low": rounded(low, 4),
        "leaking_high": rounded(high, 4),
    }
    return MetricResult(
        name="placeholder_leak",
        exposure="public",
        values=values,
        source="templates as in DP summarization, sections 4 and 5.1 ('The product is a [TYPE]...'); intervals: Wilson,"
        " JASA 22, 1927",
        method="a placeholder is one to six words in [ ], { } or < >, the first of which begins with a letter; what a"
        " request writes for a slot or place, {name}; an order in brackets, [insert ...]; or what stands for a word"
        " that was taken out, [**...**], XXXX or ___; elements of HTML such as <br> are none; texts with one by all"
        " texts, 95 % score interval",
        line=f"{leaking} of {len(texts)} texts have a placeholder",
    )
