"""Checks of an offline verification, one function each: it returns its finding, or raises the problem.

A check is given a bundle in a folder, whose files are read on first use (`OpenedBundle`).
"""

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from models_db.errors import Refused
from models_db.policies.checks import PolicySubject, require_allowed
from models_db.values.amounts import Amount, total_amount
from models_db.values.canonical_json import digest
from models_db.values.requests import model_to_json
from models_db.values.untrusted_text import escape_controls
from tasks.accounting.lifetime_claims import lifetime_claim
from tasks.accounting.renyi_account import bounds_of
from tasks.accounting.rounding import exact
from tasks.common.files import FileTable, FileUnfit, measure, open_regular_file, read_document
from tasks.common.published_values import read_as
from tasks.evaluation.policy_bounds import describe_checks, missed, require_admitted
from tasks.evaluation.registry import METRICS
from tasks.mechanisms.core.uncharged import loss_paid_by_parent
from tasks.mechanisms.registry import recompute
from tasks.planning.secret_assignment import CONDITION, assignment_of_plan
from tasks.publishing.documents.parquet import same_rows
from tasks.publishing.draft import MAKERS, read_metrics
from tasks.release.approved_request import ApprovedRequest
from tasks.release.bundle_format import (
    APPROVALS,
    ATTESTATION,
    CARD,
    CHECKPOINT,
    EVALUATION,
    PARQUET,
    RECORD,
    REVOCATIONS,
    SUMS,
    SUMS_SIGNATURE,
    TEXTS,
    bundle_files,
    checksum_lines,
    drafted_files,
    label_field,
    labels_of_texts,
    read_insights,
    read_labelled,
    stated_kind,
    summed_files,
    text_fields,
    text_line,
    text_of,
)
from tasks.release.claim import implied_epsilon, state_claim
from tasks.release.description import wording_of
from tasks.release.record import CapChange, Lifetime, PublicContent, ReleaseRecord, refuse_internal, second_opinion
from tasks.release.signatures import ed25519
from tasks.release.signatures.approvals import (
    SignedDecision,
    passkey_approvers,
    read_approvals,
    require_approved,
    required_approvals,
)
from tasks.release.signatures.attestation import in_toto_statement, read_envelope, require_attested
from tasks.release.signatures.publisher_statements import Checkpoint, Revocations, Seal
from tasks.systems.registry import SYSTEMS
from tasks.values.results import Insight, MetricResult, ReleaseKind

if TYPE_CHECKING:
    from securesystemslib.dsse import Envelope


class OpenedBundle:
    """A bundle at `folder`; every property raises FileUnfit where its file cannot be read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def kind(self) -> str:
        """The kind of release that the record names, even in an invalid record; empty if there is no record."""
        try:
            return stated_kind(read_document(self.folder / RECORD))
        except FileUnfit:
            return ""

    @cached_property
    def record(self) -> ReleaseRecord:
        """The content of release.json."""
        return ReleaseRecord.from_bytes(read_document(self.folder / RECORD))

    @cached_property
    def metrics(self) -> list[MetricResult]:
        """The content of evaluation.json."""
        return read_metrics(read_document(self.folder / EVALUATION))

    @cached_property
    def seal(self) -> Seal:
        """The content of SHA256SUMS.sig."""
        return Seal.from_bytes(read_document(self.folder / SUMS_SIGNATURE))

    @cached_property
    def approvals(self) -> list[SignedDecision]:
        """The content of approvals.json."""
        return read_approvals(read_document(self.folder / APPROVALS))

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The content of checkpoint.json."""
        return Checkpoint.from_bytes(read_document(self.folder / CHECKPOINT))

    @cached_property
    def attestation(self) -> "Envelope":
        """The content of attestation.json."""
        return read_envelope(read_document(self.folder / ATTESTATION))

    @cached_property
    def revocations(self) -> Revocations:
        """The content of revocations.json."""
        return Revocations.from_bytes(read_document(self.folder / REVOCATIONS))

    @cached_property
    def digests(self) -> FileTable:
        """Digests and sizes of the files as they are now."""
        return {name: measure(self.folder / name) for name in summed_files(self.kind)}

    @property
    def drafted(self) -> FileTable:
        """The files of the draft, as they are now."""
        return {name: self.digests[name] for name in drafted_files(self.kind)}

    @cached_property
    def disclosure(self) -> PublicContent:
        """The input of every generated file; raises UnpublishableMetric where a metric may not be published."""
        data = {name: facts for name, facts in self.drafted.items() if name in (TEXTS, PARQUET)}
        texts, insights = tuple(read_labelled(self.folder)), tuple(self.insights)
        return PublicContent(self.record, tuple(self.metrics), data, texts, insights)

    @cached_property
    def insights(self) -> list[Insight]:
        """The nodes of texts.jsonl; empty in a release of another kind."""
        return list(read_insights(self.folder)) if self.record.kind == ReleaseKind.INSIGHTS else []

    @property
    def artifact(self) -> str:
        """The digest that the publish gate approves."""
        return digest(self.drafted)

    @property
    def spent(self) -> Amount:
        """The sum of the losses of the record's events, each recomputed from its parameters."""
        return total_amount([recompute(event) for event in self.record.events])

    @property
    def vouched(self) -> Amount:
        """Loss that the claim rests on: `spent`, and the loss of the release that it extends."""
        return loss_paid_by_parent([replace(event, loss=recompute(event)) for event in self.record.events])


