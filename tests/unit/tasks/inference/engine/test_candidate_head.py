"""Logits of candidates: in one product for all rows, or by row; both are the head's own."""

import pytest
import torch
from torch import Tensor

from tasks.inference.catalogue.devices import CPU
from tasks.inference.engine import language_model
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.language_model import (
    CANDIDATE_STEP,
    LanguageModel,
    head_widths_by_row,
    logits_by_row,
    logits_of,
    scored_by_row,
)
from tests.unit.tasks.inference.families import READ, adopted, network_of
from tests.unit.tasks.inference.fixtures import Twins
from tests.unit.tasks.inference.traffic import crowd, differing, drive

CUDA = torch.device("cuda")


@pytest.fixture
def by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU that scores rows as an accelerator does, a few at a time."""
    monkeypatch.setitem(language_model._MOST_BY_ROW, "cpu", 4 * CANDIDATE_STEP)
    monkeypatch.setattr(language_model, "GATHERED", 3 * CANDIDATE_STEP * 64)


@pytest.mark.parametrize("count", [1, 255, 256, 257, 700])
@pytest.mark.parametrize("family", ["Llama", "Gemma 2", "GPT-2", "Phi-2"])
def test_both_ways_are_the_whole_heads(family: str, count: int, by_row: None) -> None:
    """Families with a cap of logits and with a bias of the head among them."""
    model = adopted(network_of(*READ[family]))
    hidden = torch.randn(7, model.width, generator=torch.Generator().manual_seed(2))
    tokens = torch.arange(7 * count).view(7, count) * 31 % model.vocabulary
    whole = model.logits(hidden)
    torch.testing.assert_close(logits_by_row(model, hidden, tokens), whole.gather(1, tokens), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(logits_of(model, hidden, tokens[3]), whole[:, tokens[3]], atol=1e-5, rtol=1e-5)


def test_rows_are_gathered_in_equal_parts(tiny: Twins, by_row: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an H100 the 9 rows that were left of 464 met another kernel than the 455 before them."""
    heights: list[int] = []
    each = LanguageModel.logits_of_each

    def noted(model: LanguageModel, hidden: Tensor, tokens: Tensor) -> Tensor:
        heights.append(len(hidden))
        return each(model, hidden, tokens)

    monkeypatch.setattr(LanguageModel, "logits_of_each", noted)
    logits_by_row(tiny.model, torch.zeros(10, tiny.model.width), torch.zeros(10, CANDIDATE_STEP, dtype=torch.int64))
    assert heights == [2] * 5  # three would fit


def test_rows_are_scored_by_themselves_on_an_accelerator_up_to_a_number() -> None:
    assert (head_widths_by_row(CUDA), head_widths_by_row(CPU)) == ([256, 512, 1024], [])
    assert [scored_by_row(CUDA, count) for count in (1, 1024, 1025)] == [True, True, False]
    assert not scored_by_row(CPU, 1)


@pytest.mark.dear
def test_a_session_gives_each_row_its_own_candidates(
    tiny: Twins, by_row: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = drive(Engine(tiny.model, 4), crowd())
    monkeypatch.setitem(language_model._MOST_BY_ROW, "cpu", 0)
    together = drive(Engine(tiny.model, 4), crowd())
    for name, rows in together.rows.items():
        torch.testing.assert_close(torch.stack(rows), torch.stack(alone.rows[name]), atol=1e-4, rtol=1e-4)


@pytest.mark.dear
def test_other_rows_keep_every_bit_where_rows_are_scored_by_themselves(tiny: Twins, by_row: None) -> None:
    engine = Engine(tiny.model, 4)
    before = drive(engine, crowd())
    fewer = [{name: row for name, row in batch.items() if name != "1-1"} for batch in crowd()]
    assert differing(before.rows, drive(engine, fewer).rows) == {"1-1"}
