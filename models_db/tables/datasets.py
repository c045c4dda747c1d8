"""Datasets: their versions, and the marks by which copies are distinguished."""

from sqlalchemy import CheckConstraint, LargeBinary, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from models_db.database.base import Base, Body, Digest, Id, Key, Line, Moment, SerialKey, Units, reference


class Dataset(Base):
    """A named corpus. Datasets that share people share the root account `account_id`."""

    __tablename__ = "dataset"
    __table_args__ = (UniqueConstraint("name", "registration"),)
    recorded_by = ("steward", "admin")

    id: Mapped[Key]
    name: Mapped[Line]
    registration: Mapped[int]
    """How often the name was registered with this row; the dataset is the row with the highest number."""
    account_id: Mapped[int] = mapped_column(reference("account"), index=True)
    unit_field: Mapped[Line | None]
    text_field: Mapped[Line]
    relation: Mapped[Line]
    governed: Mapped[bool]
    population: Mapped[Units | None]
    """A declared, public number of units; never read off the data."""
    public_metadata: Mapped[str | None]
    created_at: Mapped[Moment]
    created_by: Mapped[int] = mapped_column(reference("principal"))


class DatasetVersion(Base):
    """One ingested snapshot. `uid` is random; the marks are keyed, so neither is a function anyone else can compute."""

    __tablename__ = "dataset_version"
    __table_args__ = (UniqueConstraint("dataset_id", "number"),)
    recorded_by = ("runner", "steward")

    id: Mapped[Key]
    dataset_id: Mapped[int] = mapped_column(reference("dataset"))
    number: Mapped[int]
    uid: Mapped[str] = mapped_column(String(32), unique=True)
    source_mark: Mapped[Digest]
    manifest_mark: Mapped[Digest]
    created_at: Mapped[Moment]
    created_by: Mapped[int] = mapped_column(reference("principal"))


class OverlapKey(Base):
    """The key with which units are recognised in every dataset; one row, written when the ledger is founded."""

    __tablename__ = "overlap_key"
    __table_args__ = (CheckConstraint("id = 1", "is_chosen_once"),)
    recorded_by = ("admin",)

    id: Mapped[Key]
    key_commitment: Mapped[Digest]
    created_at: Mapped[Moment]
    created_by: Mapped[int] = mapped_column(reference("principal"))


class Cohort(Base):
    """A later cohort of units, opened with one version of the data; the database opens its blocks with the row.

    Units that an account sees for the first time while it is the newest are in its blocks, with budgets of their own.
    The first cohort has no row: it is there from the beginning.
    """

    __tablename__ = "cohort"
    __table_args__ = (
        UniqueConstraint("account_id", "number"),
        CheckConstraint("number >= 2", "number"),
        CheckConstraint("population >= 1", "population"),
    )
    recorded_by = ("steward",)

    id: Mapped[Key]
    account_id: Mapped[int] = mapped_column(reference("account"))
    number: Mapped[int]
    version_id: Mapped[int] = mapped_column(reference("dataset_version"), unique=True)
    population: Mapped[Units | None]
    """A declared, public number of its units, in the dataset whose version opened it; never read off the data."""
    created_at: Mapped[Moment]
    created_by: Mapped[int] = mapped_column(reference("principal"))


class Erasure(Base):
    """Permanent erasure of a part of a dataset: one unit, one version, or everything ingested.

    The row is written before anything is deleted, with what will be left of each version (`ErasedVersion`).
    """

    __tablename__ = "erasure"
    __table_args__ = (
        CheckConstraint(
            "(scope = 'unit' AND unit_mark IS NOT NULL AND version_id IS NULL)"
            " OR (scope = 'version' AND unit_mark IS NULL AND version_id IS NOT NULL)"
            " OR (scope = 'all' AND unit_mark IS NULL AND version_id IS NULL)",
            "scope",
        ),
    )
    recorded_by = ("steward", "admin")

    id: Mapped[Key]
    dataset_id: Mapped[int] = mapped_column(reference("dataset"), index=True)
    scope: Mapped[Line]
    version_id: Mapped[int | None] = mapped_column(reference("dataset_version"))
    unit_mark: Mapped[Digest | None]
    """The keyed mark of the unit, in hexadecimal digits: later versions leave it out."""
    reason: Mapped[Body]
    actor_id: Mapped[int] = mapped_column(reference("principal"))
    at: Mapped[Moment]


class ErasedVersion(Base):
    """Rest of one version after an erasure: the keyed mark of the remaining content; None if nothing is left."""

    __tablename__ = "erased_version"
    __table_args__ = (UniqueConstraint("erasure_id", "version_id"),)

    id: Mapped[Key]
    erasure_id: Mapped[int] = mapped_column(reference("erasure"))
    version_id: Mapped[int] = mapped_column(reference("dataset_version"), index=True)
    manifest_mark: Mapped[Digest | None]


class ErasureEnd(Base):
    """An erasure was carried out in the home that recorded it; without this row it is unfinished."""

    __tablename__ = "erasure_end"
    recorded_by = ("steward", "admin")

    id: Mapped[Key]
    erasure_id: Mapped[int] = mapped_column(reference("erasure"), unique=True)
    actor_id: Mapped[int] = mapped_column(reference("principal"))
    at: Mapped[Moment]


class UnitMark(Base):
    """A keyed mark of one unit, owned by exactly one root account, in the cohort in which that first saw it."""

    __tablename__ = "unit_mark"
    allows = ("REPLACE",)

    mark: Mapped[bytes] = mapped_column(LargeBinary(32), primary_key=True)
    account_id: Mapped[int] = mapped_column(reference("account"))
    cohort: Mapped[int] = mapped_column(server_default="1")
    claim: Mapped[int] = mapped_column(Id, server_default="0")
    """Claim by which the unit came, if it was new."""


class UnitClaim(Base):
    """The units that a version brought, committed to by a digest; salted, because how many were new is private."""

    __tablename__ = "unit_claim"

    id: Mapped[SerialKey]
    account_id: Mapped[int] = mapped_column(reference("account"))
    salt: Mapped[Digest]
    digest: Mapped[Digest]
    """SHA-256 of the salt and, in the order of their marks, the marks with their accounts and cohorts."""
    created_at: Mapped[Moment]
    created_by: Mapped[int | None] = mapped_column(reference("principal"))
