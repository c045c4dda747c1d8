"""Metrics that ask a public model: perplexity, and its judgement, which counts only where it finds planted texts.

Calibration texts of the judge: public pairs of which one is clearly the better. A fluent text is better than its own
words in another order, and better than a fluent text about something else.

Public model as a judge of released texts; a model that fails on planted texts gives no figure. Ratings: G-Eval (Liu et
al., EMNLP 2023, section 2), the mean of the ratings by the model's own probabilities. Pairs in both orders, and a pair
whose answer changes with the order is a draw: Zheng et al., "Judging LLM-as-a-Judge", NeurIPS 2023, section 3.4.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.evaluation import intervals
from tasks.evaluation.evaluation_input import EvaluationInput, Judge, Scorer, halves, sample
from tasks.evaluation.intervals import Interval, wilson
from tasks.values.results import MetricResult, MetricValue, rounded

COMPARED = 500
"""Documents that a release is compared with: a sample where there are more. Scoring takes longest of all metrics."""

_PERPLEXITY_SOURCE = (
    "Jelinek, Mercer, Bahl, Baker, 'Perplexity - a measure of the difficulty of speech recognition tasks', 1977"
)


@dataclass(frozen=True)
class NegativeLogLikelihood:
    """Log-loss of a set of texts.

    Attributes:
        losses: float64 [n], nats per text.
        tokens: int64 [n], at least 1 each.
        unscored: texts without a token to score, or with a score that is not finite.
    """

    losses: NDArray[np.float64]
    tokens: NDArray[np.int64]
    unscored: int

    @classmethod
    def of(cls, score: Scorer, texts: Sequence[str]) -> "NegativeLogLikelihood":
        """Score `texts`; empty ones are not handed to the model."""
        scores = score([text for text in texts if text])
        scored = [(-total, count) for total, count in scores if count > 0 and math.isfinite(total)]
        losses, tokens = zip(*scored, strict=True) if scored else ((), ())
        return cls(np.array(losses, np.float64), np.array(tokens, np.int64), len(texts) - len(scored))

    @property
    def scored(self) -> int:
        """Number of texts with a score."""
        return len(self.losses)

    @property
    def per_token(self) -> float | None:
        """Nats per token over all texts together; None without a scored text."""
        return self.over(np.arange(self.scored)) if self.scored else None

    def over(self, picks: intervals.Picks) -> float:
        """Nats per token of a resample, int64 [n], of at least one text."""
        return float(self.losses[picks].sum() / self.tokens[picks].sum())

    def interval(self) -> Interval | None:
        """Bootstrap over texts, 95 %, of `per_token`; None below two texts."""
        return intervals.of_ratio(self.losses, self.tokens)


def perplexity(subject: EvaluationInput) -> MetricResult:
    """Perplexity of the released texts, token-weighted, with a bootstrap interval; null if no text has a token."""
    likelihood = NegativeLogLikelihood.of(_scorer(subject), [text.text for text in subject.texts])
    low, high = likelihood.interval() or (None, None)
    figure = rounded(_exp(likelihood.per_token), 3)
    return MetricResult(
        name="perplexity",
        exposure="public",
        values={
            "perplexity": figure,
            "interval_low": rounded(_exp(low), 3),
            "interval_high": rounded(_exp(high), 3),
            "nats_per_token": rounded(likelihood.per_token, 5),
            "scored": likelihood.scored,
            "unscored": likelihood.unscored,
        },
        source=_PERPLEXITY_SOURCE,
        method=f"exp of the mean log-loss per token under the public model, all texts together; {intervals.BOOTSTRAP}",
        line=f"perplexity {figure} under the public model" if likelihood.scored else "no text could be scored",
    )


def perplexity_gap(subject: EvaluationInput) -> MetricResult:
    """Released minus corpus, in nats per token. INTERNAL: it reads private documents without protection."""
    score = _scorer(subject)
    released = NegativeLogLikelihood.of(score, [text.text for text in subject.texts])
    corpus = NegativeLogLikelihood.of(score, sample(subject.require_documents()(), COMPARED))
    measurable = released.per_token is not None and corpus.per_token is not None
    gap = (released.per_token or 0.0) - (corpus.per_token or 0.0) if measurable else None
    low, high = intervals.of_two(
        released.scored, corpus.scored, lambda some, others: released.over(some) - corpus.over(others)
    ) or (None, None)
    return MetricResult(
        name="perplexity_gap",
        exposure="internal",
        values={
            "released_nats_per_token": rounded(released.per_token, 5),
            "corpus_nats_per_token": rounded(corpus.per_token, 5),
            "gap_nats_per_token": rounded(gap, 5),
            "gap_nats_per_token_low": rounded(low, 5),
            "gap_nats_per_token_high": rounded(high, 5),
            "ratio": rounded(_exp(gap), 4),
        },
        source=_PERPLEXITY_SOURCE,
        method="mean log-loss per token of the released texts minus that of the private documents, same public model;"
        f" at most {COMPARED} documents, sampled with a fixed ordinary random start; both sides resampled:"
        f" {intervals.BOOTSTRAP}",
        line=f"{rounded(gap, 3)} nats per token above the corpus" if measurable else "not measurable",
    )


def _scorer(subject: EvaluationInput) -> Scorer:
    if subject.score is None:
        raise ValueError("perplexity needs a public model")
    return subject.score


def _exp(nats: float | None) -> float | None:
    return None if nats is None else math.exp(min(nats, 700.0))


@dataclass(frozen=True)
class JudgeProbe:
    """A topic and a fluent text about it."""

    topic: str
    text: str

    @property
    def shuffled(self) -> str:
        """The text's words, ordered by how they end: no sentence is left, and no word is missing."""
        return " ".join(sorted(self.text.split(), key=lambda word: word[::-1]))


