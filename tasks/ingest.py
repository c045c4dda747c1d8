"""Ingestion of a dataset version: the store writes it and the ledger records it, both or neither."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from models_db.errors import AlmonerError
from models_db.home import ProjectHome
from models_db.services import cohorts, datasets
from models_db.services.audit.chain import Actor
from models_db.services.cohorts import CohortPlan
from models_db.sessions.database import Database, LedgerUnreachable, OutcomeUnknown
from models_db.tables import Dataset
from tasks.common import progress
from tasks.corpus.ingest import IngestedVersion, ingest
from tasks.corpus.partition import Cohorts
from tasks.corpus.readers.sources import Source
from tasks.corpus.readers.text_form import AS_FOUND, TextForm
from tasks.corpus.store import iter_marks
from tasks.corpus.unit_notes import UnitNotes, UnitSurvey
from tasks.corpus.units import LabelFields
from tasks.prefect_task import private_task


@dataclass(frozen=True)
class RecordedVersion:
    """A version in the ledger; the counts are private, for the person at the keyboard alone, and not in the repr.

    Attributes:
        left_out: how many documents were skipped because they belong to erased units.
        repeats: the newest earlier version of the same file or of the same units and texts; None if there is none.
        read_as: the sentence on encodings and delimiters that were found, where they are not plain; recorded nowhere.
    """

    number: int
    documents: int = field(repr=False)
    left_out: int = field(default=0, repr=False)
    repeats: int | None = None
    read_as: str | None = field(default=None, repr=False)


def _is_kept(database: Database, uid: str, unconfirmed: OutcomeUnknown) -> bool:
    """Return whether the ledger has recorded a version whose commit it has not confirmed.

    Raises:
        OutcomeUnknown: it still does not answer.
    """
    try:
        with database.write_after_loss() as session:
            return datasets.has_version(session, uid)
    except AlmonerError:
        raise unconfirmed from None


@private_task
def ingest_version(
    home: ProjectHome,
    database: Database,
    actor: Actor,
    dataset: Dataset,
    source: Source,
    overlap_key: bytes,
    label_field: LabelFields = None,
    growth: CohortPlan | None = None,
    erased: frozenset[str] = frozenset(),
    allowed_units: Collection[str] = (),
    tell: Callable[[str], None] | None = None,
    form: TextForm = AS_FOUND,
) -> RecordedVersion:
    """Copy `source` into the home as the next version of `dataset`, with the labels of `label_field` if it is named.

    With several cohorts the ledger is asked for the cohort of each unit beforehand, and again when it records them. If
    it does not answer then, it is asked whether it has recorded the version: texts of a recorded one must not be
    removed.

    Args:
        allowed_units: ids of units that are taken although they spell a missing value.
        tell: prints on the terminal, and nowhere else, what looks wrong about the units; without it nobody looks.

    Raises:
        As `tasks.corpus.ingest.ingest` and `datasets.add_version`.
        OutcomeUnknown: the ledger stays unreachable; the version stays in the home until `almoner run sweep` checks it.
    """
    recorded: list[tuple[int, int | None]] = []

    def cohorts_of_marks(marks: Sequence[bytes]) -> Mapping[bytes, int]:
        with database.read() as session:
            return cohorts.cohorts_by_unit(session, dataset.account_id, marks)

    def known_units(marks: Sequence[bytes]) -> Collection[bytes]:
        with database.read() as session:
            return cohorts.known_units(session, marks)

    def record(version: IngestedVersion) -> None:
        try:
            with database.write() as session:
                repeats = datasets.find_repeated_version(session, dataset, version.source_mark, version.manifest_mark)
                row = datasets.add_version(
                    session, actor, dataset,
                    uid=version.uid, source_mark=version.source_mark, manifest_mark=version.manifest_mark,
                    units=iter_marks(home, version.uid), cohort_plan=growth, erased=erased,
                )  # fmt: skip
                recorded.append((row.number, repeats))
        except OutcomeUnknown as unconfirmed:
            if not _is_kept(database, version.uid, unconfirmed):
                raise LedgerUnreachable(str(unconfirmed.facts["database"])) from None

    notes = None
    if tell is not None and dataset.governed:
        with database.read() as session:
            has_earlier = bool(datasets.list_versions(session, dataset))
        survey = None if dataset.unit_field is None else UnitSurvey(dataset.unit_field)
        notes = UnitNotes(survey, tell, known_units, has_earlier)
    ingested = ingest(
        home, source, dataset.unit_field, overlap_key, text_field=dataset.text_field, label_field=label_field,
        form=form,
        cohorts=None if growth is None or growth.has_single_cohort else Cohorts(growth.newest, cohorts_of_marks),
        progress=lambda done, total: progress.report("ingesting", done, total), record=record,
        erased=erased, allowed_units=allowed_units, notes=notes,
    )  # fmt: skip
    number, repeats = recorded[0]
    return RecordedVersion(number, ingested.documents, ingested.left_out, repeats, ingested.read_as)
