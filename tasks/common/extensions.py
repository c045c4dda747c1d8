"""Extensions: packages of others that add systems, mechanisms, metrics, readers and model families by entry points.

An installed package extends almoner by entry points in these groups (docs/extensions.md):

    almoner.systems          a system (`tasks.systems.base.System`)
    almoner.mechanisms       a function that rebuilds a stored event from its parameters (`tasks.mechanisms.registry`)
    almoner.metrics          a metric (`tasks.evaluation.registry.Metric`)
    almoner.readers          a function that reads records of a file (`tasks.corpus.readers.readers`)
    almoner.model_families   a function that returns names of row-wise modules (`tasks.inference.loading`)

The name of an entry point is the name in requests and records. It has a dot, `laboratory.word_counts`, so none takes
the place of a name of almoner's own, now or later; that of a reader is the end of file names, `.tsv`.

Reading the entry points imports no extension; `load` imports those of its group, after the digest of their files was
taken, so that a digest is never of files that came after the code that runs.

The version of the computing code is a digest of our own source and that of extensions (`code_digest`), and the versions
of libraries that decide. A spend approval is bound to the digest: after a change, a new version or a removal of an
extension, nothing that was approved before is run.
"""

import hashlib
import importlib.machinery
import importlib.util
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, EntryPoint, entry_points, version
from pathlib import Path
from typing import Final, TypeVar

import models_db
from models_db.errors import EnvironmentProblem

SYSTEMS: Final = "almoner.systems"
MECHANISMS: Final = "almoner.mechanisms"
METRICS: Final = "almoner.metrics"
READERS: Final = "almoner.readers"
MODEL_FAMILIES: Final = "almoner.model_families"
GROUPS: Final = (SYSTEMS, MECHANISMS, METRICS, READERS, MODEL_FAMILIES)

_Entry = TypeVar("_Entry")

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+", re.ASCII)
_SUFFIX: Final = re.compile(r"(\.[a-z0-9_]+)+", re.ASCII)
_MOST_CHARACTERS: Final = 80
_COMPILED: Final = "__pycache__"
_UNCHECKED: Final = (1).to_bytes(4, "little")
"""Flags of a compiled module that is used without a look at its source."""


