"""Layers of a model on several devices: the bits of one device, and every tensor where it belongs.

A CPU is one device. So transfers are made visible in two ways: for the bits, every tensor that enters a layer, or a
part behind the layers, is copied; for the places, torch's meta device, which mixes with no other, stands for a second.
"""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from tasks.inference.catalogue.devices import CPU
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.isolation import IsolationCheck, RowsNotIsolated, arrangements
from tasks.inference.engine.language_model import KeyValueCache, LanguageModel
from tasks.inference.engine.recorded_passes import PassRecorder
from tasks.inference.engine.rows import RowBatch
from tasks.inference.engine.session import Session
from tasks.inference.engine.shapes import Sizes
from tasks.inference.loading import adopt, weights
from tasks.inference.loading.adopt import list_of_layers, place_decoder, wrap_network
from tasks.inference.prompt_rendering import PromptPieces
from tests.refusals import refusal
from tests.unit.tasks.inference.families import READ, SMALL, adopted, network_of
from tests.unit.tasks.inference.fixtures import tiny_network

CONCERNS = ("tasks/inference/loading", "tasks/inference/engine")

FAMILIES = (
    "Llama",
    "Llama, longrope for long texts",
    "Gemma 2",
    "Gemma 3",
    "Mistral, short window",
    "Phi-2",
    "Phi-3",
    "GPT-2",
    "OPT",
    "Falcon",
    "Qwen2, windows in some layers",
    "NanoChat",
)
"""One for each way of computing attention, positions, norms or logits, and of nesting layers."""

LAYERS = 4
STAGES = {2: (0, 0, 1, 1), 3: (0, 1, 1, 2)}
"""Stage of each layer."""


def four_layers(family: str) -> Any:
    kind, changes = READ[family]
    changes = {**changes, **{name: LAYERS for name in ("num_hidden_layers", "n_layer") if name in {**SMALL, **changes}}}
    if types := changes.get("layer_types"):
        changes["layer_types"] = [*types, *types]
    return network_of(kind, changes)


@pytest.fixture
def copying(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """Let no two stages share memory: whatever a hook receives is copied. Returns the shapes, as they are copied."""
    copied: list[torch.Size] = []

    def send(tensor: Tensor, device: torch.device) -> Tensor:
        copied.append(tensor.shape)
        return tensor.clone()

    monkeypatch.setattr(adopt, "is_at", lambda tensor, device: False)
    monkeypatch.setattr(adopt, "send", send)
    return copied


def spread(network: Any, stages: int, device: torch.device = CPU) -> LanguageModel:
    return wrap_network(
        network,
        SimpleNamespace(eos_token_id=2),
        name="tiny",
        revision="1",
        digest="d",
        device=device,
        layer_devices=(device,) * len(STAGES[stages]),
    )


def logits(model: LanguageModel) -> list[Tensor]:
    """Those of prompts of several lengths, of steps after them, and of rows that go on from a copied prefix."""
    with torch.inference_mode():
        rows = [[7, 9, 11] * 9, [4], [5, 6, 8, 9, 250]]
        batch = RowBatch(model, 3, 40)
        found = [model.logits(batch.read_all(rows, 28))]
        found += [model.logits(batch.step(torch.tensor([1, 2, number], device=model.device))) for number in range(3)]
        scratch = RowBatch(model, 3, 80)
        scratch.begin_with(batch, [2, 0, 1])
        found.append(scratch.read_long([[3] * 20, [17, 18], []], 20))
        found.append(model.logits(scratch.step(torch.tensor([3, 2, 1], device=model.device))))
    return found


@pytest.mark.slow_except("Llama-2", "Gemma 2-2", "GPT-2-3")
@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_have_the_bits_of_one_device(family: str, stages: int, copying: list[torch.Size]) -> None:
    single, group = adopted(four_layers(family)), spread(four_layers(family), stages)
    copying.clear()
    one = logits(single)
    assert not copying  # one device sends nothing
    several = logits(group)
    assert copying
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(several, one, strict=True))
    assert all(bool(each.isfinite().all()) for each in one)


