"""The declarative base, the naming of constraints, and the column types the ledger is made of."""

from datetime import UTC, datetime
from typing import Annotated, ClassVar

from sqlalchemy import BigInteger, FetchedValue, ForeignKey, Integer, MetaData, String, Text
from sqlalchemy.orm import DeclarativeBase, mapped_column

NAMING_CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """Base of every table; `migrations.schema` makes the schema of both databases from them.

    Attributes:
        recorded_by: the roles of which whoever adds a row must have one; empty: anybody, or the database itself.
        allows: what else may be done to a row: UPDATE, DELETE, REPLACE (SQLite's way to write over a row).
    """

    metadata = MetaData(naming_convention=NAMING_CONVENTION)
    recorded_by: ClassVar[tuple[str, ...]] = ()
    allows: ClassVar[tuple[str, ...]] = ()


# SQLite numbers rows by itself only in a column declared exactly INTEGER.
Id = BigInteger().with_variant(Integer(), "sqlite")
Key = Annotated[int, mapped_column(Id, FetchedValue(), primary_key=True)]
"""The number that a trigger gives a row."""
SerialKey = Annotated[int, mapped_column(Id, primary_key=True, autoincrement=True)]
"""The number that a sequence gives a row; on SQLite, as every number, the one after the largest."""
Units = Annotated[int, mapped_column(BigInteger)]
"""An exact amount: rho in 1e-12, delta in 1e-18."""
Moment = Annotated[str, mapped_column(String(27))]
"""A UTC time as fixed-width text, '2026-11-21T04:03:00.000000Z': it sorts, and hashes to the same bytes everywhere."""
Digest = Annotated[str, mapped_column(String(64))]
Line = Annotated[str, mapped_column(String(255))]
Body = Annotated[str, mapped_column(Text)]


def reference(table: str) -> ForeignKey:
    """Return a foreign key on `table.id`."""
    return ForeignKey(f"{table}.id")


def utc_now(at: datetime | None = None) -> str:
    """`at` (default: now) in the one text form times have."""
    return (at.astimezone(UTC) if at else datetime.now(UTC)).isoformat(timespec="microseconds")[:26] + "Z"
