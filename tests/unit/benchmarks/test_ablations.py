"""The benchmarks of prompts, completed sentences and units a row: what they compare."""

from types import ModuleType
from typing import Any

import pytest

from tests.tiny_model import tiny_model
from tests.tiny_tokenizer import tiny_tokenizer

SCRIPTS = ("utility.wording", "utility.ablation")


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
