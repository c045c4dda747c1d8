"""Points and facets by workers are those that the run itself would find, bit for bit."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tasks.analysis.facets.extractor import Extractor
from tasks.analysis.facets.facet_settings import FacetSettings
from tasks.analysis.facets.parallel import SpreadExtractor, spread_extractor
from tasks.corpus.store import Corpus
from tasks.decoding.run_context import RunContext
from tasks.decoding.workers import Workers
from tasks.inference.embeddings import parallel
from tasks.inference.embeddings.encoder import EMBEDDER, load_embedder
from tasks.inference.embeddings.parallel import WorkerSpec, spread_embedder
from tasks.inference.embeddings.unit_embeddings import points_of
from tasks.inference.engine.engine import Engine
from tasks.systems.insights.private_units import PrivateUnits, extractor_with_progress
from tasks.systems.urania.stages import UraniaParameters
from tasks.workers.pool import TextShards
from tasks.workers.processes import ProcessRunner, ThreadRunner
from tests.tiny_embedder import Letters
from tests.tiny_model import load_tiny_that_ends
from tests.unit.tasks.analysis.facets.test_model_based import ASKED
from tests.unit.tasks.systems.insights.test_private_units import SAYING, corpus_of, told
from tests.unit.tasks.systems.workshop import Workshop

BY_MODEL = FacetSettings(**ASKED)
PLACES = (WorkerSpec("cpu", 2**26, 1),) * 2


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return corpus_of(tmp_path / "whole", told(SAYING))


@pytest.fixture
def context(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunContext]:
    """Two threads work for it; their embedder counts letters."""
    monkeypatch.setattr(parallel, "load_embedder", lambda *_: Letters())
    runner, load = ThreadRunner(), partial(load_tiny_that_ends, "tiny")
    engine = Engine(load("cpu"), memory=2**26)
    yield replace(Workshop(corpus).context(), engine=engine, workers=Workers(load, PLACES, runner))
    runner.close()


def ignore(done: int, of: int) -> None: ...


def extractor(context: RunContext, settings: FacetSettings) -> Extractor:
    return spread_extractor(context.workers, context.engine, context.device, settings, context.text_shards, ignore)


def test_units_have_the_points_and_facets_that_they_have_alone(context: RunContext, tmp_path: Path) -> None:
    wanted = UraniaParameters(facets=BY_MODEL)
    alone = replace(context, workers=None)
    first = PrivateUnits(alone, range(1), extractor_with_progress(wanted, alone, ignore), Letters())
    assert any(each.keywords for each in first.facets)
    for cache in (None, tmp_path / "derived"):  # with a cache, an entry is a unit's
        far = replace(context, cache=cache)
        extract = extractor_with_progress(wanted, far, ignore)
        units = PrivateUnits(
            far, range(1), extract, spread_embedder(far.workers, Letters(), "letters", far.device, far.text_shards)
        )
        assert units.facets == first.facets
        assert units.points.tobytes() == first.points.tobytes()
        assert extract.name == extractor_with_progress(wanted, alone, ignore).name


def test_what_costs_next_to_nothing_stays_here(context: RunContext) -> None:
    assert not isinstance(extractor(context, FacetSettings()), SpreadExtractor)
    assert isinstance(extractor(context, BY_MODEL), SpreadExtractor)
    letters = Letters()
    assert spread_embedder(None, letters, "letters", "cpu", context.text_shards) is letters
    assert spread_embedder(context.workers, letters, "letters", context.device, context.text_shards)(
        ["public"]
    ).shape == (
        1,
        27,
    )
    assert letters.asked == ["public"]
    assert points_of(
        spread_embedder(context.workers, letters, "letters", context.device, context.text_shards), []
    ).shape == (
        0,
        27,
    )


@pytest.mark.slow
def test_two_processes_embed_as_one() -> None:
    runner, embed = ProcessRunner(), load_embedder(device="cpu")
    workers: Any = Workers(partial(load_tiny_that_ends, "tiny"), PLACES, runner)
    far = spread_embedder(workers, embed, EMBEDDER, "cpu", TextShards(256, lambda text: len(text) % 256))
    texts = [text or "?" for text in SAYING] * 3
    assert points_of(far, texts).tobytes() == points_of(embed, texts).tobytes()
    runner.close()
