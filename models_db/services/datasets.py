"""Datasets: registered with a lifetime claim, versioned by ingestion, kept apart or together by unit marks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import exists, func, or_, select
from sqlalchemy.orm import Session, aliased

from models_db.database.base import utc_now
from models_db.errors import Refused, UsageError
from models_db.services import cohorts, erasures
from models_db.services.audit.chain import Actor
from models_db.services.cohorts import CohortPlan, cohorts_changed
from models_db.tables import (
    Account,
    AppliedProposal,
    Dataset,
    DatasetVersion,
    Proposal,
)
from models_db.values.amounts import Amount
from models_db.writes.database_errors import RuleViolated
from models_db.writes.insert import insert_many, insert_row
from models_db.writes.links import ClaimedUnit, claim_units

RELATION = "add_or_remove_one"
LONGEST_NAME = 100
MOST_NAMES_SHOWN = 20
"""Maximum number of dataset names in the error for an unknown dataset."""

_LATER = aliased(Dataset)
IS_CURRENT = ~exists().where(_LATER.name == Dataset.name, _LATER.registration > Dataset.registration)
"""Condition of a query: the dataset was not registered again."""
_FINAL = "a registration is final with the first version, proposal or erasure"
_REPLACED = "that dataset was registered again"
_UNIT_OF_OTHER_ACCOUNT = "a unit belongs to one root account"
_UNIT_OF_OTHER_COHORT = "a unit stays in the cohort in which it was first seen"


@dataclass(frozen=True)
class LifetimeClaim:
    """The (epsilon, delta) a dataset may ever lose, and the integer caps that enforce it (PRIVACY §2)."""

    epsilon: str
    delta: str
    delta_conversion: int
    cap: Amount


@dataclass(frozen=True)
class Registration:
    """Declarations of `dataset register`; nothing here is read off the data.

    Raises:
        InvalidDatasetText: a name that could not be repeated in a request or on a card.
    """

    name: str
    unit_field: str | None
    text_field: str
    governed: bool
    population: int | None
    public_metadata: str | None

    def __post_init__(self) -> None:
        for what, name in (("name", self.name), ("unit field", self.unit_field), ("text field", self.text_field)):
            if name is not None and not (name == name.strip() and name.isprintable() and 0 < len(name) <= LONGEST_NAME):
                raise UsageError(
                    f"The {what} of a dataset must be 1 to {LONGEST_NAME} printable characters without space around"
                    " them.",
                    "Choose another, such as `clinic` or `patient_id`.",
                    {"field": what},
                    code="InvalidDatasetText",
                )


def _dataset_exists(name: str) -> Refused:
    return Refused(
        f"A dataset named {name!r} is registered already, and its registration is final.",
        "A registration may be repeated until its dataset has a version, a proposal or an erasure."
        f" See it with `almoner dataset show {name}`, or choose another name.",
        {"dataset": name},
        code="DatasetExists",
    )


class DatasetUnknown(UsageError):
    """No dataset of that name; `known` are the first ones by name, and more if there are more than NAMED."""

    def __init__(self, name: str, registered: Sequence[str]) -> None:
        shown, more = (
            list(registered[:MOST_NAMES_SHOWN]),
            ", ... (`almoner dataset list`)" if len(registered) > MOST_NAMES_SHOWN else "",
        )
        super().__init__(
            f"There is no dataset named {name!r}.",
            f"Registered: {', '.join(shown)}{more}." if registered else "Register one with `almoner dataset register`.",
            {"dataset": name, "known": shown},
        )


def _dataset_registered_again(name: str) -> Refused:
    return Refused(
        f"Dataset {name!r} was registered again meanwhile, so nothing was ingested.",
        f"Look at its settings with `almoner dataset show {name}`, then ingest again.",
        {"dataset": name},
        code="RegisteredAgain",
    )


def _units_overlap(name: str) -> Refused:
    return Refused(
        f"Some units (or the very file) of {name!r} belong to a dataset with a budget of its own;"
        " a person in two datasets suffers the sum of both losses.",
        "Register it under another name with `--shares-account-with OTHER`, so that both draw on one budget.",
        {"dataset": name},
        code="UnitsOverlap",
    )


def _account_mismatch(name: str, other: str, reason: str) -> Refused:
    return Refused(
        f"{name!r} cannot share the account of {other!r}: {reason}.",
        "Datasets of one account are all governed or all public, and with several blocks or cohorts they name the"
        " same unit field.",
        {"dataset": name, "other": other},
        code="AccountMismatch",
    )


def open_account(
    session: Session, claim: LifetimeClaim, blocks: int, key_name: str, key_commitment: str, by: Actor | None = None
) -> Account:
    """Open a root account, with its claim and partition, which never change, and one account per block.

    Args:
        key_name: of the partition's key in the homes that have it.
        key_commitment: to that key; 64 hexadecimal digits.
    """
    opening = {
        "rho_cap": claim.cap.rho,
        "delta_cap": claim.cap.delta,
        "created_at": utc_now(),
        "created_by": by.id if by else None,
    }
    root = insert_row(
        session,
        Account(
            **opening,
            epsilon=claim.epsilon,
            delta=claim.delta,
            delta_conversion=claim.delta_conversion,
            rho=claim.cap.rho,
            delta_fail=claim.cap.delta,
            blocks=blocks,
            key_name=key_name,
            key_commitment=key_commitment,
        ),
    )
    insert_many(session, Account, [{**opening, "parent_id": root.id, "block": block} for block in range(blocks)])
    return root


def register(session: Session, actor: Actor, registration: Registration, account_id: int) -> Dataset:
    """Record a dataset on a root account; a name that has no version, proposal or erasure yet may be registered again.

    Raises:
        InvalidPlainName: the name could be taken for another one.
        DatasetExists: the registration of that name is final.
        AlreadyRecorded: somebody else registered the name at this moment.
    """
    _require_same_protection(session, registration, account_id)
    dataset = Dataset(
        name=registration.name,
        registration=1 + _count_registrations(session, registration.name),
        account_id=account_id,
        unit_field=registration.unit_field,
        text_field=registration.text_field,
        relation=RELATION,
        governed=registration.governed,
        population=registration.population,
        public_metadata=registration.public_metadata,
        created_at=utc_now(),
        created_by=actor.id,
    )
    try:
        insert_row(session, dataset)
    except RuleViolated as refusal:
        raise _dataset_exists(registration.name) if refusal.facts["rule"] == _FINAL else refusal from None
    return dataset


def _count_registrations(session: Session, name: str) -> int:
    return session.scalar(select(func.count()).where(Dataset.name == name)) or 0


def _require_same_protection(session: Session, registration: Registration, account_id: int) -> None:
    sharing = session.scalars(select(Dataset).where(Dataset.account_id == account_id)).all()
    several = len(cohorts.all_blocks(session, account_id)) > 1
    for other in sharing:
        if other.governed != registration.governed:
            raise _account_mismatch(registration.name, other.name, "one of them is marked public")
        if several and (registration.unit_field is None or registration.unit_field != other.unit_field):
            raise _account_mismatch(
                registration.name, other.name, "in several blocks, a person must have one id in both"
            )


def find_dataset(session: Session, name: str) -> Dataset:
    """Return the dataset of that name.

    Raises:
        DatasetUnknown: there is none.
    """
    dataset = session.scalars(select(Dataset).where(Dataset.name == name, IS_CURRENT)).one_or_none()
    if dataset is None:
        first = select(Dataset.name).where(IS_CURRENT).order_by(Dataset.name).limit(MOST_NAMES_SHOWN + 1)
        raise DatasetUnknown(name, session.scalars(first).all())
    return dataset


def list_all(session: Session, *, replaced: bool = False) -> Sequence[Dataset]:
    """Return all datasets by name, also those that were registered again if `replaced`."""
    query = select(Dataset).order_by(Dataset.name, Dataset.registration)
    return session.scalars(query if replaced else query.where(IS_CURRENT)).all()


def lifetime_claim(session: Session, dataset: Dataset) -> LifetimeClaim:
    """Return the lifetime claim of the dataset's root account, as it is now."""
    return list_claims(session, dataset)[-1]


