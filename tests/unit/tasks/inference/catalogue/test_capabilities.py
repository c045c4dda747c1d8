"""What a processor can do is found out by computing, and every precision has a path or a refusal on each of them."""

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from tasks.inference.catalogue import devices
from tasks.inference.catalogue.devices import CPU, can_pack, check_available, cpu_capabilities, require_available
from tasks.inference.catalogue.model_check import PRECISIONS, PrecisionMissing
from tasks.inference.engine import linear_layers
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.linear_layers import DenseLinear, PackedLinear, WidenedLinear
from tasks.inference.loading.weights import quantise_layers
from tests.support import PATIENCE
from tests.unit.tasks.inference.catalogue.test_precision_isolation import adopted_in, felt_by_others
from tests.unit.tasks.inference.engine.test_isolation import CANDIDATES, CHANGES, batches
from tests.unit.tasks.inference.processors import (
    AVX2,
    NO_ONEDNN,
    SATURATING,
    WHOLE,
    use_processor,
    without_packed_bfloat16,
)
from tests.unit.tasks.inference.rows_at_work import by_row

pytestmark = pytest.mark.dear
CONCERNS = ("tasks/inference/engine",)

PROCESSORS = {"whole": WHOLE, "AVX2": AVX2, "saturating": SATURATING, "no oneDNN": NO_ONEDNN}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_product_that_fails_or_is_wrong_is_not_there(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(weight: Tensor, rows: int) -> Tensor:
        raise RuntimeError("mkldnn_reorder_linear_weight: bf16 path needs the cpu support avx_ne_convert or avx512bw")

    real = PackedLinear.forward
    ask = cpu_capabilities.__wrapped__
    assert (dtype in ask().packed) == can_pack(CPU, dtype)
    monkeypatch.setattr(PackedLinear, "forward", lambda self, x: real(self, x) * 1.1)
    assert dtype not in ask().packed
    monkeypatch.setattr(PackedLinear, "forward", real)
    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", unsupported, raising=False)
    assert not ask().packed


def test_the_processor_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = cpu_capabilities()
    monkeypatch.setattr(devices, "_packs", lambda dtype: pytest.fail("it was asked again"))
    assert cpu_capabilities() is first


@pytest.mark.parametrize(
    ("processor", "missing"), [("whole", set()), ("AVX2", set()), ("saturating", {"int8"}), ("no oneDNN", {"int8"})]
)
def test_each_precision_has_a_path_or_a_refusal(
    processor: str, missing: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_processor(monkeypatch, PROCESSORS[processor])
    for precision in PRECISIONS:
        if precision not in missing:
            check_available(precision, CPU)
            require_available(precision)
            continue
        for ask in (lambda: check_available("int8", CPU), lambda: require_available("int8")):
            with pytest.raises(PrecisionMissing, match="On cpu, layers cannot compute in int8") as refused:
                ask()
            assert refused.value.exit_code == 3
            assert refused.value.advice == "Request precision float32 or bfloat16."


def test_an_accelerator_is_asked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request is priced where one device can compute it, and refused where none can."""
    cuda, found = torch.device("cuda"), {"works": True}
    use_processor(monkeypatch, SATURATING)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (7, 0))
    monkeypatch.setattr(devices, "_cuda_multiplies_bfloat16", lambda device: found["works"])
    with pytest.raises(PrecisionMissing, match=r"On cpu and cuda, .*not exact.*; torch has no product"):
        require_available("int8")
    with pytest.raises(PrecisionMissing, match="no product"):
        check_available("int8", cuda)
    check_available("bfloat16", cuda)
    found["works"] = False
    require_available("bfloat16")
    with pytest.raises(PrecisionMissing, match=r"compute capability 7\.0"):
        check_available("bfloat16", cuda)
    use_processor(monkeypatch, WHOLE)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    require_available("int8")


@pytest.mark.parametrize("bias", [True, False])
@torch.inference_mode()
def test_a_widened_product_is_that_of_bfloat16(bias: bool) -> None:
    torch.manual_seed(5)
    linear = nn.Linear(96, 80, bias=bias, dtype=torch.bfloat16)
    x = torch.randn(3, 7, 96, dtype=torch.bfloat16)
    exact = nn.functional.linear(x.double(), linear.weight.double(), linear.bias.double() if bias else None)
    found = WidenedLinear(linear)(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, exact.to(torch.bfloat16), rtol=2**-7, atol=1e-5)
    if can_pack(CPU, torch.bfloat16):
        torch.testing.assert_close(found, PackedLinear(linear)(x), rtol=2**-7, atol=1e-5)


def test_layers_are_of_the_kind_that_the_processor_has(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {}
    for name, processor in PROCESSORS.items():
        network = nn.Sequential(nn.Linear(8, 8))
        with monkeypatch.context() as patch:
            use_processor(patch, processor)
            patch.setattr(linear_layers.PackedLinear, "__init__", lambda self, linear: nn.Module.__init__(self))
            quantise_layers(network, "bfloat16", CPU)
        kinds[name] = type(network[0])
    widened = WidenedLinear
    assert kinds == {"whole": PackedLinear, "AVX2": widened, "saturating": widened, "no oneDNN": DenseLinear}


@pytest.fixture
def widened(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The tiny model in bfloat16 as it is where packed bfloat16 is missing."""
    without_packed_bfloat16(monkeypatch)
    model = adopted_in("bfloat16")
    kinds = {type(module) for module in model.decoder.modules()}
    assert WidenedLinear in kinds or not can_pack(CPU)
    return Engine(model)


@pytest.mark.parametrize("chosen", [True, False], ids=["candidates", "vocabulary"])
def test_rows_of_widened_layers_keep_every_bit(widened: Engine, chosen: bool) -> None:
    before = by_row(widened, batches(), candidates=CANDIDATES[chosen])
    for change in CHANGES:
        assert felt_by_others(widened, before, change, chosen) == [], change


def test_widened_layers_say_what_packed_ones_say(widened: Engine) -> None:
    """Up to rounding: the same distributions, and the same types between layers."""
    here = by_row(widened, batches())
    whole = by_row(Engine(adopted_in("float32")), batches())
    for name, logits in here.items():
        divergence = (whole[name].log_softmax(-1).exp() * (whole[name].log_softmax(-1) - logits.log_softmax(-1))).sum(
            -1
        )
        assert float(divergence.max()) < 0.05
        assert not torch.equal(logits, whole[name])
    assert widened.model.decoder.embed_tokens.weight.dtype == torch.bfloat16
    assert widened.model.cache_dtype == torch.float32


NARROW = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
"""What makes torch and oneDNN use nothing beyond AVX2 in a new process."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [
        "tests/unit/tasks/inference/catalogue/test_precision.py",
        "tests/unit/tasks/inference/catalogue/test_precision_isolation.py",
        "tests/unit/tasks/inference/engine/test_hidden_isolation.py",
        "tests/unit/tasks/inference/engine/test_int8_linear.py",
        "tests/unit/tasks/inference/catalogue/test_capabilities.py",
        "tests/unit/tasks/planning/test_precision_parameters.py",
        "tests/unit/tasks/adapters/test_adapter_parts.py",
        "tests/integration/test_precision.py",
    ],
)
def test_all_of_it_holds_where_there_is_nothing_beyond_avx2(file: str) -> None:
    """On a processor that has no more these run as they do everywhere; here they are made to believe it."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-n", "0", "-p", "no:cacheprovider", file]
    done = subprocess.run(
        command, env=os.environ | NARROW, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " skipped" not in done.stdout


@pytest.mark.slow
def test_narrow_instructions_are_noticed() -> None:
    """In a new process under AVX2: no traceback, bfloat16 widened or packed, int8 exact or refused."""
    asked = "from tasks.inference.catalogue.devices import *; require_available('bfloat16'); print(cpu_capabilities())"
    done = subprocess.run(
        [sys.executable, "-c", asked],
        env=os.environ | NARROW,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if can_pack(CPU):
        assert "torch.float32" in done.stdout


def test_tiny_network_in_every_precision_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adoption itself, in both answers of the probe."""
    for processor in (SATURATING, NO_ONEDNN):
        use_processor(monkeypatch, processor)
        for precision in PRECISIONS:
            if precision == "int8":
                with pytest.raises(PrecisionMissing):
                    adopted_in(precision)
            else:
                assert adopted_in(precision).precision == precision
