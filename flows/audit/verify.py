"""Verification of the audit chain against signed heads that lie outside the ledger, and checkpoints of its head."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from flows.audit.charges import charge_of_release
from flows.workspace.object_stores import read_stored_document
from flows.workspace.workspace import ReadOnlyWorkspace, Workspace, open_read_only
from flows.workspace.yaml_files import new_file
from models_db.database.base import utc_now
from models_db.errors import Refused
from models_db.home import ProjectHome
from models_db.services.audit import verify_chain
from models_db.services.audit.chain import ChainPosition, read_chain_head, record_checkpoint
from models_db.services.audit.stored_text import ledger_rows_altered
from models_db.services.audit.verify_chain import AnchorPlacement, ChainAnchor, ChainReport
from models_db.services.verification import verify_rows
from models_db.tables import Artifact, Principal, RecordedCheckpoint
from models_db.values.canonical_json import Json, encode_canonical
from tasks.common.files import decode_json, encode_json, read_document
from tasks.common.progress import report
from tasks.common.published_values import Digest, Strict, read_as
from tasks.object_storage.address import Address, Place
from tasks.release.bundle_format import CHECKPOINT
from tasks.release.signatures import ed25519
from tasks.release.signatures.publisher_statements import Charged, Checkpoint, checkpoint_statement

FORMAT: Final = "almoner-chain-head/1"


class ChainHead(Strict):
    """File of `audit checkpoint`; unlike a bundle's checkpoint it is private, so it states number and time."""

    format: Literal["almoner-chain-head/1"] = FORMAT
    seq: int
    hash: Digest
    at: str
    public_key: Digest
    signature: str

    @classmethod
    def signed(cls, head: ChainPosition, at: str, key: ed25519.SigningKey) -> "ChainHead":
        """Sign the head of the chain."""
        statement = _head_statement(head.seq, head.hash, at)
        return cls(seq=head.seq, hash=head.hash, at=at, public_key=key.public_key, signature=key.sign(statement))

    @property
    def is_authentic(self) -> bool:
        """Return whether its key signed exactly this head."""
        return ed25519.verify(self.public_key, self.signature, _head_statement(self.seq, self.hash, self.at))

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        return encode_json(self.model_dump())


@dataclass(frozen=True)
class Anchor:
    """An anchor with the file that holds it, whether its signature fits, and the charge that it states of a release."""

    path: Place
    anchor: ChainAnchor
    is_genuine: bool
    charged: Charged | None = None

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the key that signed it."""
        return ed25519.fingerprint(self.anchor.public_key)


def unsigned_checkpoints(session: Session) -> list[str]:
    """Return which checkpoints of the ledger their keys have not signed, each with who recorded it."""
    query = (
        select(RecordedCheckpoint, Artifact, Principal.name)
        .outerjoin(Artifact, Artifact.id == RecordedCheckpoint.artifact_id)
        .outerjoin(Principal, Principal.id == RecordedCheckpoint.created_by)
        .order_by(RecordedCheckpoint.id)
    )
    return [
        f"checkpoint {recorded.id}, recorded by {name}"
        for recorded, artifact, name in session.execute(query)
        if not _is_signed(session, recorded, artifact)
    ]


def _is_signed(session: Session, recorded: RecordedCheckpoint, artifact: Artifact | None) -> bool:
    """Return whether the key of a recorded checkpoint signed what the ledger says now; of a release also its charge."""
    if artifact is None:
        statement = _head_statement(recorded.seq, recorded.hash, recorded.signed_at or "")
    else:
        try:
            charged = charge_of_release(session, artifact.request_id)
        except (Refused, KeyError, TypeError, ValueError):  # the ledger was altered
            return False
        statement = checkpoint_statement(artifact.digest, recorded.hash, charged)
    return ed25519.verify(recorded.public_key, recorded.signature, statement)


def read_anchor(path: Place, home: ProjectHome | None = None) -> Anchor:
    """Read a bundle (in a store, only its checkpoint), its checkpoint.json, or a file of `audit checkpoint`.

    Args:
        home: the home whose settings say how to reach stores.

    Raises:
        FileUnfit: the file is none of these.
        NoBundle, StoreUnreachable, StoreDenied, BucketMissing: there is no bundle, or the store cannot be read.
    """
    if isinstance(path, Address):
        data = read_stored_document(home or ProjectHome.locate(), path, CHECKPOINT)
    else:
        data = read_document(path / CHECKPOINT if path.is_dir() else path)
    value = decode_json(data, CHECKPOINT if isinstance(path, Address) or path.is_dir() else path.name)
    if isinstance(value, dict) and value.get("format") == FORMAT:
        return _anchor_from_head(path, value)
    point = Checkpoint.from_bytes(data)
    anchor = ChainAnchor(point.ledger_head, point.public_key, artifact=point.artifact_sha256)
    return Anchor(path, anchor, point.authentic, point.charged)


def differing_charge(session: Session, anchor: Anchor) -> str | None:
    """Return how the charge that a bundle states differs from that of the ledger's entries; None where it does not."""
    if anchor.charged is None:
        return None
    stated = f"{anchor.path} states a charge of {_in_words(anchor.charged)}"
    artifact = session.scalar(select(Artifact).where(Artifact.digest == anchor.anchor.artifact).order_by(Artifact.id))
    if artifact is None:
        return f"{stated}; the ledger has no such release"
    try:
        charged = charge_of_release(session, artifact.request_id)
    except (Refused, KeyError, TypeError, ValueError) as problem:
        return f"{stated}; {getattr(problem, 'message', 'the request of the release cannot be read')}"
    return None if charged == anchor.charged else f"{stated}; the ledger has charged {_in_words(charged)}"


def _in_words(charged: Charged) -> str:
    return f"rho {charged.rho} and failure delta {charged.delta} on block {', '.join(map(str, charged.blocks))}"


def _anchor_from_head(path: Place, value: Json) -> Anchor:
    head = read_as(ChainHead, value, path.name)
    return Anchor(path, ChainAnchor(head.hash, head.public_key, head.seq, head.at), head.is_authentic)


def _head_statement(seq: int, link: str, at: str) -> bytes:
    return encode_canonical({"format": FORMAT, "seq": seq, "hash": link, "at": at})


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
