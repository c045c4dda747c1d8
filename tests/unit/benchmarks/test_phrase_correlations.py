"""The study of phrases that go together: what is planted, what systems add and draw, and what is told of it."""

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tasks.mechanisms.core.rng import DeterministicRandom
from tasks.mechanisms.vectors.random_fourier_features import on_grid
from tasks.prompted_generation.keyphrases.unit_phrases import _together

CONCERNS = ("benchmarks/keyphrases/correlations.py",)

SCRIPTS = (
    "keyphrases.correlations",
    "keyphrases.corpora",
    "keyphrases.data",
    "keyphrases.systems",
    "keyphrases.tables",
)


@pytest.fixture(autouse=True)
def small(bench: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench["keyphrases.systems"], "FEATURES", 200)
    drawing, rng = bench["keyphrases.systems"].Drawing, DeterministicRandom("phrase correlations")
    monkeypatch.setattr(bench["keyphrases.correlations"], "Drawing", partial(drawing, rng=rng))  # nothing by chance
    monkeypatch.setattr(bench["keyphrases.correlations"], "TEXTS", 20)
    monkeypatch.setattr(bench["keyphrases.correlations"], "TESTS", 50)


def planted(bench: dict[str, ModuleType], **world: Any) -> Any:
    data = bench["keyphrases.data"]
    return data.Planted(data.World(**world), np.random.default_rng(7))


@pytest.mark.parametrize("kind", ["topics", "pairings"])
@pytest.mark.parametrize("strength", [0.0, 0.5, 1.0])
def test_units_have_the_planted_pairs_and_singles_that_do_not_tell_them(
    bench: dict[str, ModuleType], kind: str, strength: float
) -> None:
    population = planted(bench, kind=kind, strength=strength)
    units = population.units(2000)
    topics = population.topic_of[units.phrases]
    assert all(len(set(own)) == len(own) for own in units.phrases.tolist())
    for label in range(4):
        mine = topics[units.label == label][:, :2]  # 2,000 independent pairs
        found = np.zeros_like(population.world.pairs(label))
        np.add.at(found, (mine[:, 0], mine[:, 1]), 1 / len(mine))
        assert np.abs(found - population.world.pairs(label)).max() < 5 * np.sqrt(0.25 / 2000)
        singles = population.world.pairs(label).sum(axis=1)
        assert singles[population.world.topics_of(label)] == pytest.approx(1 / 4)
        assert singles.sum() == pytest.approx(1)


def test_two_labels_of_a_pairing_differ_in_pairs_alone(bench: dict[str, ModuleType]) -> None:
    world = bench["keyphrases.data"].World("pairings", 1.0)
    first, second = world.pairs(0), world.pairs(1)
    assert first.sum(axis=1).tolist() == second.sum(axis=1).tolist()
    assert first[0, 1] > 0 == second[0, 1]
    assert not set(world.topics_of(2).ravel()) & set(world.topics_of(0).ravel())


