"""Signed decisions of a bundle (`approvals.json`), and the rules that they must satisfy."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, Literal

from pydantic import Field

from models_db.errors import Refused
from models_db.services.gates import GateDecision
from models_db.services.people import PasskeyTerms, comparable_name
from models_db.services.requests import configuration
from models_db.tables import Approval, Passkey, Principal
from models_db.values.amounts import total_amount
from models_db.values.canonical_json import InvalidJson, Json, digest, parse_json
from models_db.values.request_state import Gate
from tasks.common.files import FileUnfit, decode_json, encode_json
from tasks.common.published_values import Digest, Name, Strict, read_as
from tasks.release.bundle_format import APPROVALS
from tasks.release.record import ReleaseRecord, Standing
from tasks.release.signatures import ed25519
from tasks.release.signatures.webauthn import challenge_of, verify_certified

LARGEST_ASSERTION: Final = 10_000
GATES: Final = (Gate.SPEND, Gate.PROPOSAL, Gate.PUBLISH)
"""A standing authorisation is approved at the gate `proposal` and replaces the decision at the spend gate."""


class PasskeyUse(Strict):
    """The passkey that signed a decision in place of the approver's own key, and what it signed beside the digest."""

    public_key: str
    rp_id: str
    origin: str
    ledger: str
    certificate: str
    """The signature of the approver's own key on the four fields above and on itself."""
    authenticator_data: str
    client_data: str

    @classmethod
    def of(cls, passkey: Passkey, stored: str, ledger: str) -> "PasskeyUse":
        """Build it from the passkey's row in a ledger and the stored assertion; an unreadable one verifies nothing."""
        try:
            assertion = parse_json(stored, most_bytes=LARGEST_ASSERTION)
        except InvalidJson:
            assertion = None
        fields = assertion if isinstance(assertion, dict) else {}
        return cls(
            public_key=passkey.public_key,
            rp_id=passkey.rp_id,
            origin=passkey.origin,
            ledger=ledger,
            certificate=passkey.signature,
            authenticator_data=str(fields.get("authenticator_data", "")),
            client_data=str(fields.get("client_data", "")),
        )

    @property
    def terms(self) -> PasskeyTerms:
        """Return what the approver's own key certified."""
        return PasskeyTerms(self.public_key, self.rp_id, self.origin, self.ledger)


def is_signed(principal_key: str, signature: str, message: bytes, passkey: PasskeyUse | None) -> bool:
    """Return whether a person signed exactly these bytes: with their own key, or with a passkey that it certified.

    This is the one check of decisions, wherever they are verified.
    """
    if passkey is None:
        return ed25519.verify(principal_key, signature, message)
    assertion = (passkey.authenticator_data, passkey.client_data, signature)
    return verify_certified(principal_key, passkey.certificate, passkey.terms, assertion, challenge_of(message))


class SignedDecision(Strict):
    """One steward's decision, with everything needed to check its signature; `request` may number a proposal."""

    request: Annotated[int, Field(ge=1)]
    gate: Annotated[Gate, Field(strict=False)]
    subject_sha256: Digest
    decision: Literal["approve", "reject"]
    reason: str
    expires_at: str
    approver: Name
    public_key: str
    signature: str
    passkey: PasskeyUse | None = None
    """Left out of the file where `public_key` itself signed."""

    @classmethod
    def of(
        cls,
        approval: Approval,
        approver: Principal,
        passkey: Passkey | None = None,
        ledger: str = "",
    ) -> "SignedDecision":
        """Build it from a row of the ledger and the rows and names that it refers to.

        Args:
            passkey: the passkey that the row names.
            ledger: the ledger's identity; a passkey that was certified for another ledger verifies nothing.

        Raises:
            ValueError: another passkey.
        """
        if approval.passkey_id != (None if passkey is None else passkey.id):
            raise ValueError("a decision is checked with the passkey that it names")
        return cls.model_validate({
            "request": approval.request_id if approval.proposal_id is None else approval.proposal_id,
            "gate": approval.gate,
            "subject_sha256": approval.subject_digest,
            "decision": approval.decision,
            "reason": approval.reason,
            "expires_at": approval.expires_at,
            "approver": approver.name,
            "public_key": approver.public_key,
            "signature": approval.signature,
            "passkey": None if passkey is None else PasskeyUse.of(passkey, approval.assertion or "", ledger),
        })  # fmt: skip

    @property
    def authentic(self) -> bool:
        """Return whether the approver's own key, or a passkey that it certified, signed exactly this decision."""
        decision = GateDecision(
            self.request,
            self.gate,
            self.subject_sha256,
            self.decision,
            self.reason,
            self.expires_at,
        )
        return is_signed(self.public_key, self.signature, decision.statement(self.approver), self.passkey)


def require_approved(decisions: Iterable[SignedDecision], record: ReleaseRecord, artifact: str) -> None:
    """Check that both gates were passed for exactly this request and these bytes.

    Expiry is not checked here: a bundle carries no times to check it against; the ledger did so at each step.

    Raises:
        NotApproved: a decision is missing, forged, a rejection, for something else, or by the wrong person.
    """
    subjects = subjects_of(record, artifact)
    decisions = list(decisions)
    keys: dict[str, str] = {}
    owners: dict[str, str] = {}
    if len({decision.passkey.ledger for decision in decisions if decision.passkey is not None}) > 1:
        raise _not_approved("publish", "its passkeys are certified for different ledgers")
    for person in (record.people.requester, record.people.runner):
        _acquaint(keys, person.name, person.public_key, "spend")
    for number, decision in enumerate(decisions):
        _check_decision(decision, record, subjects)
        _acquaint(keys, decision.approver, decision.public_key, decision.gate)
        passkey = decision.passkey
        if passkey is not None and owners.setdefault(passkey.public_key, decision.public_key) != decision.public_key:
            raise _not_approved(decision.gate, f"{decision.approver!r} and another person have the same passkey")
        if any((other.gate, other.public_key) == (decision.gate, decision.public_key) for other in decisions[:number]):
            raise _not_approved(decision.gate, f"{decision.approver!r} decided twice")
    _check_counts(decisions, record)
    if record.standing:
        _check_covered(record.standing, record)


