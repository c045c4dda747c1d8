"""Metrics of words and records: length, variety, names and numbers, unfilled placeholders, valid records."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.common.files import parse_object
from tasks.evaluation import intervals
from tasks.evaluation.evaluation_input import EvaluationInput, figure, sample
from tasks.evaluation.intervals import Interval, wilson
from tasks.text.doubts import has_placeholder
from tasks.text.public_models import Entity, Tagger
from tasks.text.words import plain_words, words
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
        f" per released text; quantiles by linear interpolation; interval of the means: {intervals.BOOTSTRAP}",
        line=line,
    )


def _spread(name: str, lengths: Sequence[int]) -> dict[str, MetricValue]:
    if not lengths:
        return {f"{name}_{figure}": None for figure in ("mean", "mean_low", "mean_high", *_QUANTILES, "max")}
    low, high = intervals.of_mean(lengths) or (None, None)
    quantiles = np.quantile(lengths, list(_QUANTILES.values()))
    return {
        f"{name}_mean": rounded(float(np.mean(lengths)), 2),
        f"{name}_mean_low": rounded(low, 2),
        f"{name}_mean_high": rounded(high, 2),
        **{f"{name}_{figure}": rounded(float(q), 2) for figure, q in zip(_QUANTILES, quantiles, strict=True)},
        f"{name}_max": max(lengths),
    }


COMPARED = 10_000
"""Documents whose lengths are taken: a sample where there are more."""


def length_gap(subject: EvaluationInput) -> MetricResult:
    """Distance of the length distributions and of their means. INTERNAL: it reads private documents.

    Empty texts count, with length 0. Null without texts, or without documents.
    """
    private = subject.require_documents()
    released = _lengths([text.text for text in subject.texts])
    corpus = _lengths(sample(private(), COMPARED) if len(released) else [])
    gap = LengthGap.between(released, corpus) if len(released) and len(corpus) else None
    counts = len(released), len(corpus)
    apart_low, apart_high = (gap and intervals.around(gap.distance(), *counts, gap.distance)) or (None, None)
    longer_low, longer_high = (gap and intervals.of_two(*counts, gap.longer)) or (None, None)
    distance, longer = (gap.distance(), gap.longer()) if gap else (None, None)
    return MetricResult(
        name="length_gap",
        exposure="internal",
        values={
            "texts": len(released),
            "documents": len(corpus),
            "wasserstein_words": rounded(distance, 2),
            "wasserstein_words_low": rounded(apart_low, 2),
            "wasserstein_words_high": rounded(apart_high, 2),
            "longer_words": rounded(longer, 2),
            "longer_words_low": rounded(longer_low, 2),
            "longer_words_high": rounded(longer_high, 2),
        },
        source="Villani, 'Optimal Transport', 2009, chapter 6, in one dimension (Vallender 1974); lengths as a measure"
        " of utility: InvisibleInk, section 5.1",
        method="area between the two distribution functions of words per text, and mean of the released texts minus"
        f" mean of the documents; at most {COMPARED} documents, sampled with a fixed ordinary random start; both sides"
        f" resampled: {intervals.BOOTSTRAP}, that of the distance moved to lie around it; two samples of one"
        " distribution are apart too",
        line=f"lengths {rounded(distance, 1)} words apart" if gap else "nothing to compare",
    )


@dataclass(frozen=True)
class LengthGap:
    """Two samples of lengths on their common support.

    Attributes:
        support: float64 [s], every length that occurs, ascending.
        released, corpus: int64 [n] and [m], places in `support`.
    """

    support: NDArray[np.float64]
    released: NDArray[np.int64]
    corpus: NDArray[np.int64]

    @classmethod
    def between(cls, released: NDArray[np.int64], corpus: NDArray[np.int64]) -> "LengthGap":
        """Return the gap between two non-empty samples of lengths."""
        support, places = np.unique(np.concatenate([released, corpus]), return_inverse=True)
        return cls(support.astype(np.float64), places[: len(released)], places[len(released) :])

    def distance(
        self, released_picks: intervals.Picks | None = None, corpus_picks: intervals.Picks | None = None
    ) -> float:
        """Return the Wasserstein-1 distance, in words, of the two samples or of resamples of each."""
        apart = np.cumsum(self._shares(self.released, released_picks) - self._shares(self.corpus, corpus_picks))[:-1]
        return float(np.abs(apart) @ np.diff(self.support))

    def longer(
        self, released_picks: intervals.Picks | None = None, corpus_picks: intervals.Picks | None = None
    ) -> float:
        """Return how many words the released texts have more than the documents, on average."""
        return float(
            (self._shares(self.released, released_picks) - self._shares(self.corpus, corpus_picks)) @ self.support
        )

    def _shares(self, places: NDArray[np.int64], picks: intervals.Picks | None) -> NDArray[np.float64]:
        chosen = places if picks is None else places[picks]
        return np.bincount(chosen, minlength=len(self.support)) / len(chosen)


def _lengths(texts: Sequence[str]) -> NDArray[np.int64]:
    return np.array([len(words(text)) for text in texts], np.int64)


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
        f" 95 % jackknife over {intervals.GROUPS} groups of texts, Student's t",
        line=summary if total else "no words",
    )


def _distinct_share(tokens: Sequence[Sequence[str]], n: int) -> tuple[float, Interval | None]:
    """Return distinct-n of the texts, and its jackknife interval."""
    groups = min(intervals.GROUPS, len(tokens))
    parts = ([text for place, text in enumerate(tokens) if place % groups != group] for group in range(groups))
    without = [_share(part, n) for part in parts if any(part)]
    share = _share(tokens, n)
    return share, intervals.share_interval(share, without)


def _share(tokens: Sequence[Sequence[str]], n: int) -> float:
    # Li et al. divide by the number of words for every n, not by the number of n-grams.
    return len(_ngrams(tokens, n)) / sum(map(len, tokens))


def _ngrams(tokens: Sequence[Sequence[str]], n: int) -> set[tuple[str, ...]]:
    return {tuple(text[i : i + n]) for text in tokens for i in range(len(text) - n + 1)}


# The 18 kinds of OntoNotes 5 (Weischedel et al., LDC2013T19); whatever else a tagger knows is `other`.
KINDS = (
    "CARDINAL",
    "DATE",
    "EVENT",
    "FAC",
    "GPE",
    "LANGUAGE",
    "LAW",
    "LOC",
    "MONEY",
    "NORP",
    "ORDINAL",
    "ORG",
    "PERCENT",
    "PERSON",
    "PRODUCT",
    "QUANTITY",
    "TIME",
    "WORK_OF_ART",
)
_OTHER = "OTHER"


def entities(subject: EvaluationInput) -> MetricResult:
    """Mentions per 1,000 words, of all kinds and of each, with intervals; null if there is not one word."""
    lengths = np.array([len(plain_words(text.text)) for text in subject.texts], np.int64)
    tag = _tagger(subject) if lengths.any() else None
    tagged = tag([text.text for text in subject.texts]) if tag else []
    counts = {kind: _counts(tagged, kind) for kind in (*KINDS, _OTHER)} if tag else {}
    values: dict[str, MetricValue] = {
        "entities": sum(map(len, tagged)),
        "words": int(lengths.sum()),
        **_rate("per_1000_words", np.array(list(map(len, tagged)), np.int64) if tag else None, lengths),
    }
    for kind in (*KINDS, _OTHER):
        values |= _rate(kind.lower(), counts.get(kind), lengths)
    return MetricResult(
        name="entities",
        exposure="public",
        values=values,
        source="counts of named entities as detail that a release keeps: InvisibleInk, section 5.1 and appendix D.4;"
        " kinds: OntoNotes 5, Weischedel et al., LDC2013T19",
        method=f"mentions found by {tag.name if tag else 'a tagger'}, per 1,000 words (runs of letters and digits), all"
        f" texts together; {intervals.BOOTSTRAP}",
        line=_summary_line(tagged, values) if tag else "no words",
    )


def _tagger(subject: EvaluationInput) -> Tagger:
    if subject.tag is None:
        raise ValueError("entities needs a tagger")
    return subject.tag


def _kind(entity: Entity) -> str:
    return entity.kind if entity.kind in KINDS else _OTHER


def _counts(tagged: Sequence[Sequence[Entity]], kind: str) -> NDArray[np.int64]:
    """Mentions of one kind in each text."""
    return np.array([sum(_kind(entity) == kind for entity in text) for text in tagged], np.int64)


def _rate(name: str, counts: NDArray[np.int64] | None, lengths: NDArray[np.int64]) -> dict[str, MetricValue]:
    if counts is None:
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"))
    low, high = intervals.of_ratio(1000 * counts, lengths) or (None, None)
    return {
        name: rounded(float(1000 * counts.sum() / lengths.sum()), 3),
        f"{name}_low": rounded(low, 3),
        f"{name}_high": rounded(high, 3),
    }


def _summary_line(tagged: Sequence[Sequence[Entity]], values: dict[str, MetricValue]) -> str:
    commonest = Counter(_kind(entity) for text in tagged for entity in text).most_common(3)
    kinds = ", ".join(f"{kind} {values[kind.lower()]}" for kind, _ in commonest)
    return f"{values['per_1000_words']} entities per 1,000 words" + (f": {kinds}" if kinds else "")


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


def records(subject: EvaluationInput) -> MetricResult:
    """Counts and shares of texts that parse and that are valid, with 95 % intervals.

    `raw` is the number of texts before any check, `complete` how many ended before the token limit. Without a schema
    validity is null; without texts every share is.
    """
    raw = len(subject.texts)
    parsed_records = [record for text in subject.texts if (record := parse_object(text.text)) is not None]
    is_valid = _validity(subject)
    valid = None if is_valid is None else sum(map(is_valid, parsed_records))
    values: dict[str, MetricValue] = {
        "raw": raw,
        "complete": sum(text.complete for text in subject.texts),
        "parsed": len(parsed_records),
        **_share_of_records("parsed", len(parsed_records), raw),
        "valid": valid,
        **_share_of_records("valid", valid, raw),
    }
    validity = "no schema" if valid is None else f"{valid} valid under the schema"
    return MetricResult(
        name="records",
        exposure="public",
        values=values,
        source="parse rate, schema validity and number raw as in Bhusal et al., private ICL, table 4 (WikiMoviesJSON),"
        " after Amin et al. 2024; intervals: Wilson, JASA 22, 1927",
        method="a text parses if it is one JSON object (RFC 8259, no key twice), and is valid if JSON Schema 2020-12"
        " says so; shares of all raw texts, 95 % score intervals",
        line=f"{raw} raw, {len(parsed_records)} parse, {validity}",
    )


def _validity(subject: EvaluationInput) -> Callable[[object], bool] | None:
    if subject.schema is None:
        return None
    from jsonschema import Draft202012Validator  # slow to import, and few releases have a schema

    return Draft202012Validator(dict(subject.schema)).is_valid


def _share_of_records(name: str, hits: int | None, of: int) -> dict[str, MetricValue]:
    """Return the share and the ends of its interval, as decimals of four places; null if there is none."""
    figures = (f"{name}_share", f"{name}_low", f"{name}_high")
    if hits is None or not of:
        return dict.fromkeys(figures)
    return {figure: rounded(value, 4) for figure, value in zip(figures, (hits / of, *wilson(hits, of)), strict=True)}
