"""What commands cost before they do anything: processor seconds of the whole process, and modules imported.

Every command runs in processes of its own, alternating between the trees that are named, so that a ratio holds on a
busy machine; the least of a few rounds counts.

    python benchmarks/start.py                       this tree alone
    python benchmarks/start.py --before OTHER_TREE   a checkout of an older commit beside it
"""

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
COMMANDS = (
    "--version", "--help", "aprove 1", "budget show clinic", "budget show clinik", "audit log", "dataset list",
    "release list", "run 7",
)  # fmt: skip
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


def start(tree: Path, home: Path, line: str) -> Start:
    """Run one command of `tree` in a process of its own."""
    report = home.parent / "probe"
    environment = os.environ | {"PYTHONPATH": str(tree), "ALMONER_HOME": str(home), "PROBE": str(report)}
    subprocess.run(
        [sys.executable, "-c", PROBE, *line.split()], cwd=home.parent, env=environment, capture_output=True, check=False
    )
    seconds, modules = report.read_text().split()
    return Start(float(seconds), int(modules))


def measure(trees: list[Path], homes: list[Path], line: str, rounds: int) -> list[Start]:
    """The least of `rounds` starts of a command in each tree, the trees alternating."""
    found = [[start(tree, home, line) for tree, home in zip(trees, homes, strict=True)] for _ in range(rounds)]
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
        for line in COMMANDS:
            starts = measure(trees, homes, line, typed.rounds)
            cells = [text for one in starts for text in (f"{one.seconds:.2f}", f"{one.modules:,}")]
            ratio = [f"{starts[0].seconds / starts[1].seconds:.1f}"] if typed.before else []
            print(" | ".join(["", f"`{line}`", *cells, *ratio, ""]).strip(), flush=True)


if __name__ == "__main__":
    main()
