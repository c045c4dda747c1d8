"""Utility along real texts: how far each system's next token is from the unclipped one, and how it likes the real one.

    python -m benchmarks.utility.next_tokens --kept traces --out utility.jsonl  # 24 texts a data set, 16 tokens of each
    python -m benchmarks.utility.next_tokens --kept traces --out utility.jsonl --table     # the tables of what is there

Along held-out real texts the model's logits are computed once, for the public row and up to 31 private ones, and every
system and setting is computed from them (teacher forcing), so no sampling noise is in a comparison. Each figure is a
mean over a text's tokens; intervals are bootstraps over texts. A line of the output is one setting with its figures by
text, written when all texts have been read; texts that were read before are not read again.

    kl       KL(unclipped || system): the unclipped softmax of the rows' mean logits, at the same temperature, over the
             system's own candidates. What clipping and blending cost.
    reverse  KL(system || unclipped), the unclipped one over the whole vocabulary. What noise and cut-off tokens cost.
    loss     - ln of 0.99 P(real next token) + 0.01 P_public(it): a token that is no candidate would make it infinite.
    covered  share of real next tokens that are candidates.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import numpy as np
import torch
from torch import Tensor

from benchmarks.common.json_lines import append_lines
from benchmarks.utility.systems import (
    AMIN,
    AMIN_PRIVATE,
    ICL,
    INK,
    MEAN,
    PAPER,
    PRIVATE_SYSTEMS,
    PUBLIC,
    SINGLE,
    Bound,
    Distribution,
    Setting,
    bind,
    distribution,
    unprotected,
)
from benchmarks.utility.texts import DESCRIPTIONS, SEED, Trace, traces
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.loading.load_model import load

EPSILONS = ("1", "3", "5", "10")
ROWS = (3, 7, 15, 31)
TEMPERATURES = ("0.6", "0.8", "1", "1.2", "1.5")
CANDIDATES = (10, 100, 1000, 0)
CLIPS = ("0.03", "0.1", "0.3", "0.6", "1", "2", "4", "8", "16")
USUAL_ROWS, USUAL_CANDIDATES = 7, 100
FIGURES = ("kl", "reverse", "loss", "covered")
FALLBACK = 0.01
BOOTSTRAPS = 2000
AT_ONCE = 8


@dataclass(frozen=True)
class Measured:
    """One setting on one data set: each figure by text."""

    data: str
    setting: Setting
    clip_norm: float | None
    figures: Mapping[str, list[float]]

    def to_json(self) -> dict[str, Any]:
        rounded = {name: [float(f"{value:.5g}") for value in values] for name, values in self.figures.items()}
        return {"data": self.data, **asdict(self.setting), "C": self.clip_norm, **rounded}

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> "Measured":
        names = Setting.__dataclass_fields__
        return cls(
            line["data"],
            Setting(**{name: line[name] for name in names}),
            line["C"],
            {name: line[name] for name in FIGURES},
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", type=Path, required=True, help="folder for what was read")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one for each setting and data set")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--data", nargs="+", default=list(DESCRIPTIONS))
    parser.add_argument("--texts", type=int, default=24)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS), help="of the grid")
    parser.add_argument("--full", action="store_true", help="96 texts, and the whole vocabulary everywhere")
    parser.add_argument("--table", action="store_true", help="only print the tables of what is there")
    arguments = parser.parse_args()
    parts = [list(PARTS[part]()) for part in arguments.parts]
    if arguments.full:
        arguments.texts, parts = 96, [*parts, list(everything())]
    if not arguments.table:
        measure(arguments, parts)
    print("\n".join(tables(read_results(arguments.out))))


def references() -> Iterator[Setting]:
    """What needs no budget: the public model, the mean of the rows without clipping, one single row."""
    places = [(rows, "1", USUAL_CANDIDATES) for rows in ROWS]
    places += [(USUAL_ROWS, temperature, USUAL_CANDIDATES) for temperature in TEMPERATURES]
    places += [(USUAL_ROWS, "1", top_k) for top_k in CANDIDATES]
    for rows, temperature, top_k in places:
        yield from (Setting(name, None, rows, temperature, top_k) for name in (PUBLIC, MEAN, SINGLE))


def batches() -> Iterator[Setting]:
    """The whole grid at 100 candidates."""
    for epsilon in EPSILONS:
        for rows in ROWS:
            yield from (Setting(name, epsilon, rows) for name in (*PRIVATE_SYSTEMS, AMIN_PRIVATE))


def vocabulary() -> Iterator[Setting]:
    """All tokens as candidates, the other systems' default; `--full` has all numbers of rows."""
    for epsilon in EPSILONS:
        yield from (Setting(name, epsilon, USUAL_ROWS, top_k=0) for name in (*PRIVATE_SYSTEMS, AMIN_PRIVATE))
    for epsilon in ("3", "10"):
        yield from (Setting(name, epsilon, 15, top_k=0) for name in PRIVATE_SYSTEMS)


