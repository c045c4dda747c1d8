"""The benchmarks of prompts, completed sentences and units a row: what they compare."""

from argparse import Namespace
from types import ModuleType
from typing import Any

import pytest

from tests.tiny_model import tiny_model
from tests.tiny_tokenizer import tiny_tokenizer

SCRIPTS = ("utility.units_per_row", "utility.wording", "utility.ablation")


def test_rows_of_several_units_have_half_the_clip_norm_at_the_same_epsilon(bench: dict[str, ModuleType]) -> None:
    """Half of C at twice the sensitivity is the same charge; to the grid step."""
    units = bench["utility.units_per_row"]
    (_, one), (_, two), (_, four) = (units.bound_of(units.Cell(number, 7, "4")) for number in (1, 2, 4))
    assert two.draw.clip_steps == four.draw.clip_steps
    assert abs(2 * two.draw.clip_steps - one.draw.clip_steps) <= 1
    (_, more) = units.bound_of(units.Cell(1, 14, "4"))
    assert more.draw.clip_norm == pytest.approx(2 * one.draw.clip_norm, rel=1e-4)


def test_rows_of_several_units_read_what_the_rows_of_one_read(bench: dict[str, ModuleType]) -> None:
    units = bench["utility.units_per_row"]
    sources = units.row_sources([(number,) for number in range(units.MOST_UNITS)])
    assert list(map(len, sources)) == units.row_units()
    for number in units.UNITS:
        own = [source for source in sources if len(source) == number]
        read = {unit for source in own[: units.ROWS] for unit in source}
        assert read == {(unit,) for unit in range(number * units.ROWS)}


def test_time_is_that_of_the_rows_of_a_kind_and_stands_beside_every_setting_that_has_them(
    bench: dict[str, ModuleType],
) -> None:
    units = bench["utility.units_per_row"]
    groups = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]  # four of one unit a row, then of two and of four
    assert len(groups) == len(units.row_units()) / units.ROWS
    found = units.by_kind(groups)
    assert found == {(1, 7): 1.0, (1, 14): 3.0, (1, 28): 15.0, (2, 7): 16.0, (4, 7): 32.0}
    named = {"model": "m", "data": "yelp"}
    settings = [
        named | {"units": number, "rows": rows, "epsilon": epsilon, "C": None, "kl": [1.0, 2.0], "loss": [1.0, 2.0]}
        for number, rows, epsilon in ((1, 7, None), (1, 7, "4"), (2, 7, "4"), (4, 7, "4"))
    ]
    times = [named | {"units": 1, "rows": 7, "seconds": [3.0, 3.0]}, named | {"units": 2, "rows": 7, "seconds": [4.0]}]
    last = [row.split(" | ")[-1].removesuffix(" |") for row in units.table(iter([*settings, *times]))][2:]
    assert last == ["3.0 [3.0, 3.0]", "3.0 [3.0, 3.0]", "4.0 [4.0, 4.0]", ""]
    assert "CPU s" not in next(units.table(settings))


def test_pairs_of_releases_show_what_finishing_sentences_takes(
    bench: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    ablation = bench["utility.ablation"]
    made: list[bool] = []

    def release(*given: Any, completed: bool) -> dict[str, Any]:
        made.append(completed)
        lengths = {"completed": [{"tokens": 12}, {"tokens": 9}], "cut": [{"tokens": 8}, {"tokens": 9}]}
        place = {"model": "m", "data": given[3], "setting": given[4], "epsilon": "4"}
        return {**place, **lengths, "seconds": 11.0 if completed else 10.0}

    monkeypatch.setattr(ablation, "release", release)
    monkeypatch.setattr(ablation, "store", lambda *_: (None, 1))
    asked = Namespace(data=["yelp"], settings=["as it was"], time=2, samples=2)
    lines = list(ablation.timed(tiny_model(), asked))
    assert made == [False, True, True, False], "each way is first once"
    assert [(line["drawn"], line["completing"]) for line in lines] == [(17, 4), (17, 4)]
    *_, row = ablation.time_table(lines)
    assert row == "| m | yelp | 2 | 2 | 8.5 | 2.0 | 5.00 | 5.50 | 1.10 (1.10 to 1.10) |"


@pytest.mark.parametrize("examples", [True, False])
def test_every_wording_fits_every_corpus(bench: dict[str, ModuleType], examples: bool) -> None:
    wording = bench["utility.wording"]
    for stage in wording.STAGES.values():
        for data, description in stage.items():
            for name in wording.WORDINGS:
                spec = wording.Cell(data, name, examples).prompt(description)
                assert len(spec.examples) == 2 * examples
    assert not set(wording.TUNING) & set(wording.STAGES["reported"])


def test_the_tokens_that_finish_a_sentence_are_told_from_a_texts_own(bench: dict[str, ModuleType]) -> None:
    ablation = bench["utility.ablation"]
    journal = ablation.Tokens()
    journal.step(1, {0: (40, 0, 1.0), 1: (41, 0, 1.0)})
    journal.step(1, {0: (42, 1, 1.0)})
    assert (journal.drawn, journal.completing) == ({0: [40, 42], 1: [41]}, {0: 1, 1: 0})
    encoded: Any = tiny_tokenizer()("It hurts.\n", add_special_tokens=False)["input_ids"]
    model = tiny_model()
    assert ablation.text_of(model, encoded) == {"text": "It hurts.", "tokens": 10, "ended": True}
    assert ablation.text_of(model, encoded[:8])["ended"] is False
    assert ablation.text_of(model, [*encoded[:8], model.stop_tokens[0]])["ended"] is True
