"""The reference without protection: refused where it would matter, exact and complete where it may run."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from models_db.home import ProjectHome
from models_db.values.amounts import Amount
from models_db.values.requests import model_to_json
from tasks.corpus.store import Corpus
from tasks.decoding.structured_output import Record, Write
from tasks.inference.catalogue.registry import UnknownModel
from tasks.inference.embeddings.unit_embeddings import points_of
from tasks.inference.engine.engine import Engine
from tasks.systems.insights import private_units
from tasks.systems.insights.parameters import HierarchySettings
from tasks.systems.insights.private_units import PrivateUnits, Tools
from tasks.systems.registry import system_for
from tasks.systems.simple_clio import SimpleClio
from tasks.systems.simple_clio.parameters import ClioParameters
from tasks.systems.simple_clio.run import ClioRun
from tasks.values.plan import PlanInputs
from tasks.values.results import Facets, Generated, Insight
from tests.faults import FaultyLetters, waits
from tests.refusals import refusal
from tests.tiny_embedder import Letters
from tests.tiny_model import tiny_model
from tests.unit.tasks.systems.insights.scribes import Scribe, of_keywords
from tests.unit.tasks.systems.workshop import NoCorpus, Workshop, store

pytestmark = pytest.mark.dear

THEMES = ("aaaa", "oooo", "uuuu")


def parameters(**changes: Any) -> ClioParameters:
    return ClioParameters.model_validate({"count": 3, "hierarchy": {"levels": 1}} | changes)


def ask(wanted: Any = None, *, governed: bool = False, population: int | None = None) -> PlanInputs:
    return PlanInputs(None, wanted or parameters(), 1, population, governed)


def corpus_of(folder: Path, texts: Sequence[str]) -> Corpus:
    notes = [{"patient_id": f"unit {number}", "text": text} for number, text in enumerate(texts)]
    return store(ProjectHome(folder / "home"), folder / "notes.jsonl", notes)


def themed(each: Sequence[int] = (4, 6, 2)) -> list[str]:
    """Texts of three themes that the embedder of letters tells apart."""
    return [f"{theme} number {n}" for theme, count in zip(THEMES, each, strict=True) for n in range(count)]


class FirstWord:
    """A text's facets: itself for a summary, and its words for keywords; nothing of a text that says so."""

    name = "first word 1"

    def __call__(self, texts: Sequence[str]) -> list[Facets]:
        kept = ["" if "nothing" in text else text for text in texts]
        return [Facets({"summary": (text,) if text else (), "keywords": tuple(text.split())}) for text in kept]


def of_statements(prompt: str) -> Record:
    """A name of the first statement inside; of keywords alone nothing of use."""
    if "Group: " not in prompt:
        return {}
    first = prompt.rsplit("Group: ", 1)[1].split("\n")[0].split()[0]
    return {"name": f"The {first} group", "description": f"These texts are about {first}."}


def run(corpus: Corpus, wanted: ClioParameters, write: Write | None = None) -> tuple[Generated, Scribe]:
    scribe = Scribe(of_statements)
    context = Workshop(corpus).context()
    units = PrivateUnits(context, (0,), FirstWord(), Letters())
    made = ClioRun(wanted, context, Tools(Letters(), write or scribe, units))  # type: ignore[arg-type]
    return made.generated(), scribe


def insights_of(made: Generated) -> list[Insight]:
    assert all(text.insight is not None and text.text == text.insight.topic.description for text in made.texts)
    return [text.insight for text in made.texts if text.insight is not None]


def test_it_is_the_reference_for_insights_alone() -> None:
    assert isinstance(system_for("simple_clio", "insights"), SimpleClio)


def test_governed_data_is_refused_before_anything_is_looked_at() -> None:
    with refusal("NotForGovernedData") as refused:
        SimpleClio().plan(ask(governed=True))
    assert "--public" in refused.value.advice


