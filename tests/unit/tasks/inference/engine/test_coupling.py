"""PRIVACY §10.1: what couples rows is found by the probe alone, by the structure where it has one, and then avoided.

Every network here is one that some device, kernel or architecture could be: 9 couplings at 4 sizes, and 3 structures.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tasks.inference.catalogue.devices import can_pack
from tasks.inference.catalogue.registry import UnsupportedModel
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.isolation import FirstResults, IsolationCheck, RowsNotIsolated
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.linear_layers import PackedLinear
from tasks.inference.engine.shapes import Sizes
from tasks.inference.loading import adopt
from tasks.inference.loading.row_wise_modules import require_rowwise
from tests.support import require
from tests.unit.tasks.inference.families import READ, network_of
from tests.unit.tasks.inference.fixtures import adopted, tiny_network
from tests.unit.tasks.inference.rows_at_work import MOST, PRIVATE, PUBLIC, by_row, text

CONCERNS = ("tasks/inference/engine",)

pytestmark = [pytest.mark.dear, pytest.mark.contract]

Spoil = Callable[[Tensor, Tensor], Tensor]
"""Hidden states [R, Q, D] and positions [R, Q] -> hidden states."""

_TINY = 1e-6


def _slots(rows: int) -> Tensor:
    return torch.arange(rows)[:, None, None]


def _middle_third(hidden: Tensor, positions: Tensor) -> Tensor:
    """A product that splits its work into three tiles, and rounds in one of them otherwise."""
    rows = len(hidden)
    return hidden * (1 + _TINY * ((_slots(rows) >= rows // 3) & (_slots(rows) < rows - rows // 3)))


def _last_slot(hidden: Tensor, positions: Tensor) -> Tensor:
    """The remainder of a tile."""
    return hidden * (1 + _TINY * (_slots(len(hidden)) == len(hidden) - 1))


def _stream_k(hidden: Tensor, positions: Tensor) -> Tensor:
    """The sum is cut at a place that depends on the slot: other roundings, the same for the first and the last."""
    half = hidden.shape[-1] // 2
    cut = (_slots(len(hidden)) % 5) * 3
    first = torch.where(torch.arange(hidden.shape[-1]) < half + cut, hidden, 0.0)
    return hidden + _TINY * first.sum(-1, keepdim=True)


def _palindrome(hidden: Tensor, positions: Tensor) -> Tensor:
    """Slot i and slot n-1-i round alike: what the check before this one compared."""
    rows = len(hidden)
    return hidden * (1 + _TINY * torch.minimum(_slots(rows), rows - 1 - _slots(rows)))


def _experts(hidden: Tensor, positions: Tensor) -> Tensor:
    """Rows go to one of three experts by what they say; each is multiplied by as many rows as there are."""
    expert = (hidden[:, -1, 0] * 7).floor().long() % 3
    load = torch.bincount(expert, minlength=3)[expert]
    return hidden * (1 + _TINY * load[:, None, None])


def _longest(hidden: Tensor, positions: Tensor) -> Tensor:
    """The table follows the longest row of the pass."""
    return hidden * (1.01 if int(positions.max()) > 100 else 1.0)


def _batch_mean(hidden: Tensor, positions: Tensor) -> Tensor:
    return hidden - _TINY * hidden.mean(0)


def _one_scale(hidden: Tensor, positions: Tensor) -> Tensor:
    scale = hidden.abs().max() / 127
    return (hidden / scale).round() * scale


def _neighbour(hidden: Tensor, positions: Tensor) -> Tensor:
    return hidden + _TINY * hidden.roll(1, 0)


SPOILS: dict[str, Spoil] = {
    "the middle third rounds otherwise": _middle_third,
    "the last slot rounds otherwise": _last_slot,
    "the sum is cut by slot": _stream_k,
    "slots from both ends round alike": _palindrome,
    "experts by content": _experts,
    "the longest row chooses the table": _longest,
    "the mean of the batch": _batch_mean,
    "one scale for all rows": _one_scale,
    "the row before": _neighbour,
}


def rigged(spoil: Spoil) -> LanguageModel:
    """The tiny model, whose layers are spoilt."""
    model = adopted(tiny_network())

    def decoder(**inputs: Any) -> Any:
        output = model.decoder(**inputs)
        output.last_hidden_state = spoil(output.last_hidden_state, inputs["position_ids"])
        return output

    return replace(model, decoder=decoder)


@pytest.mark.parametrize("rows", [8, *(pytest.param(rows, marks=pytest.mark.slow) for rows in (4, 12, 36))])
@pytest.mark.parametrize("spoil", SPOILS)
def test_the_probe_alone_finds_it(spoil: str, rows: int) -> None:
    with pytest.raises(RowsNotIsolated):
        IsolationCheck(rigged(SPOILS[spoil])).layers(rows, 1)


@pytest.mark.parametrize("rows", [1, 2, 4, 8, 12, 36])
def test_an_honest_device_passes(rows: int) -> None:
    check = IsolationCheck(rigged(lambda hidden, positions: hidden))
    check.layers(rows, 1)
    check.layers(rows, 7)
    check.attention(rows, 3, [16, 48], 64)
    check.head(rows)
    check.candidates(rows, 512)


@pytest.mark.slow_except("experts by content", "the last slot rounds otherwise")
@pytest.mark.parametrize("spoil", [name for name in SPOILS if name != "the longest row chooses the table"])
def test_rows_that_a_device_couples_are_read_one_at_a_time(spoil: str) -> None:
    """Whatever a device does to rows beside each other, who is alone has no neighbours: nothing is refused."""
    engine, rows = Engine(rigged(SPOILS[spoil])), {"a": text(12, 1), "changed": text(30, 2), "b": text(41, 3)}
    before = by_row(engine, [rows])
    for new in (text(64, 9), text(2, 9), []):
        after = by_row(engine, [rows | {"changed": new}])
        assert all(torch.equal(before[name], after[name]) for name in "ab")


def test_what_one_pass_leaves_to_the_next_is_refused() -> None:
    """Not even a row alone is itself where the one before it has changed the model: nothing helps."""
    passes = 0

    def grows(hidden: Tensor, positions: Tensor) -> Tensor:
        nonlocal passes
        passes += 1
        return hidden * (1 + _TINY * passes)

    engine = Engine(rigged(grows))
    with pytest.raises(RowsNotIsolated) as refusal:
        engine.session(Sizes.of([PUBLIC], [PRIVATE], MOST, 9, 3), 2)
    assert "Nothing was read or spent" in refusal.value.message
    assert {shape[2] for shape in engine.isolation.tested_shapes if shape[1] == "layers"} >= {1, 2, 4}


def test_other_kernels_are_tried_before_fewer_rows_than_a_prompt_has(monkeypatch: pytest.MonkeyPatch) -> None:
    require(can_pack(torch.device("cpu")), "this torch has no oneDNN")
    model = adopted(tiny_network())
    honest = PackedLinear.forward

    def unlike(self: PackedLinear, x: Tensor) -> Tensor:
        found = honest(self, x)
        return found if self.plain is not None else found + _TINY * torch.arange(len(x)).view(-1, *[1] * (x.dim() - 1))

    monkeypatch.setattr(PackedLinear, "forward", unlike)
    session = Engine(model, 8).session(Sizes.of([PUBLIC], [PRIVATE], MOST, 9, 3), 2)
    assert (session._per_chunk, model.kernels) == (8, "plain")
    monkeypatch.setattr(PackedLinear, "forward", honest)
    whole = adopted(tiny_network())
    x = torch.randn(5, 64)
    with torch.inference_mode():
        torch.testing.assert_close(model.logits(x), whole.logits(x), atol=1e-5, rtol=1e-5)
    assert not model.use_next_kernels()


def test_smaller_chunks_are_tried_first() -> None:
    def many(hidden: Tensor, positions: Tensor) -> Tensor:
        return _middle_third(hidden, positions) if len(hidden) > 8 else hidden

    model = rigged(many)
    session = Engine(model, 24).session(Sizes.of([PUBLIC], [PRIVATE], MOST, 9, 3), 2)
    assert (session._per_chunk, model.kernels) == (4, "packed")


def _with_batch_norm() -> Any:
    network = tiny_network()
    norm = nn.BatchNorm1d(64).train()

    class Mixed(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner, self.norm = inner, norm

        def forward(self, x: Tensor) -> Tensor:
            inner: Tensor = self.inner(x)
            # As in training: by the mean of what is in the pass.
            return inner - 1e-4 * inner.mean((0, 1), keepdim=True)

    network.model.layers[1].mlp = Mixed(network.model.layers[1].mlp)
    return network


MIXTRALS = [(experts, seed) for experts in (2, 3, 4) for seed in (1, 2, 3, 4)]


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [8, 32, 48])
def test_tiny_mixtrals_by_structure_and_by_probe(monkeypatch: pytest.MonkeyPatch, rows: int, threads: int) -> None:
    """All by structure. Which of them leak depends on kernels and threads; the probe alone finds those that do."""
    monkeypatch.setattr(adopt, "require_rowwise", lambda *_, **__: None)
    torch.set_num_threads(threads)
    for experts, seed in MIXTRALS:
        network = network_of("mixtral", {"num_local_experts": experts, "num_experts_per_tok": 1}, seed)
        with pytest.raises(UnsupportedModel, match="sends rows to experts"):
            require_rowwise("mixtral", network)
        check = IsolationCheck(adopted(network))
        try:
            check.layers(rows, 1)
        except RowsNotIsolated:
            continue
        results, chance = FirstResults(rows), torch.Generator().manual_seed(1)
        for _ in range(20):
            contents = torch.randint(rows, (rows,), generator=chance)
            results.compare(contents, check._passes(rows, 1)(contents))
        assert results.holds, (experts, seed)


def test_a_mean_over_the_batch_by_structure_and_by_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    network = _with_batch_norm()
    with pytest.raises(UnsupportedModel, match="normalises over the rows"):
        require_rowwise("odd", network)
    monkeypatch.setattr(adopt, "require_rowwise", lambda *_, **__: None)
    monkeypatch.setattr(adopt, "_check_close", lambda *_: None)
    with pytest.raises(RowsNotIsolated):
        IsolationCheck(adopted(network)).layers(8, 1)


def test_longrope_by_probe_where_its_table_is_not_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The network of transformers as it is, in a context beyond its first table."""
    monkeypatch.setattr(adopt, "fix_tables", lambda network: None)
    model = adopted(network_of(*READ["Llama, longrope"]))
    assert (model.positions, model.longest) == (256, 512)
    with pytest.raises(RowsNotIsolated):
        IsolationCheck(model).layers(8, 1)
    short = replace(model, long_tables={})
    IsolationCheck(short).layers(8, 1)