def test_a_transfer_that_changes_a_bit_is_found_out(copying: list[torch.Size], monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken twin: hidden states that are rounded on their way."""
    single, group = adopted(four_layers("Llama")), spread(four_layers("Llama"), 2)
    one = logits(single)
    monkeypatch.setattr(
        adopt, "send", lambda tensor, _: tensor.bfloat16().float() if tensor.is_floating_point() else tensor
    )
    assert not all(torch.equal(ours, theirs) for ours, theirs in zip(logits(group), one, strict=True))


SIZES = Sizes(public_prompt=6, prefix=3, segment=12, new_tokens=11, reference_tokens=10, references=3)


def session_of(model: LanguageModel) -> Session:
    session = Engine(model, memory=2**28).session(SIZES, 2)
    for number in range(2):
        references = [[11 + number, 12, 13], [21, 22] * (number + 1), []]
        session.enter(number, PromptPieces((5, 6, 7 + number), ()), PromptPieces((3, 4, 5), (8, 9)), references)
    return session


def decoded(model: LanguageModel) -> tuple[list[list[int]], list[Tensor]]:
    """Texts of two generations by the greatest mean logit of all their rows, and the logits of every step.

    One leaves after half of the steps, another enters in its place: rows are moved, cleared and filled again.
    """
    session, texts, seen = session_of(model), [[], [], []], []
    for step in range(8):
        if step == 4:
            session.leave(0)
            session.enter(2, PromptPieces((9, 9), ()), PromptPieces((3, 4, 5), (8, 9)), [[99], [98, 97]])
        public, rows = session.public_logits(), session.private_logits()
        seen += [public, rows.values]
        chosen = []
        for place, number in enumerate(session.numbers):
            mean = rows.values[rows.valid & (rows.generation == place)].double().mean(0) + public[place]
            chosen.append(int(mean.argmax()))
            texts[number].append(chosen[-1])
        session.advance(chosen)
    return texts, seen


@pytest.mark.slow_except("Llama")
@pytest.mark.parametrize("family", ["Llama", "Gemma 3"])
def test_a_group_writes_the_texts_of_one_device(family: str, copying: list[torch.Size]) -> None:
    texts, one = decoded(adopted(four_layers(family)))
    group = spread(four_layers(family), 3)
    assert decoded(group)[0] == texts
    assert [len(text) for text in texts] == [4, 8, 4]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(decoded(group)[1], one, strict=True))


# --- Two devices that do not mix -------------------------------------------------------------------------------------

META = torch.device("meta")
PLACES: dict[torch.device, tuple[torch.device, ...]] = {
    CPU: (CPU, META, META, CPU),
    META: (META, CPU, META, CPU),
}
"""Home, and the device of each layer."""


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's own products, as on an accelerator."""
    for module in (adopt, weights):
        monkeypatch.setattr(module, "can_pack", lambda *_: False)


@pytest.fixture
def sent(unpacked: None, monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[int, ...], torch.device]]:
    """Shapes and targets of all transfers. What the meta device sends is zeros: it has no numbers."""
    seen: list[tuple[tuple[int, ...], torch.device]] = []

    def send(tensor: Tensor, device: torch.device) -> Tensor:
        seen.append((tuple(tensor.shape), device))
        return torch.zeros(tensor.shape, dtype=tensor.dtype, device=device) if tensor.is_meta else tensor.to(device)

    monkeypatch.setattr(adopt, "send", send)
    return seen


def mixed(family: str, home: torch.device) -> LanguageModel:
    model = adopted(four_layers(family))
    place_decoder(model.decoder, home, PLACES[home])
    return replace(
        model,
        head_weight=model.head_weight.to(home),
        head_bias=None if model.head_bias is None else model.head_bias.to(home),
        long_tables={name: table.to(home) for name, table in model.long_tables.items()},
        device=home,
        layer_devices=PLACES[home],
    )


def read(model: LanguageModel) -> Tensor:
    """Logits after a prompt and a step, by whichever table of angles."""
    with torch.inference_mode():
        batch = RowBatch(model.for_length(40), 3, 40)
        batch.read_all([[1, 2, 3], [4], [5, 6]], 20)
        return model.logits(batch.step(torch.tensor([1, 2, 3], device=model.device)))


