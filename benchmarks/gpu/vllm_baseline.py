"""vLLM's side of `speed_*`: the same rows without privacy, in a process of its own; only where vLLM is installed.

vLLM makes the random weights itself (`load_format="dummy"`) from the configuration of the same shape. Prefix caching is
off, as it would have to be between private rows, and texts do not end early. With `VLLM_BATCH_INVARIANT=1` its kernels
do not depend on the batch, which is the fairer comparison.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.gpu.requirements import ROOT, installed
from benchmarks.gpu.section import Bench
from benchmarks.inference.model_families import KNOWN

if TYPE_CHECKING:
    from benchmarks.gpu.decoding_plan import Plan

FEW, MORE = 2, 34
"""New tokens of a short and of a long run; their difference has no prompts in it."""
MODES = {"plain": {}, "batch-invariant": {"VLLM_BATCH_INVARIANT": "1"}}


def measure(bench: Bench, plan: "Plan", references: int, generations: int) -> Mapping[str, Any]:
    """Tokens of texts a second, as of the engine: a token of a text is one of each of its rows."""
    if installed("vllm") is None:
        return {"not compared": "vLLM is not installed"}
    folder = write_configuration(bench.folder / plan.model.replace(" ", "-"), plan)
    rows = generations * (1 + references)
    figures: dict[str, Any] = {"rows": rows}
    for mode, variables in MODES.items():
        step = _step(folder, plan, rows, variables, bench.seconds_left)
        prefix = "" if mode == "plain" else f"{mode} "
        figures |= {f"{prefix}step ms": step * 1000, f"{prefix}tokens/s": generations / step}
    return figures


def write_configuration(folder: Path, plan: "Plan") -> Path:
    """Write the config.json of the plan's shape, which is all that vLLM needs for weights of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    fields = {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 8192, "tie_word_embeddings": True}
    fields |= {"torch_dtype": plan.precision, **KNOWN[plan.model]}
    (folder / "config.json").write_text(json.dumps(fields), encoding="utf-8")
    return folder


def _step(folder: Path, plan: "Plan", rows: int, variables: Mapping[str, str], seconds: float) -> float:
    command = [sys.executable, "-m", "benchmarks.gpu.vllm_baseline", str(folder), "--rows", str(rows)]
    command += ["--prompt", str(plan.prompt + plan.reference_tokens)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, check=False,
        timeout=max(1.0, seconds),
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"vLLM ended with status {done.returncode}: {done.stderr.strip()[-400:]}")
    return float(json.loads(done.stdout.splitlines()[-1])["step"])


def main() -> None:
    """The process that imports vLLM; prints the seconds of a step."""
    from vllm import LLM, SamplingParams  # only this process needs it

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder")
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--prompt", type=int, required=True)
    arguments = parser.parse_args()
    model = LLM(
        model=arguments.folder, load_format="dummy", skip_tokenizer_init=True, enable_prefix_caching=False,
        max_num_seqs=arguments.rows, max_model_len=arguments.prompt + MORE + 16, gpu_memory_utilization=0.85,
    )  # fmt: skip
    prompts = [
        {"prompt_token_ids": [(row * 61 + 17 * place) % 30_000 + 8 for place in range(arguments.prompt)]}
        for row in range(arguments.rows)
    ]
    seconds = []
    for tokens in (FEW, FEW, MORE):
        how = SamplingParams(max_tokens=tokens, ignore_eos=True, detokenize=False, top_k=100)
        began = time.perf_counter()
        model.generate(prompts, how, use_tqdm=False)
        seconds.append(time.perf_counter() - began)
    print(json.dumps({"step": (seconds[2] - seconds[1]) / (MORE - FEW)}))


if __name__ == "__main__":
    main()
