"""Every family of networks: each public and private row as transformers computes it alone, and rows kept apart."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmarks.inference import model_families
from tasks.inference.engine import attention, language_model
from tasks.inference.engine.isolation import IsolationCheck
from tests.unit.tasks.inference.conformance import conformance_of, differences, is_isolated
from tests.unit.tasks.inference.families import READ, adopted, network_of

CONCERNS = ("tasks/inference/engine", "tasks/inference/loading")

pytestmark = pytest.mark.dear

TOLERANCE = 1e-4
"""Of a logit, in float32, where logits are of the size of some units."""


QUICK = {
    "Llama", "Llama, longrope", "Mistral, window", "Qwen3", "Phi-3", "GPT-2", "Falcon", "Gemma 2", "Gemma 3",
    "Cohere 2", "HunYuan, alpha", "Qwen2, windows in some layers",
}  # fmt: skip
"""One family for each way of computing attention, positions or logits; the others are slow tests."""


@pytest.mark.slow_except("Llama", "Gemma 3", "Qwen2, windows in some layers", "GPT-2")
@pytest.mark.parametrize(
    "family", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in READ]
)
def test_each_row_is_what_transformers_says_of_it_alone(family: str) -> None:
    found = conformance_of(family)
    assert found.difference <= TOLERANCE * max(1.0, found.logits / 10)
    assert found.isolated


WINDOWED = [family for family, (_, changes) in READ.items() if changes.get("sliding_window") == 16]


def _later(mask: Tensor, window: int, newest: int) -> Tensor:
    return attention.within_window(mask, window + 1, newest)


def _by_column(mask: Tensor, window: int, newest: int) -> Tensor:
    """Distances in columns, as if no row were padded and no ring wrapped."""
    columns = torch.arange(mask.shape[-1])
    queries = newest - mask.shape[-2] + 1 + torch.arange(mask.shape[-2])
    return mask.masked_fill(queries[:, None] - columns >= window, -torch.inf)


def _none(mask: Tensor, window: int, newest: int) -> Tensor:
    return mask


@pytest.mark.slow_except("Gemma 3-_later", "Cohere 2-_none", "Qwen2, windows in some layers-_by_column")
@pytest.mark.parametrize("broken", [_later, _by_column, _none])
@pytest.mark.parametrize(
    "family", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in WINDOWED]
)
def test_a_wrong_window_is_noticed(family: str, broken: object, monkeypatch: pytest.MonkeyPatch) -> None:
    network, plain = (network_of(*READ[family]) for _ in range(2))
    model = adopted(network)
    monkeypatch.setattr(language_model, "within_window", broken)
    difference, _ = differences(model, plain)
    assert difference > 100 * TOLERANCE


def test_a_window_that_follows_another_row_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken twin: the longest row of a pass decides the window of all."""

    def coupled(mask: Tensor, window: int, newest: int) -> Tensor:
        longest = int((mask[:, 0, -1] == 0.0).sum(-1).max())
        return attention.within_window(mask, window - longest % 5, newest)

    model = adopted(network_of("mistral", {"sliding_window": 16}))
    for question in ("layers", "attention", "head", "candidates"):  # the device is not asked: it would read rows alone
        monkeypatch.setattr(IsolationCheck, question, lambda *_, **__: None)
    assert is_isolated(model)
    monkeypatch.setattr(language_model, "within_window", coupled)
    assert not is_isolated(model)


def test_a_window_counts_a_rows_own_tokens_on_a_ring() -> None:
    """Two rows of 3 and 5 tokens in a ring of 8 columns, the newest of them 1: padding and wrapping do not count."""
    seen = torch.tensor([[1, 1, 0, 0, 0, 0, 0, 1], [1, 1, 0, 0, 0, 1, 1, 1]], dtype=torch.bool)
    mask = torch.zeros(2, 1, 1, 8).masked_fill(~seen[:, None, None], -torch.inf)
    within = attention.within_window(mask, 2, newest=1)[:, 0, 0] == 0.0
    assert within.tolist() == [[True, True, *[False] * 6]] * 2
    within = attention.within_window(mask, 4, newest=1)[:, 0, 0] == 0.0
    assert [int(row.sum()) for row in within] == [3, 4]
    assert not within[1, 5]


def test_the_logit_factor_and_cap_are_not_left_out() -> None:
    for family in ("Gemma 2", "Granite", "Cohere"):
        network, plain = (network_of(*READ[family]) for _ in range(2))
        model = replace(adopted(network), logit_factor=1.0, logit_cap=None)
        assert differences(model, plain)[0] > 100 * TOLERANCE, family


def test_the_page_lists_every_type_and_known_model() -> None:
    page = (Path(__file__).parents[5] / "docs" / "models.md").read_text()
    listed = page.partition("These types of transformers are read: ")[2].partition(".\n")[0]
    assert set(re.findall(r"`(\w+)`", listed)) == {kind for kind, _ in READ.values()}
    for row in model_families.memory_rows():
        assert row in page