def test_it_charges_nothing_and_says_that_it_protects_nobody() -> None:
    plan = SimpleClio().plan(ask())
    assert plan.loss == Amount()
    (invocation,) = plan.invocations
    assert invocation.event.mechanism == "simple_clio"
    assert invocation.event.dp_event["class_name"] == "NonPrivateDpEvent"
    assert not SimpleClio().charges


def test_the_number_of_clusters_is_asked_for_or_follows_from_the_units() -> None:
    assert SimpleClio().plan(ask(parameters(count=None), population=4000)).samples == 27
    assert SimpleClio().plan(ask(parameters(count=None))).samples == 1
    assert SimpleClio().plan(ask(parameters(count=5), population=4000)).samples == 5
    assert parameters(count=None, per_cluster=10).clusters_of(34) == 3


def test_an_unknown_embedder_is_refused_when_it_is_priced() -> None:
    with pytest.raises(UnknownModel):
        SimpleClio().plan(ask(parameters(embedder="nobody")))


def test_its_parameters_are_its_own() -> None:
    with pytest.raises(TypeError, match="simple_clio"):
        SimpleClio().plan(ask(HierarchySettings()))
    with pytest.raises(ValueError, match="seed"):
        parameters(seed=1)
    stored: Any = model_to_json(ClioParameters())
    assert "count" not in stored
    assert (stored["per_cluster"], stored["samples"]) == (150, 6)


def test_sizes_and_keywords_are_exact(tmp_path: Path) -> None:
    made, _ = run(corpus_of(tmp_path, themed()), parameters(keywords_of_a_cluster=2))
    found = insights_of(made)
    assert [(one.size, one.topic.name, one.keywords) for one in found] == [
        (6, "The oooo group", ("number", "oooo")),
        (4, "The aaaa group", ("aaaa", "number")),
        (2, "The uuuu group", ("number", "uuuu")),
    ]
    assert made.released == {"descriptions_replaced": "0"}


def test_a_keyword_counts_once_a_unit(tmp_path: Path) -> None:
    made, _ = run(corpus_of(tmp_path, ["b b b a", "a"]), parameters(count=1))
    assert insights_of(made)[0].keywords == ("a", "b")


def test_the_model_is_told_of_some_inside_and_of_the_nearest_outside(tmp_path: Path) -> None:
    _, scribe = run(corpus_of(tmp_path, themed()), parameters(samples=3, contrasting=2))
    (prompts,) = scribe.asked
    for prompt, theme, inside in zip(prompts, ("oooo", "aaaa", "uuuu"), (3, 3, 2), strict=True):
        others, own = prompt.splitlines()[-3:-1]
        assert re.fullmatch(f"Group: {theme} number \\d( / {theme} number \\d){{{inside - 1}}}", own)
        assert re.fullmatch("Others: [a-z]{4} number \\d / [a-z]{4} number \\d", others)
        assert theme not in others


def test_without_contrasting_ones_nothing_is_said_of_others(tmp_path: Path) -> None:
    _, scribe = run(corpus_of(tmp_path, themed()), parameters(contrasting=0))
    assert "Others" not in scribe.asked[0][0]


def test_levels_above_have_the_sums(tmp_path: Path) -> None:
    def answer(prompt: str) -> Record:
        if "Topics:" not in prompt:
            return of_statements(prompt)
        first = prompt.rsplit("Topics: ", 1)[1].split(";")[0]
        return {"name": f"Wider {first}", "description": f"These texts are about {first}."}

    wanted = parameters(hierarchy={"levels": 2, "branching": 2})
    made, _ = run(corpus_of(tmp_path, themed()), wanted, Scribe(answer))
    found = insights_of(made)
    assert sum(one.size or 0 for one in found if one.level == 0) == 12
    assert sum(one.size or 0 for one in found if one.parent is None) == 12
    assert {one.level for one in found} == {0, 1}


