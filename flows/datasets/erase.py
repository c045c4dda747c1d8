"""Erasure: the text of a unit, a version or a dataset leaves the home; budget, marks and audit log stay.

Places of a project home that may hold text or values derived from it, and the effect of erasure on each. The list is
the whole: a further place in the home gets its row here, and a planted text in tests/integration/test_erasure.py that
is found wherever this list leaves something out.

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

The ledger first records what will be left of each version, then the home is changed accordingly. A command that is
killed in between leaves a recorded erasure: no reader passes it, and the same command completes it.
"""

import lzma
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import IO

from sqlalchemy import select
from sqlalchemy.orm import Session

from flows.releases.resume import journal_name, remove_orphans
from flows.workspace.home_keys import differs_from_ledger, load_overlap_key, mark_of_store, store_differs
from flows.workspace.workspace import Workspace
from models_db.errors import Finding, Refused, UsageError
from models_db.home import ProjectHome, draft_name
from models_db.services import datasets, erasures, people
from models_db.services.erasures import ErasureRequest, ErasureScope, version_erased
from models_db.services.requests import state_of
from models_db.tables import Artifact, Dataset, DatasetVersion, ErasedVersion, Erasure, Request
from models_db.values.request_state import RequestState
from models_db.values.untrusted_text import LONGEST_REASON, is_reason, without_unseen
from tasks.analysis.facets import extractor
from tasks.common.files import remove_path
from tasks.corpus.erase_unit import documents_of, erase_unit, remove_beside, strangers
from tasks.corpus.keys import mark_of
from tasks.corpus.units import normalise_unit
from tasks.corpus.versions import is_uid, remove_version, version_uids

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


PUBLISHED_STATES = (RequestState.PUBLISHED, RequestState.RETRACTED)


@dataclass(frozen=True)
class ErasureTarget:
    """Target of an erasure: a unit by its id, a version by its number, or everything; the repr omits the id.

    Raises:
        InvalidErasureTarget: there is no target, or there are several.
        UnitInvalid: the id is not valid.
    """

    unit: str | None = field(default=None, repr=False)
    version: int | None = None
    everything: bool = False

    def __post_init__(self) -> None:
        if sum((self.unit is not None, self.version is not None, self.everything)) != 1:
            raise UsageError(
                "An erasure needs one target: a unit, a version, or everything.",
                "Give one of `--unit ID`, `--version N` and `--all`.",
                code="InvalidErasureTarget",
            )
        if self.unit is not None:
            object.__setattr__(self, "unit", normalise_unit(self.unit))

    @property
    def scope(self) -> ErasureScope:
        """Return the kind of the target."""
        if self.everything:
            return "all"
        return "unit" if self.version is None else "version"


@dataclass(frozen=True)
class ErasureListing:
    """Files and counts that an erasure would remove, or has removed; the counts are private.

    Attributes:
        versions: the numbers of the versions.
        places: files and folders beside the stores, by kind.
        sharing: other datasets of the same account, in which nothing is erased.
        documents: the number of documents removed from the stores; None in a dry run, which leaves no trace and
            therefore counts nobody: a count would reveal whether a unit is in the dataset.
        number: the number of the erasure in the ledger; None in a dry run.
    """

    dataset: str
    scope: ErasureScope
    versions: tuple[int, ...]
    places: dict[str, int]
    sharing: tuple[str, ...]
    documents: int | None = None
    number: int | None = None


def list_erasure(workspace: Workspace, name: str, target: ErasureTarget, reason: str | None = None) -> ErasureListing:
    """List the files that `erase` would remove, and change nothing. A reason, if present, is checked.

    Raises:
        The same errors as `erase`.
    """
    return _listed(workspace, name, target, reason)[-1]


def erase(workspace: Workspace, name: str, target: ErasureTarget, reason: str) -> ErasureListing:
    """Erase the target; a second call with the same arguments finishes an interrupted erasure.

    A Prefect server learns that an erasure has ended, and not whose, of what dataset, or of how much.

    Raises:
        DatasetUnknown, DatasetVersionUnknown: there is no such dataset or version.
        UnitsNotNamed: the dataset has no unit field, so no unit can be named.
        InvalidErasureReason: the audit log could not carry the reason.
        RoleRequired: only a steward or an admin erases.
        ErasureBlocked: a release of the dataset is running or waits at the publish gate.
        VersionsChanged: a version was ingested at the same time.
        StoreDiffers: the content of a version differs from the ledger.
        KeyMissing, KeyTooOpen, KeyDiffers: to erase a unit, the key of its mark is needed, and it is another one.
        VersionMissing: a version of the dataset is in another home.
    """
    dataset, recorded, listing = _listed(workspace, name, target, reason)
    remove_orphans(workspace)
    erasure = recorded or _record_erasure(workspace, dataset, target, reason)
    documents = _complete_erasure(workspace, erasure.id, target)
    return replace(listing, number=erasure.id, documents=documents)


