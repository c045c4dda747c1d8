"""Attacks on a request's public twin, by the command that stewards use: every figure of every attack and release.

    python -m benchmarks.attacks.public_twin           # writes docs/figures/public_twin.jsonl, about five minutes
    python -m benchmarks.attacks.public_twin --table   # the table of docs/attacks.md

The twin has the first TEXTS items of AG News, each a unit. The request is InvisibleInk's; `almoner attack run` draws
members, plants canaries, makes the releases and attacks them. The controls are its two other releases: one document in
each prompt without privacy, and the corpus itself. A line has the figures of one attack on one release.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.figures_parser import figures_parser
from benchmarks.common.json_lines import DATA, read_lines, write_lines

OUT = Path(__file__).resolve().parents[2] / "docs" / "figures" / "public_twin.jsonl"
CORPUS, TEXTS, CANARIES = "agnews", 400, 8
REQUEST: Mapping[str, Any] = {
    "dataset": "news",
    "kind": "synthetic_corpus",
    "mechanism": "invisible_ink",
    "epsilon": 10.0,
    "delta": 1e-5,
    "model": "smollm2-135m-instruct",
    "parameters": {
        "samples": 16,
        "references": 7,
        "max_new_tokens": 48,
        "max_reference_tokens": 96,
        "temperature": 1.0,
        "top_k": 100,
    },
    "prompt": {"description": "Short news items."},
}
RELEASES = {"request": "this request", "non_private": "without privacy", "copy": "the corpus itself"}
"""The attacked releases, by their names in the result, as the columns of the table."""


def main() -> None:
    arguments = figures_parser(__doc__, OUT).parse_args()
    if not arguments.table:
        texts = read_lines(DATA / f"{CORPUS}.jsonl")[:TEXTS]
        with tempfile.TemporaryDirectory(prefix="almoner-bench-") as folder:
            write_lines(arguments.out, lines_of(attacked(texts, Path(folder))))
    print("\n".join(table(read_lines(arguments.out))))


def attacked(texts: Sequence[Mapping[str, Any]], folder: Path) -> dict[str, Any]:
    """Return the result of `almoner attack run`; the section of the newspaper is the attribute.

    Args:
        texts: with `id`, `text` and `label`.
        folder: is empty, and gets the project home.
    """
    twin, request = folder / "twin.jsonl", folder / "request.json"
    write_lines(twin, ({name: text[name] for name in ("id", "text", "label")} for text in texts))
    request.write_text(json.dumps(REQUEST), encoding="utf-8")
    home = folder / "home"
    _almoner(home, "init")
    _almoner(home, "dataset", "register", "news", "--public", "--epsilon", "10", "--delta", "1e-5")
    _almoner(home, "dataset", "ingest", "news", str(twin), "--label-field", "label")
    found: dict[str, Any] = _almoner(home, "attack", "run", str(request), "--canaries", str(CANARIES))
    return found


def _almoner(home: Path, *words: str) -> Any:
    """Return what a command answers."""
    code = "import sys; from cli.app import main; sys.argv[0] = 'almoner'; main()"
    command = [sys.executable, "-c", code, *words, "--json"]
    environment = os.environ | {"ALMONER_HOME": str(home)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def lines_of(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a line for each attack on each release."""
    head = {name: result[name] for name in ("code", "members", "nonmembers", "canaries", "copies")}
    head |= {name: result["configuration"][name] for name in ("mechanism", "epsilon", "delta", "model", "parameters")}
    for run in result["runs"]:
        for attack in run["results"]:
            yield {**head, "release": run["name"], "texts": run["texts"], "attack": attack["name"],
                   "values": attack["values"]}  # fmt: skip


def table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield Markdown: a row for each figure, a column for each release, with 95 % intervals."""
    yield f"| attack | {' | '.join(RELEASES.values())} |"
    yield "| --- |" + " --- |" * len(RELEASES)
    found = {(line["release"], line["attack"]): line["values"] for line in lines}
    exposure = found["copy", "canary_exposure"]
    most, chance = exposure["exposure_possible"], exposure["exposure_by_chance"]
    rows = {
        "membership by embeddings, AUC": ("membership_embedding", "auc", 3),
        "its TPR at FPR 1 %": ("membership_embedding", "tpr_at_1_percent", 2),
        "membership by likelihood, AUC": ("membership_likelihood", "auc", 3),
        "membership by copies, AUC": ("membership_overlap", "auc", 3),
        "planted against held-out canaries, AUC": ("canary_membership", "auc", 3),
        f"canary exposure, bits of {most} (chance {chance})": ("canary_exposure", "exposure_mean", 2),
        "attribute inference, right for members": ("attribute_inference", "right_share", 2),
        "the same, right for held-out people": ("attribute_inference", "held_out_right_share", 2),
        "the commonest attribute for all": ("attribute_inference", "commonest_right_share", 2),
    }
    for title, (attack, figure, digits) in rows.items():
        cells = (_cell(found[release, attack], figure, digits) for release in RELEASES)
        yield f"| {title} | {' | '.join(cells)} |"
    runs = (found[release, "replay"] for release in RELEASES)
    cells = (f"{values['longest_run']} / {values['held_out_longest_run']}" for values in runs)
    yield f"| longest run shared with members / non-members, words | {' | '.join(cells)} |"


def _cell(values: Mapping[str, Any], figure: str, digits: int) -> str:
    value, low, high = (values.get(f"{figure}{end}") for end in ("", "_low", "_high"))
    if value is None:
        return ""
    return f"{float(value):.{digits}f} ({float(low):.{digits}f} to {float(high):.{digits}f})"


if __name__ == "__main__":
    main()
