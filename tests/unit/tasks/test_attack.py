"""The shell around attacks: units of a corpus, its copy with canaries, and tools that are missing."""

from collections.abc import Sequence
from pathlib import Path

import pytest

import tasks.evaluate
from models_db.home import ProjectHome
from tasks.attack import attack_release, copied, everything_there_is, tools_at_hand, units_of
from tasks.attacks.public_twin import split_twin
from tasks.attacks.registry import ATTACKS
from tasks.common import progress
from tasks.corpus.ingest import ingest
from tasks.corpus.store import open_corpus
from tasks.inference.catalogue.registry import ModelNotPulled
from tasks.mechanisms.core.rng import OS_RANDOM
from tests.tiny_model import tiny_model

LINES = "".join(
    f'{{"person": "p{number // 2}", "text": "text {number} of them", "kind": "{"ab"[number % 4 // 2]}"}}\n'
    for number in range(16)
)


@pytest.fixture
def home(tmp_path: Path) -> ProjectHome:
    made = ProjectHome(tmp_path / "home")
    made.create()
    (tmp_path / "source.jsonl").write_text(LINES)
    return made


def corpus_of(home: ProjectHome, label: str | None = None, unit: str | None = "person"):
    source = home.root.parent / "source.jsonl"
    return open_corpus(home, ingest(home, source, unit, b"k" * 32, label_field=label).uid)


def test_a_unit_is_one_document_whatever_it_has(home):
    units = units_of(corpus_of(home), ())
    assert sorted(unit.unit for unit in units) == [f"p{number}" for number in range(8)]
    assert {frozenset(unit.text.split("\n\n")) for unit in units} == {
        frozenset({f"text {2 * n} of them", f"text {2 * n + 1} of them"}) for n in range(8)
    }
    assert {unit.label for unit in units} == {None}


def test_labels_are_the_declared_ones_or_those_of_single_documents(home):
    declared = units_of(corpus_of(home, "kind"), ("a",))
    assert {(unit.unit, unit.label) for unit in declared} == {(f"p{number}", "a") for number in (0, 2, 4, 6)}
    alone = units_of(corpus_of(home, "kind", unit=None), ())
    assert sorted(unit.label for unit in alone) == ["a"] * 8 + ["b"] * 8


def test_a_copy_holds_members_and_canaries_and_is_gone_afterwards(home):
    stage = split_twin(units_of(corpus_of(home), ()), OS_RANDOM, members=3, canaries=2)
    with copied(home, stage.corpus(()), ()) as corpus:
        texts = sorted(corpus.texts())
        assert corpus.unit_count() == 5
    assert texts == sorted(everything_there_is(stage))
    assert not list(home.scratch.iterdir())


@pytest.fixture
def bare(monkeypatch):
    """A machine without an embedder and without a tagger."""

    def missing(*given: object, **named: object) -> None:
        raise ModelNotPulled("all-minilm-l6-v2")

    monkeypatch.setattr(tasks.evaluate, "load_embedder", missing)
    monkeypatch.setattr(tasks.evaluate, "load_tagger", missing)


@pytest.mark.usefixtures("bare")
def test_tools_that_are_missing_are_told_of_and_their_attacks_left_out(home):
    told: list[str] = []
    with progress.listening(lambda what, done, total: None, told.append):
        tools = tools_at_hand(tiny_model())
    assert (tools.embed, tools.tag) == (None, None)
    assert len(told) == 2
    assert all("models pull" in line for line in told)
    stage = split_twin(units_of(corpus_of(home), ()), OS_RANDOM, members=3, canaries=1)
    found = attack_release(stage, ["one text"], "it", tools)
    assert [each.name for each in found] == [name for name, each in ATTACKS.items() if "embedder" not in each.needs]


@pytest.mark.usefixtures("bare")
def test_a_text_is_scored_once(monkeypatch):
    asked: list[str] = []

    def score(model: object, texts: Sequence[str], progress: object) -> list[tuple[float, int]]:
        asked.extend(texts)
        return [(-1.0, 1)] * len(texts)

    monkeypatch.setattr("tasks.evaluate.log_likelihoods", score)
    tools = tools_at_hand(tiny_model())
    assert tools.score(["a", "b", "a"]) == [(-1.0, 1)] * 3
    assert tools.score(["b", "c"]) == [(-1.0, 1)] * 2
    assert asked == ["a", "b", "c"]
