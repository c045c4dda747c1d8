"""Weights that processes of one machine have once: the same pages, the same numbers, and nobody else's."""

import hashlib
import os
import pickle
import signal
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import tasks.inference  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import pytest
import torch
from torch import Tensor, nn

from tasks.inference.catalogue.precision import PRECISIONS, Precision
from tasks.inference.engine.engine import Engine
from tasks.inference.loading.add_model import add_model
from tasks.inference.loading.loading import load
from tasks.inference.network import weight_segment
from tasks.inference.network.capabilities import CPU, can_pack
from tasks.inference.network.int8_linear import Int8Linear
from tasks.inference.network.language_model import LanguageModel
from tasks.inference.network.mapped_weights import file_of, is_protected
from tasks.inference.network.packed_linear import PackedLinear
from tasks.inference.network.weight_segment import SMALLEST, WeightSegment, can_map_packed
from tasks.workers.pool import Channel
from tasks.workers.processes import ProcessRunner
from tests.support import require
from tests.tiny_tokenizer import tiny_tokenizer
from tests.unit.tasks.inference.fixtures import tiny_network
from tests.unit.tasks.inference.processors import expect_refusal
from tests.unit.tasks.inference.rows_at_work import by_row, text

CONCERNS = ("tasks/inference/network", "tasks/inference/loading", "tasks/workers")

pytestmark = pytest.mark.dear

NAME = "wide"
ROWS = [{"a": text(12, 1, 250), "b": text(30, 2, 250)}]


@pytest.fixture
def segment() -> WeightSegment:
    made = WeightSegment.create()
    require(made is not None, "this system cannot seal memory")
    assert made is not None
    return made


@pytest.fixture
def wide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose weights are larger than what stays private, in bfloat16."""
    monkeypatch.setenv("ALMONER_MODELS", str(tmp_path / "models"))
    folder = tmp_path / "wide"
    network = tiny_network(hidden_size=256, intermediate_size=512, num_hidden_layers=2)
    network.to(torch.bfloat16).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    add_model(NAME, folder, "none")
    return folder


def said(model: LanguageModel) -> str:
    """A digest of what the model says of some rows."""
    rows = by_row(Engine(model), ROWS)
    return hashlib.sha256(b"".join(rows[name].numpy().tobytes() for name in sorted(rows))).hexdigest()


def pages() -> dict[str, int]:
    """Bytes of this process's pages of segments, by whether another process has them too."""
    sizes: dict[str, int] = {"Shared": 0, "Private": 0}
    inside = False
    for line in Path("/proc/self/smaps").read_text(encoding="ascii", errors="replace").splitlines():
        name, _, rest = line.partition(":")
        if "-" in name.partition(" ")[0]:
            inside = "/memfd:weights" in line
        elif inside and name in ("Shared_Clean", "Shared_Dirty", "Private_Clean", "Private_Dirty"):
            sizes[name.partition("_")[0]] += int(rest.split()[0]) * 1024
    return sizes


def load_and_say(loading: "partial[LanguageModel]", line: Channel) -> None:
    """In a worker: what the model says, and its pages while all workers have theirs."""
    model = loading()
    line.request(said(model))
    line.request(pages())


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
def test_workers_have_the_pages_of_the_run(wide: Path, segment: WeightSegment, precision: Precision) -> None:
    if expect_refusal(precision):
        return
    loading = partial(load, NAME, "cpu", precision, segment)
    own = said(loading())
    assert segment.sealed
    assert said(load(NAME, "cpu", precision)) == own
    with ProcessRunner().start([partial(load_and_say, loading)] * 2) as pool:
        assert pool.receive_all() == [own, own]
        for worker in range(2):
            pool.reply(worker, None)
        for sizes in pool.receive_all():
            assert sizes["Private"] == 0
            assert sizes["Shared"] >= segment.nbytes > (8 if precision == "float32" else 2) * SMALLEST
    assert segment.nbytes >= weight_bytes(loading())


def weight_bytes(model: LanguageModel) -> int:
    """Bytes of the layers' weights that are large enough; packed ones where this processor packs."""
    layers = [layer for layer in model.decoder.modules() if isinstance(layer, PackedLinear | Int8Linear)]
    assert layers or not can_pack(CPU)
    sizes = [int(torch.ops.mkldnn._nbytes(layer.packed)) for layer in layers]
    return sum(size for size in sizes if size >= SMALLEST)


