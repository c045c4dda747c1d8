"""Assignment of at most m keywords of the closed set to each unit, by occurrence and by closeness.

URANIA, Algorithm 1,
step 3 asks a language model for at most five keywords of a conversation. This is the fast way without one. A unit may
choose a keyword whose words it has, all of them. A keyword of several words is seldom there as it stands, so a unit may
also choose one that its point is close to: from CLOSE on, a cosine that was calibrated on public texts with known
subjects. A single word must be there: texts about lutes are close to `guitar`. Among those the unit takes the first m
by their cosine, with a bonus for keywords that occur. A low cosine is no reason: most texts are near some keyword of
two hundred, and a count of such choices says nothing about the keyword.

Each unit's choice must be a function of that unit and public things alone, bit for bit: it is what the keyword
histogram counts (PRIVACY §5). A product of float matrices is not, because its rounding follows the shapes. So points
are rounded to multiples of 2^-20; their products and sums are then whole multiples of 2^-40 up to 2^13, which float64
holds exactly, in any order of addition. Equal scores are ordered by the public order of the set.

Sensitivity. Whether a unit may choose a keyword compares its own words and its own whole-number score with public
values, so the set of keywords that it may choose is its own function, and so are the first m of them in an order by its
own scores and the public order. Adding or removing a unit changes no other unit's choice. It adds or removes 1 in at
most m bins of one cluster: m in L1, sqrt(m) in L2 (`set_histogram`), whatever CLOSE and the bonus are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Protocol

from tasks.text.words import roots
from tasks.values.results import Facets

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Points = NDArray[np.float32]

CLOSE: Final = Decimal("0.4")
"""The cosine from which on a keyword of several words is true of a text without them.

On newsgroups20, agnews, dbpedia14 and trec, embedded by all-minilm-l6-v2, at least three of four texts at that cosine
or above have the keyword's subject, if one text in 200 has it (docs/figures/keyword_choice.jsonl).
"""

_GRID: Final = 2**20
_MOST_WIDTH: Final = 2**53 // _GRID**2
_AT_ONCE = 4096  # units that are compared together; scores do not depend on it


class KeywordAssigner(Protocol):
    """Function that chooses keywords of a closed public set for units."""

    def __call__(
        self,
        facets: Sequence[Facets],
        points: "Points",
        keywords: Sequence[str],
        keyword_points: "Points",
        most: int,
    ) -> list[tuple[int, ...]]:
        """Return for each unit the indices of at most `most` different keywords, the best first; possibly none.

        Args:
            facets: of each unit.
            points: float32 [n, d], unit length, one row per unit.
            keywords: the public set, in its public order.
            keyword_points: float32 [m, d], unit length.
        """


@dataclass(frozen=True)
class IndexKeywordAssigner:
    """A `KeywordAssigner` without a model.

    Attributes:
        close: the least cosine of a keyword of several words that does not occur.
        bonus: what a keyword that occurs, with all its words, has above its cosine in the order of choice.
    """

    close: Decimal | Fraction = CLOSE
    bonus: Decimal | Fraction = Decimal("0.2")

    def __call__(
        self,
        facets: Sequence[Facets],
        points: "Points",
        keywords: Sequence[str],
        keyword_points: "Points",
        most: int,
    ) -> list[tuple[int, ...]]:
        """Implement `KeywordAssigner`. A point that is not finite is close to no keyword: only occurrence counts.

        Raises:
            ValueError: shapes that do not match, more than 8,192 coordinates, or `most` below 1.
        """
        _check(facets, points, keywords, keyword_points, most)
        if not facets or not keywords:
            return [() for _ in facets]
        return list(self._assign(facets, points, keywords, keyword_points, most))

    def _assign(
        self, facets: Sequence[Facets], points: "Points", keywords: Sequence[str], keyword_points: "Points", most: int
    ) -> Iterator[tuple[int, ...]]:
        import numpy as np  # here, because settings import this file and pricing needs no arrays

        close, bonus = (int(Fraction(value) * _GRID**2) for value in (self.close, self.bonus))
        occurring, keyword_grid = _Occurring(keywords), _on_grid(keyword_points)
        phrases = np.array([len(roots(keyword)) > 1 for keyword in keywords], bool)
        for start in range(0, len(facets), _AT_ONCE):
            batch = slice(start, start + _AT_ONCE)
            # Multiples of 2^-40 become whole numbers.
            scores = (_on_grid(points[batch]) @ keyword_grid.T * _GRID**2).astype(np.int64)
            for row, unit in zip(scores, facets[batch], strict=True):
                true = (row >= close) & phrases
                occurs = occurring(unit)
                true[occurs], row[occurs] = True, row[occurs] + bonus
                eligible = np.flatnonzero(true)
                best = eligible[np.argsort(-row[eligible], kind="stable")[:most]]
                yield tuple(int(index) for index in best)


class _Occurring:
    """Index of the keywords that have all their words in a text; plurals count as the word."""

    def __init__(self, keywords: Sequence[str]) -> None:
        self._roots = [roots(keyword) for keyword in keywords]
        self._by_root: Mapping[str, list[int]] = _index(self._roots)

    def __call__(self, unit: Facets) -> list[int]:
        """Return the indices of the keywords that occur, ascending."""
        own = roots(unit.text)
        candidates = {index for root in own & self._by_root.keys() for index in self._by_root[root]}
        return sorted(index for index in candidates if self._roots[index] <= own)


def _index(keyword_roots: Sequence[frozenset[str]]) -> dict[str, list[int]]:
    index_by_root: dict[str, list[int]] = {}
    for index, roots_of_keyword in enumerate(keyword_roots):
        for root in roots_of_keyword:
            index_by_root.setdefault(root, []).append(index)
    return index_by_root


def _on_grid(points: "Points") -> "NDArray[np.float64]":
    """Return entries rounded to multiples of 2^-20 within [-1, 1]; a row that is not finite becomes zeros."""
    import numpy as np

    wide: NDArray[np.float64] = points.astype(np.float64)
    wide[~np.isfinite(wide).all(axis=1)] = 0
    steps: NDArray[np.float64] = np.rint(np.clip(wide, -1, 1) * _GRID)
    return steps / _GRID


def _check(
    facets: Sequence[Facets], points: "Points", keywords: Sequence[str], keyword_points: "Points", most: int
) -> None:
    shapes = points.shape, keyword_points.shape
    if len(facets) != len(points) or len(keywords) != len(keyword_points) or points.ndim != 2:
        raise ValueError(f"{len(facets)} units and {len(keywords)} keywords need a point each, not {shapes}")
    if keyword_points.ndim != 2 or shapes[0][1] != shapes[1][1] or shapes[0][1] > _MOST_WIDTH:
        raise ValueError(f"points of units and of keywords are of one width up to {_MOST_WIDTH}, not {shapes}")
    if most < 1:
        raise ValueError(f"a unit may choose at least one keyword, not {most}")
