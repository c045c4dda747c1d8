"""Mapped columns only; what the database enforces beyond them is in the migrations."""

from models_db.tables.accounts import Account, Cap, Entry, Hold, Invocation
from models_db.tables.audits import Audit, AuditHead, Checkpoint
from models_db.tables.datasets import Dataset, DatasetVersion, PartitionScheme, UnitMark
from models_db.tables.people import PolicyVersion, Principal
from models_db.tables.releases import (
    Approval,
    Artifact,
    Delivery,
    Evaluation,
    Lease,
    Publication,
    Request,
    Transition,
)

__all__ = [
    "Account", "Approval", "Artifact", "Audit", "AuditHead", "Cap", "Checkpoint", "Dataset", "DatasetVersion",
    "Delivery", "Entry", "Evaluation", "Hold", "Invocation", "Lease", "PartitionScheme", "PolicyVersion",
    "Principal", "Publication", "Request", "Transition", "UnitMark",
]  # fmt: skip
