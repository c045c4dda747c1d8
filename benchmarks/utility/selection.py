"""Published texts with and without the filter, at an equal claim: what a selection of drawn texts is worth.

    for n in 96 97 98 99 100; do                               # five releases of each data set; the claim is the same
        python -m benchmarks.utility.sampled --out sampled.jsonl --systems "InvisibleInk, log-probability" \\
            --epsilons 4 --tokens 48 --samples $n; done
    python -m benchmarks.utility.selection sampled.jsonl --out docs/figures/selection.jsonl
    python -m benchmarks.utility.selection gemma.jsonl --model gemma3-270m --keep 32 --out docs/figures/selection.jsonl

Of every release `--keep` texts are published, chosen in one of several ways; the texts of one data set's releases are
then taken together. `random` is the control: as many texts, chosen without looking at them, `CONTROLS` times. Releases
of the public model alone and releases with more rows than the fewest are not selected from: their first texts are
published, as another control and as what the drawing of further texts would buy at about equal processor time. MAUVE
shares clusters and real texts between the ways, so differences are paired. Texts are chosen by the model that wrote
them, and the table's perplexity is SmolLM2's. Drawn texts stay in `sampled.jsonl`; the results hold figures alone, as
one of the data sets may not be passed on.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import numpy as np

from benchmarks.common.controls import picked
from benchmarks.common.drawn_releases import DEFAULT_MODEL
from benchmarks.common.json_lines import read_lines, read_lines_if_there, write_lines
from benchmarks.utility import ablation
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
Choice = Callable[[Sequence["Drawn"], tuple[str, ...], Scorer], list[int]]


@dataclass(frozen=True)
class Drawn:
    """A drawn text, as a selection reads it."""

    text: str
    tokens: int
    complete: bool
    label: str | None = None


@dataclass(frozen=True)
class Release:
    """A release's setting, its texts, and the seconds of the processor that they took."""

    cell: Cell
    texts: tuple[Drawn, ...]
    seconds: float