def everything() -> Iterator[Setting]:
    """All tokens as candidates at every epsilon and number of rows: hours on two cores."""
    for epsilon in EPSILONS:
        for rows in ROWS:
            yield from (Setting(name, epsilon, rows, top_k=0) for name in PRIVATE_SYSTEMS)


def temperatures() -> Iterator[Setting]:
    for epsilon in ("3", "10"):
        for temperature in TEMPERATURES:
            yield from (Setting(name, epsilon, USUAL_ROWS, temperature) for name in PRIVATE_SYSTEMS)


def widths() -> Iterator[Setting]:
    for epsilon in ("3", "10"):
        for top_k in CANDIDATES[:-1]:
            yield from (Setting(name, epsilon, USUAL_ROWS, top_k=top_k) for name in PRIVATE_SYSTEMS)


def clips() -> Iterator[Setting]:
    for clip in CLIPS:
        yield from (Setting(name, None, USUAL_ROWS, clip=clip) for name in (INK, PAPER, AMIN_PRIVATE, ICL))


PARTS: Mapping[str, Callable[[], Iterator[Setting]]] = {
    "batches": batches,
    "references": references,
    "temperatures": temperatures,
    "clips": clips,
    "widths": widths,
    "vocabulary": vocabulary,
}


@torch.inference_mode()
def measure(arguments: argparse.Namespace, parts: Sequence[Sequence[Setting]]) -> None:
    """Append every setting that is missing, part by part; each text is gone through once for all of a part."""
    model = load(arguments.model, arguments.device, arguments.precision)
    for wanted in parts:
        there = read_results(arguments.out) if arguments.out.exists() else []
        for data in arguments.data:
            known = {found.setting for found in there if found.data == data}
            missing = [setting for setting in dict.fromkeys(wanted) if setting not in known]
            found = measured(model, data, missing, arguments) if missing else []
            append_lines(arguments.out, (line.to_json() for line in found))


def measured(
    model: LanguageModel, data: str, settings: Sequence[Setting], arguments: argparse.Namespace
) -> list[Measured]:
    """All of `settings` on one data set."""
    return measured_along(model, data, settings, traces(model, data, arguments.texts, arguments.kept))


@torch.inference_mode()
def measured_along(
    model: LanguageModel, data: str, settings: Sequence[Setting], numbered: Iterable[tuple[int, Trace]]
) -> list[Measured]:
    """All of `settings` along the texts of numbered traces; each text is gone through once."""
    bound = {setting: bind(setting) for setting in settings if setting.system not in (PUBLIC, MEAN, SINGLE)}
    by_text: dict[Setting, dict[str, list[float]]] = {s: {name: [] for name in FIGURES} for s in settings}
    for number, trace in numbered:
        logits = Logits(trace.logits(model), trace.following)
        parts = [logits.part(slice(at, at + AT_ONCE)) for at in range(0, logits.positions, AT_ONCE)]
        for setting in settings:
            for name, value in along(setting, bound.get(setting), parts, f"{data}-{number}").items():
                by_text[setting][name].append(value)
        print(f"{data}: text {number + 1}, {len(settings)} settings", flush=True)
    norms = {setting: float(found.draw.clip_norm) for setting, found in bound.items()}
    return [Measured(data, setting, norms.get(setting), by_text[setting]) for setting in settings]


