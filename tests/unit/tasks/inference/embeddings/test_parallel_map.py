"""Texts handed out to workers: who gets a text follows from the text, and results are in order whoever is faster."""

import random
from collections import Counter
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from tasks.corpus.store import shard_of_text
from tasks.inference.embeddings.parallel import PIECE, MemoryShare, ParallelMap, WorkerEnvironment, room_here, shared
from tasks.workers.pool import TextShards
from tasks.workers.processes import ThreadRunner
from tests import bodies
from tests.refusals import refusal

KIT = WorkerEnvironment.of_process(("a model",), "cpu", elsewhere=True)
TEXTS = [f"{number} {'x' * (number % 7)}" for number in range(3 * PIECE)] + ["", "\ud800", "same", "same"]


def spread(*pauses: float, kit: WorkerEnvironment = KIT) -> ParallelMap[tuple[int, int]]:
    makes = [partial(bodies.lengths_tool, kit, who, pause) for who, pause in enumerate(pauses)]
    return ParallelMap(ThreadRunner(), makes, KIT, TextShards(256, partial(shard_of_text, bytes(32))))


def assign_worker(text: str, count: int) -> int:
    return shard_of_text(bytes(32), text) % count


@pytest.mark.parametrize("pauses", [(0.0,), (0.0, 0.0), (0.05, 0.0, 0.0)])
def test_results_are_in_order_and_who_has_a_text_follows_from_it(pauses: tuple[float, ...]) -> None:
    made, told = spread(*pauses), list[tuple[int, int]]()
    found = made(TEXTS, lambda done, of: told.append((done, of)))
    assert found == [(assign_worker(text, len(pauses)), len(text)) for text in TEXTS]
    assert told == sorted(told)
    assert told[-1] == (len(TEXTS), len(TEXTS))
    mixed = random.Random(1).sample(TEXTS, 40)
    assert made(mixed) == [
        (assign_worker(text, len(pauses)), len(text)) for text in mixed
    ]  # the same workers, once more
    assert made([]) == []
    made.runner.close()


def test_texts_are_dealt_out_evenly() -> None:
    counted = Counter(assign_worker(text, 4) for text in TEXTS)
    assert set(counted) == {0, 1, 2, 3}
    assert min(counted.values()) > len(TEXTS) / 8


@pytest.mark.parametrize(
    ("part", "value"),
    [("model", ("another",)), ("device", "cuda"), ("code", "0" * 64), ("libraries", ()), ("python", "3.11.0rc1")],
)
def test_a_worker_with_anything_else_is_refused_before_it_is_told_a_text(part: str, value: object) -> None:
    made = spread(0.0, kit=replace(KIT, **{part: value}))
    with refusal("WorkerDiffers", match=part):
        made(["Mrs. Smith"])
    made.runner.close()


def test_workers_of_one_machine_share_what_each_has_found() -> None:
    first, second = MemoryShare("one", ("GPU a",), 8, 4), MemoryShare("two", ("cpu",), 6, 3)
    assert shared([first, second, second]) == [first, *[MemoryShare("two", ("cpu",), 3, 1)] * 2]
    other = replace(first, devices=("GPU b",))
    assert shared([first, other]) == [replace(first, threads=2), replace(other, threads=2)]
    both = replace(first, devices=("GPU a", "GPU b"))
    assert [share.memory for share in shared([first, both, other])] == [4, 2, 4]
    assert [share.memory for share in shared([first, replace(first, host="two")])] == [8, 8]


def test_two_workers_that_call_their_gpu_cuda_0_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a Ray cluster, which shows each worker a GPU of its own."""
    device = torch.device("cuda", 0)
    shares = []
    for uuid in ("3f1c", "77aa"):
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _, uuid=uuid: SimpleNamespace(uuid=uuid))
        shares.append(room_here((device,) * 3, 1000, 2))
    assert [share.devices for share in shares] == [("GPU 3f1c",), ("GPU 77aa",)]
    assert [share.memory for share in shared(shares)] == [1000, 1000]
    assert room_here((torch.device("cpu"),) * 3, 1000, 2).devices == ("cpu",)