def unfinished_erasures(workspace: Workspace) -> Iterator[str]:
    """Yield, in words, the erasures that were recorded and not completed."""
    with workspace.database.read() as session:
        ended = erasures.ended_erasures(session)
        for erasure in erasures.list_all(session):
            if erasure.id not in ended:
                name = session.get_one(Dataset, erasure.dataset_id).name
                yield f"erasure {erasure.id} of {name!r} is unfinished: run the same `almoner dataset erase` again"


def store_differences(workspace: Workspace) -> Iterator[str]:
    """Yield, in words, the versions in this home whose content differs from the ledger."""
    with workspace.database.read() as session:
        gone = erasures.erased_versions(session)
        stored = set(version_uids(workspace.home))
        for dataset in datasets.list_all(session):
            for version in (one for one in datasets.list_versions(session, dataset) if one.uid in stored):
                label = f"version {version.number} of {dataset.name!r}"
                if version.id in gone:
                    yield f"{label} was erased but is still in this home: erase it here too"
                elif differs_from_ledger(workspace, session, dataset, version):
                    yield f"{label} differs from its digest in the ledger"


def _listed(
    workspace: Workspace, name: str, target: ErasureTarget, reason: str | None
) -> tuple[Dataset, Erasure | None, ErasureListing]:
    """Return the dataset, the same erasure if it was recorded before, and the listing."""
    if reason is not None:
        _require_reason(reason, target)
    with workspace.database.read() as session:
        people.require_role(session, workspace.actor, *erasures.ERASING_ROLES)
        dataset = datasets.find_dataset(session, name)
        erasures.require_unblocked(session, dataset)
        recorded = _find_recorded(workspace, session, dataset, target)
        versions = _concerned_versions(session, dataset, target, recorded)
        return dataset, recorded, _list_places(workspace, session, dataset, target, versions)


def stored_versions(workspace: Workspace) -> Iterator[Finding]:
    """Check that each version holds its ingested units less the erased ones, and that all erasures are finished."""
    wrong = [*unfinished_erasures(workspace), *store_differences(workspace)]
    yield Finding("stored versions agree with the ledger", ok=not wrong, detail="; ".join(wrong))


def _require_reason(reason: str, target: ErasureTarget) -> None:
    names_unit = target.unit and _comparable(target.unit) in _comparable(reason)
    if names_unit or not is_reason(reason):
        raise invalid_erasure_reason()


def _comparable(text: str) -> str:
    """Normalise case, width, white space and composition of a text, so that a unit is found in any spelling."""
    seen = unicodedata.normalize("NFKC", without_unseen(text))
    return unicodedata.normalize("NFKC", " ".join(seen.split()).casefold())


def _find_recorded(workspace: Workspace, session: Session, dataset: Dataset, target: ErasureTarget) -> Erasure | None:
    """Return the same erasure, if it was recorded before and no version that it would concern was ingested since."""
    mark = _unit_mark(workspace, session, dataset, target)
    version = _find_version(session, dataset, target.version)
    for erasure in reversed(erasures.list_all(session, dataset)):
        if (erasure.scope, erasure.unit_mark, erasure.version_id) == (
            target.scope,
            mark,
            version.id if version else None,
        ):
            return erasure if target.scope != "all" or not erasures.remaining_versions(session, dataset) else None
    if version is not None and version.id in erasures.erased_versions(session):
        raise version_erased(dataset.name, version.number)
    return None


def _concerned_versions(
    session: Session, dataset: Dataset, target: ErasureTarget, erasure: Erasure | None
) -> list[DatasetVersion]:
    """Return the versions that the erasure concerns."""
    if erasure is not None:
        query = select(DatasetVersion).join(ErasedVersion, ErasedVersion.version_id == DatasetVersion.id)
        return list(
            session.scalars(query.where(ErasedVersion.erasure_id == erasure.id).order_by(DatasetVersion.number))
        )
    version = _find_version(session, dataset, target.version)
    return [version] if version is not None else list(erasures.remaining_versions(session, dataset))


def _find_version(session: Session, dataset: Dataset, number: int | None) -> DatasetVersion | None:
    if number is None:
        return None
    for version in datasets.list_versions(session, dataset):
        if version.number == number:
            return version
    raise UsageError(
        f"Dataset {dataset.name!r} has no version {number}.",
        f"See them with `almoner dataset show {dataset.name}`.",
        {"dataset": dataset.name, "version": number},
        code="DatasetVersionUnknown",
    )