def test_points_of_one_topic_are_as_near_as_planted(bench: dict[str, ModuleType]) -> None:
    population = planted(bench, near=0.8)
    cosines, topic = population.points @ population.points.T, population.topic_of
    one = (topic[:, None] == topic) & ~np.eye(len(topic), dtype=bool)
    assert cosines[one].mean() == pytest.approx(0.8, abs=0.05)
    assert cosines[topic[:, None] // 4 != topic // 4].mean() < 0.3


def test_iterative_sums_are_of_what_the_system_adds(bench: dict[str, ModuleType]) -> None:
    systems, population = bench["keyphrases.systems"], planted(bench)
    units = population.units(3)
    phrases = systems.Phrases(population.points, np.arange(len(population.points)))
    found = systems.sums_of(phrases, "iterative", units.label, units.phrases, 4, 3)
    kernel = systems.kernel_of(phrases, "iterative")
    steps = on_grid(population.points)[units.phrases].reshape(-1, population.points.shape[1])
    vectors = _together(steps, np.arange(0, len(steps), 8), np.full(12, 8), kernel, 3)
    sketches = systems.calibrate_kde(10**12, 200, 4, 3)
    assert (found == sketches.sums([(units.label, vectors)])).all()


def test_a_product_scores_what_follows_by_both_kernels(bench: dict[str, ModuleType]) -> None:
    systems, population = bench["keyphrases.systems"], planted(bench)
    phrases = systems.Phrases(population.points, np.arange(len(population.points)))
    kernel, own = systems.kernel_of(phrases, "product"), np.array([[0, 1]])
    vector = systems._paired(kernel, on_grid(population.points)[own], 2)[0, 1].astype(np.float64)
    assert np.linalg.norm(vector) == pytest.approx(1)
    before, after = np.split(kernel.turns, 2, axis=1)
    turned = systems._turned(vector[None], population.points[:1].astype(np.float64) @ before.T)
    scores = turned @ systems._waves(population.points.astype(np.float64) @ after.T).T
    assert scores[0, 1] == pytest.approx(1, abs=1e-3)
    squares = ((population.points - population.points[1]) ** 2).sum(axis=1)
    assert np.abs(scores[0] - np.exp(-2 * squares)).max() < 7 / np.sqrt(2 * 200)


def test_a_share_of_rho_goes_to_every_place(bench: dict[str, ModuleType]) -> None:
    systems = bench["keyphrases.systems"]
    drawing = systems.Drawing("6", 100, [0], 4)
    one, four = (drawing.sketches(np.zeros((places, 4, 400), np.int64)) for places in (1, 4))
    assert drawing.noise(four) == pytest.approx(2 * drawing.noise(one))
    assert systems.Drawing("", 100, [0], 4).noise(one) == 0


def cell(bench: dict[str, ModuleType], epsilon: str = "", **world: Any) -> Any:
    module = bench["keyphrases.correlations"]
    return module.Cell(bench["keyphrases.data"].World(**world), 4, 60, epsilon, 0)


@pytest.mark.slow
def test_pairs_are_told_by_who_has_seen_them(bench: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    """Independent sequences keep singles and know of no pairs."""
    monkeypatch.setattr(bench["keyphrases.correlations"], "TEXTS", 60)
    wanted = cell(bench, kind="pairings", strength=1.0, near=0.8)
    (line,) = bench["keyphrases.correlations"].cells_of(wanted.world, [wanted])
    figures = line["figures"]
    assert line["cell"] == asdict(wanted)
    assert set(figures) == {"true", "independent", "iterative", "iterative_median", "product"}
    assert figures["true"]["hidden"] > 0.85  # of 200 tests
    assert figures["iterative_median"]["hidden"] > max(0.7, figures["independent"]["hidden"])
    assert figures["iterative_median"]["pair"] < figures["independent"]["pair"]
    assert figures["independent"]["single"] < 0.2
    json.dumps(line)


@pytest.mark.slow
def test_more_units_are_the_same_and_others(bench: dict[str, ModuleType]) -> None:
    """Sums of a cell with more units are what a cell with fewer has, and more."""
    module = bench["keyphrases.correlations"]
    few, more = (module.Cell(cell(bench).world, 2, units, "", 0) for units in (10, 20))
    lines = list(module.cells_of(few.world, [more, few]))
    assert [line["cell"]["units"] for line in lines] == [10, 20]
    assert lines[0]["figures"]["true"] == lines[1]["figures"]["true"]


def test_a_judge_tells_all_wrong_from_all_right(bench: dict[str, ModuleType]) -> None:
    module, systems, population = (
        bench["keyphrases.correlations"],
        bench["keyphrases.systems"],
        planted(bench, strength=1.0),
    )
    phrases = systems.Phrases(population.points, np.arange(len(population.points)))
    judge, labels = module.Judge.of(population, phrases, 4), np.repeat(np.arange(4), 20)
    right = judge(labels, judge.fresh)
    wrong = judge(labels, np.roll(judge.fresh, 20, axis=0))
    assert (right["own"], right["label"], right["together"]) == (1, 1, 1)
    assert (wrong["own"], wrong["label"], wrong["single"], wrong["pair"]) == (0, 0, 1, 1)


@pytest.mark.slow
def test_cells_that_are_there_are_not_made_again(
    bench: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, world = bench["keyphrases.correlations"], cell(bench).world
    monkeypatch.setattr(module, "settings", lambda: [(world, 2, (10,), ("6", ""))])
    out = tmp_path / "out.jsonl"
    module.measure(out, [0])
    first = out.read_text()
    module.measure(out, [0, 1])
    assert out.read_text().startswith(first)
    assert [line["cell"]["trial"] for line in module.lines_of(out)] == [0, 0, 1, 1]
    page = "\n".join(bench["keyphrases.tables"].tables(module.lines_of(out)))
    assert "### topics, near 0.6, 4 topics a label, 2 phrases a text, n = 10" in page
    assert "| 0.5, no noise | independent | 2 |" in page


def test_differences_are_paired_and_less_error_is_better(bench: dict[str, ModuleType]) -> None:
    tables = bench["keyphrases.tables"]
    lines = [
        {"figures": {"independent": {"pair": 0.5, "hidden": 0.5}, "iterative": {"pair": 0.5 - gain, "hidden": 0.4}}}
        for gain in (0.1, 0.2, 0.3)
    ]
    middle, low, high = tables.better(lines, "iterative", "pair")
    assert (middle, low > -0.05, high < 0.45) == (pytest.approx(0.2), True, True)
    assert tables.better(lines, "iterative", "hidden")[0] == pytest.approx(-0.1)


def test_from_which_strength_on_another_system_is_nearer(bench: dict[str, ModuleType]) -> None:
    tables = bench["keyphrases.tables"]
    lines = [
        {
            "cell": {"world": {"strength": c, "near": 0.75, "topics": 4}, "epsilon": epsilon, "length": 4},
            "figures": {"independent": {"pair": 0.1 + 0.7 * c}, "iterative_median": {"pair": 0.3 + 0.2 * c}},
            "noise": noise,
        }
        for c in (0.0, 0.5, 1.0)
        for epsilon, noise in (("", 0.0), ("6", 0.001))
        for _ in range(2)
    ]
    first, second = (tables.error(lines, system) for system in ("independent", "iterative_median"))
    assert (first, second) == (pytest.approx((0.1, 0.7)), pytest.approx((0.3, 0.2)))
    assert tables.crossing(first, second) == pytest.approx(0.4)
    assert tables.crossing(second, second) == float("inf")
    assert tables.relative(lines[-1]) == pytest.approx(0.001 * 2 * 4 / np.exp(-1))
    assert tables.foretold(lines, "iterative_median", 0.4) == (3, 3)
    assert tables.foretold(lines, "iterative_median", 0.6) == (2, 3)


def test_shuffled_texts_have_the_same_phrases_at_the_same_places(
    bench: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpora = bench["keyphrases.corpora"]
    monkeypatch.setattr(corpora, "TEXTS", 50)
    texts = np.arange(400).reshape(100, 4)
    found = corpora.shuffled(texts, 0)
    for label in (slice(0, 50), slice(50, 100)):
        assert (np.sort(found[label], axis=0) == texts[label]).all()
    assert (np.ptp(found // 4, axis=1) > 0).mean() > 0.9  # hardly any text has all its phrases again


def test_strength_of_a_corpus_is_measured_as_it_is_planted(bench: dict[str, ModuleType]) -> None:
    corpora = bench["keyphrases.corpora"]
    for strength in (0.0, 0.3, 1.0):
        population = planted(bench, strength=strength)
        topics = population.topic_of[population.units(1500).phrases]
        pairs = np.array([corpora._pairs(topics[1500 * label : 1500 * (label + 1)], 16) for label in range(4)])
        assert corpora.strength(pairs) == pytest.approx(strength, abs=0.05)


def test_drawing_can_be_repeated_where_its_randomness_can(bench: dict[str, ModuleType]) -> None:
    systems, population = bench["keyphrases.systems"], planted(bench)
    phrases, units = systems.Phrases(population.points, np.arange(0, 400, 2)), population.units(20)
    for system in systems.SYSTEMS:
        sums = systems.sums_of(phrases, system, units.label, units.phrases, 4, 3)
        drawn = [
            systems.Drawing("6", 20, [0, 1, 2, 3], 3, DeterministicRandom("again")).drawn(phrases, system, sums)
            for _ in range(2)
        ]
        assert drawn[0].tolist() == drawn[1].tolist()
        assert drawn[0].shape == (4, 3)
        assert (drawn[0] % 2 == 0).all()  # of the vocabulary alone
        assert all(len(set(own)) == 3 for own in drawn[0].tolist())
