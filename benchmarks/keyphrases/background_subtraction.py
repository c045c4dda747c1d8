"""What is subtracted from scores of phrases: the share of drawn phrases that are those of the text's own label.

    python -m benchmarks.keyphrases.background_subtraction           # docs/figures/keyphrase_background.jsonl, a minute
    python -m benchmarks.keyphrases.background_subtraction --table   # the table of docs/keyphrases.md

The private part of AG News (`external_models/data.py`), its texts with eight phrases (RAKE), the phrases that four or
more of them share, and independent sequences with the default settings but for the bandwidth. Sketches have 0.7 of rho
at delta 1e-6. A phrase of the vocabulary counts as a label's own in proportion to the share of this label's texts that
have it, among all labels' shares. Controls: phrases drawn blindly, and in proportion to the exact shares of the label.
"""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import numpy as np
from numpy.typing import NDArray

from benchmarks.common.figures_parser import figures_parser
from benchmarks.common.intervals import interval_of_mean, written
from benchmarks.common.json_lines import append_lines, read_lines, read_lines_if_there
from benchmarks.keyphrases.corpora import Read, read
from benchmarks.keyphrases.systems import AT_ONCE
from tasks.accounting.zcdp import release_amount
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.vectors.kde_sketch import calibrate_kde
from tasks.mechanisms.vectors.random_fourier_features import FourierFeatures, on_grid
from tasks.prompted_generation.keyphrases.parameters import Background, KeyphraseParameters
from tasks.prompted_generation.keyphrases.phrase_sampling import Drawer, Scorer, draw_sequences

OUT = Path(__file__).resolve().parents[2] / "docs" / "figures" / "keyphrase_background.jsonl"
CORPUS = "agnews"
BANDWIDTHS, EPSILONS, DELTA = ("0.3", "0.4", "0.5", "0.6"), ("3", "10"), "1e-6"
BACKGROUNDS: Sequence[Background] = ("none", "median", "labels")
TRIALS, TEXTS = 5, 100
"""Releases of each setting, and texts of each label in one."""
_PLENTY = 10**12  # rho; sums without noise do not depend on it

Reals = NDArray[np.float64]
Line = Mapping[str, Any]


def main() -> None:
    arguments = figures_parser(__doc__, OUT).parse_args()
    if not arguments.table:
        append_lines(arguments.out, measure(read(CORPUS), read_lines_if_there(arguments.out)))
    print("\n".join(table(read_lines(arguments.out))))


def measure(corpus: Read, known: Sequence[Line]) -> Iterator[dict[str, Any]]:
    """Yield a line for each release that is not known, with the share of each background."""
    own = own_shares(corpus)
    defaults = KeyphraseParameters(samples=1, references=1)
    scored = corpus.phrases.points[corpus.phrases.vocabulary]
    references, label_of = len(corpus.units.label) // corpus.labels, np.repeat(np.arange(corpus.labels), TEXTS)
    there = {(line["bandwidth"], line["epsilon"], line["trial"]) for line in known}
    head = {"units": len(corpus.units.label), "vocabulary": len(scored), "by_shares": round(by_true_shares(corpus), 4)}
    for bandwidth in BANDWIDTHS:
        missing = [(epsilon, trial) for epsilon in EPSILONS for trial in range(TRIALS)
                   if (bandwidth, epsilon, trial) not in there]  # fmt: skip
        kernel = FourierFeatures.of(corpus.phrases.width, defaults.features, Decimal(bandwidth))
        exact = calibrate_kde(_PLENTY, defaults.features, corpus.labels, 1)
        sums = exact.sums(_parts(kernel, corpus)) if missing else None
        for epsilon, trial in missing:
            rho = int(release_amount(Decimal(epsilon), Decimal(DELTA)).rho * Fraction(defaults.shares.sketches))
            sketches = calibrate_kde(rho, defaults.features, corpus.labels, 1)
            density = sketches.density(sketches.draw(sums, OS_RANDOM), references)
            noise = float(sketches.sigma / Fraction(references)) * float(defaults.least_deviations)
            found = {}
            for background in BACKGROUNDS:
                drawer, scorer = Drawer(noise, OS_RANDOM, defaults.counting), Scorer(scored, kernel)
                texts = draw_sequences(
                    scorer, drawer, density, label_of.tolist(), defaults.phrases_per_text, background
                )
                found[background] = round(float(own[label_of[:, None], np.array(texts.phrases)].mean()), 4)
            yield {"corpus": CORPUS, "bandwidth": bandwidth, "epsilon": epsilon, "trial": trial, **head, "own": found}


def _parts(kernel: FourierFeatures, corpus: Read) -> Iterator[tuple[Any, Any]]:
    """Yield labels and features of some units at a time."""
    steps = on_grid(corpus.phrases.points)[corpus.units.phrases]
    units, many, width = steps.shape
    for start in range(0, units, AT_ONCE):
        rows = steps[start : start + AT_ONCE]
        firsts = np.arange(0, len(rows) * many, many)
        yield corpus.units.label[start : start + AT_ONCE], kernel.of_phrases(rows.reshape(-1, width), firsts)[:, None]


def frequencies(corpus: Read) -> Reals:
    """Return the share of each label's units that have each phrase of the vocabulary: float64 [labels, V]."""
    has = np.stack([(corpus.units.phrases == phrase).any(axis=1) for phrase in corpus.phrases.vocabulary], axis=1)
    return np.stack([has[corpus.units.label == label].mean(axis=0) for label in range(corpus.labels)])


def own_shares(corpus: Read) -> Reals:
    """Return how much each phrase is each label's own: float64 [labels, V], columns that add up to one."""
    found = frequencies(corpus)
    return np.asarray(found / found.sum(axis=0))


def by_true_shares(corpus: Read) -> float:
    """Return what drawing in proportion to the exact shares of a label would give."""
    found = frequencies(corpus)
    return float((found / found.sum(axis=1, keepdims=True) * own_shares(corpus)).sum(axis=1).mean())


def table(lines: Sequence[Line]) -> Iterator[str]:
    """Yield Markdown: mean shares with Student's 95 % interval over releases, a row for each bandwidth and epsilon."""
    yield f"| bandwidth | epsilon | {' | '.join(f'`{name}`' for name in BACKGROUNDS)} | `labels` less `median` |"
    yield "| --- | --- |" + " --- |" * (len(BACKGROUNDS) + 1)
    for place in dict.fromkeys((line["bandwidth"], line["epsilon"]) for line in lines):
        shares = [line["own"] for line in lines if (line["bandwidth"], line["epsilon"]) == place]
        cells = (_percent([own[name] for own in shares]) for name in BACKGROUNDS)
        gain = _percent([own["labels"] - own["median"] for own in shares])
        yield f"| {' | '.join((*place, *cells, gain))} |"


def _percent(values: Sequence[float]) -> str:
    return written(interval_of_mean([100 * value for value in values]), 0, " %")


if __name__ == "__main__":
    main()