def _unit_mark(workspace: Workspace, session: Session, dataset: Dataset, target: ErasureTarget) -> str | None:
    if target.unit is None:
        return None
    if dataset.unit_field is None:
        raise Refused(
            f"Dataset {dataset.name!r} has no unit field: its records have random ids, which no later version shares.",
            f"Erase a version or everything: `almoner dataset erase {dataset.name} --version N` or `--all`.",
            {"dataset": dataset.name},
            code="UnitsNotNamed",
        )
    return mark_of(load_overlap_key(workspace.home, session), target.unit).hex()


def _record_erasure(workspace: Workspace, dataset: Dataset, target: ErasureTarget, reason: str) -> Erasure:
    """Record the erasure with the remaining content of each version."""
    with workspace.database.read() as session:
        versions = _concerned_versions(session, dataset, target, None)
        for version in versions if target.unit else ():
            if differs_from_ledger(workspace, session, dataset, version):
                raise store_differs(dataset.name, version.number)
        remaining = {
            one.id: mark_of_store(workspace, session, dataset, one, target.unit) if target.unit else None
            for one in versions
        }
        request = ErasureRequest(
            scope=target.scope,
            reason=reason,
            remaining=remaining,
            version=versions[0].id if target.version is not None else None,
            unit_mark=_unit_mark(workspace, session, dataset, target),
        )
    with workspace.database.write() as session:
        return erasures.record_erasure(session, workspace.actor, datasets.find_dataset(session, dataset.name), request)


def _complete_erasure(workspace: Workspace, number: int, target: ErasureTarget) -> int:
    """Bring the home into agreement with the ledger, in repeatable steps; return the number of removed documents."""
    with workspace.database.read() as session:
        erasure = session.get_one(Erasure, number)
        dataset = session.get_one(Dataset, erasure.dataset_id)
        versions = _concerned_versions(session, dataset, target, erasure)
        about = _erasure_scope(workspace, session, versions)
        stated = {one.id: erasures.manifest_mark(session, one) for one in versions}
        gone = erasures.erased_versions(session)
    stored = set(version_uids(workspace.home))
    documents = 0
    for version in (one for one in versions if one.uid in stored):
        if version.id in gone:
            documents += documents_of(workspace.home, version.uid, target.unit)
            remove_version(workspace.home, version.uid)
        elif target.unit is not None:
            documents += _remove_unit(workspace, dataset, version, target.unit, stated[version.id])
    clear_places(about)
    with workspace.database.write() as session:
        erasures.end_erasure(session, workspace.actor, session.get_one(Erasure, number))
    return documents


def _remove_unit(workspace: Workspace, dataset: Dataset, version: DatasetVersion, unit: str, stated: str) -> int:
    """Remove a unit from a version, unless it is gone already; return the number of its documents.

    Raises:
        StoreDiffers: the remaining content differs from the ledger.
    """
    remove_beside(workspace.home, version.uid)
    documents = documents_of(workspace.home, version.uid, unit)
    if documents:
        erase_unit(workspace.home, version.uid, unit)
    with workspace.database.read() as session:
        if mark_of_store(workspace, session, dataset, version) != stated:
            raise store_differs(dataset.name, version.number)
    return documents


def _list_places(
    workspace: Workspace, session: Session, dataset: Dataset, target: ErasureTarget, versions: list[DatasetVersion]
) -> ErasureListing:
    stored = set(version_uids(workspace.home))
    stores = [one.uid for one in versions if one.uid in stored]
    paths = find_places(_erasure_scope(workspace, session, versions))
    beside = sum(len(strangers(workspace.home, uid)) for uid in stores)
    others = (one.name for one in datasets.list_all(session) if one.account_id == dataset.account_id)
    return ErasureListing(
        dataset=dataset.name,
        scope=target.scope,
        versions=tuple(version.number for version in versions),
        places={"stores": len(stores), "beside stores": beside, **{kind: len(at) for kind, at in paths.items()}},
        sharing=tuple(name for name in others if name != dataset.name),
    )


def _erasure_scope(workspace: Workspace, session: Session, versions: list[DatasetVersion]) -> ErasedThings:
    numbers = [one.id for one in versions]
    requests = session.scalars(select(Request.id).where(Request.version_id.in_(numbers)).order_by(Request.id)).all()
    inside = [number for number in requests if state_of(session, number) not in PUBLISHED_STATES]
    kept = session.scalars(select(Artifact).where(Artifact.request_id.in_(inside))).all()
    return ErasedThings(
        home=workspace.home,
        uids=tuple(one.uid for one in versions),
        requests=tuple(requests),
        drafts=tuple((one.request_id, one.attempt) for one in kept),
        values=tuple(one.digest for one in kept),
    )


def invalid_erasure_reason() -> UsageError:
    """Return the error of a reason that the audit log cannot carry; the message never repeats it."""
    return UsageError(
        f"An erasure needs a reason of at most {LONGEST_REASON} characters that does not name the unit: the reason"
        " stays in the audit log.",
        'For example `--reason "request 12 of May"`.',
        code="InvalidErasureReason",
    )
