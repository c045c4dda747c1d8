"""The two locks: what the program needs, for every platform and with hashes, and what development needs beside it.

    python .ci/lock.py export base          the base, with hashes: for `pip install --require-hashes -r`
    python .ci/lock.py export versions      the program without hashes: for `pip install -r` and `-c`
    .venv/bin/python .ci/lock.py write UV   both locks, by the program uv, of the versions in .venv: `make lock`

`export` prints a part of requirements.lock. It runs before anything is installed, so it needs Python alone.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
PROGRAM, DEVELOPMENT = ROOT / "requirements.lock", ROOT / "requirements-dev.lock"
EXTRAS = ("generation", "orchestration", "s3")
EDITABLE = ("editables",)  # hatchling takes it to install a checkout
NOT_LOCKED = {"almoner", "pip", "wheel"}
CUDA = ("cuda-", "nvidia-", "triton")
"""Beginnings of the names of packages that torch of PyPI needs on Linux, for CUDA, and torch for CPUs does not."""

BASE = "# The base: `python .ci/lock.py export base` prints this part.\n"
MORE = f"# The extras {', '.join(EXTRAS)}, with torch for CUDA, and what builds the program.\n"
"""What these need with other extras, or on more platforms, than the base does stands in both parts."""


def base() -> str:
    """Return the packages of the base, with hashes."""
    return PROGRAM.read_text().partition(BASE)[2].partition(MORE)[0]


def versions() -> str:
    """Return the packages of the program without hashes: torch for CPUs has other files, and needs none of CUDA."""
    found = re.findall(r"^([a-z0-9-]+)(?:\[.*?\])?(==.*?)(?: \\)?$", PROGRAM.read_text(), re.MULTILINE)
    lines = [f"{name}{version}\n" for name, version in found if not name.startswith(CUDA)]
    return "".join(dict.fromkeys(lines))  # pip takes no extras in a file for `-c`


def write(uv: str) -> None:
    """Write both locks; versions are those that are installed, without the name of a local build, `+cpu`."""
    installed = {
        _canonical(each.metadata["Name"]): each.version.partition("+")[0]
        for each in distributions()
        if _canonical(each.metadata["Name"]) not in NOT_LOCKED
    }
    pins = {name: f"{name}=={version}\n" for name, version in sorted(installed.items())}
    built_with = [*tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"], *EDITABLE]
    with TemporaryDirectory() as folder:
        constraint, more = Path(folder, "installed.txt"), Path(folder, "build.in")
        constraint.write_text("".join(pins.values()))
        more.write_text("\n".join(built_with))
        compiling = [uv, "pip", "compile", "--universal", "--python-version=3.11", f"--constraint={constraint}"]
        compiling += ["--generate-hashes", "--no-strip-extras", "--no-annotate", "--no-header", "pyproject.toml"]
        of_base = _compiled(compiling)
        everything = _compiled([*compiling, str(more), *(f"--extra={extra}" for extra in EXTRAS)])
    PROGRAM.write_text(
        "# The program, pinned for every platform. `make lock` writes it anew.\n"
        + BASE
        + "".join(of_base)
        + MORE
        + "".join(entry for entry in everything if entry not in of_base)
    )
    program = {line.partition("==")[0] for line in versions().splitlines()}
    DEVELOPMENT.write_text(
        "# What development and tests need beside requirements.lock, pinned. `make lock` writes it anew.\n"
        + "".join(pin for name, pin in pins.items() if name not in program)
    )


def _compiled(command: list[str]) -> list[str]:
    """Return the packages that uv finds, each with its hashes."""
    text = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603
    return [f"{package}\n" for package in re.split(r"\n(?=\S)", text.strip())]


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> None:
    """Print a part of the lock, or write both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("export").add_argument("part", choices=("base", "versions"))
    commands.add_parser("write").add_argument("uv")
    arguments = parser.parse_args()
    if arguments.command == "write":
        write(arguments.uv)
    else:
        sys.stdout.write(base() if arguments.part == "base" else versions())


if __name__ == "__main__":
    main()