def test_nobody_can_change_it(segment: WeightSegment) -> None:
    weight = torch.arange(2.0**15)
    segment.join()(weight)
    assert segment.open() is None  # it is not finished
    segment.seal()
    assert stat.S_IMODE(segment.path.stat().st_mode) == 0o600
    with segment.path.open("rb+", buffering=0) as file, pytest.raises(PermissionError):
        file.write(b"1")
    with pytest.raises(PermissionError):
        os.truncate(segment.path, 0)
    shared = segment.join()(weight.clone())
    shared[0] = 7  # in this process alone
    assert torch.equal(segment.join()(weight.clone()), weight)


def test_other_numbers_keep_their_own_memory(segment: WeightSegment) -> None:
    weight, small = torch.arange(2.0**15), torch.ones(8)
    share = segment.join()
    assert share(weight).data_ptr() != weight.data_ptr()
    assert share(small) is small
    segment.seal()
    for other in (weight + 1, weight[:-1].clone(), weight.int(), weight.view(2, -1).clone()):
        assert segment.join()(other) is other
    take = segment.join()
    taken = take(same := weight.clone())
    assert taken is not same
    assert torch.equal(taken, weight)
    assert take(same) is same  # there is no second weight in it


def test_another_file_in_its_place_is_not_read(segment: WeightSegment) -> None:
    weight = torch.arange(2.0**15)
    segment.join()(weight)
    segment.seal()
    other = WeightSegment.create()
    assert other is not None
    other.join()(weight)
    other.seal()
    message = pickle.loads(pickle.dumps(segment))
    assert message.join()(weight) is not weight
    message.path = other.path
    assert message.join()(weight) is weight
    message.path = Path("/proc/0/fd/0")
    assert message.join()(weight) is weight


def test_a_load_that_failed_shares_nothing(segment: WeightSegment) -> None:
    weight = torch.arange(2.0**15)
    segment.join()(weight)
    message = pickle.loads(pickle.dumps(segment))
    assert message.join()(weight) is weight


OWNER = """
import os, pickle, sys, time
import torch
from tasks.inference.network.weight_segment import WeightSegment
segment = WeightSegment.create()
segment.join()(torch.arange(2.0**15))
segment.seal()
sys.stdout.buffer.write(pickle.dumps(segment))
sys.stdout.flush()
os.close(1)
time.sleep(600)
"""


@pytest.mark.slow
def test_pages_outlive_a_killed_owner_and_no_file_does(segment: WeightSegment) -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        message = pickle.loads(owner.stdout.read())
        share = message.join()
        shared = share(weight := torch.arange(2.0**15))
        owner.send_signal(signal.SIGKILL)
    assert shared is not weight
    assert torch.equal(shared, weight)
    assert not message.path.exists()
    assert message.join()(weight) is weight


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_packed_weights_give_the_same_products(segment: WeightSegment, dtype: torch.dtype) -> None:
    require(can_map_packed(), "this build of torch maps no packed weights")
    if (dtype == torch.int8 and expect_refusal("int8")) or (dtype == torch.bfloat16 and not can_pack(CPU, dtype)):
        return
    linear = nn.Linear(192, 400)
    layer: Any = Int8Linear([linear]) if dtype == torch.int8 else PackedLinear(linear.to(dtype))
    rows = torch.randn(5, 192).to(torch.float32 if dtype == torch.int8 else dtype)
    with torch.no_grad():
        own = layer(rows)
        private: Tensor = layer.packed
        layer.share(segment.join())
        assert layer.packed is not private
        assert torch.equal(layer(rows), own)
    assert torch.equal(layer.packed.to_dense(), private.to_dense())


def test_without_sealed_memory_everybody_keeps_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(weight_segment.os, "memfd_create")
    assert WeightSegment.create() is None


def test_no_weight_stays_mapped_from_a_file_that_others_can_write(wide: Path) -> None:
    file = wide / "model.safetensors"
    assert is_protected(file)
    embeddings = load(NAME, "cpu", "bfloat16").decoder.get_input_embeddings().weight
    assert file_of(embeddings) == file
    for mode in (0o620, 0o602):
        file.chmod(mode)
        assert not is_protected(file)
        embeddings = load(NAME, "cpu", "bfloat16").decoder.get_input_embeddings().weight
        assert file_of(embeddings) is None
