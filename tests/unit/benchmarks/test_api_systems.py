"""The benchmark of systems that show a model no private text, on planted corpora and a tiny model."""

import argparse
import hashlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tasks.inference.engine.engine import Engine
from tasks.planning.sentence_completion_parameters import COMPLETION_TOKENS
from tasks.systems.keyphrase_seeding import run as keyphrase_run
from tasks.systems.keyphrase_seeding.parameters import KeyphraseParameters
from tasks.systems.private_evolution import run
from tasks.systems.private_evolution.parameters import EvolutionParameters
from tasks.systems.private_evolution.schedule import Sizes
from tests.tiny_embedder import Letters
from tests.tiny_model import tiny_model

pytestmark = pytest.mark.dear
CONCERNS = ("benchmarks/external_models", "tasks/systems")

SCRIPTS = ("external_models.data", "external_models.figures", "external_models.systems", "external_models.tables")
SAID = {
    "World": "peace treaty signed abroad",
    "Sports": "football goal jubilant",
    "Business": "market shares fell",
    "Sci/Tech": "quick quartz oxygen probe",
}
COUNT = 240


@pytest.fixture
def data(tmp_path: Path) -> Path:
    labels = list(SAID)
    rows = [
        {"id": f"a{n}", "text": f"{SAID[labels[n % 4]]}. Number {n}.", "label": labels[n % 4]} for n in range(COUNT)
    ]
    (tmp_path / "agnews.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sections = [("CC", "pain"), ("ALLERGY", "none"), ("LABS", "blood")]
    rows = [
        {"id": f"m{n}", "text": f"Doctor: {text} {n}", "section": name} for n, (name, text) in enumerate(sections * 9)
    ]
    (tmp_path / "mts_dialog.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


@pytest.fixture
def place(bench: dict[str, ModuleType], data: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Everything embedded by letters, everything written by a tiny model."""
    for room in (keyphrase_run, run, bench["external_models.systems"]):
        monkeypatch.setattr(room, "load_embedder", lambda *_, **__: Letters())
    monkeypatch.setattr(bench["external_models.systems"], "ABOUT", {"agnews": "News."})
    (data / "work").mkdir()
    found = bench["external_models.systems"].Workplace(asked(data), data / "work")
    found.engine = Engine(tiny_model())
    return found


def asked(data: Path, **given: Any) -> argparse.Namespace:
    wanted = {
        "out": data / "out.jsonl", "data": data, "model": "tiny", "device": "cpu", "corpora": ["agnews"],
        "systems": ["phrases_independent"], "epsilons": ["15"], "trials": 1, "each": 8, "tokens": 12,
        "units": None, "others": None,
    }  # fmt: skip
    return argparse.Namespace(**wanted | given)


def cell(bench: dict[str, ModuleType], system: str, epsilon: str = "15") -> Any:
    return bench["external_models.systems"].Cell("agnews", system, epsilon, 0)


def test_parts_are_those_of_the_digest_and_share_no_row(bench: dict[str, ModuleType], data: Path) -> None:
    found = bench["external_models.data"].split("agnews", data)
    digits = [hashlib.sha256(f"a{n}".encode()).hexdigest()[0] for n in range(COUNT)]
    expected = (
        sum(d in "01234567" for d in digits),
        sum(d in "89ab" for d in digits),
        sum(d in "cdef" for d in digits),
    )
    assert (len(found.private), len(found.public), len(found.tests)) == expected
    assert min(expected) > 0
    assert len({example.text for part in (found.private, found.public, found.tests) for example in part}) == COUNT
    less = bench["external_models.data"].split("agnews", data, units=5, others=3)
    assert (less.private, less.public, less.tests) == (found.private[:5], found.public[:3], found.tests[:3])


def test_conversations_have_their_section_and_rare_sections_are_left_out(
    bench: dict[str, ModuleType], data: Path
) -> None:
    found = bench["external_models.data"].split("mts_dialog", data)
    labels = {example.label for part in (found.private, found.public, found.tests) for example in part}
    assert labels == {"CC", "ALLERGY"}


@pytest.mark.parametrize("labels", [4, 9, 14])
@pytest.mark.parametrize("each", [4, 40])
def test_prompts_are_as_many_as_a_systems_name_says(bench: dict[str, ModuleType], labels: int, each: int) -> None:
    systems = bench["external_models.systems"]
    sizes, names = systems.Sizes(each, 16, None, None, "tiny"), [f"l{number}" for number in range(labels)]

    def asked_of(system: str) -> dict[str, Any]:
        found: dict[str, Any] = systems.parameters_of(system, names, 100, sizes)
        return found

    seeded = KeyphraseParameters.model_validate(asked_of("seeding_iterative"))
    once = EvolutionParameters.model_validate(asked_of("evolution_1x"))
    often = EvolutionParameters.model_validate(asked_of("evolution_10x"))
    assert (seeded.sequences, seeded.samples) == ("iterative", each * labels)
    assert Sizes.planned(once).prompts == seeded.samples
    assert Sizes.planned(often).prompts == 10 * seeded.samples
    assert often.samples == seeded.samples == 4 * once.samples


@pytest.mark.parametrize("system", ["phrases_independent", "phrases_iterative"])
def test_keyphrases_alone_ask_nobody_and_tell_labels_apart(
    bench: dict[str, ModuleType], place: Any, system: str
) -> None:
    found = place.measured(cell(bench, system, "1000"))
    assert (found["prompts"], found["tokens"], found["texts"]) == (0, 0, 32)
    assert found["accuracy"] > found["majority"] + 0.2
    assert found["coral"] > found["majority"]
    assert found["target"].endswith("texts of agnews, declared public")


@pytest.mark.slow_except("seeding_independent-32-32", "public_only-32-32", "evolution_1x-8-32")
@pytest.mark.parametrize(
    ("system", "texts", "prompts"),
    [("seeding_independent", 32, 32), ("evolution_1x", 8, 32), ("evolution_10x", 32, 320), ("public_only", 32, 32)],
)
def test_a_model_is_asked_as_often_as_is_told_and_shown_nothing_private(
    bench: dict[str, ModuleType], place: Any, system: str, texts: int, prompts: int
) -> None:
    found = place.measured(cell(bench, system, "" if system == "public_only" else "15"))
    assert (found["texts"], found["private_texts_shown"]) == (texts, 0)
    assert found["prompts"] == prompts
    public = COMPLETION_TOKENS if system == "public_only" else 0
    assert prompts <= found["tokens"] <= (12 + public) * prompts  # all that was written, and not only what was kept
    assert 0 <= found["accuracy"] <= 1
    json.dumps(found)


def test_private_text_that_is_shown_is_counted(bench: dict[str, ModuleType], place: Any, monkeypatch: Any) -> None:
    """The figure that is always 0 above."""
    shown = place.sides("agnews").parts.private[3].text
    made = bench["external_models.systems"].Made([("some text", "World"), ("other", "Sports")], [f"Write. {shown}"])
    monkeypatch.setattr(place, "made", lambda *_: made)
    assert place.measured(cell(bench, "seeding_independent"))["private_texts_shown"] == 1


@pytest.mark.slow
def test_private_texts_that_invisible_ink_shows_are_counted(bench: dict[str, ModuleType], place: Any) -> None:
    found = place.measured(cell(bench, "invisible_ink"))
    references = bench["external_models.systems"].REFERENCES
    assert (found["texts"], found["private_texts_shown"]) == (32, 32 * references)
    assert found["prompts"] == 32 * (references + 1)


def test_points_are_made_once_when_they_are_remembered(bench: dict[str, ModuleType], monkeypatch: Any) -> None:
    systems, made = bench["external_models.systems"], []
    monkeypatch.setattr(systems, "points_of", lambda embed, texts: made.extend(texts) or embed(texts))
    for reader in (systems.unit_phrases, systems.voting):
        monkeypatch.setattr(reader, "points_of", None)
    systems.remember_points()
    first = systems.unit_phrases.points_of(Letters(), ["a", "b", "a"])
    second = systems.voting.points_of(Letters(), ["b", "c"])
    assert made == ["a", "b", "c"]
    assert (first[1] == second[0]).all()
    assert (first[0] == first[2]).all()


@pytest.mark.slow
def test_plots_are_drawn_of_what_is_there(bench: dict[str, ModuleType], tmp_path: Path) -> None:
    """Some systems have no accuracy, some are not measured, and one corpus is missing."""
    lines = [
        {"cell": {"corpus": corpus, "system": system, "epsilon": epsilon, "trial": trial}, "accuracy": 0.5 + trial / 10}
        | {"coral": None if system == "invisible_ink" else 0.6, "prompts": 10, "work": 3.0}
        for corpus in ("agnews", "mts_dialog")
        for system, epsilon in (("real", ""), ("seeding_independent", "6"), ("invisible_ink", "6"))
        for trial in range(3)
    ]
    figures = bench["external_models.figures"]
    assert figures.values(lines[:3], "", "accuracy") == [0.5, 0.6, 0.7]
    mean, low, high = figures.around([0.5, 0.7])
    assert (round(mean, 9), low, high) == (0.6, 0.5, 0.7)
    figures.draw_all(lines, tmp_path)
    assert all(
        (tmp_path / name).read_text().count("InvisibleInk") == 1 for name in ("api_accuracy.svg", "api_costs.svg")
    )


def test_real_texts_are_the_upper_reference(bench: dict[str, ModuleType], place: Any) -> None:
    found = place.measured(cell(bench, "real", ""))
    assert found["accuracy"] == 1.0
    assert found["prompts"] == 0


def test_nothing_to_learn_from_has_no_accuracy(bench: dict[str, ModuleType], place: Any) -> None:
    found = place.figures([("one", "World")], ["World", "Sports"], place.sides("agnews"))
    assert found["accuracy"] is found["coral"] is found["deep_coral"] is None
    assert found["majority"] > 0


def test_nobody_answers_for_keyphrases_alone(bench: dict[str, ModuleType], place: Any) -> None:
    with pytest.raises(AssertionError, match="no model"):
        bench["external_models.systems"].Recording(None).write(["Write."], None)


def test_a_run_goes_on_and_other_sizes_are_other_cells(
    bench: dict[str, ModuleType], place: Any, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    systems, wanted = bench["external_models.systems"], asked(data, systems=["real"], trials=2)
    systems.measure(wanted, place)
    first = wanted.out.read_text()
    systems.measure(wanted, place)
    assert wanted.out.read_text() == first
    assert [line["cell"]["trial"] for line in systems.lines_of(wanted.out)] == [0, 1]
    place.sizes = systems.Sizes(4, 12, None, None, "tiny")
    systems.measure(wanted, place)
    assert len(systems.lines_of(wanted.out)) == 4
    page = "\n".join(bench["external_models.tables"].tables(systems.lines_of(wanted.out)))
    assert page.count("### agnews") == 2
    assert page.count("| real | - | 2 | 1.000 (1.00 to 1.00) |") == 2


def test_tables_say_what_is_not_there(bench: dict[str, ModuleType]) -> None:
    tables = bench["external_models.tables"]
    assert tables.told([None, None]) == "-"
    assert tables.told([0.5]) == "0.500"
    assert tables.told([0.5, None, 0.5]) == "0.500 (0.50 to 0.50)"
    assert (tables.mean([1600, 1600]), tables.mean([9.61, 9.99]), tables.mean([0])) == ("1,600", "9.8", "0")


def test_cells_are_trial_by_trial_and_epsilons_belong_to_what_is_charged(
    bench: dict[str, ModuleType], data: Path
) -> None:
    wanted = asked(data, systems=["phrases_iterative", "public_only"], epsilons=["1", "6"], trials=2)
    found = [(each.trial, each.system, each.epsilon) for each in bench["external_models.systems"].cells(wanted)]
    assert found == [
        (trial, *own)
        for trial in (0, 1)
        for own in (("phrases_iterative", "1"), ("phrases_iterative", "6"), ("public_only", ""))
    ]
