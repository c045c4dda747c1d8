"""Private units of a release of insights, with values computed from each unit alone. All of it is private.

Units are read on first use, which must be after the first step was armed (PRIVACY §6). The values of a unit are
functions of that unit and of public values alone: its facets, its point, whether it is sampled.
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
        blocks: numbers of the eligible blocks.
        extract: computes facets.
        embed: computes points.
    """

    bench: RunContext
    blocks: Sequence[int]
    extract: Extractor
    embed: Embedder

    @cached_property
    def rows(self) -> list[UnitDocuments]:
        """One row per unit, with its documents."""
        return [unit for _, unit in self.bench.units(self.blocks)]

    @cached_property
    def facets(self) -> list[Facets]:
        """Facets of each unit; empty where its text has none."""
        texts = [row.text for row in self.rows]
        if isinstance(self.extract, CachedExtractor):
            return self.extract.of_units([row.unit for row in self.rows], texts)
        return self.extract(texts)

    @cached_property
    def points(self) -> NDArray[np.float32]:
        """float32 [units, width], the embedding of each unit's summary; NaN where the summary is empty."""
        points = points_of(self.embed, [unit.summary for unit in self.facets])
        points[[not unit.summary.strip() for unit in self.facets]] = np.nan
        return points

    def sampled(self, share: Decimal) -> NDArray[np.bool_]:
        """Return whether each unit is in a sample that takes each with this probability, independently of the others.

        Repeated calls give the same sample. A sample of fixed size is not allowed: one unit more would push another
        one out, and that counts twice (PRIVACY §5).
        """
        key, name = self.bench.scheme.key, self.bench.scheme_id
        limit = int(_WHOLE * Fraction(share))
        in_sample = [int.from_bytes(keyed_hash(key, "insights", name, row.unit), "big") < limit for row in self.rows]
        return np.array(in_sample, np.bool_).reshape(len(self.rows))