@dataclass(frozen=True)
class Published:
    """Texts of several releases of one data set, chosen in one way; seconds where they were drawn for it alone."""

    texts: tuple[str, ...]
    failing: tuple[bool, ...]
    seconds: float | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sampled", type=Path, help="texts drawn by utility/sampled.py")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one for each data set and way of choosing")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="the public model that wrote the texts, and chooses")
    parser.add_argument("--keep", type=int, default=KEEP, help="published texts of a release")
    arguments = parser.parse_args()
    model, embed, keep = load(arguments.model, "cpu"), embedder(), arguments.keep
    usual = model if arguments.model == DEFAULT_MODEL else load(DEFAULT_MODEL, "cpu")
    choosing, score = scorer(model), scorer(usual)
    lines = [line for line in read_lines_if_there(arguments.out) if line["model"] != arguments.model]
    for data, found in read_releases(arguments.sampled, arguments.model, keep).items():
        releases, whole = selected_from(found, keep)
        chosen = published(releases, (DESCRIPTIONS[data],), choosing, keep)
        count = min(len(chosen[FILTER].texts), len(read_texts(data)) // UNREAD // 3)  # MAUVE needs the other two thirds
        others, real = real_texts(usual.tokenizer, data, count, max(one.cell.tokens for one in releases))
        sides = {name: each.texts for name, each in (chosen | whole).items()} | {OTHERS: others}
        estimates = measured_together(embed, sides, real)
        control = [estimates[name] for name in controls()]
        about = {"model": arguments.model, "data": data, "releases": len(releases)}
        drawn, seconds = sum(len(one.texts) for one in releases), total_seconds(releases)
        selected = about | {"drawn": drawn, "seconds": seconds}

        less = {
            name: pooled([estimates[name].less(one) for one in control])
            for name in (FILTER, WITHOUT_PERPLEXITY, LIKELIEST, *whole)
        }
        lines += [
            selected | line(name, [chosen[name]], score, estimates[name], less[name], len(real))
            for name in (FILTER, WITHOUT_PERPLEXITY, LIKELIEST)
        ]
        sides_at_random = [chosen[name] for name in controls()]
        lines.append(selected | line(RANDOM, sides_at_random, score, pooled(control), None, len(real)))
        for name, each in whole.items():
            about_it = about | {"drawn": len(each.texts), "seconds": each.seconds}
            lines.append(about_it | line(name, [each], score, estimates[name], less[name], len(real)))
        unread = Published(tuple(others), tuple(failing(others, (DESCRIPTIONS[data],), keep)))
        about_it = about | {"drawn": len(others), "seconds": None}
        lines.append(about_it | line(OTHERS, [unread], score, estimates[OTHERS], None, len(real)))
    write_lines(arguments.out, lines)
    print("\n".join(table(lines)))


def read_releases(path: Path, model: str, keep: int) -> dict[str, list[Release]]:
    """The releases of a model in a file of drawn texts, by data set; those with `keep` texts or more."""
    found: dict[str, list[Release]] = {}
    for row in read_lines(path):
        cell = as_sampled(row["cell"], len(row["texts"]))
        if cell is None:
            continue
        texts = tuple(Drawn(text["text"], text["tokens"], text["complete"]) for text in row["texts"])
        if cell.data in DESCRIPTIONS and cell.model == model and len(texts) >= keep:
            found.setdefault(cell.data, []).append(Release(cell, texts, row["seconds"]))
    return found


def as_sampled(cell: Mapping[str, Any], samples: int) -> Cell | None:
    """The setting of a release of `sampled`, or of kept texts; None for one that had free tokens."""
    if "draws" not in cell:
        return Cell(**cell)
    if cell["free_above"] is not None:
        return None
    public = cell["system"] == "public_only"
    return Cell(
        data=cell["data"],
        system="public only" if public else "InvisibleInk, log-probability",
        epsilon=None if public else str(ablation.EPSILON),
        samples=samples,
        tokens=cell["draws"],
        references=ablation.REFERENCES,
        temperature="1",
        top_k=100,
        reference_tokens=ablation.REFERENCE_TOKENS,
        precision="bfloat16",
        model=cell["model"],
    )


def selected_from(releases: Sequence[Release], keep: int) -> tuple[list[Release], dict[str, Published]]:
    """Those that texts are selected from, and the first texts of the others: of the public model, and of more rows."""
    charged = [one for one in releases if one.cell.epsilon is not None]
    fewest = min(one.cell.references for one in charged)
    others: dict[str, list[Release]] = {}
    for one in releases:
        if one.cell.epsilon is None:
            others.setdefault(one.cell.system, []).append(one)
        elif one.cell.references > fewest:
            others.setdefault(f"{one.cell.references} rows, not selected", []).append(one)
    whole = {}
    for name, own in others.items():
        texts = [text.text for one in own for text in one.texts[:keep]]
        prompt = (DESCRIPTIONS[own[0].cell.data],)
        flags = [flag for one in own for flag in failing([text.text for text in one.texts], prompt, keep)[:keep]]
        share = len(texts) / sum(len(one.texts) for one in own)
        whole[name] = Published(tuple(texts), tuple(flags), round(share * total_seconds(own), 1))
    return [one for one in charged if one.cell.references == fewest], whole


def total_seconds(releases: Sequence[Release]) -> float:
    """Of the processor, of all releases."""
    return round(sum(one.seconds for one in releases), 1)


def controls() -> list[str]:
    """Names of the random choices."""
    return [f"{RANDOM} {number}" for number in range(CONTROLS)]


def published(releases: Sequence[Release], prompt: tuple[str, ...], score: Scorer, keep: int) -> dict[str, Published]:
    """The texts that each way of choosing publishes of all releases, and which of them fail a criterion."""
    fails = [failing([text.text for text in one.texts], prompt, keep) for one in releases]
    found = {}
    for name, choose in choices(keep).items():
        texts: list[str] = []
        flags: list[bool] = []
        for one, flagged in zip(releases, fails, strict=True):
            places = choose(one.texts, prompt, score)
            texts += [one.texts[place].text for place in places]
            flags += [flagged[place] for place in places]
        found[name] = Published(tuple(texts), tuple(flags))
    return found


def failing(texts: Sequence[str], prompt: tuple[str, ...], keep: int) -> list[bool]:
    """Whether each text fails a criterion, duplicates among these texts included."""
    return [criterion is not None for criterion in failed_criteria(texts, every(keep), prompt)]


def every(keep: int) -> Selection:
    """The selection of a request that names `keep` alone."""
    return Selection(keep=keep)


def choices(keep: int) -> Mapping[str, Choice]:
    """Ways of choosing `keep` texts of a release, by name."""

    def by(selection: Selection) -> Choice:
        return lambda drawn, prompt, score: list(select(drawn, selection, prompt, score).places)

    def likeliest(drawn: Sequence[Drawn], prompt: tuple[str, ...], score: Scorer) -> list[int]:
        """The usual shortcut, which the filter does not take: the lowest perplexity is the best."""
        failed = failed_criteria([text.text for text in drawn], every(keep), prompt)
        losses = [-total / max(1, count) for total, count in score([text.text for text in drawn])]
        return sorted(sorted(range(len(drawn)), key=lambda place: (failed[place] is not None, losses[place]))[:keep])

    def at_random(seed: str) -> Choice:
        return lambda drawn, prompt, score: sorted(picked(range(len(drawn)), keep, f"{seed} {len(drawn)}"))

    return {
        FILTER: by(every(keep)),
        WITHOUT_PERPLEXITY: by(Selection(keep=keep, criteria=WITHOUT_MODEL)),
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
    heads = "model | data | published | texts | fail a criterion | perplexity | distinct-2 | MAUVE | less random's"
    rows = [f"| {heads} | CPU s |", "| --- " * 10 + "|"]
    for each in lines:
        shares = shown([100 * value for value in each["failing"]], 1, "%")
        less = "" if each["mauve_less_random"] is None else shown(each["mauve_less_random"], 2)
        number, pairs = f"{each['texts']} of {each['drawn']}", f"{each['distinct_2']:.3f}"
        number = str(each["texts"]) if each["texts"] == each["drawn"] or each["way"] == OTHERS else number
        seconds = "" if each["seconds"] is None else f"{each['seconds']:.0f}"
        cells = [each["model"], each["data"], each["way"], number, shares, shown(each["perplexity"], 1), pairs]
        rows.append(f"| {' | '.join([*cells, shown(each['mauve'], 2), less, seconds])} |")
    return rows


def shown(values: Sequence[float], digits: int, unit: str = "") -> str:
    """A figure with its interval."""
    middle, low, high = (f"{value:.{digits}f}{unit}" for value in values)
    return f"{middle} [{low}, {high}]"


if __name__ == "__main__":
    main()
