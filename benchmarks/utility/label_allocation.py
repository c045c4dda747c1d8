"""What a proportional allocation of texts to labels is worth on unbalanced corpora, at equal epsilon.

    python -m benchmarks.utility.label_allocation --out docs/figures/label_allocation.jsonl
    python -m benchmarks.utility.label_allocation --out docs/figures/label_allocation.jsonl --table

Two public corpora with labels are made unbalanced: so many texts of each label are kept as public shares say (seeded),
so the true shares are known. Two parts; each has its lines in `--out`:

* `shares`, without a model: total variation between the shares of the labels among `SAMPLES` texts and those of the
  units. Counts are drawn by the mechanism itself, `ROUNDS` times. `equal` is the default; `without noise` shows what
  rounding alone does; `shuffled` is the control: the same counts, each given to the label half their number further.
* `real texts`: MAUVE of `PERFECT` real texts that were taken by allocated labels, against others of the unbalanced
  corpus: what the allocation alone does if texts of each label are perfect. `shuffled` again is the control.

`--out` has figures alone.
"""

import argparse
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from statistics import fmean
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import numpy as np

from benchmarks.common.controls import rotated
from benchmarks.common.intervals import rounded, written
from benchmarks.common.json_lines import DATA, append_lines, read_lines
from benchmarks.utility.texts import SEED
from tasks.accounting.zcdp import rho_of
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.counts.noisy_histogram import calibrate_histogram
from tasks.planning.label_allocation import allocate, nearest_counts

SKEWED = {"agnews": (12, 5, 2, 1), "dbpedia14": tuple(round(1200 / rank) for rank in range(1, 15))}
"""Weights of the labels in alphabetical order: 60, 25, 10 and 5 %, and a Zipf law."""
EPSILONS, DELTA = (Decimal(1), Decimal(4)), Decimal("1e-5")
POPULATIONS, SHARES = (300, 1000, 3000), (Decimal("0.005"), Decimal("0.02"), Decimal("0.1"))
SAMPLES, ROUNDS = 100, 300
EQUAL, NOISELESS, PROPORTIONAL, SHUFFLED = "equal", "without noise", "proportional", "shuffled"
UNITS, PERFECT, EVALUATED, REPEATS = 400, 100, 150, 3


@dataclass(frozen=True)
class Skewed:
    """A corpus with public shares of its labels.

    Attributes:
        labels: in alphabetical order.
        shares: true shares of the units, float64 [labels].
        texts: the public texts of each label, in a seeded order.
    """

    labels: tuple[str, ...]
    shares: Any
    texts: Mapping[str, tuple[str, ...]]

    @classmethod
    def read(cls, data: str) -> "Skewed":
        """Read one of `SKEWED`."""
        by_label: dict[str, list[str]] = {}
        for row in read_lines(DATA / f"{data}.jsonl"):
            by_label.setdefault(str(row["label"]), []).append(row["text"])
        source, weights = random.Random(SEED), np.array(SKEWED[data], float)
        mixed = {label: tuple(source.sample(texts, len(texts))) for label, texts in sorted(by_label.items())}
        return cls(tuple(mixed), weights / weights.sum(), mixed)

    def counts(self, units: int) -> tuple[int, ...]:
        """Units of each label of a corpus of that size."""
        return allocate(units, [round(10**6 * share) for share in self.shares])

    def parts(self) -> Iterator[tuple[str, Sequence[str], Sequence[str], Sequence[str]]]:
        """Yield of each label: the texts of units, those to compare with, and others; none is in two of them."""
        for label, units, compared in zip(self.labels, self.counts(UNITS), self.counts(EVALUATED), strict=True):
            texts = self.texts[label]
            yield label, texts[:units], texts[units : units + compared], texts[units + compared :]


def allocations(true: Sequence[int], epsilon: Decimal, share: Decimal, samples: int) -> dict[str, tuple[int, ...]]:
    """Texts of each label by each kind of allocation; the noise is the mechanism's, drawn anew."""
    rho = int(rho_of(epsilon, DELTA) * share)
    noisy = nearest_counts(calibrate_histogram(rho, len(true)).draw(list(true), OS_RANDOM))
    return {
        EQUAL: allocate(samples, [1] * len(true)),
        NOISELESS: allocate(samples, list(true)),
        PROPORTIONAL: allocate(samples, noisy),
        SHUFFLED: allocate(samples, rotated(noisy)),
    }


def total_variation(texts: Sequence[int], shares: Any) -> float:
    """Half the sum of absolute differences between the shares of texts and the true ones."""
    return float(np.abs(np.array(texts) / sum(texts) - shares).sum() / 2)


