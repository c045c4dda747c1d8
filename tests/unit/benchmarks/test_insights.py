"""The insights benchmark: its corpora, what it counts as covered and leaked, and one release of planted units."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.common.json_lines import read_lines
from tasks.analysis.facets.extractor import extractor_for
from tasks.analysis.facets.parameters import FacetSettings
from tasks.analysis.keywords.parameters import KeywordSettings
from tasks.evaluation.core.embedded_texts import points
from tasks.text.interfaces import Entity
from tasks.values.insight import UNNAMED, Insight, Topic

CONCERNS = ("benchmarks/insights", "tasks/systems/insights")

SCRIPTS = (
    "insights.cells", "insights.data", "insights.metrics", "insights.systems", "insights.tables",
    "insights.topics", "insights.truthfulness",
)  # fmt: skip


class Words:
    """An embedder for tests: every known word is a direction of its own; all others together are a faint one."""

    name = "words 1"
    _known = ("guitar", "chords", "dough", "oven", "chess", "rook", "solar", "inverter", "cat", "kitten")

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = np.zeros((len(texts), len(self._known) + 1), np.float32)
        for place, text in enumerate(texts):
            for word in text.lower().replace(",", " ").replace("?", " ").split():
                rows[place, self._known.index(word) if word in self._known else -1] += 1
            rows[place, -1] = rows[place, -1] * 0.1 + 0.01
            rows[place] /= np.linalg.norm(rows[place])
        return rows

    def pieces(self, texts: Sequence[str]) -> list[Any]:
        raise NotImplementedError


class NoChunks:
    """A tagger that finds each text's first word."""

    name = "first words"

    def __call__(self, texts: Sequence[str]) -> list[list[Entity]]:
        raise NotImplementedError

    def noun_chunks(self, texts: Sequence[str]) -> list[list[str]]:
        return [[text.split()[0]] for text in texts]


def test_synthetic_units_are_the_same_twice_and_of_known_topics(bench):
    made = bench["insights.data"].synthetic(4000)
    assert made == bench["insights.data"].synthetic(4000)
    sizes = Counter(unit.topic for unit in made)
    assert len(sizes) == 64 == len(bench["insights.topics"].topics())
    assert sizes["sourdough bread"] > 4 * sizes["elder care"] > 0
    own = bench["insights.topics"].own_words()
    assert all(len(words) >= 6 for words in own.values())
    assert not own["migraine"] & own["insomnia"]
    for unit in made[:200]:
        phrases = bench["insights.topics"].topics()[unit.topic]
        assert sum(phrase in unit.text for phrase in phrases) >= 2


def test_every_second_run_has_the_sensitive_conversation_once(bench):
    runs = list(bench["insights.data"].leakage_runs(6))
    assert [there for _, there in runs] == [True, False] * 3
    for units, there in runs:
        assert len(units) == 100
        assert sum("HIV" in unit.text for unit in units) == there
    assert runs[1][0] != runs[3][0]


def test_equal_sets_cover_everything_and_unrelated_ones_nothing(bench):
    coverage, embed = bench["insights.metrics"].coverage, Words()
    public = points(embed, ["guitar chords", "chords guitar guitar", "dough oven", "chess rook", "solar inverter"])
    assert bench["insights.metrics"].topics_of(public).max() == 3  # the first two are one topic
    assert coverage(public, public) == 1.0
    assert coverage(points(embed, ["cat kitten", "kitten"]), public) == 0.0
    assert coverage(points(embed, []), public) == 0.0
    assert coverage(points(embed, ["oven", "oven dough"]), public) == 0.25
    # A private insight about a little of everything is nearest to one topic, and close to none.
    assert coverage(points(embed, ["guitar chords dough oven chess rook solar inverter cat"]), public) <= 0.25


