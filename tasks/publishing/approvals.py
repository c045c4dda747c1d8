"""Signed decisions as a bundle carries them, and the rules they must satisfy."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from pydantic import Field

from models_db.canonical import Json
from models_db.errors import Refused
from models_db.services.gates import Decision
from models_db.services.people import plain_name
from models_db.tables import Approval, Principal
from tasks.publishing import signing
from tasks.publishing.layout import APPROVALS, FileUnfit, document, parse_document
from tasks.publishing.record import ReleaseRecord
from tasks.publishing.strict import Digest, Name, Strict, read_as

GATES: tuple[Literal["spend", "publish"], ...] = ("spend", "publish")


class SignedDecision(Strict):
    """One steward's decision, with everything needed to check its signature."""

    request: Annotated[int, Field(ge=1)]
    gate: Literal["spend", "publish"]
    subject_sha256: Digest
    decision: Literal["approve", "reject"]
    reason: str
    expires_at: str
    approver: Name
    public_key: str
    signature: str

    @classmethod
    def of(cls, approval: Approval, approver: Principal) -> "SignedDecision":
        """A row of the ledger, and who took the decision."""
        return cls.model_validate({
            "request": approval.request_id,
            "gate": approval.gate,
            "subject_sha256": approval.subject_digest,
            "decision": approval.decision,
            "reason": approval.reason,
            "expires_at": approval.expires_at,
            "approver": approver.name,
            "public_key": approver.public_key,
            "signature": approval.signature,
        })  # fmt: skip

    @property
    def authentic(self) -> bool:
        """Whether the approver's key signed exactly this decision."""
        decision = Decision(self.request, self.gate, self.subject_sha256, self.decision, self.reason, self.expires_at)
        return signing.verify(self.public_key, self.signature, decision.statement(self.approver))


def require_approved(decisions: Iterable[SignedDecision], record: ReleaseRecord, artifact: str) -> None:
    """Check that both gates were passed for exactly this request and these bytes.

    Expiry is not checked here: a bundle carries no times to check it against; the ledger did so at each step.

    Raises:
        NotApproved: a decision is missing, forged, a rejection, for something else, or by the wrong person.
    """
    subjects: dict[str, str] = {"spend": record.request_sha256, "publish": artifact}
    voices: dict[str, set[str]] = {gate: set() for gate in GATES}
    keys: dict[str, str] = {}
    for person in (record.people.requester, record.people.runner):
        _acquaint(keys, person.name, person.public_key, "spend")
    for decision in decisions:
        _check_decision(decision, record, subjects[decision.gate])
        _acquaint(keys, decision.approver, decision.public_key, decision.gate)
        if decision.public_key in voices[decision.gate]:
            raise NotApproved(decision.gate, f"{decision.approver!r} decided twice")
        voices[decision.gate].add(decision.public_key)
    _check_counts(voices, record)


def _acquaint(keys: dict[str, str], name: str, key: str, gate: str) -> None:
    """Note in `keys` ({plain name: key}) that `name` acts with `key`; one person has one name and one key."""
    if keys.setdefault(plain_name(name), key) != key:
        raise NotApproved(gate, f"{name!r} has two keys")
    if list(keys.values()).count(key) > 1:
        raise NotApproved(gate, f"{name!r} and somebody else have one key")


def _check_decision(decision: SignedDecision, record: ReleaseRecord, subject: str) -> None:
    for wrong, reason in (
        (decision.decision != "approve", "a steward rejected it"),
        (decision.request != record.release, "a decision is on another request"),
        (decision.subject_sha256 != subject, "a decision is on something else"),
        (not decision.reason.strip(), "a decision has no reason"),
        (not record.policy.several_roles and _took_part(decision, record), "its approver asked for it or ran it"),
        (not decision.authentic, "a signature does not fit"),
    ):
        if wrong:
            raise NotApproved(decision.gate, reason)


def _took_part(decision: SignedDecision, record: ReleaseRecord) -> bool:
    """Whether the approver is the requester or the runner, by key or by name."""
    others = (record.people.requester, record.people.runner)
    return any(
        decision.public_key == other.public_key or plain_name(decision.approver) == plain_name(other.name)
        for other in others
    )


def _check_counts(voices: Mapping[str, set[str]], record: ReleaseRecord) -> None:
    needed = {"spend": record.policy.approvals.spend, "publish": record.policy.approvals.publish}
    for gate in GATES:
        if len(voices[gate]) < needed[gate]:
            raise NotApproved(gate, f"{len(voices[gate])} of {needed[gate]} approvals")


def approvals_document(decisions: Iterable[SignedDecision]) -> bytes:
    """The content of `approvals.json`: by gate, then approver, so that it tells no order in time."""
    ordered = sorted(decisions, key=lambda d: (GATES.index(d.gate), d.approver))
    return document([decision.model_dump() for decision in ordered])


def read_approvals(data: bytes) -> list[SignedDecision]:
    """Read `approvals.json`.

    Raises:
        FileUnfit: it is not one of ours.
    """
    stored: Json = parse_document(data, APPROVALS)
    if not isinstance(stored, list):
        raise FileUnfit(APPROVALS, "is not a list of decisions")
    return [read_as(SignedDecision, one, APPROVALS) for one in stored]


class NotApproved(Refused):
    """A gate is not passed for exactly what would be published."""

    def __init__(self, gate: str, reason: str) -> None:
        super().__init__(
            f"The {gate} gate is not passed: {reason}.",
            "Let the stewards decide with `almoner approve`; any change of request or bytes voids earlier decisions.",
            {"gate": gate, "reason": reason},
        )
