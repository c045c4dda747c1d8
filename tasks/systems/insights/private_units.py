"""Private units of a release of insights and the public models that read them, loaded before anything is spent.

Units are read on first use, which must be after the first step was armed (PRIVACY §6). The values of a unit are
functions of that unit and of public values alone: its facets, its point, whether it is sampled.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, partial
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from tasks.analysis.facets.extractor import BATCH, CachedExtractor, Extractor, cached
from tasks.analysis.facets.parallel import spread_extractor
from tasks.common.progress import Progress
from tasks.corpus.store import UNITS_AT_ONCE, Lot, ShardProgress, UnitDocuments, UnitOrder
from tasks.decoding.run_context import RunContext
from tasks.decoding.structured_output import Schema, Writer
from tasks.inference.embeddings.encoder import load_embedder
from tasks.inference.embeddings.parallel import spread_embedder
from tasks.inference.embeddings.unit_embeddings import RetriedEmbedder, points_of
from tasks.systems.insights.parameters import InsightParameters
from tasks.text.public_models import Embedder
from tasks.values.results import Facets, GeneratedText, Insight

_WHOLE = 2**256


@dataclass(frozen=True)
class PrivateUnits:
    """Every unit of the blocks that the release is eligible to read, in keyed order.

    Texts are read some shards at a time and are not kept: of each unit its id, its facets and its point remain.

    Attributes:
        blocks: numbers of the eligible blocks.
        extract: computes facets.
        embed: computes points.
        progress: of `extract`, over all shards.
    """

    context: RunContext
    blocks: Sequence[int]
    extract: Extractor
    embed: Embedder
    progress: ShardProgress = field(default_factory=lambda: ShardProgress(lambda done, of: None))

    def lots(self) -> Iterator[Lot]:
        """Yield the units with their documents, some shards at a time."""
        return self.context.lots(self.blocks)

    @cached_property
    def ids(self) -> list[str]:
        """The id of each unit."""
        return [unit for unit, _ in self._extract_facets]

    @cached_property
    def facets(self) -> list[Facets]:
        """Facets of each unit; empty if its text has none."""
        return [facets for _, facets in self._extract_facets]

    @cached_property
    def _extract_facets(self) -> list[tuple[str, Facets]]:
        units: list[tuple[UnitOrder, str, Facets]] = []
        for lot in self.lots():
            self.progress.enter(lot)
            facets = self._facets_of([placed.unit for placed in lot.units])
            units += [(placed.order, placed.unit.unit, own) for placed, own in zip(lot.units, facets, strict=True)]
            self.progress(1, 1)
        units.sort(key=itemgetter(0))
        return [(unit, facets) for _, unit, facets in units]

    def _facets_of(self, rows: Sequence[UnitDocuments]) -> list[Facets]:
        texts = [row.text for row in rows]
        if isinstance(self.extract, CachedExtractor):
            return self.extract.of_units([row.unit for row in rows], texts)
        return self.extract(texts)

    @cached_property
    def points(self) -> NDArray[np.float32]:
        """float32 [units, width], the embedding of each unit's summary; NaN if the summary is empty."""
        summaries = [unit.summary for unit in self.facets]
        points = np.zeros((len(summaries), points_of(self.embed, []).shape[1]), np.float32)
        progress = self.context.in_tenths("points of units")
        for start in range(0, len(summaries), UNITS_AT_ONCE):
            part = slice(start, start + UNITS_AT_ONCE)
            points[part] = points_of(self.embed, summaries[part], partial(_after, progress, start, len(summaries)))
        points[[not summary.strip() for summary in summaries]] = np.nan
        return points

    def sampled(self, share: Decimal) -> NDArray[np.bool_]:
        """Return whether each unit is in a sample that takes each with this probability, independently of the others.

        Repeated calls give the same sample. A sample of fixed size is not allowed: one unit more would push another
        one out, and that counts twice (PRIVACY §5).
        """
        split, limit = self.context.split, int(_WHOLE * Fraction(share))
        in_sample = [int.from_bytes(split.keyed_hash("insights", unit), "big") < limit for unit in self.ids]
        return np.array(in_sample, np.bool_).reshape(len(self.ids))


def _after(progress: Progress, before: int, total: int, done: int, _: int) -> None:
    """Report what is done of a part that follows `before` others."""
    progress(before + done, total)


@dataclass(frozen=True)
class Tools:
    """Public models of a run, with its units.

    Attributes:
        embed: embeds public texts.
        write: names released values.
        units: the units, not read yet.
    """

    embed: Embedder
    write: Writer
    units: PrivateUnits

    @classmethod
    def of(
        cls, parameters: InsightParameters, blocks: Sequence[int], context: RunContext, schemas: Sequence[Schema]
    ) -> "Tools":
        """Load the tools of a request; a model that cannot do its part is refused here.

        Args:
            blocks: the blocks that the release is eligible to read.
            schemas: all schemas of `write`.

        Raises:
            ModelNotPulled: the embedder is not on this machine.
            ContextTooLong, NoChatTemplate, TokenizerNotSupported, EndTokenMissing, TokenLimitTooSmall:
                the model cannot do it.
        """
        embed = load_embedder(parameters.embedder, str(context.engine.model.device))
        progress = ShardProgress(context.in_tenths("facets"))
        extract = extractor_with_progress(parameters, context, progress)
        write = Writer.of(context, schemas, parameters.max_new_tokens, parameters.temperature, parameters.top_k)
        points = spread_embedder(context.workers, embed, parameters.embedder, context.device, context.text_shards)
        return cls(RetriedEmbedder(embed), write, PrivateUnits(context, blocks, extract, points, progress))


def extractor_with_progress(parameters: InsightParameters, context: RunContext, progress: Progress) -> Extractor:
    """Return the extractor.

    Args:
        progress: over all units, not per batch: the number of batches is private.
    """
    shards = context.text_shards
    extractor = partial(spread_extractor, context.workers, context.engine, context.device, parameters.facets, shards)
    if context.cache is None:
        return extractor(progress)
    texts_per_batch = BATCH * (len(context.workers.places) if context.workers else 1)
    return cached(extractor(lambda done, of: None), context.cache, context.scheme.key, progress, texts_per_batch)


def as_text(insight: Insight, context: RunContext) -> GeneratedText:
    """Return an insight as a text of the release: its description."""
    description = insight.topic.description
    tokens = len(context.engine.model.tokenizer(description, add_special_tokens=False)["input_ids"])
    return GeneratedText(description, tokens, complete=True, insight=insight)
