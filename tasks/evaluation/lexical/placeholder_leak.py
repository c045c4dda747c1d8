"""Share of released texts with an unfilled placeholder of a template."""

import re

from tasks.evaluation.core.intervals import wilson
from tasks.evaluation.core.subject import EvaluationInput
from tasks.values.metric_result import MetricResult, Value, rounded

_MARKUP = re.compile(
    "a|abbr|article|aside|b|big|body|br|center|cite|code|dd|del|div|dl|dt|em|font|footer|h[1-6]|head|header|hr|html|i"
    "|img|ins|kbd|li|main|mark|nav|ol|p|pre|q|s|samp|section|small|span|strike|strong|sub|sup|table|tbody|td|tfoot|th"
    "|thead|title|tr|tt|u|ul|var",
    re.IGNORECASE,
)
"""Elements of HTML: texts from the web have them, and no template does."""
_WORDS = r"[^\W\d_][\w'-]*(?:[ /][\w'-]+){0,5}"
_PLACEHOLDER = re.compile(rf"\{{\s?{_WORDS}\s?\}}|\[\s?{_WORDS}\s?\]|<({_WORDS})>|\{{[A-Za-z0-9_]{{1,40}}\}}")


def placeholder_leak(subject: EvaluationInput) -> MetricResult:
    """Return the share of texts with at least one placeholder, with a 95 % interval; null without texts."""
    texts = [text.text for text in subject.texts]
    leaking = sum(map(has_placeholder, texts))
    share, (low, high) = (leaking / len(texts), wilson(leaking, len(texts))) if texts else (None, (None, None))
    values: dict[str, Value] = {
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
        method="a placeholder is one to six words in [ ], { } or < >, the first of which begins with a letter, or"
        " what a request writes for a slot or place, {name}; elements of HTML such as <br> are none; texts with one by"
        " all texts, 95 % score interval",
        line=f"{leaking} of {len(texts)} texts have a placeholder",
    )


def has_placeholder(text: str) -> bool:
    """Return whether anything in the text reads like `[WORD]`, `{word}` or `<WORD>`."""
    return any(match[1] is None or not _MARKUP.fullmatch(match[1]) for match in _PLACEHOLDER.finditer(text))
