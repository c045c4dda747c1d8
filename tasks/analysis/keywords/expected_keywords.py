"""How many keywords to expect of a private selection, before it is paid for; from public numbers alone.

A selection releases a keyword as likely as not if `even_count` units propose it. How many keywords are that frequent is
a private fact of a corpus, so the expectation is that of two public ones: the mean number of keywords of five releases,
where a keyword needed about the same share of their units (docs/keywords.md, docs/figures/keyword_selection.jsonl).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tasks.analysis.keywords.keyword_set import OwnWords, PrivateSelection
from tasks.mechanisms.counts.threshold_selection import GaussianSelection, SelectionInRounds

EXPECTED: Final = "keywords to expect"
SOME_KEYWORDS: Final = "those that"
"""Beginning of that fact where a selection is of use."""
MOST_SHARE = 10
"""Divisor of the declared units: a keyword that needs more than this part of them is hardly ever released."""
_INSTEAD = "take public words, a larger share of rho, or fewer candidates per unit"


@dataclass(frozen=True)
class MeasuredKeywords:
    """Keywords that releases from two public corpora had.

    Attributes:
        share: the part of a corpus's units that a keyword needed, in percent.
        chats, reviews: the mean number of keywords, of chats and of Yelp reviews.
    """

    share: float
    chats: int
    reviews: int


def _measured(*rows: tuple[float, int, int]) -> tuple[MeasuredKeywords, ...]:
    return tuple(MeasuredKeywords(*row) for row in rows)


MEASURED: Mapping[tuple[str, str], tuple[MeasuredKeywords, ...]] = {
    ("model", "gaussian"): _measured((0.6, 28, 29), (1.1, 3, 9), (3.3, 0, 1)),
    ("model", "weighted"): _measured((0.6, 31, 32), (1.1, 3, 9), (3.4, 0, 1)),
    ("model", "truncated_geometric"): _measured((1.5, 1, 5), (3.2, 0, 1), (8.6, 0, 0)),
    ("tfidf", "gaussian"): _measured((0.6, 47, 238), (1.3, 5, 110), (4.0, 0, 27)),
    ("tfidf", "weighted"): _measured((0.6, 73, 406), (1.3, 14, 176), (4.1, 0, 32)),
    ("tfidf", "truncated_geometric"): _measured((1.8, 0, 115), (3.9, 0, 49), (10.2, 0, 6)),
}
"""By the source of candidates, single words (`tfidf`) or extracted keywords, and the kind of selection."""


def expected_keywords(selecting: PrivateSelection | None, population: int | None) -> Mapping[str, str]:
    """Return the expected keywords of a selection from so many declared units, before it is paid for; public.

    In docs/keywords.md's releases a selection that needed more than a tenth of the units released next to nothing.
    """
    if selecting is None:
        return {}
    needed = selecting.selection.even_count()
    if population is None:
        return {EXPECTED: "unknown, because the dataset declares no population"}
    if needed > population:
        return {EXPECTED: f"none: a keyword needs {needed} units, and {population} are declared; {_INSTEAD}"}
    percent = math.ceil(1000 * needed / population) / 10
    share = f"{percent:g} % of the declared {population} units"
    if is_next_to_none(selecting, population):
        return {EXPECTED: f"next to none: a keyword needs {share}; {_INSTEAD}"}
    near = nearest(selecting, percent)
    return {
        EXPECTED: f"{SOME_KEYWORDS} {share} or more propose; where {near.share:g} % were needed, releases had"
        f" {near.chats} keywords (public chats) and {near.reviews} (Yelp reviews)"
    }


def is_next_to_none(selecting: PrivateSelection, population: int) -> bool:
    """Return whether a keyword needs so many of the declared units that hardly one is to be expected; public."""
    return selecting.selection.even_count() * MOST_SHARE > population


def nearest(selecting: PrivateSelection, percent: float) -> MeasuredKeywords:
    """Return what was measured of this kind of selection at the share nearest to `percent`, by their ratio."""
    measured = MEASURED["tfidf" if isinstance(selecting.proposing, OwnWords) else "model", kind_of(selecting)]
    return min(measured, key=lambda one: abs(math.log(one.share / percent)))


def kind_of(selecting: PrivateSelection) -> str:
    """Return the kind of selection, as requests name it."""
    if isinstance(selecting.selection, SelectionInRounds):
        return "weighted"
    return "gaussian" if isinstance(selecting.selection, GaussianSelection) else "truncated_geometric"
