"""Points and facets of private units by the workers of a run, the same as this process would find.

Only what is read of each unit by itself is handed out. Public texts (keywords, candidates, what was released) are few
and stay here. RAKE stays here too: sending a text takes longer than reading it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tasks.evaluation.subject import Embedder, Pieces
from tasks.insights.facet_settings import FacetSettings
from tasks.insights.facets import MODEL, RAKE, Extractor, Progress, extractor_for
from tasks.insights.points import points_of
from tasks.insights.values import Facets

if TYPE_CHECKING:
    from tasks.generation.interface import Bench
    from tasks.generation.workers import Workers, Workplace
    from tasks.inference.language_model import LanguageModel
    from tasks.inference.spread import Spread, Tool


@dataclass(frozen=True)
class SpreadEmbedder:
    """An embedder whose `points_of` is worked out by others; a call is this process's own.

    Attributes:
        embed: the same one, here.
        spread: makes rows of length 1.
    """

    embed: Embedder
    spread: "Spread[NDArray[np.float32]]"

    @property
    def name(self) -> str:
        """The embedder's."""
        return self.embed.name

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """float32 [n, width]."""
        return self.embed(texts)

    def pieces(self, texts: Sequence[str]) -> Sequence[Pieces]:
        """As the embedder's."""
        return self.embed.pieces(texts)

    def points_elsewhere(self, texts: Sequence[str], progress: Progress) -> NDArray[np.float32]:
        """float32 [n, width], rows of length 1: asked for by `points_of`."""
        rows = self.spread(texts, progress)
        return np.stack(rows) if rows else np.zeros((0, self.embed([]).shape[1]), np.float32)


@dataclass(frozen=True)
class SpreadExtractor:
    """An `Extractor` whose facets are found by others.

    Attributes:
        name: of the same one, here.
    """

    name: str
    spread: "Spread[Facets]"
    progress: Progress

    def __call__(self, texts: Sequence[str]) -> list[Facets]:
        """One for each text."""
        return self.spread(texts, self.progress)


def spread_embedder(bench: "Bench", embed: Embedder, model: str) -> Embedder:
    """`embed` for private units: by the bench's workers, if it has some.

    Args:
        model: the name it is loaded by.
    """
    if bench.workers is None:
        return embed
    return SpreadEmbedder(embed, spread_of(bench.workers, embed.name, bench.device, partial(points_tool, model)))


def spread_extractor(bench: "Bench", settings: FacetSettings, progress: Progress) -> Extractor:
    """The extractor of the settings for private units: by the bench's workers, if it has some and they are of use.

    Raises:
        As `extractor_for`.
    """
    if bench.workers is None or settings.extractor == RAKE:
        return extractor_for(settings, bench.engine, progress)
    here = extractor_for(settings, bench.engine)
    make = partial(facets_tool, settings, bench.workers.load)
    spread = spread_of(bench.workers, here.name, bench.device, make)
    spread.begin()  # each of them asks its own device whether rows keep their bits there
    return SpreadExtractor(here.name, spread, progress)


def spread_of(workers: "Workers", name: str, device: str, make: "Callable[..., Tool]") -> "Spread[Any]":
    """Workers that have a tool of this name; `make` is told its place and whether that is on another machine."""
    from tasks.inference.kit import Kit
    from tasks.inference.spread import Spread

    elsewhere = workers.runner.elsewhere
    makes = [partial(make, place, elsewhere) for place in workers.places]
    return Spread(workers.runner, makes, Kit.here((name,), device, elsewhere))


# --- On a worker -----------------------------------------------------------------------------------------------


def points_tool(model: str, place: "Workplace", elsewhere: bool) -> "Tool":
    """Points by an embedder of the worker's own."""
    from tasks.inference.embedding import load_embedder
    from tasks.inference.kit import Kit, settle

    device = settle(place.device, place.threads, elsewhere)
    embed = load_embedder(model, device)
    return Kit.here((embed.name,), device, elsewhere), lambda texts: list(points_of(embed, texts))


def facets_tool(
    settings: FacetSettings, load: "Callable[[str], LanguageModel]", place: "Workplace", elsewhere: bool
) -> "Tool":
    """Facets by an extractor of the worker's own."""
    from tasks.inference.engine import Engine
    from tasks.inference.kit import Kit, settle

    device = settle(place.device, place.threads, elsewhere)
    # How much memory there is decides nothing of an answer (docs/decisions/0042).
    engine = Engine(load(device), memory=place.memory) if settings.extractor == MODEL else None
    extract = extractor_for(settings, engine)
    return Kit.here((extract.name,), device, elsewhere), extract