def test_sets_of_insights_are_compared(bench):
    compared, embed = bench["insights.metrics"].compared, Words()
    public = ["guitar chords for a song", "dough in the oven", "chess with a rook"]
    same = compared(public, public, embed, NoChunks())
    assert set(same) == set(bench["insights.metrics"].FIGURES)
    assert all(value == pytest.approx(1.0, abs=1e-6) for value in same.values())
    other = compared(["kitten and cat"], public, embed, NoChunks())
    assert other["tokens"] == 0.0
    assert other["topics"] == 0.0
    assert other["mean_cosine"] < 0.5
    assert compared([], public, embed, NoChunks())["topics"] == 0.0
    assert compared([], public, embed, NoChunks())["tokens"] is None


def test_a_known_topic_is_found_by_its_units_and_named_by_its_own_words(bench):
    known = bench["insights.metrics"].known_coverage
    mostly = ["migraine"] * 3 + ["poetry"]
    assert known([(["aura", "pain"], mostly)]) == {"found": 1 / 64, "named": 1 / 64}
    assert known([(["pain", "sonnet"], mostly)]) == {"found": 1 / 64, "named": 0.0}
    assert known([(["aura"], ["migraine", "poetry"])]) == {"found": 0.0, "named": 0.0}
    assert known([(["a", "b", "c", "d", "e", "aura"], mostly)])["named"] == 0.0  # not among the first five
    assert known([([], [])]) == {"found": 0.0, "named": 0.0}


def test_a_detector_that_knows_and_one_that_does_not(bench):
    metrics = bench["insights.metrics"]
    rows = [np.eye(3)[[0]], np.eye(3)[[1, 2]], np.empty((0, 3))]
    scores = metrics.leakage(np.eye(3)[[0]], rows)
    assert scores == [1.0, 0.0, -1.0]
    assert metrics.detected([1.0, 0.0, 0.9, -1.0] * 10, [True, False] * 20).auc == 1.0
    assert metrics.detected([0.5] * 40, [True, False] * 20).auc == 0.5
    false, true = metrics.curve([1.0, 0.0, 0.9, 0.2], [True, False, True, False])
    assert (false[0], true[0], false[-1], true[-1]) == (0.0, 0.0, 1.0, 1.0)
    assert true[false.index(0.0) + 2] == 1.0


@pytest.fixture
def material(bench):
    data, systems = bench["insights.data"], bench["insights.systems"]
    said = {"guitar practice": "guitar chords", "sourdough bread": "dough oven", "chess openings": "chess rook"}
    units = [data.Unit(str(number), f"What about {said[topic]}?", topic) for number in range(240) for topic in said]
    return systems.Material.of(units, extractor_for(FacetSettings()), Words(), systems.Clock())


@pytest.mark.parametrize("method", ["anchored", "lsh_tree"])
@pytest.mark.parametrize("level", ["very low", "infinity"])
def test_one_release_of_planted_units(bench, material, method, level):
    systems = bench["insights.systems"]
    asked = systems.Asked(level, method, KeywordSettings(size=20), 4, "paper")
    found = systems.urania(asked, material, Words(), None)
    assert found["clusters"]["kept"] == len(found["insights"]) == len(found["by_chance"]) >= 1
    assert found["clusters"]["units_kept"] <= 720
    assert all(row["plain"] and row["text"] == ", ".join(row["keywords"]) for row in found["insights"])
    assert {"keywords 0 drawn", "clusters 0 drawn", "sizes 0 drawn", "histogram 0 drawn"} <= set(found["work"])
    if level == "infinity":
        known = found["known"]
        assert known | {"named_by_chance": 0} == {"found": 3 / 64, "named": 3 / 64, "named_by_chance": 0}
        assert known["named_by_chance"] <= 3 / 64
        assert sum(row["size"] for row in found["insights"]) == 720
    json.dumps(found)


def test_each_level_buys_less_than_the_one_before_and_the_readings_differ_where_they_say(bench):
    systems = bench["insights.systems"]
    rho = [systems.Asked(level, "anchored", KeywordSettings(), 8).rho for level in (*systems.LEVELS,)]
    for more, less in pairwise(rho):
        assert more["clusters"] > less["clusters"]
        assert more["histogram"] > less["histogram"]
        assert (more["sizes"], more["keywords"]) == (less["sizes"], less["keywords"])
    paper = systems.Asked("high", "anchored", KeywordSettings(), 8, "paper").rho
    assert paper["clusters"] == rho[-1]["clusters"]
    assert paper["sizes"] == 462_117_157_261  # tanh(1/2), rounded up
    assert paper["histogram"] > rho[-1]["histogram"]