_NOT_IN_THE_REQUEST = (
    "second_opinion",
    "lifetime",
    "released",
    "policy",
    "people",
    "libraries",
    "rng",
    "cap_changes",
    "standing",
    "unprotected_figures",
)
PASSED_OVER: Final = frozenset({".gitattributes", ".git", ".cache", ".DS_Store", "Thumbs.db"})
"""Names that the Hugging Face Hub, git, its downloads and file managers add beside the files of a bundle."""
_MOST_NAMED = 10
_LONGEST_NAME = 100
_LONGEST_LINE = 16 << 20
_NUMBERS = re.compile(r"-?([0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?|inf|nan)(, -?[0-9]+)*", re.ASCII)
_LARGEST_REPORTABLE = 100  # above it, dp-accounting's curves take unbounded memory
_TOLERANCE = Decimal("0.01")  # versions of dp-accounting search different grids of orders


def _check_failed(reason: str) -> Refused:
    return Refused(reason, "Do not rely on this bundle.", code="CheckFailed")


def files(bundle: OpenedBundle) -> str:
    """Check that the folder holds the files of a bundle, all of them regular, and beside them `PASSED_OVER` at most."""
    present, expected = set(os.listdir(bundle.folder)), bundle_files(bundle.kind)
    if missing := sorted(set(expected) - present):
        raise _check_failed(f"missing: {', '.join(missing)}")
    if unexpected := sorted(present - set(expected) - PASSED_OVER):
        named = ", ".join(escape_controls(name[:_LONGEST_NAME]) for name in unexpected[:_MOST_NAMED])
        more = f" and {len(unexpected) - _MOST_NAMED} more" if len(unexpected) > _MOST_NAMED else ""
        raise _check_failed(f"{len(unexpected)} unexpected files: {named}{more}")
    for name in expected:
        with open_regular_file(bundle.folder / name):
            pass
    found = f"{len(expected)} files, none missing, none unexpected"
    return f"{found}; not read: {', '.join(left)}" if (left := passed_over(bundle)) else found


def passed_over(bundle: OpenedBundle) -> list[str]:
    """Return the names in a bundle's folder that are no part of it and that nothing reads."""
    return sorted(PASSED_OVER & set(os.listdir(bundle.folder)))


def digests(bundle: OpenedBundle) -> str:
    """Check that SHA256SUMS is exactly the list of the files' digests."""
    listed = read_document(bundle.folder / SUMS)
    if listed == checksum_lines({name: str(facts["sha256"]) for name, facts in bundle.digests.items()}):
        return "every file has its digest in SHA256SUMS"
    for name, facts in bundle.digests.items():
        if f"{facts['sha256']}  {name}\n".encode() not in listed:
            raise _check_failed(f"{name} does not have the digest that SHA256SUMS lists")
    raise _check_failed("SHA256SUMS lists other files, or is not in its format")


