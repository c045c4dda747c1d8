"""The contamination probe on five public corpora, beside passages that models have read and passages that none has.

    python -m benchmarks.contamination           # writes docs/figures/contamination.jsonl

A line has the losses of all continuations of one set of texts, own and another's, in nats per token, and no text.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import numpy as np

from benchmarks.common.intervals import written
from benchmarks.common.json_lines import DATA, read_lines, write_lines
from tasks.evaluate import scorer
from tasks.evaluation.core import bootstrap
from tasks.evaluation.core.subsample import sample
from tasks.evaluation.model_based.contamination import MOST, Continuations
from tasks.evaluation.model_based.contamination_trial import FRESH, KNOWN
from tasks.inference.loading.loading import load

OUT = Path(__file__).resolve().parents[1] / "docs" / "figures" / "contamination.jsonl"
CORPORA = ("yelp", "mts_dialog", "agnews", "dbpedia14", "echr_communicated")

Line = Mapping[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    score = scorer(load(arguments.model, arguments.device))
    corpora = {name: [row["text"] for row in read_lines(arguments.data / f"{name}.jsonl")] for name in CORPORA}
    sets: dict[str, Sequence[str]] = {"passages that models have read": KNOWN, "passages that none has": FRESH}
    sets |= {name: sample(texts, MOST) for name, texts in corpora.items()}
    lines = [{"texts": name} | _losses(Continuations.of(score, texts)) for name, texts in sets.items()]
    write_lines(arguments.out, lines)


def _losses(found: Continuations) -> dict[str, list[float]]:
    return {name: [round(value, 4) for value in getattr(found, name).tolist()] for name in ("own", "others")}


def table(lines: Sequence[Line]) -> Iterator[str]:
    """A row for each set of texts."""
    yield "| texts | n | own continuation, nats a token | another's | gain | by heart |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for line in lines:
        found = Continuations(np.array(line["own"]), np.array(line["others"]))
        columns = (found.own, found.others, found.gain)
        shown = (written([values.mean(), *(bootstrap.of_mean(values) or ())], 2) for values in columns)
        yield f"| {line['texts']} | {len(found.own)} | {' | '.join(shown)} | {found.by_heart} |"


if __name__ == "__main__":
    main()
