"""Mapped columns only; what the database enforces beyond them is in the migrations."""

from models_db.database.base import Base, check_times
from models_db.tables.accounts import Account, Cap, Entry, Hold, Invocation, ScopeEnd
from models_db.tables.audit_log import Audit, AuditHead, Checkpoint, PendingLink, Restoration
from models_db.tables.datasets import (
    Cohort,
    Dataset,
    DatasetVersion,
    ErasedVersion,
    Erasure,
    ErasureEnd,
    PartitionScheme,
    UnitClaim,
    UnitMark,
)
from models_db.tables.plans import PlannedBlock, PlannedInstalment, PlannedInvocation, PlannedRelease
from models_db.tables.principals import (
    Delegation,
    DelegationEnd,
    PolicyAdoption,
    PolicyRule,
    PolicyVersion,
    Principal,
    RoleGrant,
    RoleRevocation,
)
from models_db.tables.proposals import Carried, Motion, StandingUse
from models_db.tables.releases import (
    Approval,
    Artifact,
    Delivery,
    Evaluation,
    InternalView,
    Lease,
    Publication,
    Request,
    Transition,
    TwinAttack,
    Withdrawal,
)
from models_db.tables.schedules import Schedule, ScheduleChange, ScheduleSlot, SlotEnd

check_times(Base.metadata)

__all__ = [
    "Account", "Approval", "Artifact", "Audit", "AuditHead", "Cap", "Carried", "Checkpoint", "Cohort", "Dataset",
    "DatasetVersion", "Delegation", "DelegationEnd", "Delivery", "Entry", "ErasedVersion", "Erasure", "ErasureEnd",
    "Evaluation", "Hold", "InternalView", "Invocation", "Lease", "Motion", "PartitionScheme", "PendingLink",
    "PlannedBlock", "PlannedInstalment", "PlannedInvocation", "PlannedRelease", "PolicyAdoption", "PolicyRule",
    "PolicyVersion", "Principal", "Publication", "Request", "Restoration", "RoleGrant", "RoleRevocation", "Schedule",
    "ScheduleChange", "ScheduleSlot", "ScopeEnd", "SlotEnd", "StandingUse", "Transition", "TwinAttack", "UnitClaim",
    "UnitMark", "Withdrawal",
]  # fmt: skip
