"""Places of a project home that may hold text or values derived from it, and the effect of erasure on each.

The list is the whole: a further place in the home gets its row here, and a planted text in
tests/integration/test_erasure.py that is found wherever this list leaves something out.

| kind | what lies there |
| --- | --- |
| `facets` | what was extracted of single units, of all datasets: entries tell nobody whose they are |
| `journals` | what runs have drawn that were interrupted, and what models have answered them |
| `drafts` | what runs produced that was rejected |
| `values` | what mechanisms released for releases that did not go out |
| `reports` | pages of releases, with samples and internal figures |
| `attacks` | results of attacks on the version as a public twin |
| `rehearsals` | texts of rehearsals on the version as a public twin |
| `scratch` | temporary files |
| `backups` | archives that were put into the home |
"""

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO

from flows.releases.resume import journal_folder
from models_db.home import ProjectHome
from tasks.analysis.facets import cache
from tasks.common.files import remove_path

DEEPEST_ARCHIVE = 3
"""Depth of nested archives that are searched."""
UNREADABLE_ARCHIVE = (EOFError, OSError, lzma.LZMAError, zlib.error)


@dataclass(frozen=True)
class ErasedThings:
    """Datasets, versions and units of an erasure, in the terms of the home.

    Attributes:
        uids: the uids of the versions.
        requests: all requests for one of the versions.
        unpublished: quarantine folders of their unpublished artifacts, by the artifact's digest.
    """

    home: ProjectHome
    uids: tuple[str, ...]
    requests: tuple[int, ...]
    unpublished: Mapping[str, str]


def _facet_paths(erased: ErasedThings) -> Iterator[Path]:
    derived = erased.home.derived
    empty = (cache.DATABASE, Path(cache.DATABASE).with_suffix(".lock").name)
    if derived.is_dir():
        yield from (path for path in derived.iterdir() if path.name not in empty or _size(path))


def _journal_paths(erased: ErasedThings) -> Iterator[Path]:
    yield from (journal_folder(erased.home, number) for number in erased.requests)


def _draft_paths(erased: ErasedThings) -> Iterator[Path]:
    yield from (erased.home.path_inside("quarantine", folder) for folder in erased.unpublished.values())


def _values_paths(erased: ErasedThings) -> Iterator[Path]:
    yield from (erased.home.released / f"{artifact}.json" for artifact in erased.unpublished)


def _report_paths(erased: ErasedThings) -> Iterator[Path]:
    for number in erased.requests:
        yield from erased.home.root.glob(f"reports/{number}-*")


def _attack_paths(erased: ErasedThings) -> Iterator[Path]:
    for uid in erased.uids:
        yield from erased.home.root.glob(f"attacks/*-{uid[:12]}")


def _rehearsal_paths(erased: ErasedThings) -> Iterator[Path]:
    for uid in erased.uids:
        yield from erased.home.root.glob(f"rehearsals/*-{uid[:12]}")


def _scratch_paths(erased: ErasedThings) -> Iterator[Path]:
    yield from erased.home.scratch.iterdir() if erased.home.scratch.is_dir() else ()


def _backup_paths(erased: ErasedThings) -> Iterator[Path]:
    for path in erased.home.root.rglob("*"):
        if not path.is_symlink() and path.is_file():
            with path.open("rb") as file:
                if _archive_holds(file, erased.uids):
                    yield path


def _archive_holds(file: IO[bytes], uids: tuple[str, ...], depth: int = DEEPEST_ARCHIVE) -> bool:
    """Return whether a file is an archive (tar or zip) that contains one of the versions, directly or in an inner one.

    An archive that cannot be read to its end counts as one that does.
    """
    try:
        archive = tarfile.open(fileobj=file)  # noqa: SIM115
    except (tarfile.TarError, *UNREADABLE_ARCHIVE):
        file.seek(0)
        return zipfile.is_zipfile(file) and _zip_holds(file, uids, depth)
    try:
        with archive:
            return any(
                _names_one(member.name, uids)
                or (member.isfile() and _inner_holds(archive.extractfile(member), uids, depth))
                for member in archive
            )
    except (tarfile.TarError, *UNREADABLE_ARCHIVE):
        return True


def _zip_holds(file: IO[bytes], uids: tuple[str, ...], depth: int) -> bool:
    try:
        with zipfile.ZipFile(file) as archive:
            return any(
                _names_one(name, uids) or (not name.endswith("/") and _inner_holds(archive.open(name), uids, depth))
                for name in archive.namelist()
            )
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, *UNREADABLE_ARCHIVE):  # encrypted, for example
        return True


def _names_one(name: str, uids: tuple[str, ...]) -> bool:
    return any(uid in name.split("/") for uid in uids)


def _inner_holds(inner: IO[bytes] | None, uids: tuple[str, ...], depth: int) -> bool:
    if inner is None or not depth:
        return False
    with inner:
        return _archive_holds(inner, uids, depth - 1)


def _size(path: Path) -> int:
    return path.stat().st_size


PLACES: Mapping[str, Callable[[ErasedThings], Iterator[Path]]] = MappingProxyType({
    "facets": _facet_paths,
    "journals": _journal_paths,
    "drafts": _draft_paths,
    "values": _values_paths,
    "reports": _report_paths,
    "attacks": _attack_paths,
    "rehearsals": _rehearsal_paths,
    "scratch": _scratch_paths,
    "backups": _backup_paths,
})  # fmt: skip


def find_places(erased: ErasedThings) -> dict[str, list[Path]]:
    """Return the existing files and folders, by kind."""
    return {kind: sorted(path for path in paths_of(erased) if _exists(path)) for kind, paths_of in PLACES.items()}


def clear_places(erased: ErasedThings) -> None:
    """Remove all files and folders; a missing one is no error.

    Raises:
        FacetCacheNotWritable, OSError: a file or folder cannot be removed.
    """
    for kind, paths in find_places(erased).items():
        if kind == "facets":
            cache.forget(erased.home.derived)
        else:
            for path in paths:
                remove_path(path)


def _exists(path: Path) -> bool:
    return path.is_symlink() or path.exists()
