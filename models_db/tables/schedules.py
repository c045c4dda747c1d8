"""Schedules of recurring releases, their changes, and each moment at which one was due."""

from sqlalchemy import CheckConstraint, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from models_db.database.base import Base, Body, Key, Line, Moment, reference


class Schedule(Base):
    """Recurring moments at which a standing authorisation's configuration is requested; it also bounds the cost."""

    __tablename__ = "schedule"
    __table_args__ = (CheckConstraint("kind IN ('cron', 'interval', 'rrule')", "kind"),)
    recorded_by = ("analyst",)

    id: Mapped[Key]
    dataset_id: Mapped[int] = mapped_column(reference("dataset"), index=True)
    standing_id: Mapped[int] = mapped_column(reference("proposal"))
    kind: Mapped[Line]
    rule: Mapped[Body]
    zone: Mapped[Line]
    """The IANA name of the time zone in which the rule is meant."""
    starts_at: Mapped[Moment]
    """Start of the schedule: no slot is due before it, and intervals count from it."""
    reason: Mapped[Body]
    created_at: Mapped[Moment]
    created_by: Mapped[int] = mapped_column(reference("principal"))


class ScheduleChange(Base):
    """A schedule was paused, resumed or ended; the last change says which it is."""

    __tablename__ = "schedule_change"
    __table_args__ = (
        UniqueConstraint("schedule_id", "number"),
        CheckConstraint("kind IN ('paused', 'resumed', 'ended')", "kind"),
    )
    recorded_by = ("analyst", "steward")

    id: Mapped[Key]
    schedule_id: Mapped[int] = mapped_column(reference("schedule"))
    number: Mapped[int]
    kind: Mapped[Line]
    reason: Mapped[Body]
    at: Mapped[Moment]
    actor_id: Mapped[int] = mapped_column(reference("principal"))


class ScheduleSlot(Base):
    """Due time of a schedule and its decision: a request, or a reason for skipping it.

    The row is written in the transaction that submits the request, so there is no slot of which nobody knows whether
    it has one. Slots of a schedule only go forward.
    """

    __tablename__ = "schedule_slot"
    __table_args__ = (
        UniqueConstraint("schedule_id", "slot"),
        UniqueConstraint("request_id"),
        CheckConstraint("(request_id IS NULL) <> (skipped IS NULL)", "decided"),
    )
    recorded_by = ("analyst",)

    id: Mapped[Key]
    schedule_id: Mapped[int] = mapped_column(reference("schedule"))
    slot: Mapped[Moment]
    request_id: Mapped[int | None] = mapped_column(reference("request"))
    skipped: Mapped[Line | None]
    """The name of the refusal."""
    detail: Mapped[Body]
    at: Mapped[Moment]
    actor_id: Mapped[int] = mapped_column(reference("principal"))


class SlotEnd(Base):
    """The run of a slot was given up: nothing tries it again by itself; a person still may (`almoner run`)."""

    __tablename__ = "slot_end"
    recorded_by = ("runner",)

    id: Mapped[Key]
    slot_id: Mapped[int] = mapped_column(reference("schedule_slot"), unique=True)
    reason: Mapped[Line]
    """The name of the error."""
    detail: Mapped[Body]
    at: Mapped[Moment]
    actor_id: Mapped[int] = mapped_column(reference("principal"))