def measure_shares(data: str) -> Iterator[dict[str, Any]]:
    """Total variation of each kind of allocation, its mean, with a 95 % interval of that, and its 95th percentile."""
    corpus = Skewed.read(data)
    for units in POPULATIONS:
        true = corpus.counts(units)
        for epsilon in EPSILONS:
            for share in SHARES:
                sigma = calibrate_histogram(int(rho_of(epsilon, DELTA) * share), len(true)).noise.sigma
                found: dict[str, list[float]] = {}
                for _ in range(ROUNDS):
                    for name, texts in allocations(true, epsilon, share, SAMPLES).items():
                        found.setdefault(name, []).append(total_variation(texts, corpus.shares))
                for name, values in found.items():
                    error = 1.96 * float(np.std(values, ddof=1)) / ROUNDS**0.5
                    yield {
                        "part": "shares", "data": data, "allocation": name, "labels": len(true), "units": units,
                        "epsilon": str(epsilon), "share": str(share), "sigma": round(float(sigma), 2),
                        "rounds": ROUNDS, "mean": round(fmean(values), 4), "error": round(error, 4),
                        "worst of 20": round(float(np.quantile(values, 0.95)), 4),
                    }  # fmt: skip


def measure_real_texts(data: str) -> Iterator[dict[str, Any]]:
    """MAUVE of real texts that were taken by allocated labels; all kinds together, for `REPEATS` draws."""
    from benchmarks.utility.mauve import embedder, mean, measured_together  # only these figures need it

    corpus, embed, source = Skewed.read(data), embedder(), random.Random(SEED)
    parts = list(corpus.parts())
    compared = [text for _, _, texts, _ in parts for text in texts]
    for epsilon in EPSILONS:
        estimates: dict[str, list[Any]] = {}
        for repeat in range(REPEATS):
            kinds = allocations(corpus.counts(UNITS), epsilon, SHARES[1], PERFECT)
            sides = {
                name: [text for (*_, others), n in zip(parts, texts, strict=True) for text in source.sample(others, n)]
                for name, texts in kinds.items()
            }
            for name, estimate in measured_together(embed, sides, compared, SEED + repeat).items():
                estimates.setdefault(name, []).append(estimate)
        for name, own in estimates.items():
            less = [estimate.less(equal) for estimate, equal in zip(own, estimates[EQUAL], strict=True)]
            yield {
                "part": "real texts", "data": data, "allocation": name, "epsilon": str(epsilon), "texts": PERFECT,
                "repeats": REPEATS, "mauve": rounded(mean(own).shown), "less_equal": rounded(mean(less).shown),
            }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, figures of each part")
    parser.add_argument("--parts", nargs="+", default=["shares", "real"], choices=["shares", "real"])
    parser.add_argument("--data", nargs="+", default=list(SKEWED), choices=list(SKEWED))
    parser.add_argument("--table", action="store_true", help="only print the figures of what is there")
    arguments = parser.parse_args()
    for data in () if arguments.table else arguments.data:
        if "shares" in arguments.parts:
            _append(arguments.out, measure_shares(data))
        if "real" in arguments.parts:
            _append(arguments.out, measure_real_texts(data))
    rows = read_lines(arguments.out)
    print("\n".join([*shares_table(rows), "", *texts_table(rows)]))


def _append(out: Path, lines: Iterator[dict[str, Any]]) -> None:
    append_lines(out, lines)


def shares_table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield Markdown: total variation at the default share of rho."""
    heads = ("data", "units", "epsilon", "share", "sigma", EQUAL, NOISELESS, PROPORTIONAL, SHUFFLED)
    yield f"| {' | '.join(heads)} |"
    yield f"| {' | '.join(['---'] * len(heads))} |"
    settings: dict[tuple[str, ...], dict[str, str]] = {}
    for row in (row for row in rows if row["part"] == "shares" and row["share"] == str(SHARES[1])):
        setting = tuple(str(row[name]) for name in heads[:5])
        settings.setdefault(setting, {})[row["allocation"]] = f"{row['mean']:.3f} ± {row['error']:.3f}"
    for setting, found in settings.items():
        yield f"| {' | '.join([*setting, *(found[name] for name in heads[5:])])} |"


def texts_table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield Markdown: MAUVE of real texts that were taken by allocated labels."""
    heads = ("texts", "data", "epsilon", "allocation", "n", "MAUVE", "less equal's")
    yield f"| {' | '.join(heads)} |"
    yield f"| {' | '.join(['---'] * len(heads))} |"
    for row in (row for row in rows if row["part"] != "shares"):
        shown = [row["part"], row["data"], row["epsilon"], row["allocation"], str(row["texts"])]
        yield f"| {' | '.join([*shown, *(written(row[name], 2) for name in ('mauve', 'less_equal'))])} |"


if __name__ == "__main__":
    main()