def signature(bundle: OpenedBundle) -> str:
    """Check that the seal is a valid signature on SHA256SUMS."""
    if not bundle.seal.fits(read_document(bundle.folder / SUMS)):
        raise _check_failed("the signature is not valid for SHA256SUMS")
    return f"signed by the key {ed25519.fingerprint(bundle.seal.public_key)}"


def record(bundle: OpenedBundle) -> str:
    """Check that the record is in its format, and its released figures are numbers of its own mechanism."""
    _require_figures(bundle.record)
    return f"release {bundle.record.release}, format {bundle.record.format}"


def _require_figures(record: ReleaseRecord) -> None:
    """Check that released figures are numbers.

    Raises:
        CheckFailed: a figure is none. Its value was drawn, so it cannot be computed again.
    """
    if not all(_NUMBERS.fullmatch(figure) for figure in record.released.values()):
        raise _check_failed("a released figure is not a number")


def request(bundle: OpenedBundle) -> str:
    """Check that the record follows from the approved request, and that the request has the stated digest."""
    record = bundle.record
    if digest(record.request) != record.request_sha256:
        raise _check_failed("the request does not have the stated digest")
    if record.request["policy"] != digest(model_to_json(record.policy)):
        raise _check_failed("the request was made under another policy")
    further_fields: dict[str, Any] = {name: getattr(record, name) for name in _NOT_IN_THE_REQUEST}
    rebuilt = ReleaseRecord.from_request(record.release, record.request, **further_fields).to_json()
    stored = record.to_json()
    if differences := sorted(name for name in stored if stored[name] != rebuilt[name]):
        raise _check_failed(f"not what follows from the approved request: {', '.join(differences)}")
    return "claim, mechanisms and parameters are those of the approved request"


def plan(bundle: OpenedBundle) -> str:
    """Check the request's format, and that its mechanism and parameters lead to exactly the planned events."""
    request = read_as(ApprovedRequest, bundle.record.request, RECORD)
    request.require_planned()
    return f"planned again from {request.mechanism!r} and its parameters"


def events(bundle: OpenedBundle) -> str:
    """Check that each event's loss is the cost of its parameters."""
    for event in bundle.record.events:
        if recompute(event) != event.loss:
            raise _check_failed(f"the cost of a {event.mechanism!r} event is not the one that it states")
    return f"{len(bundle.record.events)} events, each recomputed to the last digit"


def claim(bundle: OpenedBundle) -> str:
    """Check that the recomputed losses imply at most the claim, and fit into the dataset's lifetime claim."""
    record = bundle.record
    if record.claim is None:
        return "the release makes no claim; the dataset is marked as public"
    epsilon, delta = exact(record.claim.epsilon), exact(record.claim.delta)
    if record.claim != state_claim(record.events, epsilon, delta, assignment_of_plan(record.request["plan"])):
        raise _check_failed("the claim's figures do not follow from the events")
    loss = bundle.vouched
    implied = implied_epsilon(loss, delta)
    if Fraction(implied) > epsilon:
        raise _check_failed(f"the events imply epsilon {implied}, more than the claimed {record.claim.epsilon}")
    if record.lifetime:
        _require_leading(record.cap_changes, record.lifetime)
    if record.lifetime and not loss.fits(lifetime_claim(record.lifetime.epsilon, record.lifetime.delta).cap):
        raise _check_failed("the release alone exceeds the lifetime claim of its dataset")
    paid = f", paid with release {record.parent}," if record.parent else ""
    claimed = f"claimed {record.claim.epsilon} at {record.claim.delta}"
    if (secret := record.claim.secret_assignment) is not None:
        if int(record.released.get("batches_per_block", 0)) < secret.batches:
            raise _check_failed("the release was split into fewer batches than its claim counts")
        claimed += f"; epsilon {secret.epsilon} {CONDITION}, recomputed"
    return f"rho {loss.rho_text}{paid} implies epsilon {implied}, {claimed}"


