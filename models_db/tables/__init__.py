"""Mapped columns only; what the database enforces beyond them is in the migrations."""

from models_db.tables.accounts import Account, Cap, Entry, Hold, Invocation, ScopeEnd
from models_db.tables.audits import Audit, AuditHead, Checkpoint, PendingLink, Restoration
from models_db.tables.datasets import Cohort, Dataset, DatasetVersion, PartitionScheme, UnitClaim, UnitMark
from models_db.tables.motions import Carried, Motion, StandingUse
from models_db.tables.people import (
    Delegation,
    DelegationEnd,
    PolicyAdoption,
    PolicyRule,
    PolicyVersion,
    Principal,
    RoleGrant,
    RoleRevocation,
)
from models_db.tables.releases import (
    Approval,
    Artifact,
    Delivery,
    Evaluation,
    Lease,
    Publication,
    Request,
    Transition,
    TwinAttack,
    Withdrawal,
)
from models_db.tables.schedules import Schedule, ScheduleChange, ScheduleSlot, SlotEnd

__all__ = [
    "Account", "Approval", "Artifact", "Audit", "AuditHead", "Cap", "Carried", "Checkpoint", "Cohort", "Dataset",
    "DatasetVersion", "Delegation", "DelegationEnd", "Delivery", "Entry", "Evaluation", "Hold", "Invocation", "Lease",
    "Motion", "PartitionScheme", "PendingLink", "PolicyAdoption", "PolicyRule", "PolicyVersion", "Principal",
    "Publication", "Request", "Restoration", "RoleGrant", "RoleRevocation", "Schedule", "ScheduleChange",
    "ScheduleSlot", "ScopeEnd", "SlotEnd", "StandingUse", "Transition", "TwinAttack", "UnitClaim", "UnitMark",
    "Withdrawal",
]  # fmt: skip
