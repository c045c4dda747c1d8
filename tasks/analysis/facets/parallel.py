"""Facets of private units by the workers of a run, the same as this process would find.

RAKE stays here: sending a text takes longer than reading it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tasks.analysis.facets.extractor import MODEL, RAKE, Extractor, extractor_for
from tasks.analysis.facets.parameters import FacetSettings
from tasks.common.progress import Progress
from tasks.inference.embeddings.parallel_map import ParallelMap, Tool, WorkerSet, spread_of
from tasks.inference.embeddings.worker_environment import WorkerEnvironment, WorkerSpec, settle
from tasks.inference.engine.engine import Engine
from tasks.inference.network.language_model import LanguageModel
from tasks.values.insight import Facets


@dataclass(frozen=True)
class SpreadExtractor:
    """An `Extractor` whose facets are found by others.

    Attributes:
        name: of the same one, here.
    """

    name: str
    spread: ParallelMap[Facets]
    progress: Progress

    def __call__(self, texts: Sequence[str]) -> list[Facets]:
        """One for each text."""
        return self.spread(texts, self.progress)


def spread_extractor(
    workers: WorkerSet | None, engine: Engine, device: str, settings: FacetSettings, progress: Progress
) -> Extractor:
    """The extractor of the settings for private units: by workers, if there are some and they are of use.

    Args:
        engine: the run's own.
        device: where the run computes.

    Raises:
        As `extractor_for`.
    """
    if workers is None or settings.extractor == RAKE:
        return extractor_for(settings, engine, progress)
    here = extractor_for(settings, engine)
    spread = spread_of(workers, here.name, device, partial(facets_tool, settings, workers.load))
    spread.begin()  # each of them asks its own device whether rows keep their bits there
    return SpreadExtractor(here.name, spread, progress)


def facets_tool(
    settings: FacetSettings, load: Callable[[str], LanguageModel], place: WorkerSpec, elsewhere: bool
) -> Tool:
    """Facets by an extractor of the worker's own; runs on a worker."""
    device = settle(place.device, place.threads, elsewhere)
    # How much memory there is decides nothing of an answer (docs/decisions/0042).
    engine = Engine(load(device), memory=place.memory) if settings.extractor == MODEL else None
    extract = extractor_for(settings, engine)
    return WorkerEnvironment.here((extract.name,), device, elsewhere), extract
