"""The same comparison on the phrases of public corpora: their texts are units, of which RAKE's phrases are taken.

Topics are clusters of all phrases' points (k-means, four a label), made anew in every trial. Strength is measured
as it is planted: how much oftener two phrases of one text are of one topic than two phrases of two texts of its label,
in relation to the most that this could be. Texts are seeded with phrases that at least four texts share; that this set
is known is assumed, and costs nothing here.

Single phrases of systems differ here too. So the texts of each system are judged once more with
their phrases shuffled among the texts of a label: what that leaves of a figure owes nothing to correlations.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2

from benchmarks.common.controls import shuffled_within
from benchmarks.external_models.data import CORPORA, split
from benchmarks.in_context.demonstrations import Example
from benchmarks.keyphrases.correlations import EPSILONS, LENGTH, TEXTS, TRUE, Judge, append, lines_of
from benchmarks.keyphrases.data import PER_UNIT, Units, unit
from benchmarks.keyphrases.systems import INDEPENDENT, INDEPENDENT_MEDIAN, SYSTEMS, Drawing, Phrases, sums_of
from tasks.analysis.facets.extractor import extractor_for
from tasks.inference.embeddings.encoder import load_embedder
from tasks.inference.embeddings.unit_embeddings import points_of
from tasks.prompted_generation.keyphrases.parameters import KeyphraseParameters
from tasks.prompted_generation.keyphrases.unit_phrases import facets_of
from tasks.text.keyword_normalisation import normalise_keywords

SHARED_BY, TOPICS_EACH = 4, 4
SHUFFLED = ", shuffled"

Reals = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Read:
    """A corpus as phrases: units that have enough of them, and tests."""

    name: str
    phrases: Phrases
    units: Units
    tests: Units
    labels: int


def measure_corpora(names: Sequence[str], out: Path, trials: Sequence[int]) -> None:
    """Append every corpus's cells that are missing."""
    known = [line["corpus"] for line in lines_of(out) if "corpus" in line]
    for name in names:
        wanted = [{"name": name, "epsilon": epsilon, "trial": trial} for trial in trials for epsilon in EPSILONS]
        if missing := [cell for cell in wanted if cell not in known]:
            append(out, lines_of_corpus(read(name), missing))


def read(name: str) -> Read:
    """Every private text with enough phrases is a unit, every such test a test."""
    parts, labels = split(name), sorted(CORPORA[name].words)
    private, tests = phrases_of(parts.private), phrases_of(parts.tests)
    said = sorted({phrase for _, own in (*private, *tests) for phrase in own})
    numbers = {phrase: number for number, phrase in enumerate(said)}
    counts = Counter(phrase for _, own in private for phrase in own)
    vocabulary = np.array([number for phrase, number in numbers.items() if counts[phrase] >= SHARED_BY])
    found = [
        Units(
            np.array([labels.index(label) for label, _ in part]),
            np.zeros(len(part), np.int64),
            np.array([[numbers[phrase] for phrase in own] for _, own in part]),
        )
        for part in (private, tests)
    ]
    points = points_of(load_embedder(), said)
    return Read(name, Phrases(points, vocabulary), *found, len(labels))


def phrases_of(examples: Sequence[Example]) -> list[tuple[str, list[str]]]:
    """Label and phrases of every text that has enough of them, in an order of its own."""
    extract = extractor_for(facets_of(KeyphraseParameters(samples=1, references=1)))
    rng, found = np.random.default_rng(0), []
    for example, facets in zip(examples, extract([example.text for example in examples]), strict=True):
        own = normalise_keywords(facets.keywords, PER_UNIT)
        if len(own) == PER_UNIT:
            found.append((example.label, [own[place] for place in rng.permutation(PER_UNIT)]))
    return found


