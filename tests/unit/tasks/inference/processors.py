"""Processors that this machine is not: what the code asks a processor for is patched in one place."""

from dataclasses import replace

import pytest
import torch

from tasks.inference.catalogue import devices
from tasks.inference.catalogue.devices import CPU, CpuCapabilities, check_available, cpu_capabilities
from tasks.inference.catalogue.model_check import Precision, PrecisionMissing
from tasks.inference.loading.adopt import wrap_network
from tests.unit.tasks.inference.fixtures import tiny_network

WHOLE = CpuCapabilities(("avx512_bf16", "avx512_vnni"), frozenset((torch.float32, torch.bfloat16)), True, True)
"""Every precision, with instructions of its own."""
AVX2 = CpuCapabilities(("avx2",), frozenset((torch.float32,)), True, True)
"""Most laptops: packed float32, and int8."""
SATURATING = CpuCapabilities((), frozenset((torch.float32,)), True, False)
"""Packed float32 alone, and sums of int8 that are not exact."""
NO_ONEDNN = CpuCapabilities((), frozenset(), False, False)
"""A build of torch without oneDNN."""


def is_available(precision: Precision) -> bool:
    """Whether this machine's processor computes in `precision`: what a test does depends on it, not whether it runs."""
    try:
        check_available(precision, CPU)
    except PrecisionMissing:
        return False
    return True


def use_processor(patch: pytest.MonkeyPatch, processor: CpuCapabilities) -> None:
    """From here on this machine has that processor, and no accelerator."""
    patch.setattr(devices, "cpu_capabilities", lambda: processor)
    patch.setattr(torch.cuda, "is_available", lambda: False)


def without_packed_bfloat16(patch: pytest.MonkeyPatch) -> None:
    """From here on products of packed bfloat16 do not work; the rest is this machine's."""
    use_processor(patch, replace(cpu_capabilities(), packed=cpu_capabilities().packed - {torch.bfloat16}))


def expect_refusal(precision: Precision) -> bool:
    """Where this processor lacks `precision`, check that a model is refused in it, by name, and return true.

    A test of a precision begins with it: it runs where the precision exists and is one of the refusal elsewhere.
    """
    if is_available(precision):
        return False
    with pytest.raises(PrecisionMissing, match=precision) as refused:
        wrap_network(tiny_network(), None, name="tiny", revision="1", digest="d", device=CPU, precision=precision)
    assert refused.value.facts == {"precision": precision, "device": "cpu"}
    assert "float32" in refused.value.advice
    return True