JUDGE_PROBES = (
    JudgeProbe(
        "baking bread",
        "Let the dough rest under a damp cloth until it has doubled in size. Then shape the loaf gently, so that the"
        " air stays inside, and bake it in a very hot oven.",
    ),
    JudgeProbe(
        "a hotel stay",
        "Our room was clean and quiet, with a lovely view of the harbour. Breakfast was a little plain, but the staff"
        " could not have been friendlier.",
    ),
    JudgeProbe(
        "the moon",
        "The moon always shows us the same face, because it turns once on its axis in the time it takes to go around"
        " the earth. Its far side was first photographed in 1959.",
    ),
    JudgeProbe(
        "repairing a bicycle",
        "Before you patch the tube, find out what made the hole. Run your fingers carefully along the inside of the"
        " tyre; there is often a small piece of glass or wire in it.",
    ),
    JudgeProbe(
        "a visit to the dentist",
        "The dentist explained every step before she began, and the filling hardly hurt. I was asked to come back in"
        " six months for a check of the other side.",
    ),
    JudgeProbe(
        "growing tomatoes",
        "Tomatoes want sun, warmth and regular water. Pinch out the side shoots once a week, and tie the main stem to a"
        " stick before the fruit becomes heavy.",
    ),
    JudgeProbe(
        "a football match",
        "The home side scored twice before the break and then sat back. A late penalty made the last minutes nervous,"
        " but the goalkeeper held the ball and the match.",
    ),
    JudgeProbe(
        "learning the piano",
        "Practise slowly, one hand at a time, and only put the hands together when each is sure of its notes. Ten"
        " minutes every day are worth more than two hours on Sunday.",
    ),
    JudgeProbe(
        "a train delay",
        "The train stood outside the station for forty minutes because of a broken signal. Nobody told the passengers"
        " anything, and most of them missed their connection.",
    ),
    JudgeProbe(
        "choosing a laptop",
        "If you mostly write and read mail, a light machine with a good keyboard matters more than a fast processor."
        " Spend what is left over on memory.",
    ),
    JudgeProbe(
        "whales",
        "Humpback whales swim thousands of miles each year between cold waters, where they feed, and warm ones, where"
        " their calves are born. They sing on the way, and the songs change.",
    ),
    JudgeProbe(
        "moving to a new flat",
        "We packed the kitchen last and unpacked it first, which was wise. The sofa would not go up the stairs, so four"
        " friends lifted it over the balcony.",
    ),
    JudgeProbe(
        "a sprained ankle",
        "The patient slipped on wet stairs and turned his left ankle. It is swollen but not broken; he should rest it,"
        " cool it, and come again if he cannot walk in a week.",
    ),
    JudgeProbe(
        "saving money",
        "Write down what you spend for one month before you decide where to save. Most people find two or three small"
        " habits that cost more than they thought.",
    ),
    JudgeProbe(
        "a thunderstorm",
        "By four o'clock the sky over the hills had turned almost green. Then the wind dropped, the first heavy drops"
        " fell, and within a minute the street was a stream.",
    ),
    JudgeProbe(
        "training a dog",
        "Reward the dog in the same second in which it does what you want. If the treat comes late, the dog learns"
        " something, but seldom what you meant to teach.",
    ),
)