def list_claims(session: Session, dataset: Dataset) -> tuple[LifetimeClaim, ...]:
    """Return all lifetime claims of the root account, oldest first; more than one if stewards changed it."""
    root = session.get_one(Account, dataset.account_id, populate_existing=True)
    return (claim_of(root), *map(claim_of, list_caps(session, dataset)))


def list_caps(session: Session, dataset: Dataset) -> Sequence[Proposal]:
    """Return the proposals that changed the cap of the dataset's account, the one in force last."""
    return session.scalars(
        select(Proposal)
        .join(AppliedProposal, AppliedProposal.proposal_id == Proposal.id)
        .join(Dataset, Dataset.id == Proposal.dataset_id)
        .where(Dataset.account_id == dataset.account_id, Proposal.kind == "cap")
        .order_by(AppliedProposal.id)
    ).all()


def distinct_caps(session: Session, account_id: int) -> list[Amount]:
    """Return the distinct caps of a root account and its blocks: one, unless they were altered."""
    query = select(Account.rho_cap, Account.delta_cap).where(
        or_(Account.id == account_id, Account.parent_id == account_id)
    )
    return sorted({Amount(rho, delta) for rho, delta in session.execute(query.distinct())}, key=lambda cap: cap.rho)


def claim_of(row: Account | Proposal) -> LifetimeClaim:
    """Return the first lifetime claim of a root account, or the one that a cap proposal asks for."""
    cap = Amount(row.rho or 0, row.delta_fail or 0)
    return LifetimeClaim(str(row.epsilon), str(row.delta), row.delta_conversion or 0, cap)


