"""Budgets: accounts with two counters, the append-only entries that alone move them, and charges in Rényi orders."""

from sqlalchemy import CheckConstraint, Index, String, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from models_db.database.base import Base, Body, Digest, Id, Key, Line, Moment, Units, reference
from models_db.values.amounts import RENYI_ORDERS, RenyiCurve

ROOT_COLUMNS = ("epsilon", "delta", "delta_conversion", "rho", "delta_fail", "blocks", "key_name", "key_commitment")
"""Columns of an account that roots have, and blocks have not."""


class Account(Base):
    """A budget with two counters.

    Without a parent it is a root, with a lifetime claim and a partition of its units into blocks; with one it is such a
    block, under the same cap, where all spending is entered (PRIVACY §3).
    """

    __tablename__ = "account"
    __table_args__ = (
        UniqueConstraint("parent_id", "block"),
        CheckConstraint(
            "(block IS NULL) = (parent_id IS NULL) AND (block IS NULL OR block >= 0)", "is_a_block_by_its_number"
        ),
        CheckConstraint(
            " AND ".join(f"({column} IS NULL) = (parent_id IS NOT NULL)" for column in ROOT_COLUMNS),
            "is_a_root_with_its_claim",
        ),
        CheckConstraint("delta_held >= 0 AND delta_spent >= 0 AND delta_held + delta_spent <= delta_cap", "delta"),
        CheckConstraint("rho_held >= 0 AND rho_spent >= 0 AND rho_held + rho_spent <= rho_cap", "rho"),
    )
    recorded_by = ("admin", "steward")
    allows = ("UPDATE",)

    id: Mapped[Key]
    parent_id: Mapped[int | None] = mapped_column(reference("account"))
    block: Mapped[int | None]
    epsilon: Mapped[Line | None]
    delta: Mapped[Line | None]
    delta_conversion: Mapped[Units | None]
    rho: Mapped[Units | None]
    delta_fail: Mapped[Units | None]
    """The first lifetime claim of a root: (epsilon, delta), how delta is divided, and both amounts (PRIVACY §2)."""
    blocks: Mapped[int | None]
    """Of a root: the partition of its units (PRIVACY §3), under the key of `key_name`."""
    key_name: Mapped[str | None] = mapped_column(String(16))
    key_commitment: Mapped[Digest | None]
    """What that key must be: `tasks.corpus.keys.key_commitment`."""
    created_at: Mapped[Moment]
    created_by: Mapped[int | None] = mapped_column(reference("principal"))
    """Principal that opened the account, of a block with its root or with a cohort."""
    rho_cap: Mapped[Units]
    delta_cap: Mapped[Units]
    rho_held: Mapped[Units] = mapped_column(server_default="0")
    rho_spent: Mapped[Units] = mapped_column(server_default="0")
    delta_held: Mapped[Units] = mapped_column(server_default="0")
    delta_spent: Mapped[Units] = mapped_column(server_default="0")
    last_entry_id: Mapped[int] = mapped_column(Id, server_default="0")
    """The newest entry applied; the database admits no counter change that is not exactly the next entry's."""


class Invocation(Base):
    """One mechanism, run in one attempt of one request; `idem_key` makes a second execution a second invocation."""

    __tablename__ = "invocation"
    __table_args__ = (
        UniqueConstraint("request_id", "attempt", "sequence"),
        CheckConstraint("rng_kind = 'os'", "uses_the_randomness_of_the_operating_system"),
    )
    recorded_by = ("runner",)

    id: Mapped[Key]
    request_id: Mapped[int] = mapped_column(reference("request"))
    attempt: Mapped[int]
    sequence: Mapped[int]
    mechanism: Mapped[Line]
    event: Mapped[Body]
    relation: Mapped[Line]
    rng_kind: Mapped[Line]
    device: Mapped[Line]
    code_digest: Mapped[Digest]
    libraries: Mapped[Body]
    idem_key: Mapped[Digest] = mapped_column(unique=True)
    created_at: Mapped[Moment]
    created_by: Mapped[int] = mapped_column(reference("principal"))


