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

from flows.releases.resume import journal_name
from models_db.home import ProjectHome, draft_name
from tasks.analysis.facets import extractor
from tasks.common.files import remove_path
from tasks.corpus.versions import is_uid

DEEPEST_ARCHIVE = 3
"""Depth of nested archives that are searched."""
UNREADABLE_ARCHIVE = (EOFError, OSError, lzma.LZMAError, zlib.error)


@dataclass(frozen=True)
class ErasedThings:
    """Datasets, versions and units of an erasure, in the terms of the home.

    Attributes:
        uids: the uids of the versions. One that is none (`is_uid`) names nothing in a home, and is left out.
        requests: all requests for one of the versions.
        drafts: request and attempt of their unpublished artifacts.
        values: the digests of these artifacts.
    """

    home: ProjectHome
    uids: tuple[str, ...]
    requests: tuple[int, ...]
    drafts: tuple[tuple[int, int], ...]
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "uids", tuple(filter(is_uid, self.uids)))

    def children(self, folder: str) -> Iterator[Path]:
        """Yield what lies directly in a folder of the home; what is removed is always one of these.

        So a value of a row is compared with a name that is there, and never becomes a path or a pattern.
        """
        inside = self.home.root / folder
        if inside.is_dir():
            yield from inside.iterdir()

    def of_uids(self, folder: str) -> Iterator[Path]:
        """Yield what is stored there about the versions: `<configuration>-<first 12 digits of the uid>`."""
        ends = {uid[:12] for uid in self.uids}
        yield from (path for path in self.children(folder) if path.name.rpartition("-")[2] in ends)


def _facet_paths(erased: ErasedThings) -> Iterator[Path]:
    empty = (extractor.DATABASE, Path(extractor.DATABASE).with_suffix(".lock").name)
    yield from (path for path in erased.children("derived") if path.name not in empty or _size(path))


def _journal_paths(erased: ErasedThings) -> Iterator[Path]:
    names = {journal_name(number) for number in erased.requests}
    yield from (path for path in erased.children("quarantine") if path.name in names)


def _draft_paths(erased: ErasedThings) -> Iterator[Path]:
    names = {draft_name(request, attempt) for request, attempt in erased.drafts}
    yield from (path for path in erased.children("quarantine") if path.name in names)


def _values_paths(erased: ErasedThings) -> Iterator[Path]:
    names = {f"{artifact}.json" for artifact in erased.values}
    yield from (path for path in erased.children("released") if path.name in names)


def _report_paths(erased: ErasedThings) -> Iterator[Path]:
    numbers = set(map(str, erased.requests))
    yield from (path for path in erased.children("reports") if path.name.partition("-")[0] in numbers)


def _attack_paths(erased: ErasedThings) -> Iterator[Path]:
    yield from erased.of_uids("attacks")


def _rehearsal_paths(erased: ErasedThings) -> Iterator[Path]:
    yield from erased.of_uids("rehearsals")


def _scratch_paths(erased: ErasedThings) -> Iterator[Path]:
    yield from erased.children("scratch")


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
    return {kind: sorted(paths_of(erased)) for kind, paths_of in PLACES.items()}


def clear_places(erased: ErasedThings) -> None:
    """Remove all files and folders; a missing one is no error.

    Raises:
        FacetCacheNotWritable, OSError: a file or folder cannot be removed.
    """
    for kind, paths in find_places(erased).items():
        if kind == "facets":
            extractor.forget(erased.home.derived)
        else:
            for path in paths:
                remove_path(path)
