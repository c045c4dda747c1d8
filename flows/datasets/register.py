"""Registration of a corpus with its lifetime claim, and ingestion of its versions."""

import secrets
from dataclasses import dataclass

from flows.observability import tracing
from flows.workspace.workspace import Workspace, overlap_key_path, partition_key_path
from models_db.services.catalogue import cohorts, datasets, erasures
from models_db.services.catalogue.cohorts import CohortPlan
from models_db.services.catalogue.datasets import Registration
from models_db.services.lifecycle import ledger
from models_db.tables import Dataset
from models_db.values.canonical_json import Json
from models_db.values.names import require_plain_name
from tasks.accounting.lifetime_claims import lifetime_claim
from tasks.corpus.identity.keys import create_key, load_key
from tasks.corpus.readers.sources import Source
from tasks.ingest import RecordedVersion, ingest_version


def register_dataset(
    workspace: Workspace, registration: Registration, epsilon: str, delta: str, blocks: int = 1
) -> None:
    """Register a dataset with a budget of its own; nothing is read.

    Args:
        epsilon, delta: the lifetime claim, as decimal text; it is never exceeded and never reset.
        blocks: how many disjoint blocks its units are dealt into, each with the whole budget.

    Raises:
        InvalidTarget: no claim can be made from epsilon and delta.
        InvalidPlainName: the name could be taken for another one.
        DatasetExists: the name is taken.
        RuleViolated: only a steward or an admin registers one.
    """
    require_plain_name("a dataset", registration.name)
    with workspace.database.write() as session:
        datasets.require_name_free(session, registration.name)
        claim = lifetime_claim(epsilon, delta)
        key_name = secrets.token_hex(8)
        create_key(partition_key_path(workspace.home, key_name))
        account = datasets.open_account(session, claim, blocks, key_name, workspace.actor)
        datasets.register(session, workspace.actor, registration, account.id)


def register_sharing(workspace: Workspace, registration: Registration, other: str) -> None:
    """Register a dataset on the budget of another one, because they share people.

    Raises:
        DatasetUnknown: there is no `other`.
        InvalidPlainName, DatasetExists, RuleViolated: as `register_dataset`.
        AccountMismatch: its units are not those of `other`.
    """
    require_plain_name("a dataset", registration.name)
    with workspace.database.write() as session:
        account = datasets.find_dataset(session, other).account_id
        datasets.register(session, workspace.actor, registration, account)


@dataclass(frozen=True)
class IngestPreview:
    """Effect of an ingest, stated without reading the data.

    Attributes:
        number: the version's.
        cohort: that of all units which the account has not seen.
        opens: whether it is a new one, and how many blocks it has then, each with `rho` and `delta_fail`.
    """

    number: int
    cohort: int
    opens: bool
    blocks: int
    rho: str
    delta_fail: str

    def to_json(self) -> dict[str, Json]:
        """As programs read it."""
        opened: dict[str, Json] = {"blocks": self.blocks, "rho_each": self.rho, "delta_fail_each": self.delta_fail}
        return {"version": self.number, "cohort_of_new_units": self.cohort, "opens": opened if self.opens else None}


@tracing.traced("ingest", live=False)
def ingest(
    workspace: Workspace,
    name: str,
    source: Source,
    label_field: str | None = None,
    *,
    new_cohort: bool = False,
    population: int | None = None,
) -> RecordedVersion:
    """Copy a corpus into the home as the dataset's next version: all of it, or nothing.

    Args:
        source: JSONL, CSV, Parquet, or a folder of .txt; here, or in a store
            (`flows.workspace.object_stores.open_source`). label_field: the field of a document's label or group; kept
            private. new_cohort: units that the account has not seen get blocks, and budgets, of their own from this
            version on. A decision that is public, and must not depend on what the version holds.
        population: the declared, public number of units of the new cohort.

    Raises:
        DatasetUnknown: there is no such dataset.
        UnitFieldRequired: it would put one person into two blocks.
        RoleRequired, InvalidCohort, UnexpectedPopulation: no cohort can be opened, or not by the owner of this home.
        CohortsChanged: another version came in meanwhile, so that units may be of other cohorts.
        UnitErasedConcurrently: a unit was erased meanwhile.
        KeyMissing: this home has no key to recognise units with.
        UsageError: the corpus cannot be read as one.
        Refused: the ledger does not take the version.
    """
    with tracing.stage("preview"):
        dataset, growth = _load_preview(workspace, name, new_cohort, population)
        overlap_key = load_key(overlap_key_path(workspace.home))
        with workspace.database.read() as session:
            erased = erasures.erased_units(session, dataset)
    with tracing.stage("store"):
        return ingest_version(
            workspace.home,
            workspace.database,
            workspace.actor,
            dataset,
            source,
            overlap_key,
            label_field,
            growth,
            erased,
        )


def preview_ingest(
    workspace: Workspace, name: str, *, new_cohort: bool = False, population: int | None = None
) -> IngestPreview:
    """Return the effect of `ingest`; neither the source nor the corpora are read.

    Raises:
        DatasetUnknown, UnitFieldRequired, RoleRequired, InvalidCohort, UnexpectedPopulation: as `ingest`.
    """
    dataset, growth = _load_preview(workspace, name, new_cohort, population)
    with workspace.database.read() as session:
        cap = ledger.balance(session, dataset.account_id).cap
        return IngestPreview(
            number=len(datasets.list_versions(session, dataset)) + 1,
            cohort=growth.newest,
            opens=growth.opens,
            blocks=datasets.find_partition(session, dataset).blocks,
            rho=cap.rho_text,
            delta_fail=cap.delta_text,
        )


def _load_preview(
    workspace: Workspace, name: str, new_cohort: bool, population: int | None
) -> tuple[Dataset, CohortPlan]:
    with workspace.database.read() as session:
        dataset = datasets.find_dataset(session, name)
        datasets.require_version_allowed(session, dataset)
        growth = cohorts.plan_cohorts(session, workspace.actor, dataset, opens=new_cohort, declared=population)
    return dataset, growth
