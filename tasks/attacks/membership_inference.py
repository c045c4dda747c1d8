"""Membership inference from a release: a score for each text, and how well scores separate members.

Separation of members from non-members by a score: area under the ROC curve, and true-positive rate (TPR) at a low
false-positive rate (FPR). An average over all thresholds can hide an attack that is sure about a few people, so the TPR
at a low FPR is reported, too (Carlini et al., "Membership inference attacks from first principles", IEEE S&P 2022,
section III).

Every figure compares one list of members' scores with one of non-members'; a higher score means "member". Scores must
be independent of each other given the release, which they are if members were chosen at random.

Unigram model of a release's language: an attacker learns it from the released texts alone. A bigram model, as in the
attacks on synthetic text of Meeus et al., "The Canary's Echo", arXiv 2502.14921, smoothed by a hierarchical Dirichlet
prior (MacKay and Peto, Natural Language Engineering 1, 1995):

    P(w | v) = (c(v, w) + P(w)) / (c(v) + 1),     P(w) = (c(w) + 1/V) / (N + 1),

V the number of different words, one of them for every unknown word. A text's words are `tasks.text.words`.

Three scores, from different knowledge. Each is a pure function of released texts and of the texts in question; which of
them were members is known to the judge alone (`separation`).

* `embedding_scores`: the largest similarity to a released text (Liu et al., URANIA, 2025, appendix F).
* `likelihood_ratio_scores`: how much likelier the release's own language makes a text than a public model does; the
  quotient of "from this release" and "from the world" (Carlini et al., IEEE S&P 2022, section IV; for synthetic text
  Meeus et al., arXiv 2502.14921).
* `overlap_scores`: the share of a text's four-word runs that were released: finds copies, and nothing else.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from models_db.errors import UsageError
from tasks.auditing.epsilon_lower_bound import clopper_pearson_lower, clopper_pearson_upper
from tasks.evaluation.evaluation_input import Scorer
from tasks.evaluation.intervals import CONFIDENCE, Interval
from tasks.text.features import containment, joined
from tasks.text.public_models import Embedder
from tasks.text.words import words
from tasks.values.results import MetricValue, rounded

LOW_RATES: Mapping[str, float] = {"tpr_at_1_percent": 0.01, "tpr_at_0_1_percent": 0.001}
"""The false-positive rates of interest, by the name of the figure."""

SOURCE = (
    "AUC and its interval: DeLong, DeLong, Clarke-Pearson, Biometrics 44, 1988; TPR at low FPR: Carlini et al., IEEE"
    " S&P 2022; interval of a TPR: Clopper and Pearson, Biometrika 26, 1934"
)
METHOD = (
    "AUC counts a tie as half and has DeLong's 95 % interval on the logit scale, or the exact one of that many disjoint"
    " pairs where all pairs are ordered alike; a TPR is at the most generous threshold that not more than this share of"
    " the non-members reaches, with a Clopper-Pearson interval, and null below 1/FPR non-members"
)


@dataclass(frozen=True)
class Rate:
    """A true-positive rate: `hits` of `members` at a threshold that at most the stated share of non-members reaches."""

    hits: int
    members: int

    @property
    def value(self) -> float:
        """The share."""
        return self.hits / self.members

    @property
    def interval(self) -> Interval:
        """Clopper and Pearson, 95 %, over members; the threshold is taken as given."""
        failure = (1 - CONFIDENCE) / 2
        return (
            clopper_pearson_lower(self.hits, self.members, failure),
            clopper_pearson_upper(self.hits, self.members, failure),
        )


@dataclass(frozen=True)
class Separation:
    """Separation of two lists of scores.

    Attributes:
        members, nonmembers: how many scores of each there are.
        auc: P(a member's score is above a non-member's) + P(they are equal) / 2; None without one of each.
        interval: of the AUC, 95 %.
        rates: the true-positive rate for each of LOW_RATES; None if there are too few non-members.
    """

    members: int
    nonmembers: int
    auc: float | None
    interval: Interval | None
    rates: Mapping[str, Rate | None]

    @property
    def above_chance(self) -> bool | None:
        """Return whether the interval lies above 1/2, the AUC of uninformative scores; None if it was not measured."""
        return None if self.interval is None else self.interval[0] > 0.5

    def values(self) -> dict[str, MetricValue]:
        """Return the figures as results store them."""
        low, high = self.interval or (None, None)
        figures: dict[str, MetricValue] = {
            "members": self.members,
            "nonmembers": self.nonmembers,
            "auc": rounded(self.auc, 4),
            "auc_low": rounded(low, 4),
            "auc_high": rounded(high, 4),
        }
        for name, rate in self.rates.items():
            low, high = rate.interval if rate else (None, None)
            figures[name] = rounded(rate.value if rate else None, 4)
            figures[f"{name}_low"], figures[f"{name}_high"] = rounded(low, 4), rounded(high, 4)
        return figures

    def line(self) -> str:
        """Return the separation in one line, as text."""
        if self.auc is None or self.interval is None:
            return "not measurable: members and non-members are needed"
        verdict = "above chance" if self.above_chance else "indistinguishable from chance"
        return f"AUC {self.auc:.3f} ({self.interval[0]:.3f} to {self.interval[1]:.3f}), {verdict}"


def separation(members: Sequence[float], nonmembers: Sequence[float]) -> Separation:
    """Compare the scores of members with those of non-members; real [m] and [n].

    Raises:
        ScoreNotFinite: a score is NaN or infinite; the attack must say what such a text counts as.
    """
    inside, outside = np.asarray(members, np.float64), np.asarray(nonmembers, np.float64)
    if not (np.isfinite(inside).all() and np.isfinite(outside).all()):
        raise UsageError(
            "A membership score is NaN or infinite.",
            "Give every text a finite score; an empty one may get the lowest.",
            code="ScoreNotFinite",
        )
    if not (len(inside) and len(outside)):
        return Separation(len(inside), len(outside), None, None, dict.fromkeys(LOW_RATES))
    wins, losses = _placements(inside, outside)
    auc = float(wins.mean())
    rates = {name: _rate(inside, outside, rate) for name, rate in LOW_RATES.items()}
    return Separation(len(inside), len(outside), auc, _interval(auc, wins, losses), rates)


def _placements(inside: NDArray[np.float64], outside: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Return for each member the share of non-members below it, for each non-member that of members above; ties half.

    By ranks, so that n log n steps do (Sun and Xu, IEEE Signal Processing Letters 21, 2014).
    """
    from scipy.stats import rankdata

    ranks = rankdata(np.concatenate([inside, outside]))
    wins = (ranks[: len(inside)] - rankdata(inside)) / len(outside)
    losses = 1 - (ranks[len(inside) :] - rankdata(outside)) / len(inside)
    return wins, losses