@pytest.mark.parametrize(
    ("texts", "count", "sizes"),
    [
        ([], 3, []),
        (["nothing", "nothing at all"], 3, []),
        (["aaaa"], 3, [1]),
        (["aaaa"] * 9, 3, [9]),
        (["aaaa", "oooo", "nothing"], 9, [1, 1]),
        (["数据库", "данные и наука", 'aaaa \x00 <|end|> {"}'], 1, [3]),
    ],
    ids=["no unit", "nothing extracted", "one unit", "all alike", "more clusters than units", "other scripts"],
)
def test_the_edges(tmp_path: Path, texts: list[str], count: int, sizes: list[int]) -> None:
    made, _ = run(corpus_of(tmp_path, texts or ["nothing"]), parameters(count=count))
    assert [one.size for one in insights_of(made)] == sizes


def test_a_cluster_whose_summaries_say_nothing_is_described_from_its_keywords(tmp_path: Path) -> None:
    def answer(prompt: str) -> Record:
        return of_keywords(prompt) if "Keywords:" in prompt else {}

    made, _ = run(corpus_of(tmp_path, themed()), parameters(), Scribe(answer))
    names = ["All about number, oooo, 0", "All about aaaa, number, 0", "All about number, uuuu, 0"]
    assert [one.topic.name for one in insights_of(made)] == names
    assert all(one.support and max(one.support) <= (one.size or 0) for one in insights_of(made)), "exact counts"
    assert made.released == {"descriptions_replaced": "0"}


def test_answers_of_no_use_are_counted(tmp_path: Path) -> None:
    made, _ = run(corpus_of(tmp_path, themed()), parameters(keywords_of_a_cluster=2), Scribe(lambda prompt: {}))
    assert made.released == {"descriptions_replaced": "3"}
    assert [one.topic.name for one in insights_of(made)] == ["number, oooo", "aaaa, number", "number, uuuu"]


def whole(workshop: Workshop, monkeypatch: pytest.MonkeyPatch, wanted: ClioParameters) -> Generated:
    """All of it, with the tiny model writing."""
    monkeypatch.setattr(private_units, "load_embedder", lambda name, device: Letters())
    context = replace(workshop.context(), engine=Engine(tiny_model(stops=True)))
    return SimpleClio().generate(SimpleClio().plan(ask(wanted)), wanted, context)


def test_it_runs_from_corpus_to_insights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop = Workshop(corpus_of(tmp_path, themed((3, 3, 2))))
    wanted = parameters(samples=1, contrasting=0, count=2, max_new_tokens=64)
    made = whole(workshop, monkeypatch, wanted)
    assert workshop.seen[0] == ("arm", 0, 0)
    assert [step[0] for step in workshop.seen] == ["arm", "each_shard"]
    assert sum(one.size or 0 for one in insights_of(made)) == 8
    assert all(text.tokens > 0 for text in made.texts)


def test_public_texts_are_embedded_again_after_a_temporary_fault_and_units_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_units, "load_embedder", lambda name, device: FaultyLetters())
    context = replace(Workshop(corpus_of(tmp_path, themed((3, 3, 2)))).context(), engine=Engine(tiny_model(stops=True)))
    tools = Tools.of(parameters(), [0], context, [])
    with waits() as seconds, pytest.raises(OSError):
        points_of(tools.units.embed, ["a private unit"])
    assert seconds == []
    tools = Tools.of(parameters(), [0], context, [])
    with waits() as seconds:
        points = points_of(tools.embed, ["a public keyword"])
    assert (points == points_of(Letters(), ["a public keyword"])).all()
    assert seconds == [10]


def test_what_the_model_cannot_do_is_refused_before_anything_is_armed(monkeypatch: pytest.MonkeyPatch) -> None:
    workshop = Workshop(NoCorpus())
    with pytest.raises(Exception, match="positions"):
        whole(workshop, monkeypatch, parameters(max_new_tokens=1020))
    assert workshop.seen == []
