"""What a whole release costs, command by command, in one checkout or in two that take turns.

    python -m benchmarks.whole_release                                    # this checkout alone, one round
    python -m benchmarks.whole_release --before OTHER --rounds 5 --keep   # beside an older one; rows are kept

Only the command line and the package `almoner` are used, so checkouts of any structure can be compared. A checkout runs
with the interpreter of its own `.venv`, else with this one; PYTHONPATH puts its code first, so the environment needs
almoner's packages and the script `almoner`, of any version.

Each round has a new home for each checkout, with 20,000 documents of 5,000 people under epsilon 8. A small release is
made first and is not measured, so that the ledger has a history. The measured one has epsilon 0.5 and 8 texts of 32
tokens, with 7 references each, by SmolLM2-135M (`almoner models pull smollm2-135m-instruct`). Its clipping is the
paper's, because such texts end with their last draw in every version: in older ones the completion of a last sentence
is an option, in newer ones a default.

The checkouts take turns at every command, in another order each round, so that a ratio holds on a busy machine.
Processor seconds are those of the whole process, user and system, with the processes that it waits for. The code of
both is compiled before the first round. Each has a folder of models of its own, which links to the weights, because a
stored check of a model holds for one version of the code; the first release makes the checks.
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common.intervals import interval_of_mean, written
from benchmarks.common.json_lines import append_lines, read_lines_if_there
from benchmarks.common.process_cost import Cost, cost_of_process

Row = dict[str, Any]

TREE = Path(__file__).resolve().parents[1]
KEPT = TREE / "docs" / "figures" / "whole_release.jsonl"
MODELS = Path(os.environ.get("ALMONER_MODELS") or Path.home() / ".cache" / "almoner" / "models").resolve()
DOCUMENTS, PEOPLE, WORDS = 20_000, 5_000, 30
VOCABULARY = ("the", "patient", "says", "pain", "in", "left", "knee", "began", "after", "long", "walk", "and", "eases")
MEASURED: Row = {"samples": 8, "references": 7, "max_new_tokens": 32}
SMALL: Row = {"samples": 2, "references": 2, "max_new_tokens": 4}
REQUEST: Row = {
    "dataset": "clinic",
    "kind": "synthetic_corpus",
    "mechanism": "invisible_ink",
    "epsilon": 0.5,
    "delta": 1.0e-7,
    "model": "smollm2-135m-instruct",
    "prompt": {"description": "A short note that a doctor writes after seeing a patient."},
    "evaluation": ["length", "distinct"],
}
WORDING: Row = {"temperature": 0.9, "top_k": 100, "max_reference_tokens": 96, "clipping": "logit"}
REGISTER = f"dataset register clinic --unit patient --epsilon 8 --delta 1e-6 --population {PEOPLE}"
PRICE = "import almoner; almoner.open().dataset('clinic').price('small.json')"
INSTRUCTIONS = {"avx512f": "AVX-512", "avx2": "AVX2", "asimd": "NEON"}


def release(number: int, file: str) -> dict[str, str]:
    """The commands of a release by what they do, from its request to its publication."""
    decide = f"approve {number} --reason benchmark --confirm clinic --gate"
    return {
        "request": f"release request {file}",
        "approve, spend": f"{decide} spend",
        "run": f"run {number}",
        "approve, publish": f"{decide} publish",
        "publish": f"publish {number} --to out",
    }


PROBES = {
    "--version": "--version",
    "--help": "--help",
    "init": "init",
    "dataset register": REGISTER,
    "dataset ingest": "dataset ingest clinic notes.jsonl",
    **{f"first {name}": line for name, line in release(1, "small.json").items()},
    "price, in Python": PRICE,
    **release(2, "request.json"),
    "verify-release": "verify-release out/clinic-release-2",
    "budget show": "budget show clinic",
    "audit log": "audit log",
    "audit verify": "audit verify",
}
"""Everything that a round does, in order; the steps of the first release are not measured."""


@dataclass(frozen=True)
class Checkout:
    """A tree of files, with the interpreter that runs it and the name of its commit.

    Attributes:
        models: its folder of models.
    """

    path: Path
    models: Path

    @property
    def python(self) -> Path:
        own = self.path / ".venv" / "bin" / "python"
        return own if own.exists() else Path(sys.executable)

    @cached_property
    def commit(self) -> str:
        """Eight digits of the commit, and `-dirty` if files differ from it."""
        command = ["git", "-C", str(self.path), "describe", "--always", "--dirty", "--abbrev=8", "--exclude=*"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def prepare(self) -> None:
        """Write the compiled files, which the first command would write otherwise, and link to the models."""
        command = [str(self.python), "-m", "compileall", "-q", "-x", r"/\.", "."]
        subprocess.run(command, cwd=self.path, env=self.environment(self.path), check=True)
        self.models.mkdir()
        for model in MODELS.glob("*@*"):
            (self.models / model.name).symlink_to(model)

    def measure(self, line: str, folder: Path) -> Cost:
        """Run a command, or a line of Python, in a folder; return what it took."""
        words = ["-c", line] if line.startswith("import ") else [self.python.with_name("almoner"), *line.split()]
        return cost_of_process([self.python, *words], self.environment(folder), folder=folder)

    def environment(self, folder: Path) -> dict[str, str]:
        """The settings of every command in a folder: no server, a home there, and compiled files."""
        left_out = ("PREFECT_API_URL", "PYTHONDONTWRITEBYTECODE")
        return {name: value for name, value in os.environ.items() if name not in left_out} | {
            "PYTHONPATH": str(self.path),
            "ALMONER_HOME": str(folder / "home"),
            "ALMONER_MODELS": str(self.models),
            "PREFECT_HOME": str(folder / "prefect"),
            "DO_NOT_TRACK": "1",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        }


def write_inputs(folder: Path) -> None:
    """The corpus and both requests, alike in every folder."""
    chooser = random.Random(0)
    with (folder / "notes.jsonl").open("w", encoding="utf-8") as notes:
        for number in range(DOCUMENTS):
            text = " ".join(chooser.choices(VOCABULARY, k=WORDS))
            notes.write(json.dumps({"id": number, "patient": f"p{number * 7919 % PEOPLE:05}", "text": text}) + "\n")
    for name, sizes in (("small", SMALL), ("request", MEASURED)):
        (folder / f"{name}.json").write_text(json.dumps(REQUEST | {"parameters": WORDING | sizes}), encoding="utf-8")


def one_round(checkouts: Sequence[Checkout], number: int) -> Iterator[Row]:
    """Yield a row for each probe and checkout."""
    with tempfile.TemporaryDirectory(prefix="almoner-bench-") as base:
        folders = [Path(base) / str(place) for place in range(len(checkouts))]
        for folder in folders:
            folder.mkdir()
            write_inputs(folder)
        for probe, line in PROBES.items():
            for checkout, folder in list(zip(checkouts, folders, strict=True))[:: 1 if number % 2 else -1]:
                cost = checkout.measure(line, folder)
                told = f"{number} {checkout.commit} {probe}: {cost.processor:.2f} s, wall {cost.wall:.2f} s"
                print(told, file=sys.stderr, flush=True)
                if not probe.startswith("first "):
                    yield {"probe": probe, "tree": checkout.commit, "round": number} | {
                        "cpu_s": round(cost.processor, 3), "wall_s": round(cost.wall, 3), **machine(),
                    }  # fmt: skip


@cache
def machine() -> dict[str, Any]:
    """The processor's name, the cores and the widest instructions that are known here."""
    lines = (line.partition(":") for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines())
    told = {name.strip(): value.strip() for name, _, value in lines}
    flags = (told.get("flags") or told.get("Features", "")).split()
    widest = next((shown for flag, shown in INSTRUCTIONS.items() if flag in flags), "unknown")
    return {"machine": told.get("model name", "unknown"), "cores": os.cpu_count(), "instructions": widest}


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The first tree's processor seconds against the last one's; a ratio is a geometric mean over rounds of both."""
    before, after = rows[0]["tree"], rows[-1]["tree"]
    both = {row["round"] for row in rows if row["tree"] == before} & {
        row["round"] for row in rows if row["tree"] == after
    }
    yield f"| processor seconds, medians of {len(both)} rounds | {before} | {after} | after / before |"
    yield "| --- | --- | --- | --- |"
    for probe in dict.fromkeys(row["probe"] for row in rows):
        sides = [
            {row["round"]: row["cpu_s"] for row in rows if (row["probe"], row["tree"]) == (probe, tree)}
            for tree in (before, after)
        ]
        logs = [math.log(sides[1][number] / sides[0][number]) for number in sorted(both)]
        ratio = written([math.exp(value) for value in interval_of_mean(logs)], 2)
        cells = [f"{median(side[number] for number in both):.2f}" for side in sides]
        yield f"| {probe} | {' | '.join(cells)} | {ratio} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="an older checkout to compare with")
    parser.add_argument("--after", type=Path, default=TREE, help="the newer checkout; this one by default")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help=f"append the rows to {KEPT.relative_to(TREE)}")
    given = parser.parse_args()
    rows: list[Row] = []
    first = 1 + max((row["round"] for row in read_lines_if_there(KEPT)), default=0)
    with tempfile.TemporaryDirectory(prefix="almoner-bench-") as base:
        trees = [path.resolve() for path in (given.before, given.after) if path]
        checkouts = [Checkout(tree, Path(base) / str(place)) for place, tree in enumerate(trees)]
        for checkout in checkouts:
            checkout.prepare()
        for number in range(first, first + given.rounds):
            made = sorted(one_round(checkouts, number), key=lambda row: row["tree"] != checkouts[0].commit)
            rows += made
            if given.keep:
                append_lines(KEPT, made)
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
