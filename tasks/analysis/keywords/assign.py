"""Assignment of released keywords to units, by occurrence, closeness or the model, and denoising of their counts.

Assignment of at most m keywords of the closed set to each unit, by occurrence and by closeness. URANIA, Algorithm 1,
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

Assignment of keywords to units by the model, from the released set alone (URANIA, appendix G.3). The model reads the
set and one unit's summary, and its answer is held to a grammar of lines of the set. So a unit has at most the allowed
number of keywords, all of them public, for any output of the model: a set of at most k bins (PRIVACY §5). A unit's
choice is a function of its summary and of public values, bit for bit. The wording is ours.

Empirical Bayes denoising of keyword counts from released centres: post-processing, at no charge. A count of a keyword
in a cluster has noise. But both have a position in the embedding space: the cluster's released centre and the keyword
itself. Keywords near a centre are chosen there more often, and the size of that effect can be estimated from all cells
together, where noise averages out: 23 clusters and 200 keywords are 4,600 cells. So each count is shrunk towards the
expectation for its cell's closeness, by a factor from its noise and the cells' own spread: an empirical Bayes estimate
(Efron and Morris, "Stein's Estimation Rule and its Competitors", JASA 1973). With little noise it is the count itself;
with much, the order is that of closeness among keywords that are chosen at all.

Everything here is a function of released values and public embeddings (PRIVACY §5).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from tasks.analysis.facets.constrained_completion import ask_device, complete_constrained
from tasks.common.progress import Progress
from tasks.inference.catalogue.model_check import ContextTooLong
from tasks.inference.engine.engine import Engine
from tasks.inference.prompt_rendering import PromptPieces, private_prompt
from tasks.inference.prompt_spec import PromptSpec
from tasks.inference.structured_output.grammar_constraint import GrammarConstraint, lines_of
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


SYSTEM = "You label texts with keywords from a list. You answer with keywords of the list alone, one a line."
ASK = """The list of keywords:
{keywords}

Text: {{reference}}

