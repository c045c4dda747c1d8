"""Every table of the ledger: its columns, keys and checks, and who may add rows; guards are in `migrations.schema`."""

from models_db.tables.accounts import Account, Entry, Hold, Invocation, RenyiCharge
from models_db.tables.audit_log import AuditHead, AuditLink, PendingLink, RecordedCheckpoint, Restoration
from models_db.tables.datasets import (
    Cohort,
    Dataset,
    DatasetVersion,
    ErasedVersion,
    Erasure,
    ErasureEnd,
    OverlapKey,
    UnitClaim,
    UnitMark,
)
from models_db.tables.principals import (
    Passkey,
    PasskeyEnd,
    PolicyAdoption,
    PolicyRule,
    PolicyVersion,
    Principal,
    RoleGrant,
    RoleRevocation,
)
from models_db.tables.proposals import AppliedProposal, Proposal
from models_db.tables.releases import (
    Approval,
    Artifact,
    AssignmentExposure,
    Delivery,
    InternalView,
    Lease,
    PlannedBlock,
    PlannedInstalment,
    PlannedInvocation,
    PlannedRelease,
    Publication,
    Rehearsal,
    Request,
    StoredEvaluation,
    Transition,
    TwinAttack,
    Withdrawal,
)
from models_db.tables.schedules import Schedule, ScheduleChange, ScheduleSlot, SlotEnd

__all__ = [
    "Account", "AppliedProposal", "Approval", "Artifact", "AssignmentExposure", "AuditHead", "AuditLink",
    "Cohort", "Dataset", "DatasetVersion", "Delivery", "Entry",
    "ErasedVersion", "Erasure", "ErasureEnd", "Hold", "InternalView", "Invocation", "Lease", "OverlapKey",
    "Passkey", "PasskeyEnd", "PendingLink", "PlannedBlock", "PlannedInstalment", "PlannedInvocation",
    "PlannedRelease", "PolicyAdoption", "PolicyRule", "PolicyVersion", "Principal", "Proposal", "Publication",
    "RecordedCheckpoint", "Rehearsal", "RenyiCharge", "Request", "Restoration", "RoleGrant", "RoleRevocation",
    "Schedule", "ScheduleChange", "ScheduleSlot", "SlotEnd", "StoredEvaluation",
    "Transition", "TwinAttack", "UnitClaim", "UnitMark", "Withdrawal",
]  # fmt: skip
