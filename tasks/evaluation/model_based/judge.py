"""Public model as a judge of released texts; a model that fails on planted texts gives no figure.

Ratings: G-Eval (Liu et al., EMNLP 2023, section 2), the mean of the ratings by the model's own probabilities. Pairs in
both orders, and a pair whose answer changes with the order is a draw: Zheng et al., "Judging LLM-as-a-Judge", NeurIPS
2023, section 3.4.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.evaluation.core import bootstrap
from tasks.evaluation.core.intervals import wilson
from tasks.evaluation.core.subject import EvaluationInput, Judge
from tasks.evaluation.core.subsample import halves, sample
from tasks.evaluation.model_based.judge_calibration import JUDGE_PROBES
from tasks.values.results import MetricResult, MetricValue, rounded

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
    low, high = bootstrap.of_mean(ratings) or (None, None)
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
        f" texts that are not empty, sampled, their first {CHARACTERS} characters; {bootstrap.METHOD}; only if the"
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
