"""Every place of a project home in which text, or what was worked out of it, may lie: by kind, what erasing removes.

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
| `scratch` | temporary files |
| `backups` | archives that somebody has put into the home |
"""

import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from flows.releases.resume import journal_folder
from models_db.home import ProjectHome
from tasks.analysis.facets import cache

KNOWN = ("corpora", "derived", "keys", "quarantine", "released", "reports", "attacks", "scratch")
"""Folders of a home in which no archive of it is looked for."""


@dataclass(frozen=True)
class Concerned:
    """What an erasure is about, in the terms of the home.

    Attributes:
        uids: of the versions.
        requests: whatever asked for one of them.
        unpublished: folders in quarantine of what they produced and nobody has published, by the artifact's digest.
    """

    home: ProjectHome
    uids: tuple[str, ...]
    requests: tuple[int, ...]
    unpublished: Mapping[str, str]


def _facets(about: Concerned) -> Iterator[Path]:
    derived = about.home.derived
    empty = (cache.DATABASE, Path(cache.DATABASE).with_suffix(".lock").name)
    if derived.is_dir():
        yield from (path for path in derived.iterdir() if path.name not in empty or _size(path))


def _journals(about: Concerned) -> Iterator[Path]:
    yield from (journal_folder(about.home, number) for number in about.requests)


def _drafts(about: Concerned) -> Iterator[Path]:
    yield from (about.home.path_inside("quarantine", folder) for folder in about.unpublished.values())


def _values(about: Concerned) -> Iterator[Path]:
    yield from (about.home.released / f"{artifact}.json" for artifact in about.unpublished)


def _reports(about: Concerned) -> Iterator[Path]:
    for number in about.requests:
        yield from about.home.root.glob(f"reports/{number}-*")


def _attacks(about: Concerned) -> Iterator[Path]:
    for uid in about.uids:
        yield from about.home.root.glob(f"attacks/*-{uid[:12]}")


def _scratch(about: Concerned) -> Iterator[Path]:
    yield from about.home.scratch.iterdir() if about.home.scratch.is_dir() else ()


def _backups(about: Concerned) -> Iterator[Path]:
    for top in about.home.root.iterdir():
        if top.name not in KNOWN:
            files = top.rglob("*") if top.is_dir() and not top.is_symlink() else (top,)
            yield from (path for path in files if _holds(path, about.uids))


def _holds(path: Path, uids: tuple[str, ...]) -> bool:
    """Whether a file is an archive with one of the versions."""
    if path.is_symlink() or not path.is_file() or not tarfile.is_tarfile(path):
        return False
    with tarfile.open(path) as archive:
        return any(uid in member.name.split("/") for member in archive for uid in uids)


def _size(path: Path) -> int:
    return path.stat().st_size


PLACES: Mapping[str, Callable[[Concerned], Iterator[Path]]] = MappingProxyType({
    "facets": _facets,
    "journals": _journals,
    "drafts": _drafts,
    "values": _values,
    "reports": _reports,
    "attacks": _attacks,
    "scratch": _scratch,
    "backups": _backups,
})  # fmt: skip


def found(about: Concerned) -> dict[str, list[Path]]:
    """The files and folders that there are, by kind."""
    return {kind: sorted(path for path in look(about) if _there(path)) for kind, look in PLACES.items()}


def clear(about: Concerned) -> None:
    """Remove all of it; what is gone already is no mistake.

    Raises:
        FacetCacheNotWritable, OSError: something cannot be removed.
    """
    for kind, paths in found(about).items():
        if kind == "facets":
            cache.forget(about.home.derived)
        else:
            for path in paths:
                _remove(path)


def _there(path: Path) -> bool:
    return path.is_symlink() or path.exists()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