def _require_leading(changes: Sequence[CapChange], lifetime: Lifetime) -> None:
    """Check that each change starts at the end of the one before, the last ends at `lifetime`, and all have caps."""
    ends = [(change.new_epsilon, change.new_delta) for change in changes]
    starts = [(change.old_epsilon, change.old_delta) for change in changes[1:]]
    if changes and [*starts, (lifetime.epsilon, lifetime.delta)] != ends:
        raise _check_failed("the changes of the dataset's budget do not lead to its lifetime claim")
    for change in changes:
        lifetime_claim(change.old_epsilon, change.old_delta)  # raises where no caps follow from it


def independent_accountant(bundle: OpenedBundle) -> str:
    """Check that dp-accounting, as installed here, computes about the stated figure from the events."""
    recorded, claim = bundle.record.second_opinion, bundle.record.claim
    if claim is None or bundle.spent == Amount():
        return "nothing to account for"
    if recorded is None:
        raise _check_failed("the record has no second opinion")
    if exact(claim.epsilon) > _LARGEST_REPORTABLE:
        return f"not recomputed: epsilon is above {_LARGEST_REPORTABLE}"
    recomputed = second_opinion(bundle.record.events, claim.delta)
    ours, theirs = Decimal(recomputed.epsilon if recomputed else 0), Decimal(recorded.epsilon)
    if recorded.delta != claim.delta or abs(ours - theirs) > _TOLERANCE * max(ours, theirs):
        raise _check_failed(f"dp-accounting gives epsilon {ours} here, the record states {theirs}")
    return f"dp-accounting gives epsilon {ours}"


def texts(bundle: OpenedBundle) -> str:
    """Check for one numbered text per line, in the form of its kind and with its label, as many as requested.

    Labels follow from the request; of a proportional allocation, from the released histogram.

    The number of insights follows from the released values; they are one hierarchy, within the request's bounds.
    """
    count, record = 0, bundle.record
    if record.kind == ReleaseKind.INSIGHTS:
        return wording_of(record).require_rows(bundle.insights, record)
    labels = _labels(record)
    with open_regular_file(bundle.folder / TEXTS) as file:
        while stored_line := file.readline(_LONGEST_LINE):
            count += 1
            row = _row(stored_line, record.kind, count, labelled=bool(labels))
            allowed = labels[count - 1 : count] if record.claim else record.labels
            if labels and row[label_field(record.kind)] not in allowed:
                raise _check_failed(f"line {count} has another {label_field(record.kind)} than its position requires")
    if record.claim is not None and count != record.texts:
        raise _check_failed(f"{count} texts, the request asks for {record.texts}")
    return f"{count} texts"


def _labels(record: ReleaseRecord) -> list[str | None]:
    """Return the label of every drawn text, in their public order; empty without labels."""
    system = SYSTEMS.get(record.mechanism)
    of_blocks = system is None or system.texts_have_blocks
    blocks = len(record.request["plan"]["blocks"]) if of_blocks else 1
    samples = record.request["parameters"]["samples"]
    return labels_of_texts(record.kind, record.labels, samples, blocks) if record.labels else []


def _row(stored: bytes, kind: str, number: int, *, labelled: bool) -> dict[str, Any]:
    """Parse a line of texts that is, byte for byte, the one that its own values lead to."""
    try:
        row = json.loads(stored)
        values = (text_of(row), row[label_field(kind)] if labelled else None)
        expected = text_line(kind, number, *values)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _check_failed(f"line {number} is not {_what(kind, labelled=labelled)}") from None
    if not set(row) - {"record"} <= (required := text_fields(kind, labelled=labelled)) or not required <= set(row):
        raise _check_failed(f"line {number} is not {_what(kind, labelled=labelled)}")
    if row["id"] != number or isinstance(row["id"], bool):
        raise _check_failed(f"line {number} is out of order")
    if expected != stored:
        raise _check_failed(f"line {number} is not in its one form")
    return dict(row)


