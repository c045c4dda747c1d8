"""What a run of insights works with: public models, made before anything is spent, and the units they look at."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tasks.analysis.facets.cache import BATCH, cached
from tasks.analysis.facets.extractor import Extractor
from tasks.analysis.facets.parallel import spread_extractor
from tasks.generation.decoding.run_context import RunContext
from tasks.generation.decoding.structured_output import Schema, Writer
from tasks.inference.embeddings.encoder import load_embedder
from tasks.inference.embeddings.parallel_encoder import spread_embedder
from tasks.insights.parameters import InsightParameters
from tasks.insights.private_units import PrivateUnits
from tasks.text.interfaces import Embedder
from tasks.values.generated import GeneratedText
from tasks.values.insight import Insight


@dataclass(frozen=True)
class Tools:
    """Public models at work.

    Attributes:
        embed: makes points of public texts.
        write: names what was released.
        units: the units, which nobody has read yet.
    """

    embed: Embedder
    write: Writer
    units: PrivateUnits

    @classmethod
    def of(
        cls, wanted: InsightParameters, blocks: Sequence[int], bench: RunContext, schemas: Sequence[Schema]
    ) -> "Tools":
        """What the request asks for; whatever a model lacks is refused here.

        Args:
            blocks: the blocks that the release is eligible to read.
            schemas: everything that `write` is asked for.

        Raises:
            ModelNotPulled: the embedder is not here.
            ContextTooLong, NoChatTemplate, TokenizerNotSupported, NoEnd, TokenLimitTooSmall: the model cannot do it.
        """
        embed = load_embedder(wanted.embedder, str(bench.engine.model.device))
        extract = extractor_with_progress(wanted, bench)
        write = Writer.of(bench, schemas, wanted.max_new_tokens, wanted.temperature, wanted.top_k)
        points = spread_embedder(bench.workers, embed, wanted.embedder, bench.device)
        return cls(embed, write, PrivateUnits(bench, blocks, extract, points))


def extractor_with_progress(wanted: InsightParameters, bench: RunContext) -> Extractor:
    """It tells how far it is with all units, and not with each batch: how many batches there are is private."""
    told = bench.in_tenths("facets")
    extractor = partial(spread_extractor, bench.workers, bench.engine, bench.device, wanted.facets)
    if bench.cache is None:
        return extractor(told)
    at_once = BATCH * (len(bench.workers.places) if bench.workers else 1)
    return cached(extractor(lambda done, of: None), bench.cache, bench.scheme.key, told, at_once)


def as_text(insight: Insight, bench: RunContext) -> GeneratedText:
    """An insight as a text of the release: its description."""
    description = insight.topic.description
    tokens = len(bench.engine.model.tokenizer(description, add_special_tokens=False)["input_ids"])
    return GeneratedText(description, tokens, complete=True, insight=insight)
