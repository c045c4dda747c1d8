"""The table of the summaries benchmark, made again from the results beside it.

    python -m benchmarks.summaries.cells      # docs/figures/summaries.jsonl
    python -m benchmarks.summaries.tables     # works every score out anew, where the data are

Scores are means over products, each product with the mean of its trials.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.json_lines import DATA, read_lines
from benchmarks.summaries.data import products
from benchmarks.summaries.scores import SCORES, KeepingPieces, scores
from benchmarks.summaries.systems import NO_NOISE, SYSTEMS_COMPARED
from tasks.inference.embeddings.encoder import load_embedder

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "figures"
Place = tuple[str, str | None]
Results = Mapping[Place, Mapping[str, Mapping[str, float]]]
"""(system, epsilon) -> product -> score -> its mean over trials."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=FOLDER / "summaries.jsonl")
    parser.add_argument("--data", type=Path, default=DATA)
    arguments = parser.parse_args()
    rescore(arguments.results, arguments.data)


def short_table(results: Results) -> Iterator[str]:
    """Yield the table of docs/summaries-results.md: ROUGE-L / BERTScore, without their intervals."""
    columns = ("2", "10", "50", "120", NO_NOISE)
    yield from _head("system", [*(f"epsilon {each}" for each in columns[:-1]), "no noise"])
    for system in SYSTEMS_COMPARED:
        epsilons = (None,) if system.epsilons == (None,) else columns
        products_of = [results.get((system.name, each), {}).values() for each in epsilons]
        cells = [
            " / ".join(f"{_mean([by[name] for by in some]):.3f}" for name in ("rouge_l", "bert_score") if some)
            for some in products_of
        ]
        yield f"| {system.title} | {' | '.join([*cells, *[''] * (len(columns) - len(cells))])} |"


def rescore(path: Path, data: Path) -> None:
    """Write the results again with scores that are worked out from their texts."""
    embed = KeepingPieces(load_embedder())
    people = {product.id: product.summaries for product in products(data, "test")}
    lines = read_lines(path)
    for line in lines:
        for text in (each for each in line["texts"] if "text" in each):
            text |= scores(text["text"], people[text["group"]], embed)
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


def gathered(lines: Sequence[Mapping[str, Any]]) -> Results:
    """The mean score of each product over the trials of each system and epsilon."""
    found: dict[Place, dict[str, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        cell = line["cell"]
        for text in line["texts"]:
            found[cell["system"], cell["epsilon"]][text["group"]].append(text)
    return {
        place: {group: {name: _mean([text[name] for text in texts]) for name in SCORES} for group, texts in by.items()}
        for place, by in found.items()
    }


def _head(first: str, columns: Sequence[str]) -> Iterator[str]:
    yield f"| {first} | " + " | ".join(columns) + " |"
    yield "| --- |" + " --- |" * len(columns)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    main()
