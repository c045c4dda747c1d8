"""What Triton compiles of the fixed-order kernels for an H100, on any machine: prints JSON, kernel -> words of its PTX.

    python -m tests.unit.tasks.inference.kernels.compiled [tf32]

It is a process of its own, because tests have Triton interpret. With `tf32`, products are allowed in TF32: the twin.
"""

import json
import sys
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tasks.inference.kernels import attention_kernel, linear_kernel
from tasks.inference.kernels.kernel_choice import CANDIDATE_TILES

H100 = GPUTarget("cuda", 90, 32)
TYPES = {torch.bfloat16: "*bf16", torch.float32: "*fp32"}
WORDS = ("tf32", "atom.", " red.", "wgmma.mma_async", "mma.sync", "fma.rn.f32")


def words_of(kernel: Any, types: dict[str, str], constants: dict[str, Any], warps: int, stages: int) -> dict[str, int]:
    """How often each of WORDS is in the code of a kernel whose pointers and sizes are multiples of 16."""
    names = list(kernel.arg_names)
    signature = {name: types.get(name, "constexpr" if name in constants else "i32") for name in names}
    runtime = ("rows", "queries")
    divisible = [name for name in names if signature[name] not in ("constexpr", "fp32") and name not in runtime]
    source = ASTSource(
        kernel,
        signature,
        {(names.index(name),): value for name, value in constants.items()},
        {(names.index(name),): [["tt.divisibility", 16]] for name in divisible},
    )
    compiled = triton.compile(source, target=H100, options={"num_warps": warps, "num_stages": stages})
    return {word: compiled.asm["ptx"].count(word) for word in WORDS}


def all_kernels() -> dict[str, dict[str, int]]:
    """Every tile of the linear layer, chosen channels, and attention to one token."""
    found = {}
    for dtype, kind in TYPES.items():
        pointers = dict.fromkeys(("x_pointer", "weight_pointer", "bias_pointer", "y_pointer"), kind)
        for name, tile in CANDIDATE_TILES[dtype].items():
            constants = {
                "HAS_BIAS": True, "HAS_REST": False, "TILE_ROWS": tile.rows, "TILE_COLUMNS": tile.columns,
                "TILE_DEPTH": tile.depth, "GROUP": 8,
            }  # fmt: skip
            found[f"linear {kind} {name}"] = words_of(
                linear_kernel._linear_kernel, pointers, constants, tile.warps, tile.stages
            )
        parts = dict.fromkeys(("query_pointer", "key_pointer", "value_pointer", "out_pointer"), kind)
        parts |= {"mask_pointer": "*fp32", "scale": "fp32", "softcap": "fp32"}
        constants = {
            "GROUPS": 8, "SHARING": 4, "SIZE": 64, "HAS_CAP": True, "BLOCK_QUERIES": 16,
            "BLOCK_COLUMNS": attention_kernel._COLUMNS[dtype], "BLOCK_SIZE": 64, "key_column": 1, "mask_column": 1,
        }  # fmt: skip
        found[f"attention {kind}"] = words_of(attention_kernel._attention_kernel, parts, constants, 4, 2)
    pointers = dict.fromkeys(("x_pointer", "weight_pointer", "bias_pointer", "y_pointer"), "*fp32")
    chosen = pointers | {"chosen_pointer": "*i64"}
    found["chosen"] = words_of(
        linear_kernel._chosen_kernel, chosen, {"HAS_BIAS": True, "BLOCK": 16, "DEPTH": 256}, 4, 3
    )
    return found


if __name__ == "__main__":
    if sys.argv[1:] == ["tf32"]:
        for twin in (linear_kernel._linear_kernel, attention_kernel._attention_kernel):
            twin._unsafe_update_src(twin.src.replace('input_precision="ieee"', 'input_precision="tf32"'))
    sys.stdout.write(json.dumps(all_kernels()))
