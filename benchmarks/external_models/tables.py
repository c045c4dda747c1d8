"""Tables of `external_models/systems.py`: one for each corpus and sizes, a row for each system and epsilon.

Figures are means over trials.

Systems stand as they first came, each with its epsilons in ascending order.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tasks.evaluation.intervals import over_seeds

Line = Mapping[str, Any]

ACCURACIES = {"accuracy": "accuracy", "coral": "with CORAL", "deep_coral": "with Deep CORAL"}
COSTS = {"texts": "texts", "prompts": "prompts", "tokens": "tokens", "work": "processor s"}


def tables(lines: Sequence[Line]) -> list[str]:
    """Markdown; nothing is averaged over cells of different sizes."""
    found: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in lines:
        found[line["cell"]["corpus"], str(line["sizes"])].append(line)
    return [row for (corpus, _), own in found.items() for row in table(corpus, own)]


def table(corpus: str, lines: Sequence[Line]) -> list[str]:
    """One corpus in one size."""
    first, sizes = lines[0], lines[0]["sizes"]
    about = f"{first['units']} units, {first['tests']} tests, the commonest label {first['majority']}"
    made = [f"### {corpus}", "", f"{about}; CORAL's target: {first['target']}; {sizes['model']}.", ""]
    return [*made, *rows_of_corpus(lines, corpus), ""]


def rows_of_corpus(lines: Sequence[Line], corpus: str) -> list[str]:
    """The table alone, of the lines of one size."""
    rows: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in lines:
        if line["cell"]["corpus"] == corpus:
            rows[line["cell"]["system"], line["cell"]["epsilon"]].append(line)
    head = ["system", "epsilon", "trials", *ACCURACIES.values(), *COSTS.values()]
    made = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    systems = list(dict.fromkeys(system for system, _ in rows))
    for system, epsilon in sorted(rows, key=lambda row: (systems.index(row[0]), float(row[1] or 0))):
        trials = rows[system, epsilon]
        shown = [told([line[name] for line in trials]) for name in ACCURACIES]
        costs = [mean([line[name] for line in trials]) for name in COSTS]
        made.append("| " + " | ".join([system, epsilon or "-", str(len(trials)), *shown, *costs]) + " |")
    return made


def at_epsilon(lines: Sequence[Line], epsilon: str, titles: Mapping[str, str]) -> Iterator[str]:
    """Yield the accuracy of every system on each corpus at an epsilon, and the prompts that it needs."""
    found: dict[str, dict[str, list[Line]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        if line["cell"]["epsilon"] in ("", epsilon):
            found[line["cell"]["system"]][line["cell"]["corpus"]].append(line)
    yield f"| system | prompts | {' | '.join(titles.values())} |"
    yield "| --- | --- |" + " --- |" * len(titles)
    for system, of in found.items():
        prompts = mean([line["prompts"] for line in next(iter(of.values()))])
        yield f"| {system} | {prompts} | {' | '.join(told([one['accuracy'] for one in of[name]]) for name in titles)} |"


def told(values: Sequence[float | None]) -> str:
    """Mean and Student's 95 % interval over trials; the mean alone of one trial, - of none."""
    there = [value for value in values if value is not None]
    if not there:
        return "-"
    ends = over_seeds(there)
    middle = f"{sum(there) / len(there):.3f}"
    return middle if ends is None else f"{middle} ({ends[0]:.2f} to {ends[1]:.2f})"


def mean(values: Sequence[float]) -> str:
    """Of a cost, to three places at most where it is small."""
    return f"{sum(values) / len(values):,.0f}" if max(values) >= 100 else f"{sum(values) / len(values):.3g}"
