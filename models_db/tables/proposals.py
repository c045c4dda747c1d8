"""Proposals: decisions of stewards besides releases, on caps, standing authorisations and retractions."""

from sqlalchemy import CheckConstraint
from sqlalchemy.orm import Mapped, mapped_column

from models_db.database.base import Base, Body, Digest, Id, Key, Line, Moment, Units, reference


class Proposal(Base):
    """A proposal on a dataset. Its digest covers every column with content; approvals are for that digest."""

    __tablename__ = "proposal"
    __table_args__ = (
        CheckConstraint(
            "(kind = 'cap' AND epsilon IS NOT NULL AND delta IS NOT NULL AND delta_conversion IS NOT NULL"
            " AND rho IS NOT NULL AND delta_fail IS NOT NULL)"
            " OR (kind = 'standing' AND rho IS NOT NULL AND delta_fail IS NOT NULL"
            " AND runs >= 1 AND until IS NOT NULL AND config_digest IS NOT NULL AND configuration IS NOT NULL)"
            " OR (kind = 'retraction' AND publication_id IS NOT NULL)",
            "whole",
        ),
        CheckConstraint("rho >= 0 AND delta_fail >= 0", "is_never_negative"),
    )
    recorded_by = ("analyst", "steward")

    id: Mapped[Key]
    kind: Mapped[Line]
    dataset_id: Mapped[int] = mapped_column(reference("dataset"), index=True)
    policy_id: Mapped[int] = mapped_column(reference("policy_version"))
    proposer_id: Mapped[int] = mapped_column(reference("principal"))
    reason: Mapped[Body]
    nonce: Mapped[Line]
    digest: Mapped[Digest] = mapped_column(unique=True)
    created_at: Mapped[Moment]
    expires_at: Mapped[Moment]
    epsilon: Mapped[Line | None]
    delta: Mapped[Line | None]
    delta_conversion: Mapped[Units | None]
    rho: Mapped[Units | None]
    """The new cap, or the most one run under a standing authorisation may cost."""
    delta_fail: Mapped[Units | None]
    runs: Mapped[int | None]
    until: Mapped[Moment | None]
    config_digest: Mapped[Digest | None]
    configuration: Mapped[Body | None]
    choices: Mapped[Body | None]
    """The parameters of the configuration that almoner chose, each with its reason; they are not authorised."""
    publication_id: Mapped[int | None] = mapped_column(Id)
    """No foreign key, because requests name proposals and publications come from requests; a guard checks it."""


class AppliedProposal(Base):
    """A proposal that had its approvals took effect; a new cap moves its accounts in the same statement."""

    __tablename__ = "carried"

    id: Mapped[Key]
    proposal_id: Mapped[int] = mapped_column(reference("proposal"), unique=True)
    actor_id: Mapped[int] = mapped_column(reference("principal"))
    at: Mapped[Moment]
