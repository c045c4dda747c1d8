"""How alike two sets of insights are, and what one conversation leaves in them (URANIA, section 5.1 and appendix F).

Public insights, of SIMPLE-CLIO, stand for the truth; private ones are held against them. Jaccard similarities are those
of `tasks.evaluation.overlap`, cosines those of `tasks.evaluation.neighbours`.

Topic coverage. The paper runs BERTopic over both sets; its topics are clusters of embeddings. Here public insights are
put into topics by agglomeration (average linkage) until no two topics have a mean cosine of SAME or more, and a topic
is covered if some private insight is nearest to one of its public ones, at a cosine of CAPTURED or more. A private
insight covers one topic at most, so that many vague ones do not cover everything; equal sets give 1, and sets about
other matters 0. What insights of the same number with keywords drawn at random would cover stands beside it.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import AgglomerativeClustering

from benchmarks.insights.topics import own_words, topics
from tasks.attacks.membership_inference import Separation, separation
from tasks.evaluation.evaluation_input import ReleaseAndCorpus, points
from tasks.evaluation.neighbours import nearest
from tasks.evaluation.overlap import heaviest, jaccard_similarity, present
from tasks.text.features import Features, chunks, pairs, phrases, tokens, weighted_terms
from tasks.text.public_models import Embedder, Points, Tagger

SAME = 0.6
"""Public insights whose topics have at least this mean cosine are about one topic."""
CAPTURED = 0.5
"""A private insight is about a topic if its cosine with the nearest public insight of it is at least this."""

LEXICAL = ("key_phrases", "noun_chunks", "tf_idf", "tokens", "bigrams")
FIGURES = (*LEXICAL, "tf_idf_cosine", "topics", "mean_cosine", "median_cosine")


def compared(private: Sequence[str], public: Sequence[str], embed: Embedder, tag: Tagger) -> dict[str, float | None]:
    """FIGURES of a set of private insights; None where one of the sets has nothing to compare."""
    if not private or not public:
        return {**dict.fromkeys(FIGURES), "topics": 0.0 if public else None}
    both = ReleaseAndCorpus(private, public, points(embed, private), points(embed, public), embed.name)
    cosines = nearest(both)[1]
    return {
        **lexical(private, public, tag),
        "topics": coverage(both.released, both.private),
        "mean_cosine": float(cosines.mean()),
        "median_cosine": float(np.median(cosines)),
    }


def lexical(private: Sequence[str], public: Sequence[str], tag: Tagger) -> dict[str, float | None]:
    """Jaccard similarities of five kinds of features, and the cosine of both sides' TF-IDF weights."""
    sides = [_features(private, tag), _features(public, tag)]
    found: dict[str, float | None] = {}
    for name in LEXICAL:
        alike = jaccard_similarity(sides[0][name], sides[1][name], heaviest if name == "tf_idf" else present)
        found[name] = alike[0] if alike else None
    return {**found, "tf_idf_cosine": _cosine(sides[0]["tf_idf"], sides[1]["tf_idf"])}


def _features(texts: Sequence[str], tag: Tagger) -> dict[str, list[Features]]:
    made = (phrases(texts), chunks(tag.noun_chunks(texts)), weighted_terms(texts), tokens(texts), pairs(texts))
    return dict(zip(LEXICAL, made, strict=True))


def _cosine(first: Sequence[Features], second: Sequence[Features]) -> float:
    """Of the summed weights of either side."""
    sums: list[Counter[str]] = []
    for side in (first, second):
        total: Counter[str] = Counter()
        for text in side:
            total.update(text)
        sums.append(total)
    a, b = sums
    product = sum(weight * b[term] for term, weight in a.items())
    length = np.sqrt(sum(w * w for w in a.values()) * sum(w * w for w in b.values()))
    return float(product / length) if length else 0.0


def topics_of(public: Points) -> NDArray[np.int64]:
    """int64 [n]: the topic of each public insight, from 0."""
    if len(public) < 2:
        return np.zeros(len(public), np.int64)
    joined = AgglomerativeClustering(
        n_clusters=None, metric="cosine", linkage="average", distance_threshold=1 - SAME
    ).fit(public)
    return np.asarray(joined.labels_, np.int64)


def coverage(private: Points, public: Points) -> float:
    """The share of public topics that some private insight is about."""
    topic = topics_of(public)
    if not len(private):
        return 0.0
    cosines = private @ public.T
    close = cosines.max(1) >= CAPTURED
    return float(len(set(topic[cosines.argmax(1)[close]].tolist())) / len(set(topic.tolist())))


def known_coverage(kept: Sequence[tuple[Sequence[str], Sequence[str | None]]]) -> dict[str, float]:
    """Of a synthetic corpus: which of its topics a release tells about, exactly.

    A topic is found if some kept cluster has it in more than half of its units, and named if one of the first five
    keywords of such a cluster has a word that only this topic has.

    Args:
        kept: of each kept cluster its keywords and the topics of its units, which nobody but a benchmark knows.

    Returns:
        `found` and `named`, shares of all topics.
    """
    found: dict[str, bool] = defaultdict(bool)
    for keywords, members in kept:
        counted = Counter(topic for topic in members if topic is not None)
        if not counted:
            continue
        topic, count = counted.most_common(1)[0]
        if 2 * count > len(members):
            words = {word for keyword in keywords[:5] for word in keyword.split()}
            found[topic] |= bool(words & own_words()[topic])
    total = len(topics())
    return {"found": len(found) / total, "named": sum(found.values()) / total}


def leakage(conversation: Points, insights: Sequence[Points]) -> list[float]:
    """For each run the largest cosine of its insights with the sensitive conversation; -1 without insights.

    Args:
        conversation: float64 [1, d].
        insights: of each run, float64 [n, d].
    """
    return [float((some @ conversation[0]).max()) if len(some) else -1.0 for some in insights]


def detected(scores: Sequence[float], present_in: Sequence[bool]) -> Separation:
    """How well a threshold on the score tells runs with the sensitive conversation from runs without it."""
    pairs_of = list(zip(scores, present_in, strict=True))
    return separation([score for score, there in pairs_of if there], [score for score, there in pairs_of if not there])


def shares(line: Mapping[str, Any]) -> Mapping[str, float]:
    """Counts of a result as they are told: centres released, clusters kept, and kept ones that have units at all."""
    return {name: float(line["clusters"][name]) for name in ("released", "kept", "kept_with_units")}
