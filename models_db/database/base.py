"""The declarative base, the naming of constraints, and the column types the ledger is made of."""

from datetime import UTC, datetime
from typing import Annotated

from sqlalchemy import BigInteger, CheckConstraint, FetchedValue, ForeignKey, Integer, MetaData, String, Text
from sqlalchemy.orm import DeclarativeBase, mapped_column

NAMING_CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """Base of every table."""

    metadata = MetaData(naming_convention=NAMING_CONVENTION)


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


_LEAP_YEAR = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
_DAY = (
    "([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
    f"|{_LEAP_YEAR}-02-29)"
)
TIME_PATTERN = f"^(?!0000){_DAY}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9][.][0-9]{{6}}Z$"
"""Pattern of a time as text; on SQLite a guard checks it (`migrations.schema.forms`)."""


def check_times(metadata: MetaData) -> None:
    """Every time of these tables has its one form, because guards compare times as text."""
    for table in metadata.tables.values():
        for column in table.columns:
            if isinstance(column.type, String) and column.type.length == 27:
                check = CheckConstraint(f"{column.name} ~ '{TIME_PATTERN}'", name=f"{column.name}_moment")
                table.append_constraint(check.ddl_if(dialect="postgresql"))


def reference(table: str) -> ForeignKey:
    """Return a foreign key on `table.id`."""
    return ForeignKey(f"{table}.id")


def utc_now(at: datetime | None = None) -> str:
    """`at` (default: now) in the one text form times have."""
    return (at.astimezone(UTC) if at else datetime.now(UTC)).isoformat(timespec="microseconds")[:26] + "Z"