def _extension_unfit(package: str, entry: str, reason: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"The package {package!r} extends almoner by {entry!r}, which cannot be used: {reason}.",
        "Uninstall the package, or install a version of it that is made for this version of almoner.",
        {"package": package, "entry": entry, "reason": reason},
        code="ExtensionUnfit",
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


def is_of_extension(name: str) -> bool:
    """Return whether a name in requests and records is that of an extension: it has a dot."""
    return "." in name


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
        ExtensionUnfit: as `extensions` and `extension_sources`, or an extension cannot be imported.
    """
    loaded: dict[str, object] = {}
    entries = sorted((entry for _, entry in _entries(group)), key=lambda entry: entry.name)
    if entries:
        extension_sources()
    for entry in entries:
        try:
            loaded[entry.name] = entry.load()
        except (Exception, SystemExit) as error:
            reason = f"it cannot be imported ({type(error).__name__})"
            raise _extension_unfit(_package(entry).name, entry.name, reason) from error
    return loaded


class Registry(Mapping[str, _Entry]):
    """What there is by name: almoner's own, then that of extensions.

    Extensions are imported when a name with a dot is looked up, or all names are. So one that cannot be used ends what
    needs it, and nothing else.

    Args:
        of_extensions: yields the names and objects of a group, or raises ExtensionUnfit.
    """

    def __init__(self, own: Mapping[str, _Entry], of_extensions: Callable[[], Iterator[tuple[str, _Entry]]]) -> None:
        self.own = own
        self._entries = dict(own)
        self._of_extensions: Callable[[], Iterator[tuple[str, _Entry]]] | None = of_extensions

    def _all(self) -> dict[str, _Entry]:
        if self._of_extensions is not None:
            self._entries |= dict(self._of_extensions())
            self._of_extensions = None
        return self._entries

    def __getitem__(self, name: str) -> _Entry:
        return (self._all() if "." in name and name not in self._entries else self._entries)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


def unfit(group: str, name: str, reason: str) -> EnvironmentProblem:
    """Return the error about an entry point whose object is not what its group asks for."""
    (entry,) = (entry for _, entry in _entries(group) if entry.name == name)
    return _extension_unfit(_package(entry).name, name, reason)


@cache
def extension_sources() -> tuple[tuple[str, bytes], ...]:
    """Return what decides the behaviour of the extensions: their versions, entry points, and every file of their code.

    Each is a name and the bytes of a value or of a SHA-256. The code of an entry point is the whole top-level package
    that it is in, compiled modules, data and what links lead to included, or the one file of a module without a
    package; and the files that its distribution lists.

    Raises:
        ExtensionUnfit: as `extensions`, or its code is not found in files.
    """
    entries = sorted(_entries(), key=lambda found: (found[0], found[1].name))
    files: dict[tuple[str, Path], bytes] = {}
    for _, entry in entries:
        try:
            for path, name in {**_listed_files(_package(entry)), **_files_of(entry)}.items():
                if (name, path) not in files:
                    files[name, path] = hashlib.sha256(path.read_bytes()).digest()
        except OSError:
            raise _extension_unfit(_package(entry).name, entry.name, "its code cannot be read") from None
    return (
        *((f"extension {group} {entry.name}", _described(entry).encode()) for group, entry in entries),
        *((f"extension file {name}", files[name, path]) for name, path in sorted(files)),
    )


def _entries(*groups: str) -> list[tuple[str, EntryPoint]]:
    found: dict[tuple[str, str], EntryPoint] = {}
    for group in groups or GROUPS:
        for entry in entry_points(group=group):
            _require_fit(group, entry)
            if _same(found.setdefault((group, entry.name), entry), entry):
                continue
            raise _extension_unfit(_package(entry).name, entry.name, "another package has an entry point of that name")
    return [(group, entry) for (group, _), entry in found.items()]


def _require_fit(group: str, entry: EntryPoint) -> None:
    allowed, form = (_SUFFIX, ".tsv") if group == READERS else (_NAME, "laboratory.word_counts")
    if not entry.pattern.match(entry.value):
        raise _extension_unfit(_package(entry).name, entry.name, "it does not name an object of a module")
    if len(entry.name) > _MOST_CHARACTERS or not allowed.fullmatch(entry.name):
        raise _extension_unfit(_package(entry).name, entry.name, f"its name is not of the form {form}")


def _same(one: EntryPoint, other: EntryPoint) -> bool:
    """Return whether two entry points are one, as where a folder is on the path twice."""
    return one.value == other.value and _package(one).name == _package(other).name


def _package(entry: EntryPoint) -> Distribution:
    if entry.dist is None or not entry.dist.metadata["Name"] or not entry.dist.metadata["Version"]:
        raise _extension_unfit("?", entry.name, "it belongs to no package with a name and a version")
    return entry.dist


def _described(entry: EntryPoint) -> str:
    package = _package(entry)
    return f"{package.name} {package.version} {entry.value}"


def _files_of(entry: EntryPoint) -> dict[Path, str]:
    """Return the files of the code of an entry point, with their names from the folder that is on the path."""
    top = entry.module.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    places = list(map(Path, (spec and spec.submodule_search_locations) or ()))
    files = {path: f"{top}/{path.relative_to(place).as_posix()}" for place in places for path in _walk(place)}
    if spec and spec.origin:
        start = Path(spec.origin)
        files.setdefault(start, start.name)
    if not files or not all(path.is_file() for path in files):  # in an archive, or built into Python
        raise _extension_unfit(_package(entry).name, entry.name, "its code is not found in files")
    return files


def _listed_files(package: Distribution) -> dict[Path, str]:
    """Return the files that an installer has listed, with their names; not scripts, nor what describes the package."""
    listed = {Path(str(file.locate())): file for file in package.files or () if ".." not in file.parts}
    return {
        path: file.as_posix()
        for path, file in listed.items()
        if not file.parts[0].endswith((".dist-info", ".egg-info")) and path.is_file() and not _is_cache(path)
    }


def _walk(folder: Path, above: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Yield the files below a folder, links followed; not those that Python or others keep to be faster."""
    real = folder.resolve()
    if real in above or not folder.is_dir():
        return
    for path in folder.iterdir():
        if path.is_dir():
            yield from _walk(path, (*above, real))
        elif path.is_file() and not _is_cache(path):
            yield path


def _is_cache(path: Path) -> bool:
    """Return whether a file is a cache, whose content follows from another file or is imported by nothing.

    Python compares a compiled module in `__pycache__` with its source before it uses it, unless its flags say not to
    (PEP 552); without the source there, it is code like any other.
    """
    if path.parent.name != _COMPILED:
        return False
    if not path.name.endswith(tuple(importlib.machinery.all_suffixes())):
        return True
    try:
        source = Path(importlib.util.source_from_cache(path))
    except ValueError:
        return False
    with path.open("rb") as file:
        flags = file.read(8)[4:]
    return source.is_file() and flags != _UNCHECKED


SOURCE_ENDS = (".css", ".html", ".js", ".py")
ROOMS = ("almoner", "cli", "flows", "migrations", "models_db", "tasks")
DECIDING_LIBRARIES = ("dp-accounting", "numpy", "opendp", "torch", "transformers")


@cache
def code_digest() -> str:
    """Return the SHA-256 of the source of the six rooms, templates included, to which a spend approval is bound.

    The source of installed extensions is part of it (`tasks.common.extensions`).

    Raises:
        ExtensionUnfit: an extension cannot be used.
    """
    root = Path(models_db.__file__).parent.parent
    digest = hashlib.sha256()
    for room in ROOMS:
        for path in sorted(path for path in (root / room).rglob("*") if path.suffix in SOURCE_ENDS):
            digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    for name, content in extension_sources():
        digest.update(f"{name}\0".encode() + hashlib.sha256(content).digest())
    return digest.hexdigest()


def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that decide the results of a run, and of the extensions."""
    own = {extension.package: extension.version for extension in extensions()}
    return own | {name: version(name) for name in DECIDING_LIBRARIES}