JUDGED = 100
"""Texts that are judged: a sample where there are more."""

CHARACTERS = 1500
"""A text is judged by its beginning."""

RATINGS = ("1", "2", "3", "4", "5")
RATE = (
    "Rate the text below from 1 to 5. 5: fluent, coherent and sensible throughout. 3: understandable, with clear"
    " faults. 1: word salad."
)
PREFER = "Compare the two texts below. The better one is fluent, makes sense, and keeps to its topic if one is given."

_SOURCE = (
    "ratings 1 to 5 and binary preference: URANIA, section 5.1, items 4 and 5, and appendix G.8; Liu et al., 'G-Eval',"
    " EMNLP 2023, section 2; order of pairs: Zheng et al., 'Judging LLM-as-a-Judge', NeurIPS 2023, section 3.4"
)


@dataclass(frozen=True)
class JudgeTrial:
    """Result of a judge on planted pairs.

    Attributes:
        answers: number of answers; each pair of a preference has one for each order.
        right: number of correct answers.
        pairs: number of pairs.
        swayed: number of pairs whose answer changed with the order.
    """

    answers: int
    right: int
    pairs: int
    swayed: int = 0

    @property
    def passed(self) -> bool:
        """Return whether the judge is above chance with confidence and at most half of the pairs are swayed.

        Both orders of a pair count as one observation.
        """
        return wilson(self.right / self.answers * self.pairs, self.pairs)[0] > 0.5 and 2 * self.swayed <= self.pairs

    def figures(self) -> dict[str, MetricValue]:
        """Return the share of right answers with its interval, and how many pairs were swayed."""
        low, high = wilson(self.right / self.answers * self.pairs, self.pairs)
        return {
            "planted_pairs": self.pairs,
            "planted_swayed": self.swayed,
            "planted_right": rounded(self.right / self.answers, 4),
            "planted_right_low": rounded(low, 4),
            "planted_right_high": rounded(high, 4),
        }


_NO_TRIAL: dict[str, MetricValue] = {
    "planted_pairs": 0,
    "planted_swayed": 0,
    **dict.fromkeys(("planted_right", "planted_right_low", "planted_right_high")),
}


def judge(subject: EvaluationInput) -> MetricResult:
    """Return a public model's mean rating of the texts, 1 to 5; null if it cannot judge, or without texts."""
    texts = sample((text.text for text in subject.texts if text.text.strip()), JUDGED)
    rater = _judge(subject) if texts else None
    trial = rating_trial(rater) if rater else None
    ratings = rated(rater, texts) if rater and trial and trial.passed else np.empty(0)
    low, high = intervals.of_mean(ratings) or (None, None)
    mean = float(ratings.mean()) if len(ratings) else None
    return MetricResult(
        name="judge",
        exposure="public",
        values={
            **(trial.figures() if trial else _NO_TRIAL),
            "judged": len(ratings),
            "rating": rounded(mean, 3),
            "rating_low": rounded(low, 3),
            "rating_high": rounded(high, 3),
        },
        source=_SOURCE,
        method=f"{_name_of(rater)}; mean of the ratings 1 to 5 by their probabilities as answers; at most {JUDGED}"
        f" texts that are not empty, sampled, their first {CHARACTERS} characters; {intervals.BOOTSTRAP}; only if the"
        f" model rates {len(JUDGE_PROBES)} planted texts above their own words in another order clearly more often"
        " than not",
        line=_summary_line(trial, f"rated {rounded(mean, 2)} of 5"),
    )