def _interval(auc: float, wins: NDArray[np.float64], losses: NDArray[np.float64]) -> Interval:
    """DeLong's variance, and a normal interval of logit(AUC), which stays inside [0, 1] (Pepe, 2003, section 5.2.5)."""
    fewest = min(len(wins), len(losses))
    variance = 0.0
    if fewest > 1 and 0 < auc < 1:
        variance = float(wins.var(ddof=1) / len(wins) + losses.var(ddof=1) / len(losses))
    if variance == 0:
        return _of_pairs(auc, fewest)
    from statistics import NormalDist

    half = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * math.sqrt(variance) / (auc * (1 - auc))
    middle = math.log(auc / (1 - auc))
    low, high = (1 / (1 + math.exp(-(middle + side * half))) for side in (-1, 1))
    return low, high


def _of_pairs(auc: float, pairs: int) -> Interval:
    """Clopper and Pearson on `pairs` disjoint pairs, which are independent; ties, as halves, vary less than that."""
    from scipy.special import betaincinv

    failure, hits = (1 - CONFIDENCE) / 2, auc * pairs
    low = 0.0 if hits == 0 else float(betaincinv(hits, pairs - hits + 1, failure))
    high = 1.0 if hits == pairs else float(betaincinv(hits + 1, pairs - hits, 1 - failure))
    return low, high


def _rate(inside: NDArray[np.float64], outside: NDArray[np.float64], most: float) -> Rate | None:
    """Return the largest TPR whose threshold at most `most` of the non-members reach; None below 1/`most` of them."""
    allowed = math.floor(most * len(outside) + 1e-9)
    if allowed < 1:
        return None
    # What is above the first non-member that must stay below the threshold.
    bar = np.sort(outside)[::-1][allowed] if allowed < len(outside) else -math.inf
    return Rate(int(np.count_nonzero(inside > bar)), len(inside))


_START = ""


class UnigramModel:
    """The bigram model of some texts."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._single: Counter[str] = Counter()
        self._pairs: Counter[tuple[str, str]] = Counter()
        for text in texts:
            read = words(text)
            self._single.update(read)
            self._pairs.update(pairwise([_START, *read]))
        self._before: Counter[str] = Counter()
        for (first, _), count in self._pairs.items():
            self._before[first] += count
        self._total, self._kinds = self._single.total(), len(self._single) + 1

    def log_likelihood(self, text: str) -> float:
        """Return the sum of the words' log-probabilities, nats; 0 for a text without words."""
        return math.fsum(self._log(first, word) for first, word in pairwise([_START, *words(text)]))

    def _log(self, first: str, word: str) -> float:
        alone = (self._single[word] + 1 / self._kinds) / (self._total + 1)
        return math.log((self._pairs[first, word] + alone) / (self._before[first] + 1))


NO_EVIDENCE = -1e9
"""The score of a text without words: below every other one, on both sides alike."""


def embedding_scores(embed: Embedder, released: Sequence[str], candidates: Sequence[str]) -> list[float]:
    """Return the largest cosine similarity of each text to a released one; at least one text must be released.

    Raises:
        ValueError: nothing was released.
    """
    if not released:
        raise ValueError("without a released text there is nothing to be similar to")
    if not candidates:
        return []
    similarity = _unit(embed(candidates)) @ _unit(embed(released)).T
    largest: list[float] = similarity.max(axis=1).astype(np.float64).tolist()
    return largest


def likelihood_ratio_scores(score: Scorer, released: Sequence[str], candidates: Sequence[str]) -> list[float]:
    """(log P_release(x) - log P_public(x)) / words of x: nats per word; NO_EVIDENCE for a text without words.

    A text of one token has no public likelihood and is asked about as if it had 1.
    """
    language = UnigramModel(released)
    lengths = [len(words(text)) for text in candidates]
    usable = [place for place, length in enumerate(lengths) if length]
    scores = [NO_EVIDENCE] * len(candidates)
    public = score([candidates[place] for place in usable])
    for place, (in_public, _) in zip(usable, public, strict=True):
        scores[place] = (language.log_likelihood(candidates[place]) - in_public) / lengths[place]
    return scores


def overlap_scores(released: Sequence[str], candidates: Sequence[str]) -> list[float]:
    """Return the share of each text's four-word runs that some released text has too."""
    haystack = joined(released)
    return [containment(text, haystack) for text in candidates]


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: NDArray[np.float32] = (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return scaled