def lines_of_corpus(corpus: Read, cells: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One line a cell; sums are the same for all of them."""
    units = corpus.units
    sums = {
        system: sums_of(corpus.phrases, system, units.label, units.phrases, corpus.labels, LENGTH) for system in SYSTEMS
    }
    references = len(units.label) // corpus.labels
    labels = np.repeat(np.arange(corpus.labels), TEXTS)
    for cell in cells:
        judge = judge_of(corpus, cell["trial"])
        drawing = Drawing(cell["epsilon"], references, labels.tolist(), LENGTH)
        drawn = {system: drawing.drawn(corpus.phrases, system, sums[system]) for system in SYSTEMS}
        drawn[INDEPENDENT_MEDIAN] = drawing.drawn(corpus.phrases, INDEPENDENT_MEDIAN, sums[INDEPENDENT])
        drawn |= {system + SHUFFLED: shuffled(texts, cell["trial"]) for system, texts in drawn.items()}
        yield {
            "corpus": cell,
            "units": len(units.label),
            "vocabulary": len(corpus.phrases.vocabulary),
            "noise": drawing.noise(drawing.sketches(sums[INDEPENDENT])),
            "strength": round(strength(judge.pairs), 4),
            "near": near(corpus),
            "figures": {name: judge(labels, texts) for name, texts in ({TRUE: judge.fresh} | drawn).items()},
        }


def shuffled(texts: Numbers, trial: int) -> Numbers:
    """The same phrases at the same places in texts of the same labels, but not together: int64 [texts, length]."""
    by_label = texts.reshape(-1, TEXTS, texts.shape[1])
    return shuffled_within(by_label, trial).reshape(texts.shape)


def judge_of(corpus: Read, trial: int) -> Judge:
    """Topics of this trial, and true units for comparison."""
    rng = np.random.default_rng(trial)
    count = TOPICS_EACH * corpus.labels
    centred = corpus.phrases.points - corpus.phrases.points.mean(axis=0)
    _, topics = kmeans2(unit(centred.astype(np.float64)), count, minit="++", rng=rng)
    topic_of = topics.astype(np.int64)
    pairs = np.array([_pairs(topic_of[corpus.units.phrases[corpus.units.label == label]], count)
                      for label in range(corpus.labels)])  # fmt: skip
    fresh = np.concatenate([
        rng.choice(np.flatnonzero(corpus.units.label == label), TEXTS) for label in range(corpus.labels)
    ])  # fmt: skip
    return Judge(corpus.phrases, topic_of, pairs, corpus.units.phrases[fresh, :LENGTH], corpus.tests, LENGTH)


def _pairs(topics: Numbers, count: int) -> Reals:
    marks = np.eye(count)[topics].sum(axis=1)
    both = marks.T @ marks - np.diag(marks.sum(axis=0))
    return np.asarray(both / both.sum())


def strength(pairs: Reals) -> float:
    """c, the mean over labels: pairs are of phrases of one unit, and singles follow from them."""
    within = np.trace(pairs, axis1=1, axis2=2)
    between = (pairs.sum(axis=2) ** 2).sum(axis=1)
    return float(((within - between) / (1 - between)).mean())


def near(corpus: Read) -> dict[str, float]:
    """Mean cosines of two phrases: of one text, of two texts of a label, of two labels."""
    units = corpus.units
    points = corpus.phrases.points[units.phrases].astype(np.float64)
    sums, count = points.sum(axis=1), points.shape[1]
    of_label = np.array([sums[units.label == label].sum(axis=0) for label in range(corpus.labels)])
    sizes = np.bincount(units.label) * count
    one = ((sums**2).sum() - len(sums) * count) / (len(sums) * count * (count - 1))
    two = ((of_label**2).sum() - (sums**2).sum()) / ((sizes**2).sum() - len(sums) * count**2)
    far = ((of_label.sum(axis=0) ** 2).sum() - (of_label**2).sum()) / (sizes.sum() ** 2 - (sizes**2).sum())
    return {"text": round(float(one), 4), "label": round(float(two), 4), "others": round(float(far), 4)}
