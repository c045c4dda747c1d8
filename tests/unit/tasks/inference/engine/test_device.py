"""Every tensor of a pass is on the model's device: torch's `meta` device, which mixes with no other, stands for one."""

from dataclasses import replace

import pytest
import torch

from benchmarks.gpu import networks, speed
from tasks.inference.engine import rows as row_batch
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.isolation import IsolationCheck, arrangements
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.rows import RowBatch
from tasks.inference.loading import adopt, weights
from tests.unit.tasks.inference.families import READ, adopted, network_of

CONCERNS = ("tasks/inference/engine",)

pytestmark = pytest.mark.dear

META = torch.device("meta")
FAMILIES = ("Llama", "Llama, longrope", "Gemma 2", "GPT-2", "Qwen2, windows in some layers")
"""One for each way of computing attention, positions or logits."""


@pytest.fixture(autouse=True)
def unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on an accelerator: torch's own products, and an accelerator's shapes of passes."""
    for module in (adopt, weights):
        monkeypatch.setattr(module, "can_pack", lambda *_: False)
    monkeypatch.setitem(row_batch._PREFILL, "meta", row_batch._PREFILL["cuda"])


def elsewhere(model: LanguageModel) -> LanguageModel:
    return replace(
        model,
        decoder=model.decoder.to(META),
        head_weight=model.head_weight.to(META),
        head_bias=None if model.head_bias is None else model.head_bias.to(META),
        long_tables={name: table.to(META) for name, table in model.long_tables.items()},
        device=META,
    )


def read(model: LanguageModel) -> None:
    """A prompt and a step, and what the device is asked about."""
    batch = RowBatch(model, 3, 40)
    batch.read_all([[1, 2, 3], [4], [5, 6]], 20)
    logits = model.logits(batch.step(torch.tensor([1, 2, 3], device=META)))
    check = IsolationCheck(model)
    found = [
        logits,
        check._passes(8, 1)(arrangements(8)[2]),
        *(mixed for *_, mixed in check._attended(8, 1, [16, 32], 48)),
    ]
    assert {tensor.device for tensor in found} == {META}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pass_has_no_tensor_on_another_device(family: str) -> None:
    with torch.inference_mode():
        read(elsewhere(adopted(network_of(*READ[family]))))


def test_a_tensor_on_another_device_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken twin: a mask that is made on the CPU."""
    model = elsewhere(adopted(network_of(*READ["Mistral, short window"])))

    def masked(mask: torch.Tensor, window: int, newest: int) -> torch.Tensor:
        return mask + torch.zeros(mask.shape)

    monkeypatch.setattr("tasks.inference.engine.language_model.within_window", masked)
    with torch.inference_mode(), pytest.raises(RuntimeError, match="device"):
        read(model)


def test_a_session_has_no_tensor_on_another_device() -> None:
    """Public and private rows over several steps, until a generation leaves and another enters."""
    model = elsewhere(networks.random_model(networks.SMOLLM2, "cpu", "bfloat16", small=True))
    work = speed.SMALL.work(3, 3, model.vocabulary)
    with speed.without_question():
        session = Engine(model, memory=2**30).session(work.sizes, 2)
        for number, job in enumerate(work.jobs[:2]):
            session.enter(number, job.public, job.private, job.references)
        candidates = torch.zeros(2, 100, dtype=torch.int64, device=META)
        for step in range(3):
            assert session.public_logits().shape == (2, model.vocabulary)
            rows = session.private_logits(candidates if step else None)
            assert rows.values.shape == (6, 100 if step else model.vocabulary)
            assert {rows.values.device, rows.valid.device, session.private_hidden().values.device} == {META}
            session.advance([9, 10])
        session.leave(0)
        session.enter(2, work.jobs[2].public, work.jobs[2].private, work.jobs[2].references)
        assert session.private_logits(candidates).generation.shape == (6,)