def test_the_reference_without_privacy(bench, material):
    found = bench["insights.systems"].simple_clio(3, material, Words(), None)
    assert [row["size"] for row in found["insights"]] == [240, 240, 240]
    assert found["known"] == {"found": 3 / 64, "named": 3 / 64}
    assert found["cost"] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.slow
def test_cells_become_tables_and_plots(bench, material, tmp_path, monkeypatch):
    tables, systems = bench["insights.tables"], bench["insights.systems"]
    monkeypatch.setattr(tables, "load_embedder", Words)
    monkeypatch.setattr(tables, "load_tagger", NoChunks)
    arguments = SimpleNamespace(
        corpus="synthetic", counts=[4], text="plain", facets="rake", trials=2, levels=["high", "infinity"],
        methods=["anchored"], readings=["matched"], keywords=[], evidence=["believed"],
    )  # fmt: skip
    cells = list(bench["insights.cells"].cells(arguments))
    assert [(cell.system, cell.level, cell.trial) for cell in cells] == [
        ("simple_clio", "", 0), ("urania", "high", 0), ("urania", "infinity", 0), ("urania", "high", 1),
    ]  # fmt: skip
    for cell in cells:
        if cell.system == "urania":
            asked = systems.Asked(cell.level, cell.method, KeywordSettings(size=20), 4)
            found = systems.urania(asked, material, Words(), None)
        else:
            found = systems.simple_clio(4, material, Words(), None)
        line = {"version": "c0ffee", "cell": vars(cell), "units": 720, "machine": "m", **found}
        (tmp_path / cell.name).write_text(json.dumps(line))
    leaked = {"system": "urania", "level": "high", "scores": [0.1, 0.2] * 10, "there": [True, False] * 10}
    (tmp_path / "leakage_urania_high.json").write_text(json.dumps({**leaked, "insights": [1] * 20, "seconds": 1.0}))
    monkeypatch.setattr(sys, "argv", ["insights_tables.py", "--cells", str(tmp_path), "--to", str(tmp_path)])
    tables.main()
    scored = read_lines(tmp_path / "insights.jsonl")
    assert Counter(line["cell"]["level"] for line in scored if "cell" in line) == {"": 1, "high": 2, "infinity": 1}
    leakage = tables.leakage_rows([line for line in scored if "leakage" in line])
    assert leakage[2:] == ["| urania | high | 20 | 1.0 | 0.0000 (0.0000 to 0.3085) | - |"]
    assert (tmp_path / "insights_levels.svg").stat().st_size > 5000
    assert (tmp_path / "insights_leakage.svg").stat().st_size > 5000


def test_what_is_above_chance_is_paired_and_may_be_negative(bench):
    def cell(trial: int, topics: float, chance: float | None) -> dict[str, Any]:
        told = {
            "corpus": "chats",
            "count": 23,
            "system": "urania",
            "level": "high",
            "keywords": "tfidf",
            "trial": trial,
        }
        told |= {"text": "plain", "reading": "matched", "facets": "rake", "method": "anchored", "evidence": ""}
        return {"cell": told, "figures": {"topics": topics, "topics_by_chance": chance}, "clusters": {"kept": 23}}

    cells = [cell(0, 0.1, 0.2), cell(1, 0.3, 0.4), cell(2, 0.5, 0.6)]
    rows = {row.split(" | ")[0][2:]: row.split(" | ")[6] for row in bench["insights.tables"].levels_table(cells)}
    assert rows["topic coverage"] == "0.300 (0.00 to 0.80)"
    assert rows["the same, less that of keywords at random"] == "-0.100 (-0.10 to -0.10)"
    assert bench["insights.tables"].value_of(cell(0, 0.5, None), "above_chance") is None


