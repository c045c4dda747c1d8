"""Verification of the audit chain against anchors outside the ledger, and signed checkpoints of its head."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.audit.anchors import Anchor, ChainHead, differing_charge, read_anchor, unsigned_checkpoints
from flows.workspace.workspace import ReadOnlyWorkspace, Workspace, open_read_only
from flows.workspace.yaml_files import new_file
from models_db.database.base import utc_now
from models_db.errors import Refused
from models_db.home import ProjectHome
from models_db.services.audit import verify_chain
from models_db.services.audit.chain import read_chain_head, record_checkpoint
from models_db.services.audit.log import ledger_rows_altered
from models_db.services.audit.verify_chain import AnchorPlacement, ChainReport
from models_db.services.verification import verify_rows
from tasks.common.progress import report
from tasks.object_storage.address import Place


@dataclass(frozen=True)
class AuditVerification:
    """Result of a verification of the chain: the place of each anchor on it, and the objections of the home."""

    chain: ChainReport
    anchors: tuple[tuple[Anchor, AnchorPlacement], ...]
    warning: str
    differences: tuple[str, ...] = ()
    """Differences between the tables and the chain, and between what bundles state of charges and the entries."""
    unsigned: tuple[str, ...] = ()
    """Recorded checkpoints that their keys have not signed. They prove nothing, and are no objection: whoever may
    record one could otherwise keep this verification from ever passing again."""

    @property
    def is_sound(self) -> bool:
        """Return whether there is no objection."""
        agree = self.chain.sound and not self.warning and not self.differences
        return agree and all(anchor.is_genuine for anchor, _ in self.anchors)


def verify_record(workspace: ReadOnlyWorkspace, against: Sequence[Place] = ()) -> AuditVerification:
    """Walk the chain, find every anchor on it, and compare every row with its link, and stated charges with entries.

    Raises:
        FileUnfit: an anchor is neither a bundle nor a checkpoint.
    """
    anchors = [read_anchor(path, workspace.home) for path in against]
    with workspace.database.read() as session:
        chain = verify_chain.verify_chain(
            session, [anchor.anchor for anchor in anchors], lambda done, total: report("links", done, total)
        )
        differences = verify_rows.compare_rows_with_chain(
            session, lambda done, total: report("rows of links", done, total)
        )
        differences += [told for anchor in anchors if (told := differing_charge(session, anchor)) is not None]
        unsigned = unsigned_checkpoints(session)
    placed_anchors = tuple(zip(anchors, chain.placements, strict=True))
    return AuditVerification(chain, placed_anchors, workspace.warning, tuple(differences), tuple(unsigned))


def ledger_altered(home: ProjectHome) -> Refused | None:
    """Return how the ledger of a home differs from its audit log; None if it agrees, or if that is unknown.

    Called after an unexpected error, which may come from rows that almoner cannot have written.
    """
    try:
        with open_read_only(home).database.read() as session:
            differences = verify_rows.compare_rows_with_chain(session)
    except Exception:  # noqa: BLE001  # whatever it is, it is not what the caller has to tell
        return None
    return ledger_rows_altered(differences) if differences else None


def sign_checkpoint(workspace: Workspace, to: Path) -> ChainHead:
    """Sign the head of the chain, record it and write it to a new file.

    Raises:
        FileUnwritable: the file exists, or cannot be written.
    """
    with workspace.database.write() as session:
        signed = ChainHead.signed(read_chain_head(session), utc_now(), workspace.key)
        record_checkpoint(session, workspace.actor, signed.hash, signed.signature, signed.public_key, signed.at)
        with new_file(to) as out:
            out.write(signed.to_bytes())
    return signed
