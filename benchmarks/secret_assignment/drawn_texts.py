"""MAUVE of texts that are drawn by either claim of a request: unconditionally, and while the assignment is secret.

    python -m benchmarks.secret_assignment.drawn_texts --texts texts.jsonl --out docs/figures/secret_claim_texts.jsonl

The releases are those of `benchmarks.utility.ablation`: 64 texts of at most 48 tokens from 64 batches, 7 rows, the
default wording. It draws them by their unconditional epsilon:

    python -m benchmarks.utility.ablation --draw-only --samples 64 --epsilon 4.068 --settings 'as it was' ...

`RELEASES` has the epsilons: those of `epsilon_for` at 64 batches of 48 tokens. All releases of a data set and the
public model's texts are measured together, so differences are paired in clusters and real texts.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from benchmarks.common.drawn_releases import DEFAULT_MODEL, beginning
from benchmarks.common.intervals import written
from benchmarks.common.json_lines import read_lines, write_lines
from benchmarks.utility.ablation import EMBEDDERS, TODAY
from benchmarks.utility.free_tokens import DRAWS
from benchmarks.utility.next_tokens import NAMES
from benchmarks.utility.sampled import real_texts
from tasks.inference.loading.loading import load

if TYPE_CHECKING:
    from benchmarks.utility.mauve import Estimate

UNCONDITIONAL, SECRET = "unconditional", "while secret"
RELEASES: Mapping[tuple[str, str], str] = {
    ("1", UNCONDITIONAL): "1",
    ("1", SECRET): "4.068",
    ("2", UNCONDITIONAL): "2",
    ("2", SECRET): "5.647",
    ("4", UNCONDITIONAL): "4",
    ("4", SECRET): "8.054",
}
"""Unconditional epsilon by claim and by which of both it is."""
PUBLIC = "public only"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True, help="JSON lines, the texts of each release")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, figures of each release")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    rows = read_lines(arguments.texts)
    lines = measure(rows, arguments.device)
    write_lines(arguments.out, lines)


def measure(rows: Sequence[Mapping[str, Any]], device: str) -> Iterator[dict[str, Any]]:
    """Yield the figures of each release of each data set; none of its words."""
    from benchmarks.utility.mauve import embedder, measured_together  # only figures need it

    model, embedders = load(DEFAULT_MODEL, device, "bfloat16"), {name: embedder(name) for name in EMBEDDERS}
    for data in NAMES:
        own = {row["epsilon"]: row for row in rows if row["data"] == data and row["setting"] in (TODAY, PUBLIC)}
        sides = {
            str(epsilon): [beginning(model, text["text"], DRAWS) for text in row["completed"]]
            for epsilon, row in own.items()
        }
        _, real = real_texts(model.tokenizer, data, min(map(len, sides.values())), DRAWS)
        found = {by: measured_together(embed, sides, real) for by, embed in embedders.items()}
        names = {(None, PUBLIC): None, **RELEASES}
        for (claim, meaning), epsilon in names.items():
            usual = str(RELEASES[claim, UNCONDITIONAL]) if claim is not None and meaning == SECRET else None
            yield {
                "data": data,
                "claim": claim,
                "meaning": meaning,
                "epsilon": epsilon,
                "clip_norm": own[epsilon]["clip_norm"],
                "texts": len(sides[str(epsilon)]),
                "real_texts": len(real),
                "mauve": {by: _shown(each[str(epsilon)]) for by, each in found.items()},
                "more": {
                    by: _shown(each[str(epsilon)].less(each[usual])) for by, each in found.items() if usual is not None
                },
                "more_than_public": {
                    by: _shown(each[str(epsilon)].less(each["None"])) for by, each in found.items() if claim is not None
                },
            }


def _shown(estimate: "Estimate") -> list[float]:
    return [round(value, 4) for value in estimate.shown]


def table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield Markdown: MAUVE by both embedders, by claim; differences to the unconditional claim, and to the control."""
    scores = (f"MAUVE, {by} | more | more than public only" for by in ("MiniLM", "mpnet"))
    yield f"| data | claim | it holds | unconditional epsilon | clip norm C | {' | '.join(scores)} |"
    yield "|" + 11 * " --- |"
    for line in lines:
        claim = "-" if line["claim"] is None else f"epsilon {line['claim']}"
        norm = "" if line["clip_norm"] is None else f"{line['clip_norm']:.2f}"
        cells = [NAMES[line["data"]], claim, line["meaning"], line["epsilon"] or "-", norm]
        for by in EMBEDDERS:
            cells += [
                written(line[name][by], 2) if by in line[name] else "" for name in ("mauve", "more", "more_than_public")
            ]
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
