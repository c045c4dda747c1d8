"""Published texts with and without the filter, at an equal claim: what a selection of drawn texts is worth.

    for n in 96 97 98 99 100; do                               # five releases of each data set; the claim is the same
        python -m benchmarks.utility.sampled --out sampled.jsonl --systems "InvisibleInk, log-probability" \\
            --epsilons 4 --tokens 48 --samples $n; done
    python -m benchmarks.utility.selection sampled.jsonl --out docs/figures/selection.jsonl

Of every release `KEEP` texts are published, chosen in one of several ways; the texts of one data set's releases are
then taken together. `random` is the control: as many texts, chosen without looking at them, `CONTROLS` times. MAUVE
shares clusters and real texts between the ways, so differences are paired. Drawn texts stay in `sampled.jsonl`; the
results hold figures alone, as one of the data sets may not be passed on.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import numpy as np

from benchmarks.common.controls import picked
from benchmarks.common.json_lines import write_lines
from benchmarks.utility.mauve import Estimate, embedder, measured_together
from benchmarks.utility.sampled import UNREAD, Cell, distinct_2, interval, perplexity, real_texts
from benchmarks.utility.texts import DESCRIPTIONS, SEED, read_texts
from models_db.values.requests import Selection
from tasks.evaluate import scorer
from tasks.evaluation.core.subject import Scorer
from tasks.evaluation.selection import failed_criteria, select
from tasks.inference.loading.loading import load

KEEP = 64
CONTROLS = 5
WITHOUT_MODEL = ("nonsense", "duplicates", "prompt", "identifiers")
FILTER, WITHOUT_PERPLEXITY, LIKELIEST, RANDOM = "filter", "filter without perplexity", "likeliest", "random"
OTHERS = "real, others"
Choice = Callable[[Sequence["Drawn"], str, Scorer], list[int]]


@dataclass(frozen=True)
class Drawn:
    """A drawn text, as a selection reads it."""

    text: str
    tokens: int
    complete: bool
    label: str | None = None


@dataclass(frozen=True)
class Published:
    """Texts of several releases of one data set, chosen in one way."""

    texts: tuple[str, ...]
    failing: tuple[bool, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sampled", type=Path, help="texts drawn by utility/sampled.py")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one for each data set and way of choosing")
    parser.add_argument("--model", default="smollm2-135m-instruct", help="the public model that scores texts")
    arguments = parser.parse_args()
    model, embed = load(arguments.model, "cpu"), embedder()
    score, lines = scorer(model), []
    for data, releases in read_releases(arguments.sampled).items():
        chosen = published(releases, DESCRIPTIONS[data], score)
        count = min(len(chosen[FILTER].texts), len(read_texts(data)) // UNREAD // 3)  # MAUVE needs the other two thirds
        others, real = real_texts(model.tokenizer, data, count, max(cell.tokens for cell, _ in releases))
        sides = {name: each.texts for name, each in chosen.items()} | {OTHERS: others}
        estimates = measured_together(embed, sides, real)
        control = [estimates[name] for name in controls()]
        about = {"data": data, "releases": len(releases), "drawn": sum(len(texts) for _, texts in releases)}
        for name in (FILTER, WITHOUT_PERPLEXITY, LIKELIEST):
            estimate = estimates[name]
            less = pooled([estimate.less(one) for one in control])
            lines.append(about | line(name, [chosen[name]], score, estimate, less, len(real)))
        sides_at_random = [chosen[name] for name in controls()]
        lines.append(about | line(RANDOM, sides_at_random, score, pooled(control), None, len(real)))
        whole = Published(tuple(others), tuple(failing(others, DESCRIPTIONS[data])))
        lines.append(about | line(OTHERS, [whole], score, estimates[OTHERS], None, len(real)))
    write_lines(arguments.out, lines)
    print("\n".join(table(lines)))


def read_releases(path: Path) -> dict[str, list[tuple[Cell, tuple[Drawn, ...]]]]:
    """The releases in a file of drawn texts, by data set; those with as many texts as are published, or more."""
    found: dict[str, list[tuple[Cell, tuple[Drawn, ...]]]] = {}
    for row in map(json.loads, path.open(encoding="utf-8")):
        cell, texts = Cell(**row["cell"]), tuple(Drawn(**text) for text in row["texts"])
        if cell.data in DESCRIPTIONS and len(texts) >= KEEP:
            found.setdefault(cell.data, []).append((cell, texts))
    return found


def controls() -> list[str]:
    """Names of the random choices."""
    return [f"{RANDOM} {number}" for number in range(CONTROLS)]


def published(releases: Sequence[tuple[Cell, Sequence[Drawn]]], prompt: str, score: Scorer) -> dict[str, Published]:
    """The texts that each way of choosing publishes of all releases, and which of them fail a criterion."""
    fails = [failing([text.text for text in texts], prompt) for _, texts in releases]
    found = {}
    for name, choose in choices().items():
        texts: list[str] = []
        flags: list[bool] = []
        for (_, drawn), flagged in zip(releases, fails, strict=True):
            places = choose(drawn, prompt, score)
            texts += [drawn[place].text for place in places]
            flags += [flagged[place] for place in places]
        found[name] = Published(tuple(texts), tuple(flags))
    return found


def failing(texts: Sequence[str], prompt: str) -> list[bool]:
    """Whether each text fails a criterion, duplicates among these texts included."""
    return [criterion is not None for criterion in failed_criteria(texts, every(), prompt)]


def every() -> Selection:
    """The selection of a request that names `keep` alone."""
    return Selection(keep=KEEP)


def choices() -> Mapping[str, Choice]:
    """Ways of choosing `KEEP` texts of a release, by name."""

    def by(selection: Selection) -> Choice:
        return lambda drawn, prompt, score: list(select(drawn, selection, prompt, score).places)

    def likeliest(drawn: Sequence[Drawn], prompt: str, score: Scorer) -> list[int]:
        """The usual shortcut, which the filter does not take: the lowest perplexity is the best."""
        failed = failed_criteria([text.text for text in drawn], every(), prompt)
        losses = [-total / max(1, count) for total, count in score([text.text for text in drawn])]
        return sorted(sorted(range(len(drawn)), key=lambda place: (failed[place] is not None, losses[place]))[:KEEP])

    def at_random(seed: str) -> Choice:
        return lambda drawn, prompt, score: sorted(picked(range(len(drawn)), KEEP, f"{seed} {len(drawn)}"))

    return {
        FILTER: by(every()),
        WITHOUT_PERPLEXITY: by(Selection(keep=KEEP, criteria=WITHOUT_MODEL)),
        LIKELIEST: likeliest,
        **{name: at_random(f"{SEED} {name}") for name in controls()},
    }


def line(
    name: str, sides: Sequence[Published], score: Scorer, estimate: Estimate, less: Estimate | None, real: int
) -> dict[str, Any]:
    """Figures of one way of choosing, each with a 95 % bootstrap interval over texts; controls are averaged."""
    scores = [score([text for text in side.texts if text]) for side in sides]
    return {
        "way": name,
        "texts": len(sides[0].texts),
        "real": real,
        "perplexity": averaged([interval(each, perplexity) for each in scores]),
        "failing": averaged([interval(side.failing, fmean) for side in sides]),
        "distinct_2": round(fmean(distinct_2(side.texts) for side in sides), 4),
        "mauve": [round(value, 4) for value in estimate.shown],
        "mauve_less_random": None if less is None else [round(value, 4) for value in less.shown],
    }


def pooled(estimates: Sequence[Estimate]) -> Estimate:
    """The mean of estimates that share texts, with the interval of a single one: they are not independent."""
    value = fmean(each.value for each in estimates)
    return Estimate(value, np.concatenate([each.drawn - each.value + value for each in estimates]))


def averaged(figures: Sequence[Sequence[float]]) -> list[float]:
    """The mean of figures, and of the ends of their intervals."""
    return [round(fmean(part), 4) for part in zip(*figures, strict=True)]


def table(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """The results as Markdown, line by line."""
    rows = [
        "| data | published | texts | fail a criterion | perplexity | distinct-2 | MAUVE | less random's |",
        "| --- " * 8 + "|",
    ]
    for each in lines:
        shares = shown([100 * value for value in each["failing"]], 1, "%")
        less = "" if each["mauve_less_random"] is None else shown(each["mauve_less_random"], 2)
        number, pairs = f"{each['texts']} of {each['drawn']}", f"{each['distinct_2']:.3f}"
        number = str(each["texts"]) if each["way"] == OTHERS else number
        cells = [each["data"], each["way"], number, shares, shown(each["perplexity"], 1), pairs]
        rows.append(f"| {' | '.join([*cells, shown(each['mauve'], 2), less])} |")
    return rows


def shown(values: Sequence[float], digits: int, unit: str = "") -> str:
    """A figure with its interval."""
    middle, low, high = (f"{value:.{digits}f}{unit}" for value in values)
    return f"{middle} [{low}, {high}]"


if __name__ == "__main__":
    main()
