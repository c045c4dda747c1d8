"""The warning of a model that is too large for this machine."""

from pathlib import Path
from typing import Any

import pytest

from tasks.inference.catalogue import model_check
from tasks.inference.catalogue.model_check import Machine, ModelCheck, NetworkShape, RowSizes
from tasks.pricing.request_warnings import memory_warning

GIB = 2**30
SHAPE = NetworkShape(
    architecture="LlamaForCausalLM",
    attention="",
    rotary="default",
    layers=80,
    hidden=8192,
    heads=64,
    key_value_heads=8,
    head_size=128,
    vocabulary=128256,
    context=8192,
    parameters=70_000_000_000,
    head_parameters=128256 * 8192,
    linear_parameters=68_000_000_000,
    tied=False,
    stored_bytes_per_number=2,
)
"""As large as Llama 3 70B."""


def check_on(memory: int | None, **changes: Any) -> ModelCheck:
    machine = Machine(
        device="cuda", accelerators=() if memory is None else (memory,), packed=False, widened=False, **changes
    )
    return ModelCheck(name="large", shape=SHAPE, machine=machine)


def test_it_says_what_the_requested_precision_takes_and_what_there_is() -> None:
    check = check_on(141 * GIB)
    warning = memory_warning(check, {"precision": "float32", "references": 7})
    assert warning is not None
    assert "this machine (cuda): its weights and one text take 26" in warning
    assert "in float32, and it has 141.0 GiB" in warning
    assert memory_warning(check, {"references": 7}) == warning  # float32 is what is computed by default
    assert memory_warning(check, {"precision": "bfloat16", "references": 7}) is None


def test_the_rows_of_one_text_count() -> None:
    check = check_on(141 * GIB)
    crowd = {"precision": "bfloat16", "references": 100, "max_reference_tokens": 4000, "max_new_tokens": 128}
    assert memory_warning(check, crowd)
    assert memory_warning(check, {"precision": "bfloat16"}) is None


def test_nothing_is_said_where_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory_warning(None, {}) is None
    assert memory_warning(ModelCheck(name="unknown"), {}) is None
    assert memory_warning(check_on(1).model_copy(update={"shape": None}), {}) is None
    for content in ("", "MemTotal: many kB", "MemTotal:"):
        (tmp_path / "meminfo").write_text(content)
        monkeypatch.setattr(model_check, "MEMINFO", tmp_path / "meminfo")
        assert memory_warning(check_on(None), {}) is None
    monkeypatch.setattr(model_check, "MEMINFO", tmp_path / "none")
    assert memory_warning(check_on(None), {}) is None


def test_the_verdict_counts_the_precisions_of_the_device_alone() -> None:
    fits_in_int8 = check_on(100 * GIB)
    assert fits_in_int8.verdict == "usable"
    check = check_on(100 * GIB, precisions=("float32", "bfloat16"))
    assert check.verdict.startswith("usable, but not on this machine (cuda): needs 13")
    assert check.verdict.endswith("GiB in bfloat16, has 100.0 GiB")
    assert not check.fits_here


def with_group(check: ModelCheck, *memories: int) -> ModelCheck:
    name = f"cuda:0-{len(memories) - 1}"
    group = Machine(device=name, accelerators=memories, packed=False, widened=False, precisions=("float32", "bfloat16"))
    return check.model_copy(update={"group": group})


def test_a_model_that_fits_on_all_devices_together_is_told_where() -> None:
    """Some 143 GB of weights in bfloat16 and 278 in float32, on devices of 80 GiB."""
    check = with_group(check_on(80 * GIB, precisions=("float32", "bfloat16")), *[80 * GIB] * 4)
    assert check.verdict.startswith("usable, but not on this machine (cuda): needs 13")
    assert check.verdict.endswith("has 80.0 GiB; with its layers spread it fits: --device cuda:0-3")
    assert check.fits_here
    assert check.verdict_on(check.group, RowSizes()) == "usable"
    warning = memory_warning(check, {"precision": "bfloat16", "references": 7})
    assert warning is not None
    assert warning.endswith("With its layers spread over all GPUs of that machine it fits (`--device cuda:0-3`).")
    two = with_group(check_on(60 * GIB, precisions=("float32", "bfloat16")), 60 * GIB, 60 * GIB)
    assert "has 60.0 GiB; cuda:0-1 have 1" in two.verdict
    assert not two.fits_here
    assert two.verdict_on(two.group, RowSizes()).startswith("usable, but not on this machine (cuda:0-1): needs 13")
    warning = memory_warning(two, {"precision": "bfloat16"})
    assert warning is not None
    assert "Another machine may have more" in warning


def test_a_group_in_another_precision_is_not_proposed() -> None:
    check = with_group(check_on(80 * GIB), *[80 * GIB] * 2)
    assert check.group is not None
    coarse = check.model_copy(update={"group": check.group.model_copy(update={"precisions": ("bfloat16",)})})
    assert not coarse.group_for(RowSizes(), ["float32"])
    assert coarse.group_for(RowSizes(), ["bfloat16"])


def test_a_group_of_more_devices_than_layers_holds_nothing() -> None:
    check = with_group(check_on(80 * GIB), *[80 * GIB] * 81)
    assert not check.group_for(RowSizes(), ["bfloat16"])


@pytest.mark.parametrize("value", [True, "7", -1, None, 7.0])
def test_sizes_that_are_no_numbers_are_the_usual_ones(value: object) -> None:
    assert RowSizes.of({"references": value}).references == (0 if value == -1 else 7)
