"""Ingest: the store writes the version, the ledger records it, both or neither."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from models_db.errors import AlmonerError
from models_db.home import ProjectHome
from models_db.services.audit.chain import Actor
from models_db.services.catalogue import cohorts, datasets
from models_db.services.catalogue.cohorts import CohortPlan
from models_db.sessions.database import Database, LedgerUnreachable, OutcomeUnknown
from models_db.tables import Dataset
from tasks.common import progress
from tasks.corpus.cohorts import Cohorts
from tasks.corpus.ingest import IngestedVersion, ingest
from tasks.corpus.readers.sources import Source
from tasks.corpus.store import iter_marks
from tasks.prefect_task import private_task


@dataclass(frozen=True)
class RecordedVersion:
    """A version in the ledger; the counts are private, for the person at the keyboard alone.

    Attributes:
        left_out: how many documents belong to units that were erased, and were not taken in.
    """

    number: int
    documents: int
    left_out: int = 0


def _is_kept(database: Database, uid: str, unheard: OutcomeUnknown) -> bool:
    """Whether the ledger has recorded a version, of which it has said nothing.

    Raises:
        OutcomeUnknown: it still says nothing.
    """
    try:
        with database.write() as session:  # one that still commits is waited for
            return datasets.has_version(session, uid)
    except AlmonerError:
        raise unheard from None


@private_task
def ingest_version(
    home: ProjectHome,
    database: Database,
    actor: Actor,
    dataset: Dataset,
    source: Source,
    overlap_key: bytes,
    label_field: str | None = None,
    growth: CohortPlan | None = None,
    erased: frozenset[str] = frozenset(),
) -> RecordedVersion:
    """Copy `source` into the home as the next version of `dataset`, with the labels of `label_field` if it is named.

    With several cohorts the ledger is asked beforehand of which one each unit is, and once more when it records them.
    If it does not answer then, it is asked whether it has: the texts of a version that it knows must not be removed.

    Raises:
        As `tasks.corpus.ingest.ingest` and `datasets.add_version`.
        OutcomeUnknown: the ledger stays away; the version lies in the home until `almoner run sweep` asks it.
    """
    recorded: list[int] = []

    def known(marks: Sequence[bytes]) -> Mapping[bytes, int]:
        with database.read() as session:
            return cohorts.cohorts_by_unit(session, dataset.account_id, marks)

    def record(version: IngestedVersion) -> None:
        try:
            with database.write() as session:
                row = datasets.add_version(
                    session, actor, datasets.find_dataset(session, dataset.name),
                    uid=version.uid, source_mark=version.source_mark, manifest_mark=version.manifest_mark,
                    units=iter_marks(home, version.uid), cohort_plan=growth, erased=erased,
                )  # fmt: skip
                recorded.append(row.number)
        except OutcomeUnknown as unheard:
            if not _is_kept(database, version.uid, unheard):
                raise LedgerUnreachable(str(unheard.facts["database"])) from None

    made = ingest(
        home, source, dataset.unit_field, overlap_key, text_field=dataset.text_field, label_field=label_field,
        cohorts=None if growth is None or growth.has_single_cohort else Cohorts(growth.newest, known),
        progress=lambda done, total: progress.report("ingesting", done, total), record=record,
        erased=erased,
    )  # fmt: skip
    return RecordedVersion(recorded[0], made.documents, made.left_out)
