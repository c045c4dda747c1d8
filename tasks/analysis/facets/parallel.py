"""Parallel facet extraction by the workers of a run, with the same results as in this process.

RAKE stays in this process: sending a text takes longer than processing it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tasks.analysis.facets.extractor import MODEL, Extractor, extractor_for
from tasks.analysis.facets.facet_settings import FacetSettings
from tasks.common.progress import Progress
from tasks.inference.embeddings.parallel import (
    ParallelMap,
    Tool,
    WorkerEnvironment,
    WorkerSet,
    WorkerSpec,
    settle,
    spread_of,
)
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.language_model import LanguageModel
from tasks.values.results import Facets
from tasks.workers.pool import TextShards


@dataclass(frozen=True)
class SpreadExtractor:
    """An `Extractor` that runs on workers.

    Attributes:
        name: of the same extractor in this process.
    """

    name: str
    spread: ParallelMap[Facets]
    progress: Progress

    def __call__(self, texts: Sequence[str]) -> list[Facets]:
        """Return the facets of each text."""
        return self.spread(texts, self.progress)


def spread_extractor(
    workers: WorkerSet | None,
    engine: Engine,
    device: str,
    settings: FacetSettings,
    shards: TextShards,
    progress: Progress,
) -> Extractor:
    """Return the extractor of the settings for private units; on workers, if there are any and they help.

    Args:
        engine: of the run in this process.
        device: of the run.
        shards: says which worker has a text.

    Raises:
        As `extractor_for`.
    """
    if workers is None or settings.extractor != MODEL:
        return extractor_for(settings, engine, progress)
    local = extractor_for(settings, engine)
    spread = spread_of(workers, local.name, device, shards, partial(facets_tool, settings, workers.load))
    spread.begin()  # each worker checks row isolation on its own device
    return SpreadExtractor(local.name, spread, progress)


def facets_tool(
    settings: FacetSettings, load: Callable[[str], LanguageModel], place: WorkerSpec, elsewhere: bool
) -> Tool:
    """Build the extractor of a worker; runs on the worker."""
    device = settle(place.device, place.threads, elsewhere)
    # The amount of memory does not change an answer.
    extract = extractor_for(settings, Engine(load(device), memory=place.memory))
    return WorkerEnvironment.of_process((extract.name,), device, elsewhere), extract
