"""What is worked out of a unit follows from that unit alone, bit for bit, whoever else is there or ever was."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models_db.home import ProjectHome
from tasks.analysis.facets.extractor import BATCH, cached, extractor_for
from tasks.analysis.facets.facet_settings import FacetSettings
from tasks.analysis.keywords.assign import IndexKeywordAssigner
from tasks.corpus.store import Corpus, ShardProgress
from tasks.decoding import run_context
from tasks.systems.insights import private_units
from tasks.systems.insights.private_units import PrivateUnits, extractor_with_progress
from tasks.systems.urania.stages import UraniaParameters
from tasks.values.results import Facets
from tests.tiny_embedder import Letters
from tests.unit.tasks.systems.workshop import Workshop, store

pytestmark = pytest.mark.contract

SAME = "Which kettle would you buy?"
SAYING = [
    SAME,
    "My violin is out of tune, again!",
    SAME,
    "",
    " . ",
    "Tax form 1040, please",
    "lang" * 900,
    SAME,
    "语言",
]


def corpus_of(folder: Path, said: dict[str, str]) -> Corpus:
    folder.mkdir()
    notes = [{"patient_id": unit, "text": text} for unit, text in said.items()]
    return store(ProjectHome(folder / "home"), folder / "notes.jsonl", notes)


def told(said: Sequence[str]) -> dict[str, str]:
    return {f"unit {number}": text or "?" for number, text in enumerate(said)}


def everything(corpus: Corpus, extract: Any, blocks: int = 1) -> dict[str, tuple[Any, ...]]:
    """By unit: its facets, its point, whether it is sampled, and what it chooses."""
    units = PrivateUnits(Workshop(corpus, blocks).context(), range(blocks), extract, Letters())
    words = ["kettle", "violin", "tax form"]
    chosen = IndexKeywordAssigner()(units.facets, units.points, words, Letters()(words), 2)
    taken = units.sampled(Decimal("0.5"))
    return {
        unit: (found.values, point.tobytes(), bool(take), own)
        for unit, found, point, take, own in zip(units.ids, units.facets, units.points, taken, chosen, strict=True)
    }


def test_one_unit_less_leaves_all_others_as_they_were(tmp_path):
    extract, said = extractor_for(FacetSettings()), told(SAYING)
    whole = everything(corpus_of(tmp_path / "whole", said), extract)
    assert whole.keys() == said.keys()
    for gone in said:
        left = everything(corpus_of(tmp_path / gone, {unit: said[unit] for unit in said if unit != gone}), extract)
        assert left == {unit: found for unit, found in whole.items() if unit != gone}


def test_the_units_of_all_blocks_are_read(tmp_path):
    extract, corpus = extractor_for(FacetSettings()), corpus_of(tmp_path / "whole", told(SAYING))
    assert everything(corpus, extract, 1).keys() == everything(corpus, extract, 3).keys()


@pytest.mark.parametrize("least", [1, 3])
def test_units_are_the_same_in_the_same_order_however_many_are_read_together(tmp_path, monkeypatch, least):
    corpus, extract = corpus_of(tmp_path / "whole", told(SAYING)), extractor_for(FacetSettings())
    context = Workshop(corpus, 3).context()
    together = PrivateUnits(context, (2, 0, 1), extract, Letters())
    batches = context.corpus.batches(context.scheme, context.split, 1, [(block, 0, 0) for block in range(3)])
    assert together.ids == [row.unit for block in (2, 0, 1) for row in batches[block, 0, 0]]
    monkeypatch.setattr(run_context, "lots", partial(run_context.lots, least=least))
    monkeypatch.setattr(private_units, "UNITS_AT_ONCE", least)
    apart = PrivateUnits(context, (2, 0, 1), extract, Letters())
    assert len(list(apart.lots())) > 1
    assert apart.ids == together.ids
    assert apart.facets == together.facets
    assert apart.points.tobytes() == together.points.tobytes()


class Today:
    """An extractor whose facets are those of the machine of that day: it has one name, whatever arithmetic it has."""

    name = "today 1"

    def __init__(self, day: str) -> None:
        self.day = day

    def __call__(self, texts: Sequence[str]) -> list[Facets]:
        return [Facets({"summary": (f"{self.day}: {text}",), "keywords": (self.day,)}) for text in texts]


def test_nobody_gets_the_facets_that_were_found_of_another_unit_on_another_day(tmp_path):
    """Many say today what one unit said yesterday: what is found of them must not tell that it was there."""
    everybody = {f"new {number}": SAME for number in range(5)}
    found = []
    for present in (True, False):
        folder = tmp_path / str(present)
        yesterday = {"one": SAME if present else "something else", "other": "My violin"}
        for day, said in (("yesterday", yesterday), ("today", yesterday | everybody)):
            corpus = corpus_of(folder.with_name(f"{folder.name} {day}"), said)
            last = everything(corpus, cached(Today(day), folder, bytes(32)))
        found.append({unit: last[unit] for unit in everybody})
    assert found[0] == found[1]
    assert all(own[0]["keywords"] == ("today",) for own in found[0].values())


def test_a_unit_finds_its_own_facets_again(tmp_path):
    corpus = corpus_of(tmp_path / "whole", told(SAYING))
    first = everything(corpus, cached(Today("yesterday"), tmp_path / "kept", bytes(32)))
    assert everything(corpus, cached(Today("today"), tmp_path / "kept", bytes(32))) == first


@pytest.mark.parametrize("keeping", [True, False])
def test_progress_does_not_tell_how_many_units_there_are(tmp_path, keeping):
    """Nor how many batches of them are kept."""

    def heard(count: int) -> list[tuple[str, int, int]]:
        steps: list[tuple[str, int, int]] = []
        corpus = corpus_of(tmp_path / str(count), {f"unit {number}": f"kettle {number}" for number in range(count)})
        folder = tmp_path / f"kept {count}" if keeping else None
        context = replace(Workshop(corpus).context(), progress=lambda *step: steps.append(step), cache=folder)
        progress = ShardProgress(context.in_tenths("facets"))
        extract = extractor_with_progress(UraniaParameters(), context, progress)
        assert len(PrivateUnits(context, (0,), extract, Letters(), progress).facets) == count
        return list(dict.fromkeys(steps))

    few, more = heard(BATCH - 1), heard(BATCH)
    assert few == more
    assert few[-1] == ("facets", 10, 10)
    assert {total for _, _, total in heard(2 * BATCH + 1)} == {10}


def test_a_unit_of_which_nothing_is_found_has_no_point(tmp_path):
    corpus = corpus_of(tmp_path / "whole", {"silent": "?", "loud": "My violin"})
    units = PrivateUnits(Workshop(corpus).context(), (0,), Silent(), Letters())
    points = dict(zip(units.ids, units.points, strict=True))
    assert np.isnan(points["silent"]).all()
    assert np.isfinite(points["loud"]).all()


class Silent:
    """Has nothing to say of a question mark."""

    name = "silent 1"

    def __call__(self, texts: Sequence[str]) -> list[Facets]:
        return [Facets({"summary": () if text == "?" else (text,)}) for text in texts]
