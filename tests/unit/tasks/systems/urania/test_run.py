"""The stages of a release of insights: what is read when, what is armed before, and what a unit may add."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models_db.home import ProjectHome
from tasks.accounting.zcdp import release_amount
from tasks.analysis.facets.extractor import extractor_for
from tasks.analysis.facets.facet_settings import FacetSettings
from tasks.analysis.keywords.assign import IndexKeywordAssigner, KeywordAssigner
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.counts.set_histogram import SetHistogram
from tasks.systems.insights.private_units import PrivateUnits, Tools
from tasks.systems.urania import Urania
from tasks.systems.urania.run import UraniaRun
from tasks.systems.urania.stages import Stages, UraniaParameters
from tasks.values.plan import PlanInputs
from tests.tiny_embedder import Letters
from tests.unit.tasks.systems.workshop import Step, Workshop, store

WORDS = ["kettle", "violin", "tax form", "tomato"]
PUBLIC: dict[str, Any] = {"method": "public", "words": WORDS, "size": 4}
PRIVATE: dict[str, Any] = {"method": "tfidf", "size": 4, "per_unit": 2, "tokens_per_unit": 4}


def run_of(
    folder: Path, keywords: dict[str, Any], choose: KeywordAssigner | None = None, blocks: int = 1
) -> tuple[UraniaRun, list[Step]]:
    wanted = UraniaParameters.model_validate(
        {"keywords": keywords, "clusters": {"count": 3}, "keywords_of_a_unit": 2, "noise": "gaussian"}
    )
    plan = Urania().plan(PlanInputs(release_amount("8", "1e-6", "0.1"), wanted, blocks, None, governed=True))
    notes = [{"patient_id": f"unit {number}", "text": f"My {WORDS[number % 4]} leaks."} for number in range(20)]
    shop = Workshop(store(ProjectHome(folder / "home"), folder / "notes.jsonl", notes), blocks)
    context = shop.context(OS_RANDOM)
    units = PrivateUnits(context, plan.blocks, extractor_for(FacetSettings()), Letters())
    tools = Tools(Letters(), None, units)  # type: ignore[arg-type] - nothing is written before all is released
    return UraniaRun(
        wanted, Stages.of(wanted, plan.amount), plan, context, tools, choose or IndexKeywordAssigner()
    ), shop.seen


def released(run: UraniaRun) -> None:
    _ = run.keywords, run.centres, run.sizes, run.chosen


@pytest.mark.parametrize(("keywords", "armed_first", "stages"), [(PUBLIC, 1, 3), (PRIVATE, 3, 6)])
def test_nothing_is_read_before_the_first_stage_is_armed_and_each_is_armed_once(
    tmp_path, keywords, armed_first, stages
):
    """Private keywords are the histogram of frequencies and two rounds of selection."""
    run, seen = run_of(tmp_path, keywords)
    assert seen == []
    released(run)
    assert [step[0] for step in seen] == ["arm"] * armed_first + ["each_shard"] + ["arm"] * (stages - armed_first)
    assert [step[1:] for step in seen if step[0] == "arm"] == [(number, 0) for number in range(stages)]


def test_the_units_of_every_block_are_read_at_once(tmp_path):
    run, seen = run_of(tmp_path, PUBLIC, blocks=3)
    released(run)
    assert [step for step in seen if step[0] == "each_shard"] == [("each_shard", (0, 1, 2), ())]
    assert len(run.units.ids) == 20


class Greedy:
    """Says of every unit that it is about everything, several times."""

    def __call__(self, facets: Sequence[Any], points: Any, keywords: Sequence[str], near: Any, most: int) -> Any:
        return [tuple(range(len(keywords))) * 3 for _ in facets]


def test_a_unit_adds_as_many_keywords_as_are_paid_for_whatever_a_chooser_says(tmp_path, monkeypatch):
    drawn: list[list[int]] = []
    monkeypatch.setattr(SetHistogram, "draw", lambda self, counts, rng: drawn.append(list(counts)) or list(counts))
    run, _ = run_of(tmp_path, PUBLIC, Greedy())
    _ = run.keywords, run.centres, run.chosen
    (counts,) = drawn
    assert sum(counts) == 20 * 2
    assert np.reshape(counts, (3, 4))[:, 2:].sum() == 0