def subjects_of(record: ReleaseRecord, artifact: str) -> dict[str, tuple[int, str]]:
    """Return the subject of decisions on a release, by gate: number and digest."""
    subjects = {"spend": (record.release, record.request_sha256), "publish": (record.release, artifact)}
    return subjects | ({"proposal": (record.standing.number, record.standing.digest)} if record.standing else {})


def _acquaint(keys: dict[str, str], name: str, key: str, gate: str) -> None:
    """Note in `keys` ({plain name: key}) that `name` acts with `key`; one person has one name and one key."""
    if keys.setdefault(comparable_name(name), key) != key:
        raise _not_approved(gate, f"{name!r} has two keys")
    if list(keys.values()).count(key) > 1:
        raise _not_approved(gate, f"{name!r} and another person have the same key")


def _check_decision(decision: SignedDecision, record: ReleaseRecord, subjects: Mapping[str, tuple[int, str]]) -> None:
    number, subject = subjects.get(decision.gate, (0, ""))
    for violated, reason in (
        (decision.decision != "approve", "a steward rejected it"),
        (decision.request != number, "a decision is about another request"),
        (decision.subject_sha256 != subject, "a decision is about other content"),
        (not decision.reason.strip(), "a decision has no reason"),
        (not record.policy.several_roles and _took_part(decision, record), "its approver requested or ran the release"),
        (not decision.authentic, "a signature does not verify"),
    ):
        if violated:
            raise _not_approved(decision.gate, reason)


def _took_part(decision: SignedDecision, record: ReleaseRecord) -> bool:
    """Return whether the approver is the requester or the runner, by key or by name."""
    name = comparable_name(decision.approver)
    others = (record.people.requester, record.people.runner)
    return any(decision.public_key == other.public_key or comparable_name(other.name) == name for other in others)


def _check_covered(standing: Standing, record: ReleaseRecord) -> None:
    """Check that the standing authorisation covers this configuration of requests and the cost of this one."""
    terms, cost = standing.said, total_amount([event.loss for event in record.events])
    for violated, reason in (
        (terms.dataset != record.dataset.name, "the standing authorisation is for another dataset"),
        (
            terms.config_digest != digest(configuration(record.request)),
            "the standing authorisation is for another configuration of requests",
        ),
        (
            cost.rho > int(terms.rho) or cost.delta > int(terms.delta_fail),
            "the release costs more than the standing authorisation allows per run",
        ),
    ):
        if violated:
            raise _not_approved("proposal", reason)


def _check_counts(decisions: Sequence[SignedDecision], record: ReleaseRecord) -> None:
    needed = required_approvals(record)
    for gate in GATES:
        approved = len({decision.public_key for decision in decisions if decision.gate == gate})
        if approved < needed[gate]:
            raise _not_approved(gate, f"{approved} of {needed[gate]} approvals")


def required_approvals(record: ReleaseRecord) -> Mapping[str, int]:
    """Return the number of approvals that each gate needs; a standing authorisation opens the spend gate."""
    rules = record.policy.rules_for(record.dataset.name)
    spend, proposal = (0, rules.proposal) if record.standing else (rules.spend, 0)
    return {"spend": spend, "proposal": proposal, "publish": rules.publish}


def passkey_approvers(decisions: Iterable[SignedDecision]) -> set[str]:
    """Return the own keys of those whose decision at the publish gate a passkey signed; each signature is verified."""
    return {
        decision.public_key
        for decision in decisions
        if decision.gate == Gate.PUBLISH and decision.passkey is not None and decision.authentic
    }


def approvals_document(decisions: Iterable[SignedDecision]) -> bytes:
    """Return the content of `approvals.json`: by gate, then approver, so that it shows no order in time."""
    ordered = sorted(decisions, key=lambda d: (GATES.index(d.gate), d.approver))
    return encode_json([decision.model_dump(exclude_none=True) for decision in ordered])


def read_approvals(data: bytes) -> list[SignedDecision]:
    """Read `approvals.json`.

    Raises:
        FileUnfit: it is not in almoner's format, or not in its one order and spelling.
    """
    stored: Json = decode_json(data, APPROVALS)
    if not isinstance(stored, list):
        raise FileUnfit(APPROVALS, "is not a list of decisions")
    decisions = [read_as(SignedDecision, entry, APPROVALS) for entry in stored]
    if approvals_document(decisions) != data:
        raise FileUnfit(APPROVALS, "is out of order, or not in its canonical spelling")
    return decisions


def _not_approved(gate: str, reason: str) -> Refused:
    return Refused(
        f"The {gate} gate is not passed: {reason}.",
        "Let the stewards decide with `almoner approve`; a change of request or bytes voids earlier decisions.",
        {"gate": gate, "reason": reason},
        code="NotApproved",
    )
