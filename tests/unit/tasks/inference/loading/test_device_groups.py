"""Memory of several devices: what a model needs on each, what is refused, and what is proposed."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from cli.app import app
from tasks.inference.catalogue.devices import CPU
from tasks.inference.catalogue.model_check import Machine, MoreDevicesThanLayers, RowSizes
from tasks.inference.engine import memory
from tasks.inference.engine import memory as resource_requirements
from tasks.inference.engine.memory import (
    layer_counts,
    layer_devices,
    memory_budget,
    require_memory,
    requirements_of,
    spread_budget,
    weight_bytes_on,
)
from tasks.inference.loading import adopt, load_model
from tasks.inference.loading.load_model import load
from tasks.inference.loading.row_wise_modules import shape_of
from tests.refusals import refusal
from tests.unit.tasks.inference.fixtures import NAME, tiny_network

CONCERNS = ("tasks/inference/loading", "tasks/inference/catalogue", "tasks/inference/engine")

FIRST, SECOND = GROUP = tuple(torch.device("cuda", number) for number in range(2))
TINY = shape_of(tiny_network(num_hidden_layers=8))


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[torch.device, int]]:
    """Total and free memory of two GPUs that nobody has."""
    bytes_of = {"all": dict.fromkeys(GROUP, 2**30), "free": dict.fromkeys(GROUP, 2**30)}
    for module in (resource_requirements, memory):
        monkeypatch.setattr(module, "all_memory", lambda device: bytes_of["all"][device])
        monkeypatch.setattr(module, "free_memory", lambda device: bytes_of["free"][device])
    monkeypatch.delenv("ALMONER_MEMORY", raising=False)
    return bytes_of


def test_the_layout_depends_on_all_memory_and_not_on_what_is_free(gpus: Mapping[str, dict[torch.device, int]]) -> None:
    assert layer_counts(TINY, GROUP, "float32") == (4, 4)
    gpus["free"][FIRST] = 1000
    assert layer_counts(TINY, GROUP, "float32") == (4, 4)
    gpus["all"][FIRST] = 2**29
    assert layer_counts(TINY, GROUP, "float32") == (2, 6)
    assert layer_devices(TINY, GROUP, "float32") == (FIRST,) * 2 + (SECOND,) * 6
    assert layer_counts(TINY, GROUP[:1], "float32") == (8,)


def test_the_tightest_device_decides_how_many_rows_there_are(gpus: Mapping[str, dict[torch.device, int]]) -> None:
    gpus["free"] |= {FIRST: 2**30, SECOND: 2**29}
    even = (FIRST,) * 4 + (SECOND,) * 4
    first, second = map(memory_budget, GROUP)
    assert first == 2 * second > 0
    assert spread_budget(even) == 2 * second
    assert spread_budget((FIRST,) * 6 + (SECOND,) * 2) == first * 8 // 6
    assert spread_budget((SECOND,)) == second


def test_a_limit_is_for_all_devices_together(
    gpus: Mapping[str, dict[torch.device, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALMONER_MEMORY", "1000")
    assert spread_budget((FIRST, FIRST, SECOND)) == 1000


def parts() -> tuple[int, int]:
    """Bytes of the weights on both devices."""
    total, home = weight_bytes_on(FIRST, TINY, "float32"), TINY.home_bytes("float32")
    return home + (total - home) // 2, -(-(total - home) // 2)


@pytest.mark.parametrize("short", [0, 1])
def test_each_device_must_have_memory_for_its_part(short: int, gpus: Mapping[str, dict[torch.device, int]]) -> None:
    needed = parts()[short]
    gpus["free"][GROUP[short]] = needed + 8
    with require_memory("tiny", TINY, GROUP, "float32"):
        pass
    gpus["free"][GROUP[short]] = needed - 8
    with (
        refusal("ModelTooLarge", match=f"memory of cuda:{short}: its weights there take") as refused,
        require_memory("tiny", TINY, GROUP, "float32"),
    ):
        pytest.fail("it was read")
    assert refused.value.facts["device"] == f"cuda:{short}"
    assert json.dumps(refused.value.facts)


def test_what_is_needed_is_compared_with_the_fullest_device(gpus: Mapping[str, dict[torch.device, int]]) -> None:
    needs = requirements_of(TINY, GROUP, RowSizes())
    assert (needs.device, needs.free_memory) == ("cuda:0-1", 2**31)
    assert needs.fits("float32")
    gpus["free"][SECOND] = parts()[1]  # room for its weights, and for no keys and values
    needs = requirements_of(TINY, GROUP, RowSizes())
    assert not needs.fits("float32")
    assert needs.weights["float32"] <= needs.usable_memory["float32"] < needs.free_memory


def test_more_devices_than_layers_are_refused(gpus: Mapping[str, dict[torch.device, int]]) -> None:
    with pytest.raises(MoreDevicesThanLayers, match="1 layers, which cannot be spread over 2"):
        requirements_of(shape_of(tiny_network(num_hidden_layers=1)), GROUP, RowSizes())


def test_a_loaded_model_has_its_layers_where_the_layout_says(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor stands for two devices; its layers are sent all the same."""
    sent: list[torch.device] = []
    monkeypatch.setattr(load_model, "choose_devices", lambda name: (CPU, CPU))
    monkeypatch.setattr(adopt, "is_at", lambda tensor, device: False)
    monkeypatch.setattr(adopt, "send", lambda tensor, device: sent.append(device) or tensor.clone())
    group = load(NAME, "cuda:0-1")
    assert group.layer_devices == (CPU,) * 3
    assert sent  # by the comparison with the network's own logits
    monkeypatch.setattr(load_model, "choose_devices", lambda name: (CPU,) * 4)
    with pytest.raises(MoreDevicesThanLayers):
        load(NAME, "cuda:0-3")
    monkeypatch.setattr(load_model, "choose_devices", lambda name: (CPU,))
    assert load(NAME, "cpu").layer_devices == ()


def test_models_check_proposes_all_devices(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of two devices, each too small for the weights and one text."""

    def machine(device: str, memory: int, count: int) -> Machine:
        return Machine(
            device=device, accelerators=(memory,) * count, packed=False, widened=False, precisions=("float32",)
        )

    found = {"one": machine("cuda", 2**22, 1), "all": machine("cuda:0-1", 2**22, 2)}
    monkeypatch.setattr(resource_requirements, "machine_of", lambda devices: found["one"])
    monkeypatch.setattr(load_model, "group_of_machine", lambda: found["all"])
    sizes = snapshot / "request.yaml"
    sizes.write_text("parameters: {references: 15, max_reference_tokens: 256, max_new_tokens: 200}\n")
    answer = CliRunner().invoke(app, ["models", "check", NAME, "--request", str(sizes), "--json"])
    assert answer.exit_code == 1, answer.output
    told = json.loads(answer.output)
    assert told["verdict"].endswith("; with its layers spread it fits: --device cuda:0-1")
    found["one"] = found["all"]
    assert CliRunner().invoke(app, ["models", "check", NAME, "--request", str(sizes)]).exit_code == 0