def test_a_true_name_is_true_of_its_units_and_a_random_one_is_not(bench):
    """Exact figures of two planted topics: what a name says, what is true, and what any other name would get."""
    truth = bench["insights.truthfulness"]
    texts = ["Guitar chords", "a guitar", "chords?", "a cat", "kitten and cat", "bread"]
    units = truth.Units([truth.roots(text) for text in texts], points(Words(), texts).astype(np.float64))
    music = Insight(1, None, 0, Topic("guitar", ""), ("guitar", "oven"), 4, (2, 9), ("selected", "selected"))
    cats = Insight(2, None, 0, Topic("cat", ""), ("cat",), 3, (6,), ("selected",))
    nameless = Insight(3, None, 0, Topic(UNNAMED, ""), (), 1, (), ())
    members = (np.arange(3), np.arange(3, 6), np.arange(0))
    first, second, third = truth.judge(list(zip((music, cats, nameless), members, strict=True)), units, Words())
    assert (first["words"], first["either"], first["random_name"]) == (round(2 / 3, 4), round(2 / 3, 4), 0)
    assert first["support"] == [{"keyword": "guitar", "said": 2, "true": 2}], "oven is not in the name"
    assert (second["words"], second["support"][0]["true"]) == (round(2 / 3, 4), 2)
    assert third["named"] is False
    assert [truth.is_overstated(line) for line in (first, second)] == [False, True]
    assert truth.is_overstated({**first, "support": None, "size": 9, "units": 3})
    head = {"version": "now", "system": "urania", "trial": 0}
    *_, row = truth.table([head | line for line in (first, second, third)])
    assert row == "| chats | now | urania, topics | 3 | 2 | 0.667 | 0.667 | 0.000 | 0.667 | 1 |"
    assert truth.more_than_chance([head | line for line in (first, second, third)])[0] == pytest.approx(0.667, abs=1e-3)
    elsewhere = head | {"corpus": "yelp"}
    rows = list(truth.table([each | line for each in (head, elsewhere) for line in (first, second, third)]))
    assert rows[2:] == [row, row.replace("chats", "yelp")]


def test_truth_on_another_corpus_reads_its_texts_and_its_lines_say_so(bench, monkeypatch, tmp_path):
    truth = bench["insights.truthfulness"]
    for name in ("yelp", "dolly_prompts", "user_prompts_open", "oasst_en100"):
        line = {"id": f"{name}-1", "text": f"of {name}", "tree": "t"}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(line) + "\n")
    assert [unit.text for unit in truth.corpus("yelp", data=tmp_path)] == ["of yelp"]
    assert "of yelp" not in [unit.text for unit in truth.corpus(truth.CHATS, data=tmp_path)]
    out = tmp_path / "truth.jsonl"
    for name in (truth.CHATS, "yelp"):
        arguments = SimpleNamespace(version="now", corpus=name)
        truth._append(out, iter([{"level": 0}]), arguments, "urania", 0)
    assert [json.loads(line).get("corpus") for line in out.read_text().splitlines()] == [None, "yelp"]


def test_versions_are_compared_by_the_names_of_urania_s_topics(bench):
    head = {"system": "urania", "level": 0, "named": True}
    old = [head | {"version": "old", "either": share} for share in (0.1, 0.2, 0.2, 0.2, 0.3)]
    new = [head | {"version": "new", "either": share} for share in (0.6, 0.6, 0.6)]
    changes = ({"system": "simple_clio"}, {"level": 1}, {"named": False}, {"either": None}, {"corpus": "yelp"})
    others = [old[0] | change for change in changes]
    (difference,) = bench["insights.truthfulness"].differences([*old, *new, *others])
    assert difference == "new less old: 0.40 [0.30, 0.50], 3.0 [2.0, 6.0] times"


def test_the_committed_truth_has_every_version(bench):
    lines = read_lines(bench["insights.truthfulness"].OUT)
    assert {(line["version"], line["system"]) for line in lines} == {
        ("before", "urania"), ("before", "simple_clio"), ("after", "urania"), ("weighted", "urania"),
    }  # fmt: skip
