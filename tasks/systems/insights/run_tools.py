"""Tools of an insights run: public models, loaded before anything is spent, and the private units."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tasks.analysis.facets.extractor import BATCH, Extractor, cached, spread_extractor
from tasks.common.progress import Progress
from tasks.corpus.store import ShardProgress
from tasks.decoding.run_context import RunContext
from tasks.decoding.structured_output import Schema, Writer
from tasks.inference.embeddings.encoder import load_embedder
from tasks.inference.embeddings.parallel import spread_embedder
from tasks.inference.embeddings.unit_embeddings import RetriedEmbedder
from tasks.systems.insights.parameters import InsightParameters
from tasks.systems.insights.private_units import PrivateUnits
from tasks.text.interfaces import Embedder
from tasks.values.results import GeneratedText, Insight


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
        cls, parameters: InsightParameters, blocks: Sequence[int], bench: RunContext, schemas: Sequence[Schema]
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
        embed = load_embedder(parameters.embedder, str(bench.engine.model.device))
        progress = ShardProgress(bench.in_tenths("facets"))
        extract = extractor_with_progress(parameters, bench, progress)
        write = Writer.of(bench, schemas, parameters.max_new_tokens, parameters.temperature, parameters.top_k)
        points = spread_embedder(bench.workers, embed, parameters.embedder, bench.device, bench.text_shards)
        return cls(RetriedEmbedder(embed), write, PrivateUnits(bench, blocks, extract, points, progress))


def extractor_with_progress(parameters: InsightParameters, bench: RunContext, progress: Progress) -> Extractor:
    """Return the extractor.

    Args:
        progress: over all units, not per batch: the number of batches is private.
    """
    shards = bench.text_shards
    extractor = partial(spread_extractor, bench.workers, bench.engine, bench.device, parameters.facets, shards)
    if bench.cache is None:
        return extractor(progress)
    texts_per_batch = BATCH * (len(bench.workers.places) if bench.workers else 1)
    return cached(extractor(lambda done, of: None), bench.cache, bench.scheme.key, progress, texts_per_batch)


def as_text(insight: Insight, bench: RunContext) -> GeneratedText:
    """Return an insight as a text of the release: its description."""
    description = insight.topic.description
    tokens = len(bench.engine.model.tokenizer(description, add_special_tokens=False)["input_ids"])
    return GeneratedText(description, tokens, complete=True, insight=insight)
