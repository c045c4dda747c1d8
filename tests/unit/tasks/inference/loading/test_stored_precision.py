"""Checkpoints in bfloat16 are read as they are stored, and give the model that reading them in float32 gives."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from tasks.inference.catalogue.devices import CPU, can_pack
from tasks.inference.catalogue.model_check import PRECISIONS, Precision
from tasks.inference.engine import memory
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.memory import free_memory, memory_budget, require_memory, weight_bytes_on
from tasks.inference.loading import load_model
from tasks.inference.loading import weights as replace_layers
from tasks.inference.loading import weights as stored_precision
from tasks.inference.loading.load_model import load
from tasks.inference.loading.row_wise_modules import shape_of
from tasks.inference.loading.weights import float32_arithmetic, release_pages, restore_constants, type_to_read
from tests.refusals import refusal
from tests.unit.tasks.inference.families import READ, network_of
from tests.unit.tasks.inference.fixtures import NAME, tiny_network
from tests.unit.tasks.inference.processors import expect_refusal
from tests.unit.tasks.inference.rows_at_work import by_row, text

CONCERNS = ("tasks/inference/loading", "tasks/inference/engine")

pytestmark = pytest.mark.dear

TOKENS = torch.tensor([text(40, 1)])
ROWS: Sequence[dict[str, list[int]]] = [{"a": text(12, 1, 250), "b": text(30, 2, 250)}]


@pytest.fixture
def stored(snapshot: Path) -> Path:
    """The tiny model of the hub, in bfloat16 and in two files."""
    (snapshot / "model.safetensors").unlink()
    tiny_network().to(torch.bfloat16).save_pretrained(snapshot, max_shard_size="200KB")
    assert len(list(snapshot.glob("*.safetensors"))) > 1
    return snapshot


@pytest.mark.slow_except("int8")
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_model_is_the_same_to_the_bit(stored: Path, precision: Precision, monkeypatch: pytest.MonkeyPatch) -> None:
    if expect_refusal(precision):
        return
    read: list[torch.dtype] = []

    def noted(*arguments: Any) -> Any:
        read.append(arguments[-1])
        return read_network(*arguments)

    read_network = load_model.read_network
    monkeypatch.setattr(load_model, "read_network", noted)
    ours = load(NAME, "cpu", precision)
    monkeypatch.setattr(load_model, "type_to_read", lambda *_: torch.float32)
    widened = load(NAME, "cpu", precision)
    assert read == [torch.bfloat16, torch.float32]
    assert torch.equal(ours.head_weight, widened.head_weight)
    assert ours.head_weight.dtype == torch.float32
    types = [{name: one.dtype for name, one in model.decoder.named_parameters()} for model in (ours, widened)]
    assert types[0] == types[1]
    said, expected = (by_row(Engine(model), ROWS) for model in (ours, widened))
    assert all(torch.equal(said[name], expected[name]) for name in ("a", "b"))


@torch.inference_mode()
def test_arithmetic_is_that_of_float32_inside_and_only_there() -> None:
    stored = tiny_network(attention_bias=True).to(torch.bfloat16)
    own = stored(TOKENS).logits
    with float32_arithmetic(stored):
        widened = stored(TOKENS).logits
        with pytest.raises(IndexError):
            stored(torch.tensor([[10**6]]))
    assert widened.dtype == torch.float32
    assert torch.equal(stored(TOKENS).logits, own)
    assert {parameter.dtype for parameter in stored.parameters()} == {torch.bfloat16}
    assert torch.equal(widened, stored.float()(TOKENS).logits)


def test_float32_layers_are_made_one_by_one(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in float32 holds no float32 copy of the whole beside its layers: the others are still as stored."""
    networks: list[Any] = []
    read_network, widen, others = load_model.read_network, replace_layers.widened, []

    def noted(*arguments: Any) -> Any:
        networks.append(read_network(*arguments)[0])
        return networks[0], load_model.read_tokenizer("tiny", stored)

    def widened(linear: torch.nn.Linear) -> torch.nn.Linear:
        layers = [layer for layer in networks[0].base_model.modules() if type(layer) is torch.nn.Linear]
        others.append({layer.weight.dtype for layer in layers} | {linear.weight.dtype})
        return widen(linear)

    monkeypatch.setattr(load_model, "read_network", noted)
    monkeypatch.setattr(replace_layers, "widened", widened)
    model = load(NAME, "cpu", "float32")
    assert {parameter.dtype for parameter in model.decoder.parameters()} == {torch.float32}
    if can_pack(CPU):
        assert others == [{torch.bfloat16}] * 7 * model.layers


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_tied_embeddings_are_the_numbers_of_the_head(
    snapshot: Path, precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    if expect_refusal(precision):
        return
    tiny_network(tie_word_embeddings=True).to(torch.bfloat16).save_pretrained(snapshot)
    model = load(NAME, "cpu", precision)
    embeddings = model.decoder.get_input_embeddings().weight
    assert embeddings.dtype == model.head_weight.dtype == torch.float32
    assert embeddings.data_ptr() == model.head_weight.data_ptr()


def test_what_is_read_in_bfloat16(stored: Path) -> None:
    assert type_to_read(tiny_network().config, stored) == torch.bfloat16


def test_a_number_in_float32_is_not_rounded(stored: Path) -> None:
    file = sorted(stored.glob("*.safetensors"))[-1]
    weights = load_file(file)
    first = next(iter(weights))
    save_file(weights | {first: weights[first].float()}, file, metadata={"format": "pt"})
    assert type_to_read(tiny_network().config, stored) == torch.float32


CONSTANTS = ("Gemma", "Gemma 2", "Gemma 3", "VaultGemma", "Apertus")
"""Families whose networks have numbers beside those that are trained, made in the type that is read."""


def stored_in_bfloat16(family: str, folder: Path) -> Path:
    """A checkpoint of that family in bfloat16, in a model's folder; its width is no square."""
    kind, changes = READ[family]
    for file in folder.glob("*.safetensors"):
        file.unlink()
    network_of(kind, {**changes, "hidden_size": 88, "head_dim": 16}).to(torch.bfloat16).save_pretrained(folder)
    return folder


def read(folder: Path, dtype: torch.dtype) -> Any:
    network, _ = load_model.read_network("tiny", folder, AutoModelForCausalLM, dtype)
    restore_constants(network)
    return network.eval()


@torch.inference_mode()
@pytest.mark.parametrize("family", CONSTANTS)
def test_constants_of_a_network_are_not_rounded(family: str, snapshot: Path) -> None:
    """Gemma multiplies embeddings by the root of their width: a network read in bfloat16 has it in float32."""
    folder = stored_in_bfloat16(family, snapshot)
    ours, expected = (read(folder, dtype) for dtype in (torch.bfloat16, torch.float32))
    assert type_to_read(expected.config, folder) == torch.bfloat16
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.bfloat16}
    buffers = dict(expected.named_buffers())
    assert buffers.keys() == dict(ours.named_buffers()).keys()
    for name, buffer in ours.named_buffers():
        assert buffer.dtype == torch.float32
        assert torch.equal(buffer, buffers[name])
    with float32_arithmetic(ours):
        logits = ours(TOKENS).logits
    assert logits.dtype == torch.float32
    assert torch.equal(logits, expected(TOKENS).logits)