@dataclass(frozen=True)
class Logits:
    """Logits along one text, with what many settings need of them.

    Attributes:
        all: float32 [1 + rows, n, V], the public row first.
        following: int64 [n], the real next tokens.
    """

    all: Tensor
    following: Tensor
    _norms: dict[tuple[int, str], Tensor] = field(default_factory=dict)

    @property
    def positions(self) -> int:
        return len(self.following)

    @cached_property
    def floor(self) -> Tensor:
        """float64 [n]: ln P_public of the real next token, at temperature 1."""
        real = self.all[0].gather(1, self.following[:, None])[:, 0]
        return (real - self.all[0].logsumexp(1)).double()

    @cached_property
    def means(self) -> dict[int, Tensor]:
        """float32 [n, V] for each number of rows: the mean of their logits."""
        return {rows: self.all[1 : 1 + rows].mean(0) for rows in ROWS if rows < len(self.all)}

    def unclipped(self, rows: int, temperature: str, tokens: Tensor) -> Tensor:
        """float64 [n, K]: ln of the unclipped probabilities of int64 [n, K], over the whole vocabulary."""
        mean = self.means[rows]
        if (rows, temperature) not in self._norms:
            self._norms[rows, temperature] = (mean / float(temperature)).logsumexp(1)
        scaled = mean.gather(1, tokens) / float(temperature)
        return (scaled - self._norms[rows, temperature][:, None]).double()

    def part(self, some: slice) -> "Logits":
        return Logits(self.all[:, some], self.following[some])


def along(setting: Setting, bound: Bound | None, parts: Sequence[Logits], seed: str) -> dict[str, float]:
    """The figures of one setting along one text, as means over its positions."""
    found = [figures(setting, bound, part, f"{seed}-{number}") for number, part in enumerate(parts)]
    return {name: float(torch.cat([part[name] for part in found]).mean()) for name in FIGURES}


def figures(setting: Setting, bound: Bound | None, logits: Logits, seed: str) -> dict[str, Tensor]:
    """float64 [n] by name."""
    public, rows = logits.all[0], logits.all[1 : 1 + setting.references]
    if bound is not None:
        found = distribution(setting, bound, public, rows, seed)
    else:
        source = {PUBLIC: public, MEAN: logits.means[setting.references], SINGLE: rows[0]}[setting.system]
        found = unprotected(source, setting.temperature, setting.top_k)
    aim = logits.unclipped(setting.references, setting.temperature, found.tokens)
    return compare(found, aim, logits.following, logits.floor)


def compare(found: Distribution, aim: Tensor, following: Tensor, floor: Tensor) -> dict[str, Tensor]:
    """The figures of a distribution at n positions.

    Args:
        aim: float64 [n, K], ln of the candidates' unclipped probabilities over the whole vocabulary.
        floor: float64 [n], ln P_public of the real next token.
    """
    there = found.log > -torch.inf
    own = aim.masked_fill(~there, -torch.inf).log_softmax(1)
    gaps = torch.where(there, own - found.log, 0.0)
    back = torch.where(there, found.log - aim, 0.0)
    hit = (found.tokens == following[:, None]) & there
    chance = torch.where(hit, found.log.exp(), 0.0).sum(1)
    return {
        "kl": (own.exp() * gaps).sum(1),
        "reverse": (found.log.exp() * back).sum(1),
        "loss": -((1 - FALLBACK) * chance + FALLBACK * floor.exp()).log(),
        "covered": hit.any(1).double(),
    }


