"""The units of a release of insights, and what is worked out of each by itself. Private, all of it.

Nothing is read before somebody asks, which must be after the first step was armed (PRIVACY §6). What is worked out of a
unit is a function of that unit and of public things alone: its facets, its point, whether it is sampled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tasks.analysis.facets.cache import CachedExtractor
from tasks.analysis.facets.extractor import Extractor
from tasks.corpus.identity.keys import keyed_hash
from tasks.corpus.store import UnitDocuments
from tasks.generation.decoding.run_context import RunContext
from tasks.inference.embeddings.unit_embeddings import points_of
from tasks.text.interfaces import Embedder
from tasks.values.insight import Facets

_WHOLE = 2**256


@dataclass(frozen=True)
class PrivateUnits:
    """Every unit of the blocks that the release is eligible to read, in keyed order.

    Attributes:
        blocks: their numbers.
        extract: makes facets.
        embed: makes points.
    """

    bench: RunContext
    blocks: Sequence[int]
    extract: Extractor
    embed: Embedder

    @cached_property
    def rows(self) -> list[UnitDocuments]:
        """One a unit, with its documents."""
        return [unit for _, unit in self.bench.units(self.blocks)]

    @cached_property
    def facets(self) -> list[Facets]:
        """One a unit; whose text nothing can be made of has none."""
        texts = [row.text for row in self.rows]
        if isinstance(self.extract, CachedExtractor):
            return self.extract.of_units([row.unit for row in self.rows], texts)
        return self.extract(texts)

    @cached_property
    def points(self) -> NDArray[np.float32]:
        """float32 [units, width], of what is embedded of each unit; NaN where there is nothing to embed."""
        points = points_of(self.embed, [unit.summary for unit in self.facets])
        points[[not unit.summary.strip() for unit in self.facets]] = np.nan
        return points

    def sampled(self, share: Decimal) -> NDArray[np.bool_]:
        """Whether each unit is in a sample that takes each with this probability, independently of the others.

        It is the same however often it is asked for. A sample of fixed size would not do: one unit more would push
        another one out, and that counts twice (PRIVACY §5).
        """
        key, name = self.bench.scheme.key, self.bench.scheme_id
        limit = int(_WHOLE * Fraction(share))
        taken = [int.from_bytes(keyed_hash(key, "insights", name, row.unit), "big") < limit for row in self.rows]
        return np.array(taken, np.bool_).reshape(len(self.rows))