@torch.inference_mode()
def test_a_rounded_constant_is_seen_in_the_logits(snapshot: Path) -> None:
    """The broken twin: without the factor in float32 the logits differ."""
    folder = stored_in_bfloat16("Gemma 3", snapshot)
    ours, expected = (read(folder, dtype) for dtype in (torch.bfloat16, torch.float32))
    ours.model.embed_tokens.embed_scale = ours.model.embed_tokens.embed_scale.to(torch.bfloat16)
    with float32_arithmetic(ours):
        logits = ours(TOKENS).logits
    assert not torch.equal(logits, expected(TOKENS).logits)


@pytest.mark.slow_except("Gemma 2-int8", "Apertus-bfloat16")
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("family", CONSTANTS)
def test_a_model_with_constants_is_the_same_to_the_bit(
    family: str, precision: Precision, snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if expect_refusal(precision):
        return
    stored_in_bfloat16(family, snapshot)
    ours = load(NAME, "cpu", precision)
    monkeypatch.setattr(load_model, "type_to_read", lambda *_: torch.float32)
    widened = load(NAME, "cpu", precision)
    types = [{name: one.dtype for name, one in model.decoder.named_parameters()} for model in (ours, widened)]
    assert types[0] == types[1]
    said, expected = (by_row(Engine(model), ROWS) for model in (ours, widened))
    assert all(torch.equal(said[name], expected[name]) for name in ("a", "b"))


def test_constants_that_nobody_can_make_again_are_read_in_float32(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class WithTable(LlamaForCausalLM):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.register_buffer("table", torch.ones(3, dtype=torch.bfloat16), persistent=False)

    config = tiny_network().config
    assert type_to_read(config, stored) == torch.bfloat16
    monkeypatch.setattr(stored_precision.AutoModelForCausalLM, "from_config", lambda config, **_: WithTable(config))
    assert type_to_read(config, stored) == torch.float32


def resident(file: Path) -> int:
    """Kibibytes of the file that this process holds."""
    kibibytes, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            ours = line.endswith(str(file))
        elif ours and line.startswith("Rss:"):
            kibibytes += int(line.split()[1])
    return kibibytes


def test_released_pages_are_read_again(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    numbers = torch.arange(2**20, dtype=torch.float32)
    save_file({"numbers": numbers}, file)
    with safe_open(file, "pt") as weights:
        mapped = weights.get_tensor("numbers")
    assert torch.equal(mapped, numbers)
    if Path("/proc/self/smaps").is_file():
        held = resident(file)
        release_pages(mapped)
        assert resident(file) < held / 10
    release_pages(mapped)
    assert torch.equal(mapped, numbers)


def test_other_memory_is_not_released(tmp_path: Path) -> None:
    for numbers in (torch.ones(2**20), torch.ones(0), torch.ones(3), torch.ones(2, device="meta")):
        release_pages(numbers)
        assert numbers.device.type == "meta" or bool((numbers == 1).all())


def test_a_model_that_does_not_fit_is_refused_before_it_is_read(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = weight_bytes_on(CPU, shape_of(tiny_network()), "float32")
    monkeypatch.setattr(memory, "free_memory", lambda device: needed)
    assert load(NAME, "cpu").name == NAME
    monkeypatch.setattr(memory, "free_memory", lambda device: needed - 1)
    monkeypatch.setattr(load_model, "read_network", lambda *_: pytest.fail("it was read"))
    with refusal("ModelTooLarge") as refused:
        load(NAME, "cpu")
    assert refused.value.exit_code == 3
    assert refused.value.facts["needed"] == needed == refused.value.facts["free"] + 1
    assert json.dumps(refused.value.facts)


@pytest.mark.parametrize(
    "error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate memory")]
)
def test_memory_that_runs_out_while_a_model_is_loaded(error: Exception) -> None:
    shape = shape_of(tiny_network())
    with refusal("ModelTooLarge") as refused, require_memory("tiny", shape, [CPU], "float32"):
        raise error
    assert refused.value.__cause__ is error
    with pytest.raises(ZeroDivisionError), require_memory("tiny", shape, [CPU], "float32"):
        raise ZeroDivisionError


def test_an_accelerator_is_asked_for_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    device, asked = torch.device("cuda", 1), []

    def mem_get_info(where: torch.device) -> tuple[int, int]:
        asked.append(where)
        return 60 * 2**30, 80 * 2**30

    monkeypatch.delenv("ALMONER_MEMORY", raising=False)
    monkeypatch.setattr(torch.cuda, "mem_get_info", mem_get_info)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda where: 10 * 2**30)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda where: 6 * 2**30)
    assert free_memory(device) == 64 * 2**30
    assert memory_budget(device) == 48 * 2**30
    monkeypatch.setenv("ALMONER_MEMORY", "1000")
    assert memory_budget(device) == 1000
    assert asked == [device, device]
