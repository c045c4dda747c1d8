"""Tables of angles: no row chooses one, and public sizes choose between the two of `longrope`."""

import copy
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn

from tasks.inference.engine.engine import Engine
from tasks.inference.engine.isolation import IsolationCheck
from tasks.inference.engine.language_model import LanguageModel, with_modules
from tasks.inference.engine.shapes import Sizes
from tasks.inference.loading import adopt
from tasks.inference.loading.row_wise_modules import long_tables, original_length
from tests.unit.tasks.inference.conformance import differences, is_isolated
from tests.unit.tasks.inference.families import LONG, LONGROPE, READ, config_of, network_of
from tests.unit.tasks.inference.fixtures import adopted
from tests.unit.tasks.inference.rows_at_work import by_row, text

CONCERNS = ("tasks/inference/engine", "tasks/inference/loading")

pytestmark = [pytest.mark.dear, pytest.mark.contract]

# More than the tests' short rows, fewer than their long ones.
STRADDLED: Mapping[str, Any] = {"rope_parameters": {**LONGROPE, "original_max_position_embeddings": 40}}


@pytest.mark.parametrize("family", ["Llama, longrope", "Llama, dynamic"])
def test_no_pass_exchanges_a_table_of_angles(family: str) -> None:
    """Behind the engine's back a row is read at a position that no session allows: the other rows keep every bit."""
    model = adopted(network_of(*READ[family]))
    rotary = model.decoder.rotary_emb
    short, x = torch.arange(8)[None], torch.zeros(1, 8, 64)
    before = [part.clone() for part in rotary(x, short)]
    rotary(x, short + 10_000)
    assert all(torch.equal(one, other) for one, other in zip(before, rotary(x, short), strict=True))
    long = rotary(x, torch.cat([short, short + 10_000]))
    assert all(torch.equal(one[0], other[0]) for one, other in zip(before, long, strict=True))


def test_where_tables_change() -> None:
    assert original_length(config_of("llama", {})) is None
    assert original_length(config_of("llama", {"rope_parameters": LONGROPE})) == 256
    whole = {**LONGROPE, "original_max_position_embeddings": 512}
    assert original_length(config_of("llama", {"rope_parameters": whole})) is None
    assert adopted(network_of("llama", {"rope_parameters": whole})).longest == 512
    assert adopted(network_of("mistral", {"sliding_window": 300})).positions == 512


def _read_by(model: LanguageModel) -> torch.Tensor:
    table: torch.Tensor = model.decoder.rotary_emb.inv_freq
    return table


def test_public_sizes_choose_the_table() -> None:
    model = adopted(network_of("llama", {"rope_parameters": LONGROPE}))
    assert (model.positions, model.longest) == (256, 512)
    short, long = (Sizes(4, 10, 200, new_tokens).model_for(model) for new_tokens in (46, 47))
    assert short is model
    assert long.positions == long.longest == 512
    assert torch.allclose(_read_by(short), 4 * _read_by(long))
    assert long.decoder.layers is model.decoder.layers
    by_public_row, *_ = (Sizes(257, 10, 20, 0).model_for(model),)
    assert torch.equal(_read_by(by_public_row), _read_by(long))


def test_a_session_reads_all_its_rows_by_one_table() -> None:
    """Rows of every length are those of a network that has the long table only: also those shorter than it is for."""
    model = adopted(network_of("llama", STRADDLED))
    only = {**LONGROPE, "short_factor": LONGROPE["long_factor"], "original_max_position_embeddings": 40}
    always_long = network_of("llama", {"rope_parameters": only})
    assert differences(model, always_long)[0] < 1e-4
    always_short = network_of(
        "llama", {"rope_parameters": {**only, "long_factor": [1.0] * 8, "short_factor": [1.0] * 8}}
    )
    assert differences(model, always_short)[0] > 0.01


def test_rows_keep_apart_on_either_side_of_the_original_length() -> None:
    assert is_isolated(adopted(network_of("llama", STRADDLED)))


def test_a_table_that_follows_the_longest_row_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken twin: the rotary embeddings of transformers."""
    for question in ("layers", "attention", "head", "candidates"):  # the device is not asked: it would read rows alone
        monkeypatch.setattr(IsolationCheck, question, lambda *_, **__: None)
    monkeypatch.setattr(adopt, "fix_tables", lambda network: None)
    monkeypatch.setattr(adopt, "long_tables", lambda decoder: {"rotary_emb": copy.deepcopy(decoder.rotary_emb)})
    assert not is_isolated(adopted(network_of("llama", STRADDLED)))


def test_short_and_long_sessions_of_one_model_do_not_disturb_each_other() -> None:
    engine = Engine(adopted(network_of("llama", {"rope_parameters": LONGROPE})))
    rows = [{"a": text(12, 1), "b": text(30, 2)}]
    before = by_row(engine, rows)
    long = by_row(engine, rows, most=300)
    after = by_row(engine, rows)
    assert torch.equal(before["a"], after["a"])
    assert float((long["a"] - before["a"]).abs().max()) > 0.01


def test_tables_inside_layers_are_refused() -> None:
    network = network_of("llama", {"rope_parameters": LONG})
    network.model.layers[0].rotary = network.model.rotary_emb
    network.model.rotary_emb = nn.Identity()
    with pytest.raises(ValueError, match="parts of its layers"):
        long_tables(network.model)


def test_modules_deep_inside_are_replaced_in_a_copy() -> None:
    network = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    other = with_modules(network, {"0.1": nn.Identity()})
    assert isinstance(network.get_submodule("0.1"), nn.ReLU)
    assert isinstance(other.get_submodule("0.1"), nn.Identity)
    assert other.get_submodule("0.0") is network.get_submodule("0.0")