def list_versions(session: Session, dataset: Dataset) -> Sequence[DatasetVersion]:
    """Return the dataset's versions, oldest first."""
    query = select(DatasetVersion).where(DatasetVersion.dataset_id == dataset.id).order_by(DatasetVersion.number)
    return session.scalars(query).all()


def has_version(session: Session, uid: str) -> bool:
    """Return whether the ledger knows a version of that id."""
    return session.scalar(select(func.count()).where(DatasetVersion.uid == uid)) == 1


def newest_version(session: Session, dataset: Dataset) -> DatasetVersion:
    """Return the version that a new request reads: the newest that was not erased.

    Raises:
        NothingIngested: there is none yet, or none left.
    """
    remaining = erasures.remaining_versions(session, dataset)
    if not remaining:
        raise Refused(
            f"Dataset {dataset.name!r} holds no data.",
            f"Ingest some: `almoner dataset ingest {dataset.name} PATH`.",
            code="NothingIngested",
        )
    return remaining[-1]


def joined_account(session: Session, dataset: Dataset) -> bool:
    """Return whether a dataset was registered on the account of another one, and not with an account of its own."""
    return dataset.id != session.scalar(select(func.min(Dataset.id)).where(Dataset.account_id == dataset.account_id))


def require_version_allowed(session: Session, dataset: Dataset) -> None:
    """Check, before any data is read, that a further version can be taken in.

    Raises:
        UnitFieldRequired: it would put one person into two blocks.
    """
    shared = session.scalar(
        select(func.count())
        .select_from(DatasetVersion)
        .join(Dataset, Dataset.id == DatasetVersion.dataset_id)
        .where(Dataset.account_id == dataset.account_id)
    )
    if dataset.unit_field is None and shared and cohorts.blocks_per_cohort(session, dataset.account_id) > 1:
        raise Refused(
            f"{dataset.name!r} has no unit field and several blocks: its records would get new random ids, and so new"
            " blocks, and a person could be charged in two of them.",
            "Register with a unit field, or with `--blocks 1`.",
            {"dataset": dataset.name},
            code="UnitFieldRequired",
        )


