"""Cohorts: units that an account sees for the first time after a public moment have blocks, and budgets, of their own.

The rule, with K the blocks of the partition. The first cohort is there from the beginning, with blocks 0 to K-1. A
steward opens cohort c together with a version of the data, whatever that holds; its blocks are (c-1)K to cK-1, and each
has the root's cap. A unit's cohort is the newest one at the moment at which the account first saw its mark, and never
changes; its block is (c-1)K + HMAC(key, "block", unit) mod K.

Why the maximum over all blocks bounds what any unit loses. Which cohorts there are, and when each was opened, is
public. Given that, the cohort of a unit is a function of the versions in which this unit itself is, and its block of
that and of its own id. So add or remove one unit from every version: all others keep their cohorts and blocks, and what
is read differs in one block only, which is always the same one. A release charges every block it reads, so every
mechanism that was ever run on this unit is entered on that one account, whose filter holds its sum below the cap;
mechanisms that read other blocks do not see the unit at all (parallel composition, PRIVACY §3).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session, aliased

from models_db.database.base import utc_now
from models_db.errors import Refused, UsageError
from models_db.services import people
from models_db.services.audit.chain import Actor
from models_db.tables import Account, Cohort, Dataset, DatasetVersion, UnitMark
from models_db.writes.insert import insert_row

FIRST_COHORT = 1

ROOT = aliased(Account)
COHORT_NUMBER = FIRST_COHORT + Account.block // ROOT.blocks
"""The cohort of a block, in statements that join its root by OF_ROOT."""
OF_ROOT = ROOT.id == Account.parent_id


@dataclass(frozen=True)
class CohortPlan:
    """Public facts from which the cohorts of a version's units were decided.

    Attributes:
        cohorts: how many cohorts the account had.
        versions: how many versions all its datasets had.
        opens: whether the version opens one more, to which its new units belong.
        population: the declared number of units of that one.
    """

    cohorts: int = FIRST_COHORT
    versions: int = 0
    opens: bool = False
    population: int | None = None

    @property
    def newest(self) -> int:
        """The cohort of every unit that the account does not know."""
        return self.cohorts + self.opens

    @property
    def has_single_cohort(self) -> bool:
        """Return whether the first cohort is the only one, so that every unit belongs to it."""
        return self.newest == FIRST_COHORT


def _invalid_cohort(dataset: str, reason: str, advice: str) -> Refused:
    return Refused(
        f"No cohort can be opened for {dataset!r}: {reason}.", advice, {"dataset": dataset}, code="InvalidCohort"
    )


def cohorts_changed(dataset: str) -> Refused:
    """Return the refusal of a version that another one overtook while it was being written."""
    return Refused(
        f"Another version came into the account of {dataset!r} while this one was being read, so its units may be"
        " of other cohorts than were written down. Nothing was changed.",
        "Ingest again.",
        {"dataset": dataset},
        code="CohortsChanged",
    )


def count_cohorts(session: Session, account_id: int) -> int:
    """Return how many cohorts a root account has."""
    return FIRST_COHORT + (session.scalar(select(func.count()).where(Cohort.account_id == account_id)) or 0)


def list_opened(session: Session, account_id: int) -> Sequence[Cohort]:
    """Return the cohorts that were opened after the first one, oldest first."""
    return session.scalars(select(Cohort).where(Cohort.account_id == account_id).order_by(Cohort.number)).all()


def resolve_cohorts(session: Session, dataset: Dataset, requested: "str | Sequence[int] | None") -> tuple[int, ...]:
    """Return the cohorts that a request made now reads.

    Args:
        requested: some of them in ascending order, 'newest', or None for all there are.

    Raises:
        CohortUnknown: one is not open.
    """
    count = count_cohorts(session, dataset.account_id)
    if requested is None:
        return tuple(range(FIRST_COHORT, count + 1))
    read = (count,) if isinstance(requested, str) else tuple(requested)
    if read[-1] > count:
        raise UsageError(
            f"There is no cohort {read[-1]} of {dataset.name!r}; it has {count}.",
            f"Ask for some of 1 to {count}, for `newest`, or leave `cohorts` out to read all of them.",
            {"dataset": dataset.name, "cohort": read[-1], "cohorts": count},
            code="CohortUnknown",
        )
    return read


def blocks_per_cohort(session: Session, account_id: int) -> int:
    """Return how many blocks the partition of a root account has."""
    return session.scalars(select(Account.blocks).where(Account.id == account_id)).one() or 0


def all_blocks(session: Session, account_id: int) -> range:
    """Return the numbers of all blocks of a root account."""
    return range(blocks_per_cohort(session, account_id) * count_cohorts(session, account_id))


def population(session: Session, dataset: Dataset, read: Sequence[int]) -> int | None:
    """Return the declared number of units of a dataset in some cohorts; None if one cohort declares none."""
    declared = {FIRST_COHORT: dataset.population}
    for cohort in list_opened(session, dataset.account_id):
        of_dataset = session.get_one(DatasetVersion, cohort.version_id).dataset_id == dataset.id
        declared[cohort.number] = cohort.population if of_dataset else None
    populations = [declared[number] for number in read]
    return None if None in populations else sum(filter(None, populations))


def cohorts_by_unit(session: Session, account_id: int, marks: Sequence[bytes]) -> Mapping[bytes, int]:
    """Return the cohorts of known units. Private, as marks are; call it with some thousands at a time."""
    query = select(UnitMark.mark, UnitMark.cohort).where(UnitMark.account_id == account_id, UnitMark.mark.in_(marks))
    return {bytes(mark): cohort for mark, cohort in session.execute(query)}


def known_units(session: Session, marks: Sequence[bytes]) -> set[bytes]:
    """Return those of some marks that any account knows."""
    return {bytes(mark) for mark in session.scalars(select(UnitMark.mark).where(UnitMark.mark.in_(marks)))}


def plan_cohorts(
    session: Session, actor: Actor, dataset: Dataset, *, opens: bool = False, declared: int | None = None
) -> CohortPlan:
    """Return the public facts of the account now, before a version is written.

    Args:
        opens: the version shall open a cohort.
        declared: the public number of units of that one.

    Raises:
        RoleRequired: only a steward opens one.
        InvalidCohort: its units have no ids of their own, or need no budget, or there is nothing before it.
    """
    if opens:
        people.require_role(session, actor, "steward")
        _require_unit_field(session, dataset)
    elif declared is not None:
        raise UsageError(
            "The number of units is declared for a cohort that is being opened.",
            "Leave --population out, or open a cohort with --new-cohort.",
            code="UnexpectedPopulation",
        )
    plan = CohortPlan(
        count_cohorts(session, dataset.account_id), _count_versions(session, dataset.account_id), opens, declared
    )
    if opens and not plan.versions:
        raise _invalid_cohort(
            dataset.name, "nothing was ingested yet, so all units are new", "Ingest without --new-cohort."
        )
    return plan


def require_unchanged(session: Session, dataset: Dataset, plan: CohortPlan) -> None:
    """Check that the written cohorts are still right.

    Asked of public facts alone, so the answer says nothing about units. While no cohort is opened a unit that was new
    may have become known, but only in the newest one; so other versions matter only to who opens one.

    Raises:
        CohortsChanged: another version came in.
    """
    root = dataset.account_id
    if count_cohorts(session, root) != plan.cohorts or (plan.opens and _count_versions(session, root) != plan.versions):
        raise cohorts_changed(dataset.name)


def open_cohort(session: Session, actor: Actor, dataset: Dataset, version: DatasetVersion, plan: CohortPlan) -> Cohort:
    """Open the next cohort with a version that was recorded just now; the database adds its blocks.

    Raises:
        RoleRequired, InvalidCohort: as `plan_cohorts`.
    """
    people.require_role(session, actor, "steward")
    _require_unit_field(session, dataset)
    cohort = Cohort(
        account_id=dataset.account_id,
        number=plan.newest,
        version_id=version.id,
        population=plan.population,
        created_at=utc_now(),
        created_by=actor.id,
    )
    insert_row(session, cohort)
    return cohort


def _require_unit_field(session: Session, dataset: Dataset) -> None:
    if not dataset.governed:
        raise _invalid_cohort(
            dataset.name, "it is marked public, and has no budget to keep", "Ingest without --new-cohort."
        )
    fields = set(session.scalars(select(Dataset.unit_field).where(Dataset.account_id == dataset.account_id)))
    if fields != {dataset.unit_field} or dataset.unit_field is None:
        raise _invalid_cohort(
            dataset.name,
            "people whom no one unit field names would come back under new ids, with a budget they have had already",
            "Datasets of one account need the same unit field for that; register one with `--unit FIELD`.",
        )


def _count_versions(session: Session, account_id: int) -> int:
    query = select(func.count()).select_from(DatasetVersion).join(Dataset, Dataset.id == DatasetVersion.dataset_id)
    return session.scalar(query.where(Dataset.account_id == account_id)) or 0
