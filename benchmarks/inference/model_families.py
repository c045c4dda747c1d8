"""Every family of networks beside transformers, and the memory that known models need (docs/models.md).

    python -m benchmarks.inference.model_families

A family is a tiny network of random weights, read by the engine in sessions whose ring of columns wraps; the figures of
known models follow from their published shapes (`NetworkShape`), and are calculated and not measured.
"""

from collections.abc import Iterator, Mapping
from dataclasses import astuple
from typing import Any, Final

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tasks.inference.catalogue.model_check import PRECISIONS, NetworkShape
from tasks.inference.engine.memory import RowSizes
from tasks.inference.loading.row_wise_modules import shape_of
from tests.unit.tasks.inference.conformance import conformance_of
from tests.unit.tasks.inference.families import READ

GIBIBYTE: Final = 2**30
SMOLLM2_PARAMETERS: Final = 134_515_008
SMOLLM2_DRAWN: Final = 90
"""Tokens of rows that SmolLM2-135M draws in a second on two AVX-512 cores: measured (docs/benchmarks.md)."""

KNOWN: Final[Mapping[str, Mapping[str, Any]]] = {
    "SmolLM2-135M": {"model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536,
                     "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3},
    "Gemma 3 270M": {"model_type": "gemma3_text", "vocab_size": 262144, "hidden_size": 640, "intermediate_size": 2048,
                     "num_hidden_layers": 18, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256},
    "Qwen3-0.6B": {"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072,
                   "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128},
    "Gemma 3 1B": {"model_type": "gemma3_text", "vocab_size": 262144, "hidden_size": 1152, "intermediate_size": 6912,
                   "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256},
    "Llama 3.2 1B": {"model_type": "llama", "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192,
                     "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8},
    "Qwen2.5-7B": {"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944,
                   "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
                   "tie_word_embeddings": False},
    "Mistral 7B v0.3": {"model_type": "mistral", "vocab_size": 32768, "hidden_size": 4096, "intermediate_size": 14336,
                        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
                        "tie_word_embeddings": False},
    "Llama 3.1 8B": {"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
                     "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
                     "tie_word_embeddings": False},
}  # fmt: skip
"""Published shapes; what is not named here changes neither parameters nor keys and values."""


def family_rows() -> Iterator[str]:
    """Yield a row for each family."""
    for family, (kind, changes) in READ.items():
        found = conformance_of(family)
        window = "yes" if changes.get("sliding_window") else ""
        isolated = "yes" if found.isolated else "NO"
        yield f"| {family} | `{kind}` | {window} | {found.difference:.0e} of {found.logits:.1f} | {isolated} |"


def shape_named(model: str) -> NetworkShape:
    """Return the shape of a known model."""
    fields = {"tie_word_embeddings": True, **KNOWN[model]}
    with torch.device("meta"):
        return shape_of(AutoModelForCausalLM.from_config(AutoConfig.for_model(**fields)))


def memory_rows() -> Iterator[str]:
    """Yield a row for each known model."""
    for model in KNOWN:
        shape = shape_named(model)
        weights = (_gibibytes(shape.weight_bytes(precision, packed=True)) for precision in PRECISIONS)
        on_device = _gibibytes(shape.weight_bytes("bfloat16", packed=False))
        text = shape.generation_bytes("bfloat16", *astuple(RowSizes())) / 2**20
        slower = shape.parameters / SMOLLM2_PARAMETERS
        cells = (
            model,
            f"{shape.parameters / 1e9:.2f}",
            *weights,
            on_device,
            f"{text:.0f}",
            f"{slower:.0f}",
            f"{SMOLLM2_DRAWN / slower:.2g}",
        )
        yield f"| {' | '.join(cells)} |"


def _gibibytes(number: int) -> str:
    return f"{number / GIBIBYTE:.1f}"


if __name__ == "__main__":
    print("| family | transformers' type | window | largest difference, of logits up to | rows kept apart |")
    print("| --- | --- | --- | --- | --- |")
    for row in family_rows():
        print(row, flush=True)
    print()
    columns = ("float32", "bfloat16", "int8", "bfloat16, GPU", "MiB of one text", "slower", "drawn")
    print(f"| model | billions of parameters | {' | '.join(columns)} |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    print("\n".join(memory_rows()))
