"""Assignment of at most m keywords of the closed set to each unit, by closeness and by occurrence.

URANIA, Algorithm 1, step 3 asks a language model for at most five keywords of a conversation. This is the fast way
without one: the cosine between the unit's point and each keyword's, plus a bonus for keywords whose words the unit has.

Each unit's choice must be a function of that unit and public things alone, bit for bit: it is what the keyword
histogram counts (PRIVACY §5). A product of float matrices is not, because its rounding follows the shapes. So points
are rounded to multiples of 2^-20; their products and sums are then whole multiples of 2^-40 up to 2^13, which float64
holds exactly, in any order of addition. Equal scores are ordered by the public order of the set.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Protocol

from tasks.text.keyword_normalisation import roots
from tasks.values.insight import Facets

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Points = NDArray[np.float32]

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
        least: a keyword is chosen if its score is at least this; a score is a cosine, plus `bonus` where it occurs.
        bonus: for a keyword all of whose words the unit has.
    """

    least: Decimal | Fraction = Decimal("0.3")
    bonus: Decimal | Fraction = Decimal("0.2")

    def __call__(
        self,
        facets: Sequence[Facets],
        points: "Points",
        keywords: Sequence[str],
        keyword_points: "Points",
        most: int,
    ) -> list[tuple[int, ...]]:
        """As `KeywordAssigner`. A point that is not finite has no cosine: its unit's keywords have to occur.

        Raises:
            ValueError: shapes that do not match, more than 8,192 coordinates, or `most` below 1.
        """
        _check(facets, points, keywords, keyword_points, most)
        if not facets or not keywords:
            return [() for _ in facets]
        return list(self._chosen(facets, points, keywords, keyword_points, most))

    def _chosen(
        self, facets: Sequence[Facets], points: "Points", keywords: Sequence[str], keyword_points: "Points", most: int
    ) -> Iterator[tuple[int, ...]]:
        import numpy as np  # here, because settings import this file and pricing needs no arrays

        least, bonus = (int(Fraction(value) * _GRID**2) for value in (self.least, self.bonus))
        occurring, keyword_grid = _Occurring(keywords), _on_grid(keyword_points)
        for start in range(0, len(facets), _AT_ONCE):
            batch = slice(start, start + _AT_ONCE)
            # Multiples of 2^-40 become whole numbers.
            scores = (_on_grid(points[batch]) @ keyword_grid.T * _GRID**2).astype(np.int64)
            for row, unit in zip(scores, facets[batch], strict=True):
                row[occurring(unit)] += bonus
                best = np.argsort(-row, kind="stable")[:most]
                yield tuple(int(index) for index in best if row[index] >= least)


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