def add_version(
    session: Session,
    actor: Actor,
    dataset: Dataset,
    *,
    uid: str,
    source_mark: str,
    manifest_mark: str,
    units: Iterable[ClaimedUnit],
    cohort_plan: CohortPlan | None = None,
    erased: frozenset[str] = frozenset(),
) -> DatasetVersion:
    """Record an ingested version and claim its units for the dataset's account.

    Args:
        units: the mark of each, and its cohort.
        erased: marks of the erased units whose records were left out.
        cohort_plan: what was known of the account when their cohorts were decided; without it all are of the first,
            and there is no other. It says whether the version opens a cohort.

    Raises:
        UnitsOverlap: a unit, or the very source, belongs to another account.
        UnitFieldRequired: another version came in meanwhile.
        RegisteredAgain: it was registered again meanwhile.
        CohortsChanged: so that the cohorts of the units may not be these any more.
        InvalidCohort, RoleRequired: it may open none.
        UnitErasedConcurrently: a unit was erased since.
    """
    plan = cohort_plan or CohortPlan()
    if not plan.opens:
        _claim_units(session, actor, dataset, units)  # from here on nobody else claims any
    cohorts.require_unchanged(session, dataset, plan)  # whoever opens a cohort waits here for all others
    require_version_allowed(session, dataset)
    _refuse_foreign_source(session, dataset, source_mark)
    version = DatasetVersion(
        dataset_id=dataset.id,
        number=len(list_versions(session, dataset)) + 1,
        uid=uid,
        source_mark=source_mark,
        manifest_mark=manifest_mark,
        created_at=utc_now(),
        created_by=actor.id,
    )
    try:
        insert_row(session, version)
    except RuleViolated as refusal:
        raise _dataset_registered_again(dataset.name) if refusal.facts["rule"] == _REPLACED else refusal from None
    if plan.opens:
        cohorts.open_cohort(session, actor, dataset, version, plan)
        _claim_units(session, actor, dataset, units)
    if erasures.erased_units(session, dataset) != erased:  # nobody erases before this ends: the marks are locked
        raise Refused(
            f"A unit of {dataset.name!r} was erased while this version was read; nothing was taken in.",
            "Ingest it again: records of the erased unit are then left out.",
            {"dataset": dataset.name},
            code="UnitErasedConcurrently",
        )
    return version


def find_repeated_version(session: Session, dataset: Dataset, source_mark: str, manifest_mark: str) -> int | None:
    """Return the number of the newest version of the same source or of the same content; None if there is none."""
    return session.scalar(
        select(func.max(DatasetVersion.number)).where(
            DatasetVersion.dataset_id == dataset.id,
            or_(DatasetVersion.source_mark == source_mark, DatasetVersion.manifest_mark == manifest_mark),
        )
    )


def _claim_units(session: Session, actor: Actor, dataset: Dataset, units: Iterable[ClaimedUnit]) -> None:
    try:
        claim_units(session, dataset.account_id, units, actor.id)
    except RuleViolated as refusal:
        if refusal.facts["rule"] == _UNIT_OF_OTHER_COHORT:
            raise cohorts_changed(dataset.name) from None
        raise _units_overlap(dataset.name) if refusal.facts["rule"] == _UNIT_OF_OTHER_ACCOUNT else refusal from None


def _refuse_foreign_source(session: Session, dataset: Dataset, source_mark: str) -> None:
    query = (
        select(func.count())
        .select_from(DatasetVersion)
        .join(Dataset, Dataset.id == DatasetVersion.dataset_id)
        .where(DatasetVersion.source_mark == source_mark, Dataset.account_id != dataset.account_id)
    )
    if session.scalar(query):
        raise _units_overlap(dataset.name)
