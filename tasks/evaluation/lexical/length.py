"""Length of the released texts."""

from collections.abc import Sequence

import numpy as np

from tasks.evaluation.core import bootstrap
from tasks.evaluation.core.subject import EvaluationInput
from tasks.text.words import words
from tasks.values.results import MetricResult, MetricValue, rounded

_QUANTILES = {"p05": 0.05, "median": 0.5, "p95": 0.95}


def length(subject: EvaluationInput) -> MetricResult:
    """Tokens and words per text, and the share of texts cut at the token limit. Empty texts count, with length 0."""
    count = len(subject.texts)
    cut = sum(not text.complete for text in subject.texts)
    values: dict[str, MetricValue] = {
        "texts": count,
        "empty": sum(not text.text for text in subject.texts),
        **_spread("tokens", [text.tokens for text in subject.texts]),
        **_spread("words", [len(words(text.text)) for text in subject.texts]),
        "cut_share": rounded(cut / count, 4) if count else None,
    }
    line = f"{count} texts, median {values['tokens_median']} tokens, {cut} cut at the limit" if count else "no texts"
    return MetricResult(
        name="length",
        exposure="public",
        values=values,
        source="descriptive statistics",
        method="tokens of the generating model and words (runs of letters and digits, other signs one by one)"
        f" per released text; quantiles by linear interpolation; interval of the means: {bootstrap.METHOD}",
        line=line,
    )


def _spread(name: str, lengths: Sequence[int]) -> dict[str, MetricValue]:
    if not lengths:
        return {f"{name}_{figure}": None for figure in ("mean", "mean_low", "mean_high", *_QUANTILES, "max")}
    low, high = bootstrap.of_mean(lengths) or (None, None)
    quantiles = np.quantile(lengths, list(_QUANTILES.values()))
    return {
        f"{name}_mean": rounded(float(np.mean(lengths)), 2),
        f"{name}_mean_low": rounded(low, 2),
        f"{name}_mean_high": rounded(high, 2),
        **{f"{name}_{figure}": rounded(float(q), 2) for figure, q in zip(_QUANTILES, quantiles, strict=True)},
        f"{name}_max": max(lengths),
    }