def read_watched(model: LanguageModel) -> Tensor:
    """Logits, as `read`; no layer gets a tensor of another device, not even one that torch would not mind."""
    layers = list_of_layers(model.decoder)
    assert layers is not None
    for layer, device in zip(layers, model.layer_devices, strict=True):

        def watch(module: nn.Module, args: Any, options: Any, device: torch.device = device) -> None:
            for tensor in tree_leaves((args, {**options, "past_key_values": None})):
                if isinstance(tensor, Tensor) and tensor.device != device:
                    raise AssertionError(f"a tensor of {tensor.device} reaches a layer on {device}")

        layer.register_forward_pre_hook(watch, with_kwargs=True)
    return read(model)


@pytest.mark.slow_except("Llama-cpu", "Llama-meta", "GPT-2-meta", "NanoChat-meta")
@pytest.mark.parametrize("home", PLACES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_pass_mixes_no_devices(family: str, home: torch.device, sent: list[Any]) -> None:
    """Its logits are at home; weights, keys and values of each layer are where the layer is."""
    model = mixed(family, home)
    assert read_watched(model).device == home
    assert model.devices == (home, META if home == CPU else CPU)
    layers = list_of_layers(model.decoder)
    assert layers is not None
    where = {id(part): device for layer, device in zip(layers, PLACES[home], strict=True) for part in layer.modules()}
    for module in model.decoder.modules():
        own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        assert {tensor.device for tensor in own} <= {where.get(id(module), home)}
    cache = KeyValueCache.allocate(model, 2, 16)
    assert [tensor.device for tensor in cache.keys] == [tensor.device for tensor in cache.values] == [*PLACES[home]]


@pytest.mark.parametrize("kept", ["attention_mask", "position_embeddings"])
def test_a_tensor_that_stays_at_home_is_found_out(kept: str, sent: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken twins: one of a layer's options is not moved."""
    honest = adopt._PassTransfers.to_device

    def forgetful(self: Any, device: torch.device, held: Any) -> Any:
        moved = honest(self, device, held)
        return {**moved, kept: held[kept]} if isinstance(held, dict) and kept in held else moved

    model = mixed("Llama", META)
    monkeypatch.setattr(adopt._PassTransfers, "to_device", forgetful)
    with pytest.raises(AssertionError, match="reaches a layer on"):
        read_watched(model)


def test_masks_positions_and_angles_move_once_for_each_pass(sent: list[tuple[tuple[int, ...], torch.device]]) -> None:
    model = mixed("Gemma 3", CPU)
    batch = RowBatch(model, 3, 80)
    for columns in (32, 48):
        sent.clear()
        with torch.inference_mode():
            batch.read_all([[1, 2, 3]] * 3, 20)
        assert Counter(sent) == {
            ((3, 20, model.width), META): 1,  # hidden states, into the second layer
            ((3, 20, model.width), CPU): 1,  # and out of the third
            ((3, 1, 20, columns), META): 2,  # the masks of both kinds of layers
            ((3, 20), META): 1,  # positions
            ((3, 20, model.head_size), META): 4,  # cosines and sines of both kinds
        }


def test_a_pass_leaves_nothing_behind(sent: list[Any]) -> None:
    held: list[Any] = []
    model = mixed("Llama", CPU)
    hooks: dict[int, Any] = model.decoder._forward_pre_hooks
    for hook in hooks.values():
        held.append(hook.__self__.moved)
    read(model)
    assert sent
    assert held == [{}]


class Index:
    """An index that says where it is sent to."""

    def __init__(self, *numbers: int) -> None:
        self.tensor, self.sent = torch.tensor(numbers), list[torch.device]()

    def to(self, device: torch.device) -> Tensor:
        self.sent.append(device)
        return self.tensor.to(device)


def test_indices_of_rows_move_once_for_each_device() -> None:
    model = mixed("Llama", CPU)
    mine, theirs = (KeyValueCache.allocate(model, 2, 48) for _ in range(2))
    slots: list[Any] = [Index(0, 1) for _ in range(4)]
    rows: list[Any] = [Index(1, 0) for _ in range(4)]
    mine.copy_columns(theirs, rows[0], 20)
    mine.put(slots[1], 2, theirs, rows[1], slice(0, 20))
    mine.take_over(slots[2], theirs, rows[2])
    mine.clear(slots[3])
    for index in (*rows[:3], *slots[1:]):
        assert index.sent == [CPU, META]


def test_the_column_of_a_step_moves_once_for_each_device() -> None:
    model = mixed("Llama", CPU)
    window = KeyValueCache.allocate(model, 2, 16).window(slice(0, 2), torch.tensor([3]), 16)
    for layer, device in enumerate(PLACES[CPU]):
        new = torch.ones((2, model.key_value_heads, 1, model.head_size), device=device)
        keys, values = window.update(new, new, layer)
        if device == CPU:
            for held in (keys, values):
                assert bool((held[:, :, 3] == 1).all())
                assert int(held.count_nonzero()) == new.numel()
    assert {device: start.device for device, start in window._starts.items()} == {CPU: CPU, META: META}


def test_passes_over_several_devices_are_not_recorded() -> None:
    model, recorded = adopted(four_layers("Llama")), []

    def recording(compute: Any) -> Any:
        recorded.append(compute)
        return compute

    assert IsolationCheck(model, PassRecorder(CPU, recording)).recorder.records
    group = replace(model, layer_devices=PLACES[CPU])
    assert not IsolationCheck(group, PassRecorder(CPU, recording)).recorder.records
    assert not recorded


def test_layers_that_cannot_be_told_apart_are_refused() -> None:
    network = tiny_network()
    with refusal("LayersNotSpread", match="LlamaModel"):
        place_decoder(network.model, CPU, (CPU,) * 2)  # it has three
    network.model.others = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    with refusal("LayersNotSpread", match="LlamaModel") as refused:
        place_decoder(network.model, CPU, (CPU,) * 3)
    assert "Name one device" in (refused.value.advice or "")


# --- Questions to each device ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("coupled", [None, 0, 1])
def test_every_device_with_layers_is_asked_about_attention(
    coupled: int | None, unpacked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device whose attention couples rows is found out, wherever it is in the group."""
    model, asked, honest = mixed("Llama", CPU), [], IsolationCheck._attended

    def attended(self: IsolationCheck, rows: int, queries: int, counts: Any, columns: int, layer: int, _: Any) -> Any:
        asked.append(layer)
        here = IsolationCheck(replace(model, layer_devices=()))  # a meta device has no bits to compare
        for some, contents, result in honest(here, rows, queries, counts, columns, layer):
            yield some, contents, result + torch.arange(rows)[:, None, None, None] * (layer == coupled)

    monkeypatch.setattr(IsolationCheck, "_attended", attended)
    check = IsolationCheck(model)
    if coupled is None:
        check.attention(8, 1, [16, 32], 48)
        check.attention(8, 1, [16, 32], 48)
    else:
        with pytest.raises(RowsNotIsolated, match="On cpu, meta in float32"):
            check.attention(8, 1, [16, 32], 48)
    assert asked == [0, 1]  # the first layer of each device, once


def test_the_question_goes_through_the_whole_chain(sent: list[Any]) -> None:
    check = IsolationCheck(mixed("Gemma 3", CPU))
    assert check._passes(8, 1)(arrangements(8)[2]).device == CPU
    assert sent
    for layer, device in enumerate(PLACES[CPU]):
        assert {result.device for *_, result in check._attended(8, 1, [16, 32], 48, layer)} == {device}


# --- Two GPUs --------------------------------------------------------------------------------------------------------

GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0
two_gpus = pytest.mark.skipif(GPUS < 2, reason=f"needs two CUDA devices of one kind; this machine has {GPUS}")


@pytest.mark.gpu
@two_gpus
@pytest.mark.parametrize("family", FAMILIES)
def test_two_gpus_have_the_bits_of_one(family: str) -> None:
    first, second = torch.device("cuda", 0), torch.device("cuda", 1)
    if torch.cuda.get_device_name(first) != torch.cuda.get_device_name(second):
        pytest.skip("cuda:0 and cuda:1 are of different kinds, whose bits may differ")

    def on(places: tuple[torch.device, ...]) -> LanguageModel:
        tokenizer = SimpleNamespace(eos_token_id=2)
        names = {"name": "tiny", "revision": "1", "digest": "d"}
        return wrap_network(four_layers(family), tokenizer, **names, device=first, layer_devices=places)

    one, group = on(()), on((first, first, second, second))
    assert group.device_name == "cuda:0-1"
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(logits(group), logits(one), strict=True))
    assert decoded(group)[0] == decoded(one)[0]
