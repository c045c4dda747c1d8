"""Plans of requests, as guards look them up: written by the database from the request's own text.

Nobody inserts into these tables; runs of equal instalments and of neighbouring blocks are one row each.
"""

from sqlalchemy import CheckConstraint
from sqlalchemy.orm import Mapped, mapped_column

from models_db.database.base import Base, Body, Id, Line, Units, reference


class PlannedRelease(Base):
    """A request has a plan; without this row it was recorded before plans were, and its text says none."""

    __tablename__ = "planned_release"

    request_id: Mapped[int] = mapped_column(Id, reference("request"), primary_key=True, autoincrement=False)
    invocations: Mapped[int]


class PlannedBlock(Base):
    """Neighbouring blocks that the request may read."""

    __tablename__ = "planned_block"
    __table_args__ = (CheckConstraint("first_block >= 0 AND last_block >= first_block", "run"),)

    request_id: Mapped[int] = mapped_column(Id, reference("request"), primary_key=True, autoincrement=False)
    first_block: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    last_block: Mapped[int]


class PlannedInvocation(Base):
    """One mechanism of the plan, with its event in canonical JSON."""

    __tablename__ = "planned_invocation"

    request_id: Mapped[int] = mapped_column(Id, reference("request"), primary_key=True, autoincrement=False)
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    mechanism: Mapped[Line]
    event: Mapped[Body]
    instalments: Mapped[int]


class PlannedInstalment(Base):
    """Neighbouring instalments of one mechanism that cost the same."""

    __tablename__ = "planned_instalment"
    __table_args__ = (
        CheckConstraint(
            "first_instalment >= 0 AND last_instalment >= first_instalment AND rho >= 0 AND delta >= 0", "run"
        ),
    )

    request_id: Mapped[int] = mapped_column(Id, reference("request"), primary_key=True, autoincrement=False)
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    first_instalment: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    last_instalment: Mapped[int]
    rho: Mapped[Units]
    delta: Mapped[Units]