class Hold(Base):
    """A reservation: one instalment of one invocation on one account."""

    __tablename__ = "hold"
    __table_args__ = (
        UniqueConstraint("invocation_id", "account_id", "instalment"),
        CheckConstraint(
            "rho >= 0 AND delta >= 0 AND rho = CAST(rho AS BIGINT) AND delta = CAST(delta AS BIGINT)", "amount"
        ),
    )
    recorded_by = ("runner",)

    id: Mapped[Key]
    invocation_id: Mapped[int] = mapped_column(reference("invocation"))
    account_id: Mapped[int] = mapped_column(reference("account"), index=True)
    instalment: Mapped[int]
    rho: Mapped[Units]
    delta: Mapped[Units]


class Entry(Base):
    """Ledger entry of a hold: HOLD, then ARM or RELEASE; after ARM, COMMIT or FORFEIT (PRIVACY §6)."""

    __tablename__ = "entry"
    __table_args__ = (
        UniqueConstraint("hold_id", "kind"),
        Index(
            "uq_entry_armed_or_released",
            "hold_id",
            unique=True,
            sqlite_where=text("kind IN ('ARM', 'RELEASE')"),
            postgresql_where=text("kind IN ('ARM', 'RELEASE')"),
        ),
        Index(
            "uq_entry_closed",
            "hold_id",
            unique=True,
            sqlite_where=text("kind IN ('COMMIT', 'FORFEIT', 'RELEASE')"),
            postgresql_where=text("kind IN ('COMMIT', 'FORFEIT', 'RELEASE')"),
        ),
        CheckConstraint("kind IN ('HOLD', 'ARM', 'RELEASE', 'COMMIT', 'FORFEIT')", "kind"),
    )
    recorded_by = ("runner",)

    id: Mapped[Key]
    hold_id: Mapped[int] = mapped_column(reference("hold"))
    kind: Mapped[Line]
    at: Mapped[Moment]
    actor_id: Mapped[int] = mapped_column(reference("principal"))


CURVE_COLUMNS = tuple(f"{direction}_{order}" for direction in ("remove", "add") for order in RENYI_ORDERS)
"""Columns of a curve, in the order of `RenyiCurve.values`."""


class RenyiCharge(Base):
    """Charge of an attempt in Rényi orders, on each block of its plan (docs/proofs/secret-assignment.md).

    It is made before the first instalment is armed, and covers each instalment of the plan once; an attempt that goes
    on needs no other. Once the assignment of the release is no longer secret, it counts with `rho` everywhere.
    """

    __tablename__ = "renyi_charge"
    __table_args__ = (
        UniqueConstraint("request_id", "attempt"),
        # AND alone: PostgreSQL reads the parentheses of BETWEEN differently from a dump of itself.
        CheckConstraint(" AND ".join(f"{column} >= 0 AND {column} <= rho" for column in CURVE_COLUMNS), "curve"),
    )
    recorded_by = ("runner",)

    id: Mapped[Key]
    request_id: Mapped[int] = mapped_column(reference("request"))
    attempt: Mapped[int]
    rho: Mapped[Units]
    """What the plan costs a block."""
    remove_3: Mapped[Units]
    remove_4: Mapped[Units]
    remove_6: Mapped[Units]
    remove_8: Mapped[Units]
    remove_12: Mapped[Units]
    remove_16: Mapped[Units]
    remove_32: Mapped[Units]
    remove_64: Mapped[Units]
    add_3: Mapped[Units]
    add_4: Mapped[Units]
    add_6: Mapped[Units]
    add_8: Mapped[Units]
    add_12: Mapped[Units]
    add_16: Mapped[Units]
    add_32: Mapped[Units]
    add_64: Mapped[Units]
    """At an order, the divergence in one direction, divided by the order, in units of 1e-12, rounded up."""
    at: Mapped[Moment]
    actor_id: Mapped[int] = mapped_column(reference("principal"))

    @property
    def curve(self) -> RenyiCurve:
        """What was charged."""
        return RenyiCurve.of_values([int(getattr(self, column)) for column in CURVE_COLUMNS])
