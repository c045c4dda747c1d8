"""The engine against plain decoding on a processor of fewer instructions, which this one is made to be.

    python -m benchmarks.inference.instruction_sets                      AVX2 alone, then all that this processor has
    python -m benchmarks.inference.instruction_sets --before /path/to/an/older/checkout --sides engine
    python -m benchmarks.inference.instruction_sets --out docs/figures/instruction_sets.jsonl

Each instruction set has a process of its own, where torch, oneDNN and MKL are told by environment variables to use no
more (`EMULATED`): a real processor with AVX2 alone may have another peak and another memory. A process measures its
roofline (the peak of a core in float32 and the rate at which it reads memory), and then, in turns, the programs of
`decoding`: the engine at each precision that it has there, (a) one generation at a time, and (b) all rows in one batch.
All of it on one core, in processor time. With `--before` the engine of another checkout takes turns with this one's, as
often as there are rounds. Each engine's first session, which checks row isolation, is not counted.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import torch
from torch import nn

from benchmarks.common.json_lines import append_lines
from benchmarks.inference import decoding
from benchmarks.inference.decoding import MODEL, Stopwatch
from models_db.errors import EnvironmentProblem
from tasks.inference.catalogue.precision import PRECISIONS
from tasks.inference.engine.engine import Engine
from tasks.inference.loading.loading import load
from tasks.inference.network.packed_linear import PackedLinear

EMULATED: Mapping[str, Mapping[str, str]] = {
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "all": {},
}
ROOT = Path(__file__).resolve().parents[2]

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instructions", choices=EMULATED, nargs="+", default=list(EMULATED))
    parser.add_argument("--sides", choices=("engine", "plain"), nargs="+", default=["engine", "plain"])
    parser.add_argument("--precision", choices=PRECISIONS, nargs="+", default=list(PRECISIONS))
    parser.add_argument("--before", type=Path, help="another checkout, whose engine takes turns with this one's")
    parser.add_argument("--generations", type=int, default=8)
    parser.add_argument("--references", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=32, help="at least 2")
    parser.add_argument("--reference-tokens", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--texts", type=Path, default=decoding.TEXTS, help="JSONL with a `text` field")
    parser.add_argument("--out", type=Path, help="a JSONL file that the figures are added to")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        for row in measured(arguments):
            print(json.dumps(row), flush=True)
        return
    rows = list(in_turns(arguments))
    if arguments.out:
        append_lines(arguments.out, rows)
    print_table(rows)


def in_turns(arguments: argparse.Namespace) -> Iterator[Row]:
    """Every process, one after the other; each round has all of them."""
    given = [part for part in sys.argv[1:] if part != "--child"]
    checkouts = {"this": ROOT} | ({"before": arguments.before.resolve()} if arguments.before else {})
    core = min(os.sched_getaffinity(0))
    for number in range(arguments.rounds):
        for name in arguments.instructions:
            for label, checkout in checkouts.items():
                child = subprocess.run(
                    [sys.executable, __file__, *given, "--child"],
                    env=os.environ | EMULATED[name] | {"PYTHONPATH": str(checkout)},
                    preexec_fn=partial(os.sched_setaffinity, 0, {core}),
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                )
                for line in child.stdout.splitlines():
                    if line.startswith("{"):
                        row = {"instructions": name, "code": label, "round": number + 1, **json.loads(line)}
                        print(row, flush=True)
                        yield row


def measured(arguments: argparse.Namespace) -> Iterator[Row]:
    """What one process measures."""
    torch.set_num_threads(1)
    yield roofline()
    models = {}
    for precision in arguments.precision if "engine" in arguments.sides else []:
        try:
            models[precision] = replace(load(MODEL, "cpu", precision), stop_tokens=())
        except EnvironmentProblem as problem:
            yield {"side": f"engine, {precision}", "missing": problem.message}
    device = torch.device("cpu")
    sides: dict[str, Callable[[Stopwatch], Stopwatch]] = {}
    first = next(iter(models.values()), None) or load(MODEL, "cpu", "float32")
    work = decoding.make_work(first, arguments, arguments.generations, arguments.references)
    for precision, model in models.items():
        engine = Engine(model)
        decoding.decode_engine(engine, work, Stopwatch(device))
        sides[f"engine, {precision}"] = partial(decoding.decode_engine, engine, work)
    if "plain" in arguments.sides:
        network = decoding.plain_network(device, "float32")
        sides["(a) one generation at a time"] = partial(decoding.decode_one_by_one, network, work)
        sides["(b) all rows, no privacy"] = partial(decoding.decode_together, network, work)
    for name, run in sides.items():
        watch = run(Stopwatch(device))
        step = {"step_ms": round(watch.decoding_cpu / (work.tokens - 1) * 1000, 1)} if watch.decoding_cpu else {}
        yield {"side": name, "tokens": work.tokens, "processor_s": round(watch.cpu, 2), **step}


@torch.inference_mode()
def roofline() -> Row:
    """The peak of a core: a product of 1,024 x 1,024 x 1,024 with packed weights, and the sum of 256 MiB."""
    x, many = torch.randn(1024, 1024), torch.randn(2**26)
    product = PackedLinear(nn.Linear(1024, 1024, bias=False))
    return {
        "side": "roofline",
        "instructions_of_torch": torch.backends.cpu.get_cpu_capability(),  # type: ignore[no-untyped-call]
        "float32_gflops": round(2 * 1024**3 / least(lambda: product(x)) / 1e9),
        "memory_gb_s": round(many.nbytes / least(many.sum) / 1e9),
    }


def least(run: Callable[[], object]) -> float:
    """The least processor time of ten runs, in seconds."""
    run()
    times = []
    for _ in range(10):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return min(times)


def print_table(rows: list[Row]) -> None:
    """The best round of each side, and how many times the plain sides' the engine's speed is."""
    best: dict[tuple[str, str, str], float] = {}
    for row in rows:
        if "processor_s" in row:
            key = row["instructions"], row["code"], row["side"]
            best[key] = min(row["processor_s"], best.get(key, row["processor_s"]))
    print(f"\n{'instructions':14}{'code':8}{'side':34}{'CPU s':>8}{'(a) / it':>10}{'(b) / it':>10}")
    for (instructions, code, side), seconds in best.items():
        plain = [
            value / seconds
            for mark in "ab"
            for (set_of, _, name), value in best.items()
            if set_of == instructions and name.startswith(f"({mark})")
        ]
        print(f"{instructions:14}{code:8}{side:34}{seconds:>8.1f}" + "".join(f"{ratio:>10.2f}" for ratio in plain))


if __name__ == "__main__":
    main()
