"""Numbers of names, dates and amounts in the released texts, by kind."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.evaluation.core import bootstrap
from tasks.evaluation.core.subject import EvaluationInput
from tasks.text.interfaces import Entity, Tagger
from tasks.text.words import plain_words
from tasks.values.results import MetricResult, MetricValue, rounded

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
        f" texts together; {bootstrap.METHOD}",
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
    low, high = bootstrap.of_ratio(1000 * counts, lengths) or (None, None)
    return {
        name: rounded(float(1000 * counts.sum() / lengths.sum()), 3),
        f"{name}_low": rounded(low, 3),
        f"{name}_high": rounded(high, 3),
    }


def _summary_line(tagged: Sequence[Sequence[Entity]], values: dict[str, MetricValue]) -> str:
    commonest = Counter(_kind(entity) for text in tagged for entity in text).most_common(3)
    kinds = ", ".join(f"{kind} {values[kind.lower()]}" for kind, _ in commonest)
    return f"{values['per_1000_words']} entities per 1,000 words" + (f": {kinds}" if kinds else "")
