"""Labels by a public rule against true labels, and what an allocation of texts by them is worth.

    python -m benchmarks.label_rule            # writes docs/figures/label_rule.jsonl, a minute of processor
    python -m benchmarks.label_rule --table    # the tables of docs/utility.md

The keywords are those of `benchmarks.insights.questions`, written from the names of the labels before a rule had read
the corpora. No model is needed. Two parts:

* `agreement`: documents of a corpus whose label by the rule is the true one. The control is the same labels, shuffled
  among the documents: what agreement is chance.
* `shares`: total variation between the shares of the labels among `SAMPLES` texts and the true shares of the units, on
  the unbalanced corpora of `benchmarks.utility.label_allocation`. In each of `ROUNDS` the units are drawn anew, with
  replacement within a label, and the counts by the mechanism itself. `equal` is the default; `true labels` is a corpus
  with a field; `rule` is one without; `shuffled` is the control: the rule's counts, each given to the label half their
  number further.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from statistics import fmean
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import numpy as np
from scipy.stats import binomtest

from benchmarks.common.controls import rotated
from benchmarks.common.intervals import rounded
from benchmarks.common.json_lines import read_lines, write_lines
from benchmarks.insights.questions import question_for
from benchmarks.utility.label_allocation import (
    DELTA,
    EPSILONS,
    EQUAL,
    POPULATIONS,
    ROUNDS,
    SAMPLES,
    SHARES,
    SHUFFLED,
    Skewed,
    total_variation,
)
from benchmarks.utility.texts import SEED
from tasks.accounting.zcdp import rho_of
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.counts.noisy_histogram import calibrate_histogram
from tasks.planning.keyword_rule import DocumentLabeller, LabelRule
from tasks.planning.label_allocation import allocate, nearest_counts

OUT = Path(__file__).resolve().parents[1] / "docs" / "figures" / "label_rule.jsonl"
CORPORA = ("agnews", "dbpedia14")
MATCHES = ("most", "first")
SHUFFLES = 200
SHARE = SHARES[1]
TRUE, RULE, NOISELESS = "true labels", "rule", "rule, without noise"
KINDS = (EQUAL, TRUE, RULE, NOISELESS, SHUFFLED)

Labels = Sequence[str | None]


def rule_for(data: str, match: str = "most") -> LabelRule:
    """Return the rule whose answers are the labels of a corpus, in alphabetical order."""
    answers = sorted(question_for(data).answers, key=lambda answer: answer.name)
    return LabelRule.model_validate({"answers": [answer.model_dump() for answer in answers], "match": match})


def labels_by_rule(corpus: Skewed, rule: LabelRule) -> dict[str, Labels]:
    """Return the label by the rule of each text, by its true label."""
    label_of = DocumentLabeller.of(rule)
    return {true: [label_of(text) for text in texts] for true, texts in corpus.texts.items()}


def measure_agreement(data: str) -> Iterator[dict[str, Any]]:
    """Yield how many documents have their true label, by each way to match, beside chance."""
    corpus, source = Skewed.read(data), np.random.default_rng(SEED)
    for match in MATCHES:
        by_true = labels_by_rule(corpus, rule_for(data, match))
        true = np.array([label for label, found in by_true.items() for _ in found])
        found = np.array([label or "" for labels in by_true.values() for label in labels])
        right, labelled = int((true == found).sum()), int((found != "").sum())
        chance = [float((true == source.permutation(found)).mean()) for _ in range(SHUFFLES)]
        interval, of_labelled = (binomtest(right, n).proportion_ci(method="wilson") for n in (len(true), labelled))
        yield {
            "part": "agreement", "data": data, "match": match, "labels": len(by_true), "documents": len(true),
            "labelled": labelled, "right": right, "right_interval": rounded([interval.low, interval.high]),
            "right_of_labelled_interval": rounded([of_labelled.low, of_labelled.high]),
            "shuffles": SHUFFLES, "chance": round(fmean(chance), 4),
            "chance_interval": rounded(np.quantile(chance, [0.025, 0.975]).tolist()),
        }  # fmt: skip


def measure_shares(data: str) -> Iterator[dict[str, Any]]:
    """Yield the total variation of each kind of allocation: mean with a 95 % interval of it, and 95th percentile."""
    corpus, source = Skewed.read(data), np.random.default_rng(SEED)
    by_true = labels_by_rule(corpus, rule_for(data))
    for units in POPULATIONS:
        true = corpus.counts(units)
        for epsilon in EPSILONS:
            found: dict[str, list[float]] = {kind: [] for kind in KINDS}
            for _ in range(ROUNDS):
                drawn = Counter(
                    by_true[label][place]
                    for label, count in zip(corpus.labels, true, strict=True)
                    for place in source.integers(len(by_true[label]), size=count)
                )
                counts = [drawn[label] for label in corpus.labels]
                for kind, texts in allocations(true, counts, epsilon).items():
                    found[kind].append(total_variation(texts, corpus.shares))
            for kind, values in found.items():
                yield {
                    "part": "shares", "data": data, "allocation": kind, "labels": len(true), "units": units,
                    "epsilon": str(epsilon), "share": str(SHARE), "rounds": ROUNDS, "mean": round(fmean(values), 4),
                    "error": round(1.96 * float(np.std(values, ddof=1)) / ROUNDS**0.5, 4),
                    "worst of 20": round(float(np.quantile(values, 0.95)), 4),
                }  # fmt: skip


def allocations(true: Sequence[int], by_rule: Sequence[int], epsilon: Decimal) -> dict[str, tuple[int, ...]]:
    """Return the numbers of texts of each label by each kind of allocation.

    Args:
        true, by_rule: units of each label, by the true labels and by the rule.
    """
    histogram = calibrate_histogram(int(rho_of(epsilon, DELTA) * SHARE), len(true))
    noisy_true, noisy = (nearest_counts(histogram.draw(list(counts), OS_RANDOM)) for counts in (true, by_rule))
    return {
        EQUAL: allocate(SAMPLES, [1] * len(true)),
        TRUE: allocate(SAMPLES, noisy_true),
        RULE: allocate(SAMPLES, noisy),
        NOISELESS: allocate(SAMPLES, list(by_rule)),
        SHUFFLED: allocate(SAMPLES, rotated(noisy)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if not arguments.table:
        parts = (measure_agreement, measure_shares)
        lines = [line for measure in parts for data in CORPORA for line in measure(data)]
        write_lines(arguments.out, lines)
    lines = read_lines(arguments.out)
    print("\n".join([*agreement_table(lines), "", *shares_table(lines)]))


def agreement_table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield how many documents have their true label, beside chance."""
    yield from _head(
        "data", "labels", "match", "documents", "right", "chance", "without label", "right of the labelled"
    )
    for line in (line for line in lines if line["part"] == "agreement"):
        documents, labelled, right = line["documents"], line["labelled"], line["right"]
        yield _row(
            line["data"], line["labels"], line["match"], f"{documents:,}",
            f"{right / documents:.3f} {_interval(line['right_interval'])}",
            f"{line['chance']:.3f} {_interval(line['chance_interval'])}", f"{1 - labelled / documents:.3f}",
            f"{right / labelled:.3f} {_interval(line['right_of_labelled_interval'])}",
        )  # fmt: skip


def shares_table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield how far the shares of texts are from those of the units, by each kind of allocation."""
    yield from _head("data", "units", "epsilon", *KINDS)
    settings: dict[tuple[str, ...], dict[str, str]] = {}
    for line in (line for line in lines if line["part"] == "shares"):
        setting = tuple(str(line[name]) for name in ("data", "units", "epsilon"))
        settings.setdefault(setting, {})[line["allocation"]] = f"{line['mean']:.3f} ± {line['error']:.3f}"
    for setting, found in settings.items():
        yield _row(*setting, *(found[kind] for kind in KINDS))


def _head(*names: str) -> Iterator[str]:
    yield _row(*names)
    yield _row(*["---"] * len(names))


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _interval(ends: Sequence[float]) -> str:
    return f"[{ends[0]:.3f}, {ends[1]:.3f}]"


if __name__ == "__main__":
    main()
