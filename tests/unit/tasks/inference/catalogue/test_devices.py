"""Devices and threads."""

import pytest
import torch

from tasks.inference.catalogue.devices import BadThreads, DeviceMissing, UnknownDevice, choose_device, use_threads


def test_auto_is_the_accelerator_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == choose_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto") == torch.device("cuda")


@pytest.mark.parametrize("name", ["gpu", "", "cpu:1", "cuda:", "cuda:x", "cuda:-1", "mps"])
def test_unknown_devices(name: str) -> None:
    with pytest.raises(UnknownDevice):
        choose_device(name)


def test_devices_this_machine_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert choose_device("cuda:0") == torch.device("cuda:0")
    with pytest.raises(DeviceMissing):
        choose_device("cuda:1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(DeviceMissing):
        choose_device("cuda")


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    try:
        monkeypatch.delenv("ALMONER_THREADS", raising=False)
        assert use_threads() == before
        monkeypatch.setenv("ALMONER_THREADS", "1")
        assert use_threads() == torch.get_num_threads() == 1
        for bad in ("0", "-1", "two", "1.5"):
            monkeypatch.setenv("ALMONER_THREADS", bad)
            with pytest.raises(BadThreads):
                use_threads()
    finally:
        torch.set_num_threads(before)
