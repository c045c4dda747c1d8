"""Extensions: packages of others that add systems, mechanisms, metrics, readers and model families by entry points.

An installed package extends almoner by entry points in these groups (docs/extensions.md):

    almoner.systems          a generator (`tasks.values.plan.Generator`)
    almoner.mechanisms       a function that rebuilds a stored event from its parameters (`tasks.mechanisms.registry`)
    almoner.metrics          a metric (`tasks.evaluation.registry.Metric`)
    almoner.readers          a function that reads records of a file (`tasks.corpus.readers.readers`)
    almoner.model_families   a function that returns names of row-wise modules (`tasks.inference.loading`)

The name of an entry point is the name in requests and records. It has a dot, `laboratory.word_counts`, so none takes
the place of a name of almoner's own, now or later; that of a reader is the end of file names, `.tsv`. The source of an
extension is part of the digest to which a spend approval is bound (`code_version`): after a change, a new version or a
removal, nothing that was approved before is run.

Reading the entry points imports no extension; `load` imports those of its group.
"""

import hashlib
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from pathlib import Path
from typing import Final

from models_db.errors import EnvironmentProblem

SYSTEMS: Final = "almoner.systems"
MECHANISMS: Final = "almoner.mechanisms"
METRICS: Final = "almoner.metrics"
READERS: Final = "almoner.readers"
MODEL_FAMILIES: Final = "almoner.model_families"
GROUPS: Final = (SYSTEMS, MECHANISMS, METRICS, READERS, MODEL_FAMILIES)

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+", re.ASCII)
_SUFFIX: Final = re.compile(r"(\.[a-z0-9_]+)+", re.ASCII)
_MOST_CHARACTERS: Final = 80
_COMPILED: Final = "__pycache__"


class ExtensionUnfit(EnvironmentProblem):
    """An installed extension that cannot be used."""

    def __init__(self, package: str, entry: str, reason: str) -> None:
        super().__init__(
            f"The package {package!r} extends almoner by {entry!r}, which cannot be used: {reason}.",
            "Uninstall the package, or install a version of it that is made for this version of almoner.",
            {"package": package, "entry": entry, "reason": reason},
        )


@dataclass(frozen=True)
class Extension:
    """A package that extends almoner.

    Attributes:
        package, version: of its distribution.
        entries: (group, name) of its entry points, in order.
    """

    package: str
    version: str
    entries: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.package} {self.version} ({', '.join(name for _, name in self.entries)})"


@cache
def extensions() -> tuple[Extension, ...]:
    """Return the installed extensions, by name of their packages.

    Raises:
        ExtensionUnfit: a name is not allowed, or two packages have the same.
    """
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for group, entry in _entries():
        package = _package(entry)
        found.setdefault((package.name, package.version), []).append((group, entry.name))
    return tuple(Extension(*package, tuple(sorted(entries))) for package, entries in sorted(found.items()))


def load(group: str) -> dict[str, object]:
    """Return the objects of a group's entry points by name, ascending; their packages are imported.

    Raises:
        ExtensionUnfit: as `extensions`, or an extension cannot be imported.
    """
    loaded: dict[str, object] = {}
    for _, entry in sorted(_entries(group), key=lambda found: found[1].name):
        try:
            loaded[entry.name] = entry.load()
        except Exception as error:
            reason = f"it cannot be imported ({type(error).__name__})"
            raise ExtensionUnfit(_package(entry).name, entry.name, reason) from error
    return loaded


def unfit(group: str, name: str, reason: str) -> ExtensionUnfit:
    """Return the error about an entry point whose object is not what its group asks for."""
    (entry,) = (entry for _, entry in _entries(group) if entry.name == name)
    return ExtensionUnfit(_package(entry).name, name, reason)


def extension_sources() -> Iterator[tuple[str, bytes]]:
    """Yield what decides the behaviour of the extensions: their versions, entry points, and every file of their code.

    Each is a name and the bytes of a value or of a SHA-256. The code of an entry point is the whole top-level package
    that it is in, compiled modules and data included, or the one file of a module without a package.

    Raises:
        ExtensionUnfit: as `extensions`, or its code is not found in files.
    """
    for group, entry in sorted(_entries(), key=lambda found: (found[0], found[1].name)):
        package = _package(entry)
        yield f"extension {group} {entry.name}", f"{package.name} {package.version} {entry.value}".encode()
        for path, name in _files_of(entry):
            yield f"extension file {name}", hashlib.sha256(path.read_bytes()).digest()


def _entries(*groups: str) -> list[tuple[str, EntryPoint]]:
    found: dict[tuple[str, str], EntryPoint] = {}
    for group in groups or GROUPS:
        for entry in entry_points(group=group):
            _require_fit(group, entry)
            if _same(found.setdefault((group, entry.name), entry), entry):
                continue
            raise ExtensionUnfit(_package(entry).name, entry.name, "another package has an entry point of that name")
    return [(group, entry) for (group, _), entry in found.items()]


def _require_fit(group: str, entry: EntryPoint) -> None:
    allowed, form = (_SUFFIX, ".tsv") if group == READERS else (_NAME, "laboratory.word_counts")
    if len(entry.name) > _MOST_CHARACTERS or not allowed.fullmatch(entry.name):
        raise ExtensionUnfit(_package(entry).name, entry.name, f"its name is not of the form {form}")


def _same(one: EntryPoint, other: EntryPoint) -> bool:
    """Return whether two entry points are one, as where a folder is on the path twice."""
    return one.value == other.value and _package(one).name == _package(other).name


def _package(entry: EntryPoint) -> Distribution:
    if entry.dist is None:
        raise ExtensionUnfit("?", entry.name, "it belongs to no package")
    return entry.dist


def _files_of(entry: EntryPoint) -> list[tuple[Path, str]]:
    """Return the files of the code of an entry point, with their names from the folder that is on the path."""
    top = entry.module.partition(".")[0]
    spec = importlib.util.find_spec(top)
    places = list(spec.submodule_search_locations or ()) if spec else []
    if places:
        files = [
            (path, f"{top}/{path.relative_to(place).as_posix()}")
            for place in map(Path, places)
            for path in place.rglob("*")
            if path.is_file() and _COMPILED not in path.parts
        ]
        return sorted(files, key=lambda found: found[1])
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        raise ExtensionUnfit(_package(entry).name, entry.name, "its code is not found in files")
    return [(Path(spec.origin), Path(spec.origin).name)]