def judge_preference(subject: EvaluationInput) -> MetricResult:
    """Return how often the texts are preferred to documents. INTERNAL: it reads private documents.

    Null if the model cannot judge, without texts, or without documents.
    """
    private = subject.require_documents()
    texts = sample((text.text for text in subject.texts if text.text.strip()), JUDGED)
    documents = halves(filter(str.strip, private()), len(texts))[0] if texts else []
    pairs = list(zip(texts, documents, strict=False))
    rater = _judge(subject) if pairs else None
    trial = preference_trial(rater) if rater else None
    choices = preferred(rater, pairs) if rater and trial and trial.passed else np.empty(0)
    share = float(choices.mean()) if len(choices) else None
    low, high = wilson(float(choices.sum()), len(choices)) if len(choices) else (None, None)
    return MetricResult(
        name="judge_preference",
        exposure="internal",
        values={
            **(trial.figures() if trial else _NO_TRIAL),
            "judged": len(choices),
            "draws": int((choices == 0.5).sum()),
            "preferred": rounded(share, 4),
            "preferred_low": rounded(low, 4),
            "preferred_high": rounded(high, 4),
        },
        source=_SOURCE,
        method=f"{_name_of(rater)}; each text with one document, asked in both orders; a pair whose answer changes with"
        f" the order is a draw and counts half; at most {JUDGED} pairs, sampled, the first {CHARACTERS} characters of"
        " each; Wilson 95 %; only if the model is clearly above chance on planted pairs (fluent texts against their own"
        " words in another order, texts on a topic against others) and the order decides at most half of them",
        line=_summary_line(trial, f"{rounded(share, 2)} preferred to documents"),
    )


def rating_trial(rater: Judge) -> JudgeTrial:
    """Fluent texts must be rated above their own words in another order."""
    ratings = rated(rater, [probe.text for probe in JUDGE_PROBES] + [probe.shuffled for probe in JUDGE_PROBES])
    right = int((ratings[: len(JUDGE_PROBES)] > ratings[len(JUDGE_PROBES) :]).sum())
    return JudgeTrial(len(JUDGE_PROBES), right, len(JUDGE_PROBES))


def preference_trial(rater: Judge) -> JudgeTrial:
    """Fluent texts must be preferred to their words in another order, and texts on the topic to others."""
    others = JUDGE_PROBES[1:] + JUDGE_PROBES[:1]
    pairs = [(probe.text, probe.shuffled) for probe in JUDGE_PROBES]
    topical = [(probe.topic, probe.text, other.text) for probe, other in zip(JUDGE_PROBES, others, strict=True)]
    straight = _first_wins(rater, [(None, *pair) for pair in pairs] + list(topical))
    swapped = _first_wins(rater, [(None, b, a) for a, b in pairs] + [(topic, b, a) for topic, a, b in topical])
    right = int(straight.sum() + (~swapped).sum())
    return JudgeTrial(2 * len(straight), right, len(straight), int((straight == swapped).sum()))


def rated(rater: Judge, texts: Sequence[str]) -> NDArray[np.float64]:
    """Return the rating of each text, float64 [n] from 1 to 5: the mean by the probabilities of the five answers."""
    scores = rater(RATE, [f"Text:\n{text[:CHARACTERS]}" for text in texts], "Rating (1, 2, 3, 4 or 5):", RATINGS)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    means: NDArray[np.float64] = weights @ np.arange(1.0, 6.0) / weights.sum(axis=1)
    return means


def preferred(rater: Judge, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
    """Return for each pair 1 if its first text is preferred in both orders, 0 if its second is, 0.5 otherwise."""
    straight = _first_wins(rater, [(None, a, b) for a, b in pairs])
    swapped = _first_wins(rater, [(None, b, a) for a, b in pairs])
    return (straight.astype(np.float64) + ~swapped) / 2


def _first_wins(rater: Judge, pairs: Sequence[tuple[str | None, str, str]]) -> NDArray[np.bool_]:
    contents = [
        (f"Topic: {topic}\n\n" if topic else "") + f"Text A:\n{a[:CHARACTERS]}\n\nText B:\n{b[:CHARACTERS]}"
        for topic, a, b in pairs
    ]
    scores = rater(PREFER, contents, "The better text (A or B):", ("A", "B"))
    wins: NDArray[np.bool_] = scores[:, 0] > scores[:, 1]
    return wins


def _judge(subject: EvaluationInput) -> Judge:
    if subject.judge is None:
        raise ValueError("judging needs a public model")
    return subject.judge


def _name_of(rater: Judge | None) -> str:
    return rater.name if rater else "a public model"


def _summary_line(trial: JudgeTrial | None, result: str) -> str:
    if trial is None:
        return "nothing to judge"
    if not trial.passed:
        sentence = f"{trial.right} of {trial.answers} answers about planted texts are right"
        return f"this model cannot judge: {sentence}, {trial.swayed} of {trial.pairs} pairs follow the order; no figure"
    return result
