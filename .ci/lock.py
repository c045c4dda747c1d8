"""The two locks, written from the environment that is installed: the program's packages, and those of its development.

    python .ci/lock.py

The program's are its dependencies, with the extras that the image has, what builds it, and all that these need.
Everything else that is installed belongs to development: the other extras, tools, and libraries that only tests compare
with.
"""

import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROGRAM, DEVELOPMENT = ROOT / "requirements.lock", ROOT / "requirements-dev.lock"
EXTRAS = ("generation", "orchestration", "s3")
EDITABLE = ("editables",)  # hatchling takes it to install a checkout
NOT_LOCKED = {"almoner", "pip", "setuptools", "wheel"}


def needed(requirements: Iterable[str]) -> set[str]:
    """The canonical names of the packages that requirements need on this platform, themselves included."""
    waiting, seen = [Requirement(one) for one in requirements], set()
    while waiting:
        one = waiting.pop()
        key = (canonicalize_name(one.name), frozenset(one.extras))
        if key in seen:
            continue
        seen.add(key)
        try:
            its = distribution(one.name).requires or ()
        except PackageNotFoundError:  # of another platform
            continue
        environments = [{"extra": extra} for extra in ("", *one.extras)]
        found = map(Requirement, its)
        waiting += [each for each in found if each.marker is None or any(map(each.marker.evaluate, environments))]
    return {name for name, _ in seen}


def main() -> None:
    """Write both locks; versions are without the name of a local build, `+cpu`."""
    written = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, built_with = written["project"], written["build-system"]["requires"]
    extras = [one for extra in EXTRAS for one in project["optional-dependencies"][extra]]
    program = needed([*project["dependencies"], *extras, *built_with, *EDITABLE])
    installed = {
        canonicalize_name(each.metadata["Name"]): each.version.partition("+")[0]
        for each in distributions()
        if canonicalize_name(each.metadata["Name"]) not in NOT_LOCKED
    }
    pins = {name: f"{name}=={version}\n" for name, version in sorted(installed.items())}
    PROGRAM.write_text(
        "# The program, pinned: `make demo` and the image install exactly these. `make lock` writes it anew.\n"
        + "".join(pin for name, pin in pins.items() if name in program)
    )
    DEVELOPMENT.write_text(
        "# What development and tests need beside requirements.lock, pinned. `make lock` writes it anew.\n"
        "-r requirements.lock\n" + "".join(pin for name, pin in pins.items() if name not in program)
    )


if __name__ == "__main__":
    main()
