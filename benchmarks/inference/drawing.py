"""Processor time of one step's draws: the integer table against OpenDP's noisy maximum, on the same scores.

    python -m benchmarks.inference.drawing

Both samplers get the same integer scores of random logits and draw one token for each generation. They alternate in one
process, and the best round of each counts: what else runs on the machine can only slow a round down.
"""

import argparse
import time
from collections.abc import Callable

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import torch

from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.tokens import sampler

RHO, DRAWS, REFERENCES = 266313968646, 500, 7
SIZES = [(1, 200), (8, 200), (64, 200), (1, 49_152), (8, 49_152), (64, 49_152)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu", help="where the scores are; wall time, if that is not the CPU")
    arguments = parser.parse_args()
    clock = time.process_time if arguments.device == "cpu" else time.perf_counter
    print(f"{arguments.device}, {torch.get_num_threads()} threads; best of {arguments.rounds} alternating rounds\n")
    print(f"{'generations':>12}{'candidates':>12}{'table ms':>12}{'OpenDP ms':>12}{'ratio':>8}")
    for generations, candidates in SIZES:
        table, opendp = compare(generations, candidates, arguments.device, arguments.rounds, clock)
        print(f"{generations:>12}{candidates:>12,}{table:>12.2f}{opendp:>12.2f}{opendp / table:>8.0f}")
    report_calibration()


def compare(
    generations: int, candidates: int, device: str, rounds: int, clock: Callable[[], float]
) -> tuple[float, float]:
    """The best milliseconds of either sampler for one step."""
    torch.manual_seed(generations)
    # 2^20 grid steps a logit, and so many times as fine with B references.
    scores = (torch.randn(generations, candidates, device=device) * 3 * REFERENCES * 2**20).to(torch.int64)
    scores -= scores.amax(dim=1, keepdim=True)
    allowed = torch.ones_like(scores, dtype=torch.bool)
    draws = [sampler.calibrate(kind, RHO, DRAWS, REFERENCES, "1") for kind in ("table", "opendp")]
    times: list[list[float]] = [[], []]
    for _ in range(rounds + 1):  # the first round also builds what is built once
        for taken, draw in zip(times, draws, strict=True):
            began = clock()
            draw.draw_each(scores, allowed, OS_RANDOM)
            taken.append((clock() - began) * 1000)
    table, opendp = (min(taken[1:]) for taken in times)
    return table, opendp


def report_calibration() -> None:
    """What the table's own bound costs of the clip norm."""
    print(f"\n{'B':>6}{'tau':>6}{'C, OpenDP':>12}{'C lost to the table':>22}")
    for references, temperature in ((1, "1"), (7, "1"), (31, "0.5"), (1000, "1")):
        table, opendp = (
            sampler.calibrate(kind, RHO, DRAWS, references, temperature).clip_norm for kind in ("table", "opendp")
        )
        print(f"{references:>6}{temperature:>6}{float(opendp):>12.4f}{float(1 - table / opendp):>22.1e}")


if __name__ == "__main__":
    main()
