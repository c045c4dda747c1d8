"""CUDA graphs on a device: the bits of plain passes, one pool for graphs that come and go, and a capture that fails."""

from functools import partial

import pytest
import torch
from torch import Tensor

from tasks.inference.engine.engine import Engine
from tasks.inference.engine.recorded_passes import CudaGraphs, PassRecorder, RecordedPasses
from tests.unit.tasks.inference.families import READ, adopted, network_of
from tests.unit.tasks.inference.traffic import crowd, differing, drive

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def _double(number: Tensor) -> None:
    number.mul_(2)


@pytest.mark.parametrize("family", ["Llama", "Qwen2, windows in some layers"])
def test_graphs_have_the_bits_of_plain_passes(family: str) -> None:
    device = torch.device("cuda")
    model = adopted(network_of(*READ[family]), device)
    graphs, plain = PassRecorder(device), PassRecorder(device)
    plain.give_up()
    one, other = (drive(Engine(model, 16, recorder=recorder), crowd(), chosen=False) for recorder in (plain, graphs))
    assert all(torch.equal(torch.stack(one.public[n]), torch.stack(other.public[n])) for n in one.public)
    assert not differing(one.rows, other.rows)
    assert graphs.records, "its pass could not be recorded"


def test_graphs_come_and_go_and_a_failed_capture_leaves_the_device_usable() -> None:
    recorder, number = PassRecorder(torch.device("cuda")), torch.ones(3, device="cuda")
    for _ in range(3):
        passes = RecordedPasses(recorder)
        found = [passes.run("twice", lambda held: held * 2, number * n) for n in range(1, 4)]
        assert (found[0].tolist(), found[-1].tolist(), recorder.records) == ([2.0] * 3, [6.0] * 3, True)

    def decides(held: Tensor) -> Tensor:
        return held * 2 if float(held[0]) else held

    passes = RecordedPasses(recorder)
    assert [passes.run("decides", decides, number).tolist() for _ in range(3)] == [[2.0] * 3] * 3
    assert not recorder.records
    assert torch.rand(3, device="cuda").unique().numel() == 3
    held = number.clone()
    CudaGraphs(torch.device("cuda"))(partial(_double, held))()
    assert held.tolist() == [2.0] * 3
