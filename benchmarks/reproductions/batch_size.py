"""MAUVE of InvisibleInk's texts against the number of private rows, as in the paper's figure 4; all-mpnet-base-v2.

    python -m benchmarks.reproductions.batch_size --texts texts.jsonl      # writes docs/figures/batch_size.jsonl
    python -m benchmarks.reproductions.batch_size --table                  # every figure behind docs/options-results.md

The releases are those of `benchmarks.utility.ablation`, which draws them:

    python -m benchmarks.utility.ablation --draw-only --data yelp --samples 48 --epsilon 10 --texts texts.jsonl \\
        --settings 'public only' 'one document, no privacy' '1 rows' '3 rows' 'as it was' '15 rows' '31 rows' \\
        --out unused.jsonl

With `--epsilon 4`, both data sets and the settings 'public only', 'as it was', '9 rows' and '11 rows', they say what
more rows buy for the processor time that free tokens, a selection or an outline take: docs/figures/more_rows.jsonl. For
`--model gemma3-270m` the settings are "public only, completion", "completion", "completion, 9 rows" and "completion,
11 rows".

All releases of a data set and model and two kinds of controls, the public model and one whole private text in each
prompt without privacy, are measured together, so differences are paired in clusters and real texts.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from benchmarks.common.intervals import rounded, written
from benchmarks.common.json_lines import read_lines, write_lines
from benchmarks.utility.ablation import DEFAULT_MODEL, DRAWS, EMBEDDERS, REFERENCES, TODAY, beginning
from benchmarks.utility.next_tokens import NAMES
from benchmarks.utility.sampled import ONE, PUBLIC, REAL, real_texts
from tasks.inference.loading.load_model import load

if TYPE_CHECKING:
    from benchmarks.utility.mauve import Estimate

OUT = Path(__file__).resolve().parents[2] / "docs" / "figures" / "batch_size.jsonl"
ROWS: Mapping[str, int] = {TODAY: REFERENCES} | {f"{rows} rows": rows for rows in (1, 3, 9, 11, 15, 31)}
"""Private rows of a text, by setting."""
_OF_COMPLETIONS = {f"{PUBLIC}, completion": PUBLIC, "completion": TODAY}
"""Settings of a base model, as those of a conversation are called."""
SCORES = ("mauve", "more_than_public", "more_than_today")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, help="JSON lines, the texts of each release")
    parser.add_argument("--to", type=Path, default=OUT)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if not arguments.table:
        if arguments.texts is None:
            parser.error("--texts is needed to measure")
        write_lines(arguments.to, list(measure(read_lines(arguments.texts), arguments.device)))
    print("\n".join(table(read_lines(arguments.to))))


def measure(rows: Sequence[Mapping[str, Any]], device: str) -> Iterator[dict[str, Any]]:
    """Yield the figures of each release of each data set; none of its words."""
    from benchmarks.utility.mauve import embedder, measured_together  # only figures need it

    embedders = {name: embedder(name) for name in EMBEDDERS}
    for name, data in sorted({(row["model"], row["data"]) for row in rows if row["data"] in NAMES}, key=_place):
        model = load(name, device, "bfloat16")
        releases = {_setting(row): row for row in rows if (row["model"], row["data"]) == (name, data)}
        sides = {
            setting: [beginning(model, text["text"], DRAWS) for text in row["completed"]]
            for setting, row in releases.items()
        }
        others, real = real_texts(model.tokenizer, data, min(map(len, sides.values())), DRAWS)
        sides[REAL] = others
        found = {by: measured_together(embed, sides, real) for by, embed in embedders.items()}
        for setting in (name for name in (REAL, PUBLIC, ONE, *sorted(ROWS, key=ROWS.__getitem__)) if name in sides):
            release = releases.get(setting, {})
            yield {
                "model": name, "data": data, "setting": setting,
                "rows": ROWS.get(setting), "epsilon": release.get("epsilon"),
                "clip_norm": release.get("clip_norm"), "texts": len(sides[setting]), "real_texts": len(real),
                "processor": release.get("seconds"),
                "mauve": {by: rounded(each[setting].shown) for by, each in found.items()},
                "more_than_public": _differences(found, setting, PUBLIC, (REAL, PUBLIC)),
                "more_than_today": _differences(found, setting, TODAY, (REAL, PUBLIC, TODAY)),
            }  # fmt: skip


def _place(key: tuple[str, str]) -> tuple[bool, int]:
    return key[0] != DEFAULT_MODEL, list(NAMES).index(key[1])


def _setting(row: Mapping[str, Any]) -> str:
    setting: str = row["setting"]
    return _OF_COMPLETIONS.get(setting, setting.removeprefix("completion, "))


def _differences(
    found: Mapping[str, Mapping[str, "Estimate"]], setting: str, other: str, without: Sequence[str]
) -> dict[str, list[float]]:
    """Return the paired differences of a setting from another by each embedder; none for the settings of `without`."""
    if setting in without or any(other not in each for each in found.values()):
        return {}
    return {by: rounded(each[setting].less(each[other]).shown) for by, each in found.items()}


def table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield Markdown: MAUVE by both embedders, and its difference to the public model's, by rows."""
    scores = (f"MAUVE, {by} | more than public only | more than 7 rows" for by in ("MiniLM", "mpnet"))
    yield f"| model | data | texts | rows B | epsilon | clip norm C | number | {' | '.join(scores)} | CPU s |"
    yield "|" + 14 * " --- |"
    for line in lines:
        norm = "" if line["clip_norm"] is None else f"{line['clip_norm']:.2f}"
        name = "InvisibleInk" if line["rows"] else line["setting"]
        cells = [
            line["model"],
            NAMES[line["data"]],
            name,
            str(line["rows"] or "-"),
            line["epsilon"] or "-",
            norm,
            str(line["texts"]),
        ]
        for by in EMBEDDERS:
            cells += [written(line[of][by], 2) if by in line.get(of, ()) else "" for of in SCORES]
        cells.append("" if line["processor"] is None else f"{line['processor']:.0f}")
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