Label this text with the keywords of the list that fit it best, at most {most}, the best first."""
OTHERWISE = "none of these"
"""Alternative answer of the grammar. The prompt does not offer it: a small model would nearly always take it."""

CONTRAST = 1.0
"""Weight of the contrast in `complete_constrained`; without it a small model takes the first keywords of the list."""
MAX_TEXT_TOKENS = 128
"""Tokens of a summary that the model reads."""
MAX_NEW_TOKENS = 64
"""Tokens of an answer, the end included; a keyword that would not be finished is not begun."""
MOST_SHOWN = 2000
"""Tokens of keywords that are shown at once. A longer list is shown in parts, one prompt each."""
MOST_CHARACTERS = 6000
"""Characters of keywords shown at once: a prompt template has at most 8,000 (`tasks.inference.prompt_spec`)."""
_FEWEST_SHOWN = 100
_PREFIXES = (256, 512, 1024)
"""Lengths to which shorter prompts are padded, so that shapes are known before there are any keywords."""


@dataclass(frozen=True)
class ModelKeywordAssigner:
    """A `KeywordAssigner` (`tasks.analysis.keywords.assign`) by the model.

    Attributes:
        shown: tokens of keywords that are shown at once.
        prefixes: allowed numbers of tokens before a text, ascending.
    """

    engine: Engine
    shown: int
    prefixes: tuple[int, ...]
    progress: Progress = lambda done, of: None

    @classmethod
    def of(cls, engine: Engine, progress: Progress = lambda done, of: None, most: int = 99) -> "ModelKeywordAssigner":
        """Build the assigner; anything that does not fit the model or the device is refused here, before spending.

        Args:
            most: keywords of a unit.

        Raises:
            RowsNotIsolated, NotEnoughMemory: the device cannot run the passes.
            TokenizerNotSupported, EndTokenMissing, TokenLimitTooSmall: the model cannot write lines of a list.
            NoChatTemplate, ContextTooLong: the model cannot take the prompt.
        """
        GrammarConstraint(lines_of([], 1, OTHERWISE), engine.model, MAX_NEW_TOKENS)
        fixed_tokens = len(_prompt(engine, [], 99).tokens) + MAX_TEXT_TOKENS + MAX_NEW_TOKENS
        room = engine.model.longest - fixed_tokens
        if room < _FEWEST_SHOWN:
            raise ContextTooLong(fixed_tokens + _FEWEST_SHOWN, engine.model.longest)
        shown, empty = min(room, MOST_SHOWN), _prompt(engine, [], most)
        longest = len(empty.prefix) + shown
        prefixes = (*(length for length in _PREFIXES if len(empty.prefix) < length < longest), longest)
        for prefix in prefixes:
            ask_device(engine, empty, MAX_TEXT_TOKENS, MAX_NEW_TOKENS, CONTRAST, prefix)
        return cls(engine, shown, prefixes, progress)

    def __call__(
        self,
        facets: Sequence[Facets],
        points: "Points",
        keywords: Sequence[str],
        keyword_points: "Points",
        most: int,
    ) -> list[tuple[int, ...]]:
        """Implement `KeywordAssigner`, without points. A unit without a summary or an answer has no keyword."""
        if not facets:
            return []
        parts = [self._of_part(facets, part, keywords, most) for part in self._parts(keywords)]
        return [_interleave([part[unit] for part in parts], most) for unit in range(len(facets))]

    def _of_part(
        self, facets: Sequence[Facets], part: Sequence[int], keywords: Sequence[str], most: int
    ) -> list[list[int]]:
        """Return for each unit the indices that it chose from a part of the set."""
        number = {keywords[index]: index for index in part}
        grammar = GrammarConstraint(lines_of(list(number), most, OTHERWISE), self.engine.model, MAX_NEW_TOKENS)
        prompt = _prompt(self.engine, list(number), most)
        texts = [unit.summary for unit in facets]
        prefix = next((length for length in self.prefixes if length >= len(prompt.prefix)), 0)
        answers = complete_constrained(
            self.engine, prompt, texts, grammar, MAX_TEXT_TOKENS, self.progress, CONTRAST, prefix
        )
        return [[number[line] for line in (answer or "").split("\n") if line in number] for answer in answers]

    def _parts(self, keywords: Sequence[str]) -> list[list[int]]:
        """Split the set in its public order into parts that can be shown at once."""
        parts: list[list[int]] = []
        tokens = characters = 0
        for index, keyword in enumerate(keywords):
            keyword_tokens = len(self.engine.model.tokenizer(f"{keyword}\n", add_special_tokens=False)["input_ids"])
            tokens, characters = tokens + keyword_tokens, characters + len(keyword) + 1
            if not parts or tokens > self.shown or characters > MOST_CHARACTERS:
                parts.append([])
                tokens, characters = keyword_tokens, len(keyword) + 1
            parts[-1].append(index)
        return parts


def _interleave(chosen: Sequence[Sequence[int]], most: int) -> tuple[int, ...]:
    """Return the first choice of each part, then the second of each, without repeats, at most `most`."""
    ranked = chain.from_iterable(zip_longest(*chosen))
    return tuple(dict.fromkeys(index for index in ranked if index is not None))[:most]


def _prompt(engine: Engine, keywords: Sequence[str], most: int) -> PromptPieces:
    keyword_lines = "\n".join(keywords).replace("{", "{{").replace("}", "}}")
    question = ASK.format(keywords=keyword_lines, most=most)
    return private_prompt(engine.model.tokenizer, PromptSpec("keywords", system=SYSTEM, private=question))


Table = NDArray[np.float64]
"""float64 [clusters, keywords]."""

CELLS_OF_A_BIN = 100
"""Cells of similar closeness per expectation; fewer would be dominated by their noise."""
MOST_BINS = 30


@dataclass(frozen=True)
class Expectation:
    """Expected counts of cells by closeness, as shares of the cluster's units.

    Attributes:
        mean: the expected share, float64 [clusters, keywords].
        spread: the variance of true shares around it.
    """

    mean: Table
    spread: Table

    @classmethod
    def of(cls, counts: Table, sizes: NDArray[np.float64], closeness: Table, variance: float) -> "Expectation":
        """Estimate the expectation from noisy counts.

        Args:
            counts: noisy counts of units.
            sizes: noisy numbers of units of the clusters, float64 [clusters], positive.
            closeness: of each keyword to each cluster's centre.
            variance: of the noise of a count.
        """
        weights = np.broadcast_to(sizes[:, None], counts.shape)
        bin_of = _bins(closeness)
        mean = _isotonic_fit(_sums(bin_of, counts) / _sums(bin_of, weights), _sums(bin_of, weights))[bin_of]
        excess = (counts - weights * mean) ** 2 - variance
        squares = _sums(bin_of, weights**2)
        spread = np.maximum(_isotonic_fit(_sums(bin_of, excess) / squares, squares), 0.0)
        return cls(np.maximum(mean, 0.0), spread[bin_of])


def estimated(counts: Table, sizes: NDArray[np.float64], closeness: Table, variance: float) -> Table:
    """Shrink counts towards their expectation, [clusters, keywords], in units. Arguments as `Expectation.of`."""
    if not counts.size:
        return counts
    expected = Expectation.of(counts, sizes, closeness, variance)
    prior, own = sizes[:, None] * expected.mean, sizes[:, None] ** 2 * expected.spread
    trust = np.divide(own, own + variance, out=np.ones_like(own), where=own + variance > 0)
    return np.asarray(prior + trust * (counts - prior))


def closeness_of(centres: NDArray[np.float32], keywords: NDArray[np.float32]) -> Table:
    """Return cosines [clusters, keywords] of centred centres and centred keywords.

    Args:
        centres: float32 [c, d], released.
        keywords: float32 [m, d], of public or released words.
    """
    return _centre_rows(centres) @ _centre_rows(keywords).T


def _centre_rows(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return rows minus their mean, scaled to length 1; one row alone is only scaled."""
    wide = rows.astype(np.float64)
    if len(wide) > 1:
        wide = wide - wide.mean(axis=0)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.asarray(np.divide(wide, lengths, out=np.zeros_like(wide), where=lengths > 0))


def _bins(closeness: Table) -> NDArray[np.int64]:
    """Group cells of similar closeness into bins of equal size, [clusters, keywords], numbered upwards."""
    count = int(np.clip(closeness.size // CELLS_OF_A_BIN, 1, MOST_BINS))
    order = closeness.ravel().argsort(kind="stable").argsort(kind="stable")
    return np.asarray((order * count // closeness.size).reshape(closeness.shape), np.int64)


def _sums(bin_of: NDArray[np.int64], values: Table) -> NDArray[np.float64]:
    return np.asarray(np.bincount(bin_of.ravel(), values.ravel(), int(bin_of.max()) + 1), np.float64)


def _isotonic_fit(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the nearest non-decreasing values: closer cells have no smaller mean and no smaller spread."""
    from sklearn.isotonic import isotonic_regression  # takes a second to load

    return np.asarray(isotonic_regression(values, sample_weight=weights), np.float64)
