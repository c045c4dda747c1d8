"""What the kit needs on a machine, what of it is there, and how to bring the rest. Imports nothing but the library."""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.gpu.sections import SECTIONS

ROOT = Path(__file__).resolve().parents[2]
HOW = """How to bring what is missing:
  with a network      {python} -m pip install {names}
  without a network   on a machine that has one, for this machine's Python ({tag}) and x86-64:
                        python3 -m pip download --only-binary=:all: --python-version {tag} \\
                            --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 -d wheels {names}
                      then here:
                        {python} -m pip install --no-index --find-links wheels {names}
requirements.lock names the versions that the tests ran with. An older transformers lacks what some families need: each
of them is then a failed row that says so."""


@dataclass(frozen=True)
class Package:
    """A distribution.

    Attributes:
        wanted: what pyproject.toml says of it, such as `>=0.16,<0.17`; empty where it names no version.
        found: the version that is here; None where it is missing.
        sections: who needs it.
    """

    name: str
    wanted: str
    found: str | None
    sections: tuple[str, ...]


def packages() -> list[Package]:
    """Return every distribution that a section needs."""
    wanted = _wanted()
    names = dict.fromkeys(name for section in SECTIONS for name in section.packages)
    return [
        Package(name, wanted.get(name, ""), installed(name), tuple(s.name for s in SECTIONS if name in s.packages))
        for name in names
    ]


def installed(name: str) -> str | None:
    """Return the version of a distribution; None where it is not here."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def missing(names: Iterable[str]) -> list[str]:
    """Return those of `names` that are not here."""
    return [name for name in names if installed(name) is None]


def explanation(python: str, python_version: str) -> str:
    """What is here and what is not, and how the rest is installed; for people."""
    found = packages()
    lines = [f"  {'package':24}{'here':16}{'wanted':18}needed by"]
    lines += [
        f"  {package.name:24}{package.found or 'MISSING':16}{package.wanted:18}"
        f"{'all' if len(package.sections) == len(SECTIONS) else ', '.join(package.sections)}"
        for package in found
    ]
    if absent := [package.name for package in found if package.found is None]:
        lines += ["", HOW.format(python=python, names=" ".join(absent), tag=python_version)]
    return "\n".join(lines)


def _wanted() -> dict[str, str]:
    """Name -> version specifier, from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    development = [line for line in project["dependency-groups"]["dev"] if isinstance(line, str)]  # no other group
    generation = project["project"]["optional-dependencies"]["generation"]
    lines = [*project["project"]["dependencies"], *generation, *development]
    parsed = (re.match(r"([A-Za-z0-9_.-]+)(?:\[[^]]*\])?\s*(.*)", line) for line in lines)
    return {match[1]: match[2] for match in parsed if match}
