"""Networks of known shapes with random weights, made on the device: speed does not depend on the values."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks.inference.model_families import KNOWN
from tasks.inference.catalogue.model_check import Precision
from tasks.inference.catalogue.model_store import silence_libraries
from tasks.inference.catalogue.registry import ModelNotPulled
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.loading.adopt import wrap_network
from tasks.inference.loading.load_model import load

SMOLLM2, LLAMA_1B, LLAMA_8B = "SmolLM2-135M", "Llama 3.2 1B", "Llama 3.1 8B"
PULLED: Final = "smollm2-135m-instruct"
"""SmolLM2-135M in the registry."""
TINY: Final[Mapping[str, Any]] = {
    "model_type": "llama", "vocab_size": 400, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip
"""Of the kit's small version, in place of every model."""

_POSITIONS = 8192


def random_network(
    model: str, device: str, dtype: torch.dtype, *, small: bool = False, layers: int | None = None
) -> Any:
    """A transformers causal language model of a known shape, its weights drawn on `device`.

    Args:
        model: a name of KNOWN.
        small: TINY instead.
        layers: so many of its layers only.
    """
    fields: dict[str, Any] = {"tie_word_embeddings": True, "max_position_embeddings": _POSITIONS}
    fields |= dict(TINY if small else KNOWN[model])
    if layers is not None:
        fields["num_hidden_layers"] = layers
    torch.manual_seed(11)
    with silence_libraries(), torch.device(device):
        network = AutoModelForCausalLM.from_config(AutoConfig.for_model(**fields), dtype=dtype)
    network.generation_config.pad_token_id = 0
    network.generation_config.eos_token_id = None
    return network.eval()


def random_model(
    model: str, device: str, precision: Precision, *, small: bool = False, layers: int | None = None
) -> LanguageModel:
    """The same in the engine's hands; no token ends a text."""
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    network = random_network(model, device, dtype, small=small, layers=layers)
    tokenizer = SimpleNamespace(eos_token_id=None, decode=lambda tokens, **_: "")
    wrapped = wrap_network(
        network, tokenizer, name=model, revision="random", digest="0" * 64, device=torch.device(device),
        precision=precision,
    )  # fmt: skip
    return replace(wrapped, stop_tokens=())


def smollm2(device: str, precision: Precision) -> LanguageModel | None:
    """SmolLM2 with its own weights; None where they are not on this machine. No token ends a text."""
    try:
        return replace(load(PULLED, device, precision), stop_tokens=())
    except ModelNotPulled:
        return None


@contextmanager
def memory_returned() -> Iterator[None]:
    """Give the memory of what dies inside back to the device, whatever happens."""
    try:
        yield
    finally:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def synchronise(device: str) -> None:
    """Wait for an accelerator; a CPU is never ahead of us."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def peak_memory(device: str) -> float | None:
    """GiB that torch held at most since `reset_peak`; None on a CPU."""
    return torch.cuda.max_memory_allocated() / 2**30 if device.startswith("cuda") else None


def reset_peak(device: str) -> None:
    """Begin to look for the most memory anew."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
