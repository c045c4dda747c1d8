"""Who acts, and under which policy."""

from sqlalchemy.orm import Mapped, mapped_column

from models_db.base import Base, Body, Digest, Key, Line, Moment


class Principal(Base):
    """One human or service, known by a name and a public key."""

    __tablename__ = "principal"

    id: Mapped[Key]
    name: Mapped[Line] = mapped_column(unique=True)
    public_key: Mapped[Line] = mapped_column(unique=True)
    created_at: Mapped[Moment]


class PolicyVersion(Base):
    """A policy as it was when a request was made; `several_roles` lets one person request, approve and run."""

    __tablename__ = "policy_version"

    id: Mapped[Key]
    digest: Mapped[Digest] = mapped_column(unique=True)
    body: Mapped[Body]
    several_roles: Mapped[bool]
    spend_approvals: Mapped[int]
    publish_approvals: Mapped[int]
    created_at: Mapped[Moment]
