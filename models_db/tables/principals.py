"""Principals, their roles, and the policy under which they act."""

from sqlalchemy import CheckConstraint, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from models_db.database.base import Base, Body, Digest, Key, Line, Moment, Units, reference
from models_db.values.amounts import RENYI_ORDERS

ROLES = ("analyst", "runner", "steward", "auditor", "admin")


class Principal(Base):
    """One human or service, known by a name and a public key; on PostgreSQL also by the login it works under."""

    __tablename__ = "principal"
    __table_args__ = (Index("uq_principal_login", "login", unique=True),)
    recorded_by = ("admin",)

    id: Mapped[Key]
    name: Mapped[Line] = mapped_column(unique=True)
    public_key: Mapped[Line] = mapped_column(unique=True)
    created_at: Mapped[Moment]
    login: Mapped[Line | None]
    """The PostgreSQL role; None on SQLite, and for a steward who signs elsewhere and has no account."""
    created_by: Mapped[int | None] = mapped_column(reference("principal"))
    """Principal that enrolled this one; None for the founder."""


class RoleGrant(Base):
    """A role of a principal, from a day to a day."""

    __tablename__ = "role_grant"
    __table_args__ = (
        CheckConstraint(f"role IN {ROLES}", "role"),
        CheckConstraint("valid_to IS NULL OR valid_to > valid_from", "dates"),
    )

    id: Mapped[Key]
    principal_id: Mapped[int] = mapped_column(reference("principal"), index=True)
    role: Mapped[Line]
    valid_from: Mapped[Moment]
    valid_to: Mapped[Moment | None]
    granted_by: Mapped[int] = mapped_column(reference("principal"))
    reason: Mapped[Body]
    at: Mapped[Moment]


class RoleRevocation(Base):
    """The end of a grant before its day."""

    __tablename__ = "role_revocation"
    recorded_by = ("admin",)

    id: Mapped[Key]
    grant_id: Mapped[int] = mapped_column(reference("role_grant"), unique=True)
    revoked_by: Mapped[int] = mapped_column(reference("principal"))
    reason: Mapped[Body]
    at: Mapped[Moment]


class Passkey(Base):
    """A WebAuthn key of a principal, certified by the signature of the principal's own key."""

    __tablename__ = "passkey"

    id: Mapped[Key]
    principal_id: Mapped[int] = mapped_column(reference("principal"), index=True)
    public_key: Mapped[Line] = mapped_column(unique=True)
    """`es256:` and 128, or `ed25519:` and 64 hexadecimal digits."""
    credential_id: Mapped[Body]
    """By which its authenticator knows it, in base64url."""
    rp_id: Mapped[Line]
    origin: Mapped[Line]
    """The host, and the address, at which browsers let it sign."""
    signature: Mapped[Line]
    created_by: Mapped[int] = mapped_column(reference("principal"))
    at: Mapped[Moment]


class PasskeyEnd(Base):
    """A passkey that was revoked; it decides nothing any more."""

    __tablename__ = "passkey_end"

    id: Mapped[Key]
    passkey_id: Mapped[int] = mapped_column(reference("passkey"), unique=True)
    reason: Mapped[Body]
    ended_by: Mapped[int] = mapped_column(reference("principal"))
    at: Mapped[Moment]


LIMIT_COLUMNS = tuple(f"renyi_limit_{order}" for order in RENYI_ORDERS)
"""Columns of limits: at an order, the largest sum of charges on a block."""


class LimitsInOrders:
    """Columns of limits on the sums of charges in Rényi orders: all of them, or none."""

    renyi_limit_3: Mapped[Units | None]
    renyi_limit_4: Mapped[Units | None]
    renyi_limit_6: Mapped[Units | None]
    renyi_limit_8: Mapped[Units | None]
    renyi_limit_12: Mapped[Units | None]
    renyi_limit_16: Mapped[Units | None]
    renyi_limit_32: Mapped[Units | None]
    renyi_limit_64: Mapped[Units | None]

    @property
    def renyi_limits(self) -> tuple[int, ...] | None:
        """The limits; None if there are none."""
        limits = [getattr(self, column) for column in LIMIT_COLUMNS]
        return None if limits[0] is None else tuple(limits)


def limit_columns(limits: tuple[int, ...] | None) -> dict[str, int]:
    """Return the columns of limits, for a row of a policy or of a rule."""
    return dict(zip(LIMIT_COLUMNS, limits or (), strict=bool(limits)))


def gates_and_limits() -> tuple[CheckConstraint, ...]:
    """Return the checks of a policy or of a rule: an approval at each gate, and a limit at every order or at none."""
    first, *_ = LIMIT_COLUMNS
    limits = (f"({limit} IS NULL) = ({first} IS NULL) AND coalesce({limit}, 0) >= 0" for limit in LIMIT_COLUMNS)
    approvals = "spend_approvals >= 1 AND publish_approvals >= 1 AND proposal_approvals >= 1"
    return (
        CheckConstraint(approvals, "asks_for_an_approval_at_each_gate"),
        CheckConstraint(" AND ".join(limits), "renyi_limits"),
    )


class PolicyVersion(LimitsInOrders, Base):
    """A policy that was in force at some time, and those of its rules that the database itself enforces."""

    __tablename__ = "policy_version"
    __table_args__ = (
        *gates_and_limits(),
        CheckConstraint(
            "coalesce(attempts >= 1 AND attempts <= 100 AND approval_days >= 1 AND approval_days <= 365"
            " AND request_days >= 1 AND request_days <= 365, FALSE)",
            "limits_attempts_and_days",
        ),
    )
    recorded_by = ("admin",)

    id: Mapped[Key]
    digest: Mapped[Digest] = mapped_column(unique=True)
    body: Mapped[Body]
    several_roles: Mapped[bool]
    """True if one person may request, approve and run the same release."""
    spend_approvals: Mapped[int]
    publish_approvals: Mapped[int]
    created_at: Mapped[Moment]
    proposal_approvals: Mapped[int]
    rho_max: Mapped[Units | None]
    delta_max: Mapped[Units | None]
    """The most one release may cost, as integers of the ledger; None: no bound but the account's."""
    attempts: Mapped[int | None]
    """Maximum number of runs of one request; like the next columns, None only if the policy's text does not set it."""
    approval_days: Mapped[int | None]
    request_days: Mapped[int | None]
    """Days after which an approval, and after which a request or a proposal expires at the latest."""


class PolicyRule(LimitsInOrders, Base):
    """Rules of a policy for one dataset, where they differ; None leaves a rule as the policy has it."""

    __tablename__ = "policy_rule"
    __table_args__ = (
        UniqueConstraint("policy_id", "dataset"),
        *gates_and_limits(),
    )
    recorded_by = ("admin",)

    id: Mapped[Key]
    policy_id: Mapped[int] = mapped_column(reference("policy_version"))
    dataset: Mapped[Line]
    spend_approvals: Mapped[int | None]
    publish_approvals: Mapped[int | None]
    proposal_approvals: Mapped[int | None]
    rho_max: Mapped[Units | None]
    delta_max: Mapped[Units | None]


class PolicyAdoption(Base):
    """A policy came into force; the last one is in force."""

    __tablename__ = "policy_adoption"
    recorded_by = ("admin",)

    id: Mapped[Key]
    policy_id: Mapped[int] = mapped_column(reference("policy_version"))
    adopted_by: Mapped[int] = mapped_column(reference("principal"))
    at: Mapped[Moment]
