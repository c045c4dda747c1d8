"""Devices and threads."""

import os
from collections.abc import Callable

from tests.refusals import refusal

import tasks.inference  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import pytest
import torch

from tasks.adapters.training import frozen_model
from tasks.inference.catalogue.devices import (
    choose_device,
    choose_devices,
    devices_for,
    every_accelerator,
    name_of,
    use_threads,
)
from tasks.inference.embeddings import encoder
from tasks.inference.embeddings.encoder import load_embedder
from tasks.inference.loading import adopt
from tests.unit.tasks.inference.families import READ, adopted, network_of


def test_auto_is_the_accelerator_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == choose_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto") == torch.device("cuda")


NAMELESS = ("gpu", "", "cpu:1", "cuda:", "cuda:x", "cuda:-1", "mps", "cuda:1-1", "cuda:2-1", "cuda:1-", "cuda:0-1-2",
            "cuda:0-1 ", "cpu:0-1", "cuda:0,1", "cuda:٠-١")  # fmt: skip


@pytest.mark.parametrize("name", NAMELESS)
def test_unknown_devices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    for choose in (choose_device, choose_devices):
        with refusal("UnknownDevice") as refused:
            choose(name)
        assert "cuda:A-B" in refused.value.advice


def test_devices_this_machine_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert choose_device("cuda:0") == torch.device("cuda:0")
    with refusal("DeviceMissing"):
        choose_device("cuda:1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with refusal("DeviceMissing"):
        choose_device("cuda")


def test_a_group_is_some_devices_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    group = tuple(torch.device("cuda", number) for number in (1, 2, 3))
    assert choose_devices("cuda:1-3") == group
    assert choose_devices("cuda:2") == (torch.device("cuda:2"),)
    assert name_of(group) == "cuda:1-3"
    assert name_of(group[:1]) == "cuda:1"
    assert name_of([group[0], group[2]]) == "cuda:1, cuda:3"
    assert name_of([torch.device("cpu"), *group]) == "cpu, cuda:1, cuda:2, cuda:3"
    with refusal("DeviceMissing", match="cuda:1-4"):
        choose_devices("cuda:1-4")
    with refusal("OneDeviceNeeded", match="only the layers of a language model"):
        choose_device("cuda:1-3")


def test_all_accelerators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert every_accelerator() == ()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert name_of(every_accelerator()) == "cuda:0-1"


def test_processes_get_devices_in_turn_or_parts_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert devices_for("auto", 5) == ["cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:0"]
    assert devices_for("cpu", 2) == ["cpu", "cpu"]
    assert devices_for("cuda:3", 2) == ["cuda:3", "cuda:3"]
    assert devices_for("cuda:0-3", 1) == ["cuda:0-3"]
    assert devices_for("cuda:0-3", 2) == ["cuda:0-1", "cuda:2-3"]
    assert devices_for("cuda:1-2", 2) == ["cuda:1", "cuda:2"]
    for count in (3, 5, 8):
        with refusal("GroupNotDivisible") as refused:
            devices_for("cuda:0-3", count)
        assert refused.value.facts == {"device": "cuda:0-3", "devices": 4, "workers": count}


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    try:
        monkeypatch.delenv("ALMONER_THREADS", raising=False)
        assert use_threads() == before
        monkeypatch.setenv("ALMONER_THREADS", "1")
        assert use_threads() == torch.get_num_threads() == 1
        for bad in ("0", "-1", "two", "1.5"):
            monkeypatch.setenv("ALMONER_THREADS", bad)
            with refusal("BadThreads"):
                use_threads()
    finally:
        torch.set_num_threads(before)


def _reduced() -> dict[str, object]:
    matmul = torch.backends.cuda.matmul
    return {
        "TF32": matmul.allow_tf32 or torch.backends.cudnn.allow_tf32,
        "float32": torch.get_float32_matmul_precision(),
        "bfloat16 sums": matmul.allow_bf16_reduced_precision_reduction,
        "float16 sums": matmul.allow_fp16_reduced_precision_reduction,
        "variable": os.environ.get("NVIDIA_TF32_OVERRIDE"),
    }


class Stopped(Exception):
    """Raised by what comes after the settings."""


def _stop(*_: object, **__: object) -> None:
    raise Stopped


WAYS: dict[str, Callable[[pytest.MonkeyPatch], object]] = {
    "a model": lambda patch: patch.setattr(adopt, "check_available", _stop) or adopted(network_of(*READ["Llama"])),
    "an embedder": lambda patch: patch.setattr(encoder.model_store, "open_model", _stop) or load_embedder(),
    "a frozen model": lambda patch: frozen_model.freeze(None, torch.device("cpu"), torch.float32),
}


@pytest.mark.parametrize("way", WAYS)
def test_whatever_reads_a_network_leaves_no_sums_of_fewer_bits(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PRIVACY §10.1: float32 silently run as TF32, and sums of bfloat16 in bfloat16, are settings of the process."""
    before = _reduced()
    matmul = torch.backends.cuda.matmul
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    try:
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
        matmul.allow_bf16_reduced_precision_reduction = matmul.allow_fp16_reduced_precision_reduction = True
        assert all(_reduced().values())
        with pytest.raises((Stopped, AttributeError)):
            WAYS[way](monkeypatch)
        found = _reduced()
    finally:
        torch.set_float32_matmul_precision(str(before["float32"]))
    assert found == {
        "TF32": False, "float32": "highest", "bfloat16 sums": False, "float16 sums": False, "variable": "0",
    }  # fmt: skip