def read_results(path: Path) -> list[Measured]:
    return [Measured.from_json(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def resampled(count: int) -> np.ndarray:
    """int64 [BOOTSTRAPS, count]: texts drawn with replacement, the same for every setting."""
    return np.random.default_rng(SEED).integers(0, count, (BOOTSTRAPS, count))


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, and a 95 % percentile bootstrap interval over texts."""
    means = np.asarray(values)[resampled(len(values))].mean(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(np.mean(values)), float(low), float(high)


def rows_needed(levels: Mapping[int, float], wanted: float) -> float:
    """At how many rows a falling figure reaches `wanted`: log-linear between B, beyond the ends by the end's slope."""
    known = sorted(levels)
    for first, second in pairwise(known):
        if levels[second] <= wanted or second == known[-1]:
            slope = (np.log(levels[second]) - np.log(levels[first])) / (np.log(second) - np.log(first))
            return float(np.exp(np.log(first) + (np.log(wanted) - np.log(levels[first])) / slope))
    raise ValueError("at least two numbers of rows are needed")


def saving(results: Iterable[Measured], epsilon: str, rows: int, top_k: int, figure: str = "kl") -> list[float]:
    """How many times fewer rows log-probability clipping needs than the paper's at `rows`: middle, low, high."""
    values = {
        (found.setting.system, found.setting.references): np.asarray(found.figures[figure])
        for found in results
        if found.setting.system in (INK, PAPER)
        and found.setting == Setting(found.setting.system, epsilon, found.setting.references, top_k=top_k)
    }
    count = len(values[PAPER, rows])

    def ratio(texts: np.ndarray) -> float:
        levels = {b: float(value[texts].mean()) for (name, b), value in values.items() if name == INK}
        return rows / rows_needed(levels, float(values[PAPER, rows][texts].mean()))

    found = [ratio(texts) for texts in resampled(count)[:500]]
    return [ratio(np.arange(count)), *map(float, np.quantile(found, [0.025, 0.975]))]


TITLES = {
    PUBLIC: "public only",
    MEAN: "mean of the rows, no privacy",
    SINGLE: "one row, no privacy",
    INK: "InvisibleInk, log-probability",
    PAPER: "InvisibleInk, paper",
    AMIN: "Amin et al.",
    AMIN_PRIVATE: "Amin et al., private tokens alone",
    ICL: "private ICL",
}


def tables(results: Sequence[Measured]) -> Iterator[str]:
    """Yield Markdown: every system by epsilon at 7 rows, differences to Amin et al., and the rows that are saved."""
    for figure in ("kl", "reverse", "loss"):
        for top_k in (USUAL_CANDIDATES, 0):
            yield f"\n{figure}, k = {top_k or 'whole vocabulary'}, B = {USUAL_ROWS}\n"
            yield from systems_table(results, figure, top_k)
    for data in dict.fromkeys(found.data for found in results):
        mine = {found.setting: found for found in results if found.data == data}
        yield f"\n{data}: Amin et al. less InvisibleInk (log-probability), paired by text\n"
        yield from _lead_table(mine)
    yield "\ntimes fewer rows that log-probability clipping needs for the paper variant's figure, k = 100\n"
    yield from savings_table(results)
    yield "\nthe fewest rows of InvisibleInk that are not shown to be worse than Amin et al., by KL, k = 100\n"
    yield from compute_table(results)


NAMES = {"yelp": "Yelp", "mts_dialog": "mts_dialog"}


def systems_table(
    results: Sequence[Measured],
    figure: str,
    top_k: int,
    systems: Iterable[str] = (),
    names: Mapping[str, str] = NAMES,
) -> Iterator[str]:
    """Yield a row for each system, data sets below each other; a loss is less public only's, paired by text.

    Args:
        systems: those that are shown; all without.
        names: the title of each data set.
    """
    yield from _head("| |")
    for data, name in names.items():
        mine = {found.setting: found for found in results if found.data == data}
        yield f"| **{name}** |" + " |" * len(EPSILONS)
        for system in systems or TITLES:
            private = system in PRIVATE_SYSTEMS or system == AMIN_PRIVATE
            cells = []
            for epsilon in EPSILONS if private else (None,):
                found = mine.get(Setting(system, epsilon, USUAL_ROWS, top_k=top_k))
                cells.append(_mean_and_range(interval(_shown(found, mine, figure))) if found else "")
            yield f"| {TITLES[system]} | " + " | ".join([*cells, *[""] * (len(EPSILONS) - len(cells))]) + " |"


def _shown(found: Measured, mine: Mapping[Setting, Measured], figure: str) -> Sequence[float]:
    if figure != "loss":
        return found.figures[figure]
    public = mine[Setting(PUBLIC, None, USUAL_ROWS, top_k=found.setting.top_k)].figures[figure]
    return [own - other for own, other in zip(found.figures[figure], public, strict=True)]


def lead(mine: Mapping[Setting, Measured], epsilon: str, rows: int, top_k: int, figure: str) -> list[float]:
    """Amin et al. less InvisibleInk, paired by text: middle, low, high; above zero InvisibleInk is better."""
    ours, theirs = (mine[Setting(name, epsilon, rows, top_k=top_k)].figures[figure] for name in (INK, AMIN))
    return list(interval([other - own for own, other in zip(ours, theirs, strict=True)]))


def _lead_table(mine: Mapping[Setting, Measured]) -> Iterator[str]:
    yield from _head("| k | B | figure |")
    for top_k in (USUAL_CANDIDATES, 0):
        for rows in ROWS:
            for figure in ("kl", "reverse", "loss"):
                there = [Setting(INK, epsilon, rows, top_k=top_k) in mine for epsilon in EPSILONS]
                shown = [
                    _mean_and_range(lead(mine, epsilon, rows, top_k, figure)) if measured else ""
                    for epsilon, measured in zip(EPSILONS, there, strict=True)
                ]
                if any(there):
                    yield f"| {top_k or 'all'} | {rows} | {figure} | " + " | ".join(shown) + " |"


def savings_table(results: Sequence[Measured]) -> Iterator[str]:
    """Yield the rows that log-probability clipping saves by KL, at 100 candidates."""
    yield from _head("| | paper's B |")
    for data, name in NAMES.items():
        mine = [found for found in results if found.data == data]
        for rows in ROWS[1:]:
            shown = ["{:.2f} [{:.2f}, {:.2f}]".format(*saving(mine, each, rows, USUAL_CANDIDATES)) for each in EPSILONS]
            yield f"| {name} | {rows} | " + " | ".join(shown) + " |"


def against_amin(
    mine: Mapping[Setting, Measured], epsilon: str, rows: int, top_k: int = USUAL_CANDIDATES
) -> tuple[int, list[float]] | None:
    """Return the fewest measured rows of InvisibleInk whose KL is not above Amin et al.'s with `rows`; None if none.

    With it comes Amin et al. less InvisibleInk, paired by text: middle, low, high. A number of rows counts if the
    interval reaches to zero or above, that is if InvisibleInk is not shown to be farther from the private mean.
    """
    theirs = mine[Setting(AMIN, epsilon, rows, top_k=top_k)].figures["kl"]
    for fewer in ROWS:
        ours = mine[Setting(INK, epsilon, fewer, top_k=top_k)].figures["kl"]
        found = list(interval([other - own for own, other in zip(ours, theirs, strict=True)]))
        if found[2] >= 0:
            return fewer, found
    return None


def compute_table(results: Sequence[Measured]) -> Iterator[str]:
    """Yield, for rows of Amin et al., the fewest of InvisibleInk that are not shown to be worse, and the difference."""
    yield from _head("| | Amin's B |")
    for data, name in NAMES.items():
        mine = {found.setting: found for found in results if found.data == data}
        for rows in ROWS[1:]:
            found = (against_amin(mine, epsilon, rows) for epsilon in EPSILONS)
            shown = ("none" if one is None else f"{one[0]}: {_mean_and_range(one[1])}" for one in found)
            yield f"| {name} | {rows} | " + " | ".join(shown) + " |"


def _head(first: str) -> Iterator[str]:
    yield first + "".join(f" epsilon {epsilon} |" for epsilon in EPSILONS)
    yield "|" + " --- |" * (first.count("|") - 1 + len(EPSILONS))


def _mean_and_range(found: Sequence[float]) -> str:
    middle, low, high = found
    return f"{middle:.3f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    main()