def _what(kind: str, *, labelled: bool) -> str:
    content = "record" if kind == ReleaseKind.RECORDS else "text"
    return (f"an id, a {label_field(kind)} and a " if labelled else "an id and a ") + content


def measurements(bundle: OpenedBundle) -> str:
    """Check that the metrics are publishable, and exactly those of the request."""
    metrics = bundle.metrics
    refuse_internal(metrics, bundle.record)
    for metric in metrics:
        if metric.name not in METRICS or METRICS[metric.name].exposure != metric.exposure:
            raise _check_failed(f"a metric {metric.name!r} marked {metric.exposure!r} is unknown here")
    if [metric.name for metric in metrics] != list(dict.fromkeys(bundle.record.request["evaluation"])):
        raise _check_failed("not the metrics of the request")
    return f"{len(metrics)} metrics, all publishable"


def policy(bundle: OpenedBundle) -> str:
    """Check that the policy allows the request, and that its bounds are met or overridden by every approval."""
    record = bundle.record
    rules = record.policy.rules_for(record.dataset.name)
    require_allowed(rules, bounds_of(rules), PolicySubject.from_request(record.request))
    measured = {metric.name: metric for metric in bundle.metrics}
    if not (outside := missed(rules.required, measured)):
        return "the request and the measurements satisfy the policy"
    require_admitted(
        record.release,
        rules,
        measured,
        [approval.reason for approval in bundle.approvals if approval.gate == "publish"],
    )
    return f"published outside its policy, which the approvers overrode: {describe_checks(outside)}"


def approvals(bundle: OpenedBundle) -> str:
    """Check that both gates were passed for this request and these bytes."""
    require_approved(bundle.approvals, bundle.record, bundle.artifact)
    names = sorted({decision.approver for decision in bundle.approvals})
    used = sorted({decision.approver for decision in bundle.approvals if decision.passkey is not None})
    passkeys = f"; with a passkey by {', '.join(map(repr, used))}" if used else ""
    return f"signed by {', '.join(map(repr, names))}{passkeys}"


def attestation(bundle: OpenedBundle) -> str:
    """Check that as many approvers as the policy asks for, and the publisher, signed the statement on these files."""
    threshold = required_approvals(bundle.record)["publish"]
    require_attested(
        bundle.attestation,
        in_toto_statement(bundle.record, bundle.drafted),
        stewards=[approval.public_key for approval in bundle.approvals if approval.gate == "publish"],
        by_passkey=passkey_approvers(bundle.approvals),
        threshold=threshold,
        publisher=bundle.seal.public_key,
    )
    if passkey_approvers(bundle.approvals):
        return f"signed by the publisher; {threshold} or more of the approvers signed it, or these files with a passkey"
    return f"signed by the publisher and {threshold} or more of the approvers"


def revocations(bundle: OpenedBundle) -> str:
    """Check that the bundle is not on its own list of retracted artifacts."""
    bundle.revocations.require_valid(bundle.artifact)
    return f"{len(bundle.revocations.revoked)} retracted, this release not among them{_exposure(bundle, bundle)}"


def is_exposed(bundle: OpenedBundle, listing: OpenedBundle) -> bool:
    """Return whether the revocation list of `listing` says that the assignment of `bundle`'s release got out."""
    return bundle.artifact in listing.revocations.exposed


def _exposure(listing: OpenedBundle, bundle: OpenedBundle) -> str:
    return "; its assignment got out" if is_exposed(bundle, listing) else ""


def checkpoint(bundle: OpenedBundle) -> str:
    """Check that the checkpoint is for this artifact and signed by the publisher."""
    checkpoint = bundle.checkpoint
    if checkpoint.artifact_sha256 != bundle.artifact:
        raise _check_failed("the checkpoint is for another artifact")
    if not checkpoint.authentic or checkpoint.public_key != bundle.seal.public_key:
        raise _check_failed("the checkpoint is not signed by the publisher's key")
    return f"audit chain at {checkpoint.ledger_head}"


