"""How far rows stand from the public row, before clipping and after it: counts for a figure.

    python -m benchmarks.utility.histograms --kept traces --out docs/figures/histograms.json

Over the candidates of each position (k = 100), for 7 rows: the difference of logits, phi_i - phi_pub, which the paper
clips, and the difference of log-probabilities, phi_i - phi_pub - a_i. Both as they are, and as the mechanism's own
`clip_rows` leaves them at the clip norm that epsilon 10 buys.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import numpy as np
import torch
from torch import Tensor

from benchmarks.utility.next_tokens import USUAL_CANDIDATES, USUAL_ROWS
from benchmarks.utility.systems import INK, PAPER, Setting, bind
from benchmarks.utility.texts import DESCRIPTIONS, traces
from tasks.inference.loading.loading import load
from tasks.mechanisms.tokens import utility_scores
from tasks.mechanisms.tokens.exponential_mechanism import GRID_EXPONENT, LARGEST_CLIP_STEPS, ExponentialMechanism

EPSILON = "10"
EDGES = np.linspace(-8, 8, 129)
VARIANTS: dict[str, utility_scores.Variant] = {PAPER: "logit", INK: "log_probability"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", type=Path, required=True, help="folder for what was read")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--texts", type=int, default=24)
    arguments = parser.parse_args()
    model = load(arguments.model, arguments.device, arguments.precision)
    draw = bind(Setting(INK, EPSILON, USUAL_ROWS)).draw
    found: dict[str, Any] = {"edges": EDGES.tolist(), "C": float(draw.clip_norm), "epsilon": EPSILON}
    for data in DESCRIPTIONS:
        sums: dict[str, Any] = {}
        cut: dict[str, list[float]] = {name: [] for name in VARIANTS}
        for _, trace in traces(model, data, arguments.texts, arguments.kept):
            with torch.inference_mode():
                logits = trace.logits(model)
                parts = differences(draw, logits[0], logits[1 : 1 + USUAL_ROWS])
            for name, values in parts.items():
                sums[name] = sums.get(name, 0) + counts(values)
            for name, shares in cut.items():
                shares.append(float((parts[f"{name} before"].abs() > found["C"]).float().mean()))
        found[data] = {name: counted.tolist() for name, counted in sums.items()}
        found[data]["beyond"] = {name: sum(shares) / len(shares) for name, shares in cut.items()}
        found[data]["beyond_by_text"] = {name: [round(share, 5) for share in shares] for name, shares in cut.items()}
    arguments.out.write_text(json.dumps(found) + "\n", encoding="utf-8")


def differences(draw: ExponentialMechanism, public: Tensor, rows: Tensor) -> dict[str, Tensor]:
    """Each variant's differences as they are and clipped, in logits; public [n, V], rows [B, n, V]."""
    chosen = utility_scores.candidates(public, USUAL_CANDIDATES, draw)
    known = chosen.of_public(public)
    generation = torch.arange(len(public)).repeat(len(rows))
    values = rows.gather(2, chosen.tokens.expand(len(rows), -1, -1)).flatten(0, 1)
    there = chosen.allowed[generation]
    boundless = ExponentialMechanism(LARGEST_CLIP_STEPS, draw.references, draw.temperature)
    return {
        f"{name} {kind}": utility_scores.clip_rows(used, values, known, generation, variant)[there] / 2**GRID_EXPONENT
        for name, variant in VARIANTS.items()
        for kind, used in (("before", boundless), ("after", draw))
    }


def counts(values: Tensor) -> np.ndarray:
    """How many lie in each bin; what is beyond the ends is counted in the last bins."""
    return np.histogram(values.clamp(float(EDGES[0]), float(EDGES[-1])).numpy(), EDGES)[0]


if __name__ == "__main__":
    main()
