"""Whatever a device can refuse is refused before the first ARM and costs nothing (PRIVACY §10.1)."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models_db.home import ProjectHome
from tasks.analysis.facets.extractor import extractor_for
from tasks.analysis.facets.facet_settings import FacetSettings
from tasks.analysis.keywords.assign_with_model import ModelKeywordAssigner
from tasks.corpus.store import Corpus
from tasks.decoding.run_context import RunContext
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.isolation import IsolationCheck
from tasks.inference.engine.language_model import KeyValueCache
from tasks.systems.adapmixed import AdaPMixed, AdaPMixedParameters
from tasks.systems.few_shot_generation import FewShotGeneration, FewShotGenerationParameters
from tasks.systems.invisible_ink import InvisibleInk, InvisibleInkParameters
from tasks.systems.private_icl import PrivateIcl, PrivateIclParameters
from tasks.systems.private_prediction import PrivatePrediction, PrivatePredictionParameters
from tasks.systems.summaries import OneShotParameters, OneShotSummary, TokenLevelParameters, TokenLevelSummary
from tasks.values.results import Facets
from tests.refusals import refusal
from tests.tiny_model import tiny_model
from tests.unit.tasks.adapters.test_escapes import GROUPS, planted
from tests.unit.tasks.systems.asking import AMOUNT, ask
from tests.unit.tasks.systems.workshop import NOTES, Workshop, store

pytestmark = [pytest.mark.dear, pytest.mark.contract]
CONCERNS = ("tasks/systems/summaries", "tasks/systems/insights")

TEXTS: dict[str, Any] = {
    "samples": 3,
    "references": 3,
    "max_new_tokens": 20,
    "temperature": "1",
    "max_reference_tokens": 40,
    "instalment": 2,
}
OF_GROUPS = {name: value for name, value in TEXTS.items() if name != "samples"} | {"groups": GROUPS}

SYSTEMS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "ink": (InvisibleInk(), InvisibleInkParameters, TEXTS | {"batches": 2}),
    "ink, counted": (InvisibleInk(), InvisibleInkParameters, TEXTS),
    "ink, all tokens": (InvisibleInk(), InvisibleInkParameters, TEXTS | {"top_k": 0}),
    "amin": (PrivatePrediction(), PrivatePredictionParameters, TEXTS | {"private_tokens": 6, "threshold": "0.1"}),
    "icl": (PrivateIcl(), PrivateIclParameters, TEXTS),
    "tang": (FewShotGeneration(), FewShotGenerationParameters, TEXTS),
    "adapmixed": (AdaPMixed(), AdaPMixedParameters, TEXTS | {"batches": 2}),
    "token level": (TokenLevelSummary(), TokenLevelParameters, OF_GROUPS | {"clip_norm": "0.5"}),
    "one shot": (OneShotSummary(), OneShotParameters, OF_GROUPS | {"clip_norm": "0.5"}),
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("asked")
    return store(ProjectHome(folder / "home"), Path(folder) / "notes.jsonl", NOTES, "section")


@dataclass
class Log:
    """What happened, in order: a shape the device was asked about for the first time, an ARM, a reading."""

    seen: list[Any] = field(default_factory=list)

    @property
    def kinds(self) -> list[str]:
        return [each[0] for each in self.seen]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log()
    learn = IsolationCheck._learn

    def noted(self: IsolationCheck, holds: bool, *shape: str | int) -> None:
        made.seen.append(("asked", *shape))
        learn(self, holds, *shape)

    monkeypatch.setattr(IsolationCheck, "_learn", noted)
    return made


def run(system: str, corpus: Corpus, log: Log, patch: pytest.MonkeyPatch, engine: Engine | None = None) -> None:
    maker, kind, given = SYSTEMS[system]
    wanted = kind.model_validate(given | (planted("one-shot", patch) if kind is OneShotParameters else {}))
    plan = maker.plan(ask(wanted, AMOUNT, governed=maker.charges))
    context: RunContext = Workshop(corpus, seen=log.seen).context()
    maker.generate(plan, wanted, replace(context, engine=engine or Engine(tiny_model(stops=False), memory=2**30)))


@pytest.mark.parametrize("system", SYSTEMS)
def test_nothing_is_armed_or_read_before_the_last_question(
    system: str, corpus: Corpus, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(system, corpus, log, monkeypatch)
    last = max(number for number, kind in enumerate(log.kinds) if kind == "asked")
    assert {"arm", "batches"} <= set(log.kinds)
    assert log.kinds.index("arm") > last
    assert min(number for number, kind in enumerate(log.kinds) if kind in ("batches", "count", "texts")) > last


def _coupled(patch: pytest.MonkeyPatch) -> str:
    patch.setattr(IsolationCheck, "_verdicts", property(lambda self: _Never(), lambda self, value: None), raising=False)
    return "RowsNotIsolated"


class _Never(dict[Any, bool]):
    """The device keeps rows apart at no shape."""

    def __getitem__(self, shape: Any) -> bool:
        return False


def _out_of_memory(patch: pytest.MonkeyPatch) -> str:
    def none(*given: Any, **options: Any) -> KeyValueCache:
        raise MemoryError

    patch.setattr(KeyValueCache, "allocate", none)
    return "NotEnoughMemory"


@pytest.mark.parametrize("how", [_coupled, _out_of_memory])
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_device_that_cannot_costs_nothing(
    system: str, how: Callable[..., str], corpus: Corpus, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(tiny_model(stops=False), memory=2**30)
    with refusal(how(monkeypatch)):
        run(system, corpus, log, monkeypatch, engine)
    assert not {"arm", "batches", "count", "texts"} & set(log.kinds)


@pytest.mark.slow
def test_tools_of_insights_ask_when_they_are_made(log: Log) -> None:
    """Facets and chosen keywords of units: no shape is left to be asked about when there are texts."""
    engine = Engine(replace(tiny_model(), positions=4096), memory=2**30)
    extract = extractor_for(FacetSettings(extractor="model", max_text_tokens=40, max_new_tokens=120), engine)
    asked = len(log.seen)
    assert asked
    extract(["A short note.", "x" * 300, ""])
    assert len(log.seen) == asked
    choose = ModelKeywordAssigner.of(engine, most=3)
    asked, units = len(log.seen), [Facets({"summary": ("a walk in the hills",)}), Facets({"summary": ("tax",)})]
    for keywords in (["hiking", "taxes"], [f"keyword {number}" for number in range(60)]):
        choose(units, np.zeros((2, 2), np.float32), keywords, np.zeros((len(keywords), 2), np.float32), 3)
    assert len(log.seen) == asked