def charge(bundle: OpenedBundle) -> str:
    """Check that the ledger has charged every block of the plan at least what the release's events cost."""
    charged, cost = bundle.checkpoint.charged, bundle.spent
    if list(charged.blocks) != bundle.record.request["plan"]["blocks"]:
        raise _check_failed("the ledger has charged other blocks than those of the approved plan")
    if exact(charged.rho) < exact(cost.rho_text) or exact(charged.delta) < exact(cost.delta_text):
        raise _check_failed(f"the ledger has charged rho {charged.rho} on a block, and the events cost {cost.rho_text}")
    return f"the ledger has charged rho {charged.rho} on each block; the events cost rho {cost.rho_text}"


def columns(bundle: OpenedBundle) -> str:
    """Check that the Parquet file has the rows of the texts, and nothing else."""
    # A file that SHA256SUMS does not list is refused without being parsed.
    listed = read_document(bundle.folder / SUMS)
    if f"{bundle.digests[PARQUET]['sha256']}  {PARQUET}\n".encode() not in listed:
        raise _check_failed(f"{PARQUET} does not have the digest that SHA256SUMS lists")
    record = bundle.record
    with open_regular_file(bundle.folder / TEXTS) as rows, open_regular_file(bundle.folder / PARQUET) as file:
        same = same_rows(file.read(), rows.readlines(), record.kind, labelled=bool(record.labels))
    if not same:
        raise _check_failed(f"{PARQUET} has other columns or rows than {TEXTS}")
    return f"{PARQUET} has the rows of {TEXTS}"


def generated(name: str) -> Callable[[OpenedBundle], str]:
    """Return the check that a generated file follows, byte for byte, from record, measurements and texts."""

    def check(bundle: OpenedBundle) -> str:
        if name not in drafted_files(bundle.kind):
            return f"only releases of insights have {name}"
        if read_document(bundle.folder / name) != MAKERS[name](bundle.disclosure).encode():
            raise _check_failed(f"{name} is not the one that this version of almoner writes for this record")
        return "follows from the record and the measurements alone"

    return check


def not_retracted(later: OpenedBundle, *, holds: bool) -> Callable[[OpenedBundle], str]:
    """Return the check that a bundle is not on the revocation list of `later`; `holds` is whether `later` verifies."""

    def retraction(bundle: OpenedBundle) -> str:
        if not holds:
            raise _check_failed(f"the bundle {later.folder.name} does not verify, so its list cannot be used")
        later.revocations.require_valid(bundle.artifact)
        signer = "the same key" if later.seal.public_key == bundle.seal.public_key else "ANOTHER key"
        return f"not on the list of {later.folder.name}, signed by {signer}{_exposure(later, bundle)}"

    return retraction


def carries_key(trusted: str) -> Callable[[OpenedBundle], str]:
    """Return the check that the bundle is signed by the trusted key."""

    def authenticity(bundle: OpenedBundle) -> str:
        if bundle.seal.public_key != trusted:
            raise _check_failed(f"signed by {ed25519.fingerprint(bundle.seal.public_key)}, not by the trusted key")
        return "signed by the trusted key"

    return authenticity


CHECKED_AS: Final = {CARD: "card"}
"""Names of checks of generated files that differ from the file name."""

CHECKS: Final[tuple[tuple[str, Callable[[OpenedBundle], str]], ...]] = (
    ("files", files),
    ("digests", digests),
    ("signature", signature),
    ("record", record),
    ("request", request),
    ("plan", plan),
    ("events", events),
    ("claim", claim),
    ("independent accountant", independent_accountant),
    ("texts", texts),
    ("measurements", measurements),
    ("policy", policy),
    ("approvals", approvals),
    ("attestation", attestation),
    ("revocations", revocations),
    ("checkpoint", checkpoint),
    ("charge", charge),
    ("columns", columns),
    *((CHECKED_AS.get(name, name), generated(name)) for name in MAKERS),
)
