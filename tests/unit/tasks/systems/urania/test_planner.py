"""URANIA: what its stages cost together, in which order they are paid and read, and what a stage releases once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models_db.home import ProjectHome
from models_db.values.amounts import Amount, total_amount
from models_db.values.canonical_json import Json
from models_db.values.requests import model_to_json
from tasks.accounting.zcdp import release_amount
from tasks.analysis.facets.extractor import extractor_for
from tasks.analysis.keywords.assign import IndexKeywordAssigner
from tasks.corpus.store import Corpus
from tasks.decoding.journal import RunJournal
from tasks.decoding.run_context import ReleaseSteps, StepLost
from tasks.mechanisms.registry import recompute
from tasks.systems.insights.private_units import PrivateUnits, Tools
from tasks.systems.urania import Urania
from tasks.systems.urania.run import UraniaRun
from tasks.systems.urania.stages import Shares, Stages, UraniaParameters
from tasks.text.words import unsupported_words
from tasks.values.plan import Plan
from tasks.values.results import UNNAMED, Generated
from tests.refusals import refusal
from tests.tiny_embedder import Letters
from tests.unit.tasks.systems.asking import ask
from tests.unit.tasks.systems.insights.scribes import Scribe, of_keywords
from tests.unit.tasks.systems.workshop import NoCorpus, Workshop, store
from tests.watched_journal import WatchedJournal

pytestmark = pytest.mark.dear
CONCERNS = ("tasks/systems/insights",)

SYSTEM = Urania()
WORDS = ["kettle", "tomato", "violin"]
AMOUNT = release_amount("20", "1e-5", "0.1")
METHODS = ("public", "tfidf", "model", "hybrid")
CLUSTERERS = ("anchored", "lsh_tree", "lloyd")


def parameters(method: str = "public", clusterer: str = "anchored", **changes: Any) -> UraniaParameters:
    words = {"words": WORDS} if method in ("public", "hybrid") else {}
    given: dict[str, Any] = {
        "clusters": {"method": clusterer, "count": 3},
        "keywords": {"method": method, "size": 6, "per_unit": 2, **words},
        "hierarchy": {"levels": 1},
        "smallest_cluster": 1,
    }
    return UraniaParameters.model_validate(given | changes)


def corpus_of(folder: Path, texts: list[str]) -> Corpus:
    notes = [{"patient_id": f"unit {number}", "text": text} for number, text in enumerate(texts)]
    return store(ProjectHome(folder / "home"), folder / "notes.jsonl", notes)


def talk(each: int = 12) -> list[str]:
    return [f"My {word} is broken, {number}!" for word in WORDS for number in range(each)]


def planned(wanted: UraniaParameters, amount: Amount = AMOUNT) -> Plan:
    return SYSTEM.plan(ask(wanted, amount))


def run(
    workshop: Workshop,
    wanted: UraniaParameters,
    steps: ReleaseSteps | None = None,
    journal: RunJournal | None = None,
) -> tuple[Generated, UraniaRun]:
    plan = planned(wanted)
    context = replace(workshop.context(), steps=steps or ReleaseSteps(), journal=journal or RunJournal())
    extract = extractor_for(wanted.facets)
    tools = Tools(Letters(), Scribe(of_keywords), PrivateUnits(context, plan.blocks, extract, Letters()))  # type: ignore[arg-type]
    made = UraniaRun(wanted, Stages.of(wanted, plan.amount), plan, context, tools, IndexKeywordAssigner())
    return made.generated(), made


# --- the price -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clusterer", CLUSTERERS)
@pytest.mark.parametrize("method", METHODS)
def test_charges_add_up_to_the_plan_and_the_plan_to_the_amount(method: str, clusterer: str) -> None:
    """Every event is recomputed from its parameters; together they take nearly all, and no more."""
    plan = planned(parameters(method, clusterer))
    assert total_amount([recompute(invocation.event) for invocation in plan.invocations]) == plan.loss
    assert all(invocation.instalments == (invocation.event.loss,) for invocation in plan.invocations)
    assert plan.loss.fits(AMOUNT)
    assert plan.loss.rho > 0.99 * AMOUNT.rho
    assert (plan.loss.delta > 0) == (method != "public")  # thresholds are whole numbers, so a part of it may be left
    assert [invocation.event.mechanism for invocation in plan.invocations][-3:] == [
        "kmeans", "noisy_histogram", "set_histogram"
    ]  # fmt: skip


@settings(max_examples=60)
@given(
    st.integers(10**9, 10**13),
    st.lists(st.decimals("0.01", "1000", places=2), min_size=4, max_size=4),
    st.booleans(),
)
def test_shares_never_add_up_to_more_than_there_is(rho: int, weights: list[Any], keywords: bool) -> None:
    names = ("keywords", "clusters", "sizes", "histogram")
    found = Shares(**dict(zip(names, weights, strict=True))).of(rho, keywords=keywords)
    assert rho - 4 <= sum(found.values()) <= rho
    assert (found["keywords"] == 0) or keywords


def test_a_unit_costs_the_time_of_its_facets_and_its_point() -> None:
    assert 0.006 < SYSTEM.seconds_per_unit(parameters("public")) < 0.01


def test_only_a_set_that_is_selected_needs_a_part_of_delta() -> None:
    assert SYSTEM.failure_delta_share(parameters("public")) == 0
    assert float(SYSTEM.failure_delta_share(parameters("hybrid"))) == 0.1


def test_what_is_planned_again_from_the_stored_parameters_is_the_same() -> None:
    wanted = parameters("hybrid", "lsh_tree", sampled="0.5", noise="laplace")
    again = UraniaParameters.model_validate(model_to_json(wanted))
    assert again == wanted
    assert planned(again) == planned(wanted)


@pytest.mark.parametrize(
    ("changes", "amount", "error"),
    [
        ({}, Amount(10), "NoiseInvalid"),
        ({"method": "tfidf"}, Amount(2000, 0), "KeywordBudgetTooSmall"),
        ({"embedder": "nobody"}, AMOUNT, "UnknownModel"),
    ],
)
def test_what_buys_nothing_is_refused_when_it_is_priced(changes: Any, amount: Amount, error: str) -> None:
    with refusal(error):
        planned(parameters(**changes), amount)


def test_pricing_asks_no_corpus_and_no_model() -> None:
    workshop = Workshop(NoCorpus())
    planned(parameters("tfidf"))
    assert workshop.seen == []


# --- the run ---------------------------------------------------------------------------------------------------


@pytest.mark.slow_except("public-anchored", "tfidf-lsh_tree", "model-lloyd", "hybrid-anchored")
@pytest.mark.parametrize("clusterer", CLUSTERERS)
@pytest.mark.parametrize("method", METHODS)
def test_every_stage_is_armed_once_in_order_and_before_the_first_unit_is_read(
    tmp_path: Path, method: str, clusterer: str
) -> None:
    workshop = Workshop(corpus_of(tmp_path, talk()))
    made, _ = run(workshop, parameters(method, clusterer))
    armed = [step[1:] for step in workshop.seen if step[0] == "arm"]
    assert armed == [(number, 0) for number in range(len(planned(parameters(method, clusterer)).invocations))]
    assert workshop.seen[0] == ("arm", 0, 0)
    assert [step[0] for step in workshop.seen].count("each_shard") == 1
    assert all(text.insight is not None and text.text for text in made.texts)
    if method == "public":
        assert "keywords_released" not in made.released


@pytest.mark.slow_except("lsh_tree-texts2", "lloyd-texts1", "anchored-texts0", "lloyd-texts3")
@pytest.mark.parametrize(
    "texts", [[" . "], ["only me"], ["alike"] * 30, ["语言 模型 很 好"] * 20 + ["größer als"] * 20]
)
@pytest.mark.parametrize("clusterer", CLUSTERERS)
def test_hardly_anybody_everybody_alike_and_other_languages(tmp_path: Path, texts: list[str], clusterer: str) -> None:
    made, done = run(Workshop(corpus_of(tmp_path, texts)), parameters("hybrid", clusterer, clusters={"count": 50}))
    assert len(done.sizes) == 50
    assert int(made.released["clusters_kept"]) == sum(text.insight.clusters for text in made.texts if text.insight)


def test_a_set_that_came_out_small_is_filled_up_and_a_public_one_is_not(tmp_path: Path) -> None:
    made, done = run(Workshop(corpus_of(tmp_path, ["only me"])), parameters("tfidf"))
    assert len(done.closed) == 6
    assert made.released["public_topics_added"] == "6"
    _, done = run(Workshop(corpus_of(tmp_path / "b", ["only me"])), parameters("public"))
    assert done.closed == WORDS


def test_every_keyword_has_its_noisy_support_and_its_origin(tmp_path: Path) -> None:
    """Names have words of supported keywords alone, and all of it follows from what was released."""
    made, done = run(Workshop(corpus_of(tmp_path, talk(60))), parameters("hybrid", keywords_of_a_cluster=4))
    rule, (words, counts) = done.stages.support(done.parameters), done.chosen
    released = [text.insight for text in made.texts if text.insight]
    assert any(insight.keywords for insight in released)
    for insight in released:
        assert insight.support is not None
        assert insight.origins is not None
        assert insight.size is not None
        assert all(rule.holds(count, insight.size) for count in insight.support)
        assert not unsupported_words(insight.topic.name, insight.keywords) or insight.topic.name == UNNAMED
        for word, origin in zip(insight.keywords, insight.origins, strict=True):
            assert origin == ("request" if word in WORDS else "selected" if word in done.keywords else "built_in")
        if insight.clusters == 1:
            rows = done._bins.table(counts, len(words)).astype(int).tolist()
            assert any(
                all(row[words.index(w)] == c for w, c in zip(insight.keywords, insight.support, strict=True))
                for row in rows
            )


def test_noise_alone_seldom_supports_anything() -> None:
    """With no unit at all: the threshold is by the union bound over all bins of the release."""
    wanted = parameters("public", clusters={"count": 40}, keywords={"method": "public", "words": WORDS, "size": 50})
    stages = Stages.of(wanted, AMOUNT)
    rule, generator = stages.support(wanted), np.random.default_rng(5)
    deviation = stages.histogram.variance() ** 0.5
    assert rule.count >= 3 * deviation
    bins = stages.histogram.bins or 0
    hits = sum((np.rint(generator.normal(0, deviation, bins)) >= rule.count).any() for _ in range(400))
    assert hits <= 0.05 * 400


def test_a_sample_needs_its_part_of_the_share() -> None:
    whole, half = parameters(smallest_support="0.2"), parameters(smallest_support="0.2", sampled="0.5")
    assert Stages.of(whole, AMOUNT).support(whole).share == 2 * Stages.of(half, AMOUNT).support(half).share
    assert planned(half).facts["smallest keyword share"] == "0.1"


class Notebook:
    """What steps write down, and what the next attempt knows of it."""

    def __init__(self, dies_after: int = 99) -> None:
        self.released: dict[str, Json] = {}
        self.begun: set[str] = set()
        self.dies_after = dies_after

    def keep(self, name: str, released: Json) -> None:
        self.released[name] = released
        if len(self.released) == self.dies_after:
            raise InterruptedError

    def steps(self, paid: tuple[int, ...] = ()) -> ReleaseSteps:
        return ReleaseSteps(paid, dict(self.released), frozenset(self.begun))

    @property
    def journal(self) -> WatchedJournal:
        return WatchedJournal(drawing=self.begun.add, result=self.keep)


@pytest.mark.parametrize("dies_after", [1, 2, 3, 4])
def test_who_goes_on_releases_what_was_released_and_arms_no_stage_again(tmp_path: Path, dies_after: int) -> None:
    workshop, wanted, notebook = Workshop(corpus_of(tmp_path, talk())), parameters("hybrid"), Notebook(dies_after)
    with pytest.raises(InterruptedError):
        run(workshop, wanted, notebook.steps(), notebook.journal)
    armed = {step[1] for step in workshop.seen if step[0] == "arm"}
    kept = dict(notebook.released)
    workshop.seen.clear()
    notebook.dies_after = 99
    paid = tuple(int(number in armed) for number in range(len(planned(wanted).invocations)))
    _, done = run(workshop, wanted, notebook.steps(paid), notebook.journal)
    assert {step[1] for step in workshop.seen if step[0] == "arm"} & armed == set()
    assert {name: notebook.released[name] for name in kept} == kept
    assert len(done.chosen[1]) == 18


def test_a_stage_that_died_while_it_was_drawn_is_lost(tmp_path: Path) -> None:
    workshop, wanted, notebook = Workshop(corpus_of(tmp_path, talk())), parameters(), Notebook()
    notebook.begun.add("clusters 0")
    with pytest.raises(StepLost, match="clusters 0"):
        run(workshop, wanted, notebook.steps((1, 0, 0)), notebook.journal)
    assert workshop.seen == []


def test_a_sample_takes_each_unit_by_itself(tmp_path: Path) -> None:
    """Without any of the units the others are in it as before, and the share is about what was asked for."""
    texts = [f"text {number}" for number in range(400)]
    whole = corpus_of(tmp_path / "a", texts)
    rest = corpus_of(tmp_path / "b", texts[:-1])

    def taken(corpus: Corpus) -> dict[str, bool]:
        units = PrivateUnits(Workshop(corpus).context(), (0,), extractor_for(parameters().facets), Letters())
        return dict(zip(units.ids, units.sampled(parameters(sampled="0.3").sampled), strict=True))

    every, others = taken(whole), taken(rest)
    assert {unit: every[unit] for unit in others} == others
    assert 80 < np.sum(list(every.values())) < 160
