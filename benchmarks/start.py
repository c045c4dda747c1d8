"""What commands cost before they do anything: processor seconds of the whole process, and modules imported.

Every command runs in processes of its own, alternating between the trees that are named, so that a ratio holds on a
busy machine; the least of a few rounds counts.

    python -m benchmarks.start                       this tree alone
    python -m benchmarks.start --before OTHER_TREE   a checkout of an older commit beside it

The check of a model is measured twice: with the stored result of an earlier check, and without one. It needs the model
(`almoner models pull smollm2-135m-instruct`).
"""

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tasks.inference.catalogue import model_store

TREE = Path(__file__).resolve().parent.parent
COMMANDS = (
    "--version", "--help", "aprove 1", "budget show clinic", "budget show clinik", "audit log", "dataset list",
    "release list", "release show 7", "run 7", "publish 7 --to out",
)  # fmt: skip
CHECKED = "smollm2-135m-instruct"
PROBE = """
import atexit, os, resource, sys
def tell():
    used = resource.getrusage(resource.RUSAGE_SELF)
    open(os.environ["PROBE"], "w").write(f"{used.ru_utime + used.ru_stime} {len(sys.modules)}")
atexit.register(tell)
from cli.app import main
main()
"""


@dataclass(frozen=True)
class Start:
    """Processor seconds of a process, user and system, and the modules it had imported when it ended."""

    seconds: float
    modules: int


def start(tree: Path, home: Path, line: str, models: Path | None = None) -> Start:
    """Run one command of `tree` in a process of its own; `models` in the place of this machine's."""
    report = home.parent / "probe"
    environment = os.environ | {"PYTHONPATH": str(tree), "ALMONER_HOME": str(home), "PROBE": str(report)}
    environment |= {} if models is None else {"ALMONER_MODELS": str(models)}
    subprocess.run(
        [sys.executable, "-c", PROBE, *line.split()], cwd=home.parent, env=environment, capture_output=True, check=False
    )
    seconds, modules = report.read_text().split()
    return Start(float(seconds), int(modules))


def measure(trees: list[Path], homes: list[Path], line: str, rounds: int) -> list[Start]:
    """The least of `rounds` starts of a command in each tree, the trees alternating."""
    found = [[start(tree, home, line) for tree, home in zip(trees, homes, strict=True)] for _ in range(rounds)]
    return [min(column, key=lambda one: one.seconds) for column in zip(*found, strict=True)]


def first_check(tree: Path, home: Path) -> Start:
    """Check a model of which no result is stored."""
    with tempfile.TemporaryDirectory() as folder:
        (kept,) = model_store.models_folder().glob(f"{CHECKED}@*")
        (Path(folder) / kept.name).symlink_to(kept)
        return start(tree, home, f"models check {CHECKED}", Path(folder))


def measure_check(trees: list[Path], homes: list[Path], rounds: int, stored: bool) -> list[Start]:
    """As `measure`, for the check of a model with a stored result or without."""
    if stored:
        return measure(trees, homes, f"models check {CHECKED}", rounds + 1)
    found = [[first_check(tree, home) for tree, home in zip(trees, homes, strict=True)] for _ in range(rounds)]
    return [min(column, key=lambda one: one.seconds) for column in zip(*found, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="an older checkout to compare with")
    parser.add_argument("--rounds", type=int, default=3)
    typed = parser.parse_args()
    trees = [typed.before.resolve(), TREE] if typed.before else [TREE]
    with tempfile.TemporaryDirectory() as folder:
        homes = []
        for number, tree in enumerate(trees):
            homes.append(Path(folder) / str(number) / "home")
            homes[-1].parent.mkdir()
            start(tree, homes[-1], "init")
            start(tree, homes[-1], "dataset register clinic --unit patient --epsilon 4 --delta 1e-5")
        heads = ["before s", "modules", "after s", "modules", "ratio"] if typed.before else ["s", "modules"]
        print(" | ".join(["", "command", *heads, ""]).strip())
        print("|".join(["", *[" --- "] * (len(heads) + 1), ""]))
        measured = [(f"`{line}`", partial(measure, trees, homes, line, typed.rounds)) for line in COMMANDS]
        if any(model_store.models_folder().glob(f"{CHECKED}@*")):
            for stored, name in ((True, "stored result"), (False, "first time")):
                measured.append((f"`models check`, {name}", partial(measure_check, trees, homes, typed.rounds, stored)))
        else:
            print(f"`models check` is left out: {CHECKED} is not pulled", file=sys.stderr)
        for line, ask in measured:
            starts = ask()
            cells = [text for one in starts for text in (f"{one.seconds:.2f}", f"{one.modules:,}")]
            ratio = [f"{starts[0].seconds / starts[1].seconds:.1f}"] if typed.before else []
            print(" | ".join(["", line, *cells, *ratio, ""]).strip(), flush=True)


if __name__ == "__main__":
    main()
