"""What an offline verification looks at, one check a function: it returns what it found, or raises what is wrong."""

import json
import os
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from models_db.errors import Refused
from models_db.policies.checks import PolicySubject, require_allowed
from models_db.values.amounts import Amount
from models_db.values.canonical_json import digest
from models_db.values.requests import model_to_json
from tasks.accounting.lifetime_claims import lifetime_claim
from tasks.accounting.policy_limits import bounds_of
from tasks.accounting.rounding import exact
from tasks.common.files import open_regular_file, read_document
from tasks.common.strict_model import read_as
from tasks.evaluation.bound_override import require_admitted
from tasks.evaluation.policy_bounds import missed, told
from tasks.evaluation.registry import METRICS
from tasks.mechanisms.registry import recompute
from tasks.publishing.derived_files import MAKERS
from tasks.publishing.documents.parquet import same_rows
from tasks.publishing.open_bundle import OpenedBundle
from tasks.release.approved_request import ApprovedRequest
from tasks.release.claim import implied_epsilon, state_claim
from tasks.release.file_names import CARD, PARQUET, RECORD, SUMS, TEXTS, checksum_lines
from tasks.release.format_versions import bundle_files, drafted_files
from tasks.release.independent_accountant import second_opinion
from tasks.release.insight_rows import require_hierarchy
from tasks.release.public_content import refuse_internal
from tasks.release.record import CapChange, Lifetime, ReleaseRecord
from tasks.release.signatures import ed25519
from tasks.release.signatures.approvals import counted_approvals, require_approved, required_approvals
from tasks.release.signatures.attestation import require_attested
from tasks.release.signatures.in_toto_statement import statement
from tasks.release.text_rows import fields, labels_of_texts, line, part, text_of
from tasks.release.wording.insight_text import clusters_asked, threshold_of
from tasks.values.release_kinds import ReleaseKind

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
_LONGEST_LINE = 16 << 20
_LARGEST_REPORTABLE = 100  # beyond, dp-accounting's curves take memory without end
_TOLERANCE = Decimal("0.01")  # versions of dp-accounting search different grids of orders


class CheckFailed(Refused):
    """One thing in a bundle that is not as it should be."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, "Do not rely on this bundle.")


def files(bundle: OpenedBundle) -> str:
    """Exactly the files of a bundle, and each a plain one."""
    present, expected = set(os.listdir(bundle.folder)), bundle_files(bundle.kind)
    if missing := sorted(set(expected) - present):
        raise CheckFailed(f"missing: {', '.join(missing)}")
    if present != set(expected):
        raise CheckFailed(f"{len(present) - len(expected)} files too many")
    for name in expected:
        with open_regular_file(bundle.folder / name):
            pass
    return f"{len(expected)} files, none missing, none too many"


def digests(bundle: OpenedBundle) -> str:
    """SHA256SUMS is exactly the list of the files' digests."""
    listed = read_document(bundle.folder / SUMS)
    if listed == checksum_lines({name: str(facts["sha256"]) for name, facts in bundle.digests.items()}):
        return "every file has its digest in SHA256SUMS"
    for name, facts in bundle.digests.items():
        if f"{facts['sha256']}  {name}\n".encode() not in listed:
            raise CheckFailed(f"{name} does not have the digest that SHA256SUMS lists")
    raise CheckFailed("SHA256SUMS lists other files, or is out of form")


def signature(bundle: OpenedBundle) -> str:
    """The seal is its key's on SHA256SUMS."""
    if not bundle.seal.fits(read_document(bundle.folder / SUMS)):
        raise CheckFailed("the signature does not fit SHA256SUMS")
    return f"signed by the key {ed25519.fingerprint(bundle.seal.public_key)}"


def record(bundle: OpenedBundle) -> str:
    """The record is in its format."""
    return f"release {bundle.record.release}, format {bundle.record.format}"


def request(bundle: OpenedBundle) -> str:
    """The record is what follows from the approved request, and the request has the stated digest."""
    found = bundle.record
    if digest(found.request) != found.request_sha256:
        raise CheckFailed("the request does not have the stated digest")
    if found.request["policy"] != digest(model_to_json(found.policy)):
        raise CheckFailed("the request was made under another policy")
    given: dict[str, Any] = {name: getattr(found, name) for name in _NOT_IN_THE_REQUEST}
    rebuilt = ReleaseRecord.from_request(found.release, found.request, **given).to_json()
    stated = found.to_json()
    if wrong := sorted(name for name in stated if stated[name] != rebuilt[name]):
        raise CheckFailed(f"not what the approved request says: {', '.join(wrong)}")
    return "claim, mechanisms and parameters are those of the approved request"


def plan(bundle: OpenedBundle) -> str:
    """The request is in its format, and mechanism and parameters lead to exactly the planned events."""
    asked = read_as(ApprovedRequest, bundle.record.request, RECORD)
    asked.require_planned()
    return f"planned again from {asked.mechanism!r} and its parameters"


def events(bundle: OpenedBundle) -> str:
    """Each event's loss is what its parameters cost."""
    for event in bundle.record.events:
        if recompute(event) != event.loss:
            raise CheckFailed(f"a {event.mechanism!r} event costs more or less than it states")
    return f"{len(bundle.record.events)} events, each recomputed to the last digit"


def claim(bundle: OpenedBundle) -> str:
    """The recomputed losses imply no more than is claimed, and fit into the dataset's lifetime claim."""
    found = bundle.record
    if found.claim is None:
        return "the release claims nothing; the dataset is marked as public"
    epsilon, delta = exact(found.claim.epsilon), exact(found.claim.delta)
    if found.claim != state_claim(found.events, epsilon, delta):
        raise CheckFailed("the claim's figures do not follow from the events")
    spent = bundle.vouched
    implied = implied_epsilon(spent, delta)
    if Fraction(implied) > epsilon:
        raise CheckFailed(f"the events imply epsilon {implied}, more than the claimed {found.claim.epsilon}")
    if found.lifetime:
        _require_leading(found.cap_changes, found.lifetime)
    if found.lifetime and not spent.fits(lifetime_claim(found.lifetime.epsilon, found.lifetime.delta).cap):
        raise CheckFailed("the release alone exceeds the lifetime claim of its dataset")
    paid = f", paid with release {found.parent}," if found.parent else ""
    claimed = f"claimed {found.claim.epsilon} at {found.claim.delta}"
    return f"rho {spent.rho_text}{paid} implies epsilon {implied}, {claimed}"


def _require_leading(changes: Sequence[CapChange], lifetime: Lifetime) -> None:
    """Each change starts where the one before ended, and the last ends at the lifetime claim; all give amounts."""
    ends = [(one.new_epsilon, one.new_delta) for one in changes]
    starts = [(one.old_epsilon, one.old_delta) for one in changes[1:]]
    if changes and [*starts, (lifetime.epsilon, lifetime.delta)] != ends:
        raise CheckFailed("the changes of the dataset's budget do not lead to its lifetime claim")
    for one in changes:
        lifetime_claim(one.old_epsilon, one.old_delta)  # raises where no caps follow


def independent_accountant(bundle: OpenedBundle) -> str:
    """dp-accounting, as installed here, reads about the stated figure out of the events."""
    stated, promised = bundle.record.second_opinion, bundle.record.claim
    if promised is None or bundle.spent == Amount():
        return "nothing to account for"
    if stated is None:
        raise CheckFailed("the record has no second opinion")
    if exact(promised.epsilon) > _LARGEST_REPORTABLE:
        return f"not recomputed: epsilon is above {_LARGEST_REPORTABLE}"
    found = second_opinion(bundle.record.events, promised.delta)
    ours, theirs = Decimal(found.epsilon if found else 0), Decimal(stated.epsilon)
    if stated.delta != promised.delta or abs(ours - theirs) > _TOLERANCE * max(ours, theirs):
        raise CheckFailed(f"dp-accounting gives epsilon {ours} here, the record states {theirs}")
    return f"dp-accounting gives epsilon {ours}"


def texts(bundle: OpenedBundle) -> str:
    """One numbered text a line, in the form of its kind and with its label, as many as the request asked for.

    How many insights there are follows from what was released; they are one hierarchy, within the request's bounds.
    """
    count, found = 0, bundle.record
    if found.kind == ReleaseKind.INSIGHTS:
        require_hierarchy(bundle.insights, clusters_asked(found), threshold_of(found))
        return f"{len(bundle.insights)} insights, in one hierarchy"
    samples = found.request["parameters"]["samples"]
    blocks = len(found.request["plan"]["blocks"])
    labels = labels_of_texts(found.kind, found.labels, samples, blocks) if found.labels else []
    with open_regular_file(bundle.folder / TEXTS) as file:
        while stored := file.readline(_LONGEST_LINE):
            count += 1
            row = _row(stored, found.kind, count, labelled=bool(labels))
            if labels and row[part(found.kind)] not in (labels[count - 1 : count] if found.claim else found.labels):
                raise CheckFailed(f"line {count} has another {part(found.kind)} than its place")
    if found.claim is not None and count != samples:
        raise CheckFailed(f"{count} texts, not as many as were asked for")
    return f"{count} texts"


def _row(stored: bytes, kind: str, number: int, *, labelled: bool) -> dict[str, Any]:
    """A line of texts that is, byte for byte, the one its own values lead to."""
    try:
        row = json.loads(stored)
        given = (text_of(row), row[part(kind)] if labelled else None)
        expected = line(kind, number, *given)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise CheckFailed(f"line {number} is not {_what(kind, labelled=labelled)}") from None
    if not set(row) - {"record"} <= (wanted := fields(kind, labelled=labelled)) or not wanted <= set(row):
        raise CheckFailed(f"line {number} is not {_what(kind, labelled=labelled)}")
    if row["id"] != number or isinstance(row["id"], bool):
        raise CheckFailed(f"line {number} is out of order")
    if expected != stored:
        raise CheckFailed(f"line {number} is not in its one form")
    return dict(row)


def _what(kind: str, *, labelled: bool) -> str:
    content = "record" if kind == ReleaseKind.RECORDS else "text"
    return (f"an id, a {part(kind)} and a " if labelled else "an id and a ") + content


def measurements(bundle: OpenedBundle) -> str:
    """Only metrics that may be published, and those that were asked for."""
    found = bundle.metrics
    refuse_internal(found, bundle.record)
    for metric in found:
        if metric.name not in METRICS or METRICS[metric.name].exposure != metric.exposure:
            raise CheckFailed(f"a metric {metric.name!r} marked {metric.exposure!r} is unknown here")
    if [metric.name for metric in found] != list(dict.fromkeys(bundle.record.request["evaluation"])):
        raise CheckFailed("not the metrics of the request")
    return f"{len(found)} metrics, all publishable"


def policy(bundle: OpenedBundle) -> str:
    """The policy allows the request, and the measurements are within its bounds or every approval overrides them.

    A bundle tells nothing of pacing.
    """
    found = bundle.record
    rules = found.policy.rules_for(found.dataset.name)
    require_allowed(rules, bounds_of(rules), PolicySubject.from_request(found.request))
    measured = {metric.name: metric for metric in bundle.metrics}
    if not (outside := missed(rules.required, measured)):
        return "the request and the measurements are as the policy demands"
    require_admitted(found.release, rules, measured, [one.reason for one in bundle.approvals if one.gate == "publish"])
    return f"published in spite of its policy, which those who approved overrode: {told(outside)}"


def approvals(bundle: OpenedBundle) -> str:
    """Both gates were passed for this request and these bytes."""
    require_approved(bundle.approvals, bundle.record, bundle.artifact)
    names = sorted({decision.approver for decision in bundle.approvals})
    return f"signed by {', '.join(map(repr, names))}"


def attestation(bundle: OpenedBundle) -> str:
    """As many approvers as the policy asks for, and the publisher, signed the statement on exactly these files."""
    threshold = required_approvals(bundle.record)["publish"]
    require_attested(
        bundle.attestation,
        statement(bundle.record, bundle.drafted),
        stewards=[one.public_key for one in bundle.approvals if one.gate == "publish"],
        voices=counted_approvals(bundle.approvals, "publish"),
        threshold=threshold,
        publisher=bundle.seal.public_key,
    )
    return f"signed by the publisher and {threshold} or more of those who approved"


def revocations(bundle: OpenedBundle) -> str:
    """The bundle is not on its own list of retracted artifacts."""
    bundle.revocations.require_valid(bundle.artifact)
    return f"{len(bundle.revocations.revoked)} retracted, this release not among them"


def checkpoint(bundle: OpenedBundle) -> str:
    """The checkpoint is the publisher's, for this artifact."""
    found = bundle.checkpoint
    if found.artifact_sha256 != bundle.artifact:
        raise CheckFailed("the checkpoint is for another artifact")
    if not found.authentic or found.public_key != bundle.seal.public_key:
        raise CheckFailed("the checkpoint is not signed by the publisher's key")
    return f"audit chain at {found.ledger_head}"


def columns(bundle: OpenedBundle) -> str:
    """The Parquet file has the rows of the texts, and nothing beside them."""
    # What is not the listed file is refused without being parsed.
    listed = read_document(bundle.folder / SUMS)
    if f"{bundle.digests[PARQUET]['sha256']}  {PARQUET}\n".encode() not in listed:
        raise CheckFailed(f"{PARQUET} does not have the digest that SHA256SUMS lists")
    found = bundle.record
    with open_regular_file(bundle.folder / TEXTS) as rows, open_regular_file(bundle.folder / PARQUET) as file:
        same = same_rows(file.read(), rows.readlines(), found.kind, labelled=bool(found.labels))
    if not same:
        raise CheckFailed(f"{PARQUET} has other columns or rows than {TEXTS}")
    return f"{PARQUET} has the rows of {TEXTS}"


def generated(name: str) -> Callable[[OpenedBundle], str]:
    """The check that a generated file is, byte for byte, the one that follows from record, measurements and texts."""

    def check(bundle: OpenedBundle) -> str:
        if name not in drafted_files(bundle.kind):
            return f"only releases of insights have {name}"
        if read_document(bundle.folder / name) != MAKERS[name](bundle.disclosure).encode():
            raise CheckFailed(f"{name} is not the one that this version of almoner writes for this record")
        return "says what the record and the measurements say, and nothing else"

    return check


def not_retracted(later: OpenedBundle, *, holds: bool) -> Callable[[OpenedBundle], str]:
    """The check that a bundle is not on the list of another one, of which `holds` says whether it verifies."""

    def retraction(bundle: OpenedBundle) -> str:
        if not holds:
            raise CheckFailed(f"the bundle {later.folder.name} does not verify, so its list says nothing")
        later.revocations.require_valid(bundle.artifact)
        signer = "the same key" if later.seal.public_key == bundle.seal.public_key else "ANOTHER key"
        return f"not on the list of {later.folder.name}, signed by {signer}"

    return retraction


def carries_key(trusted: str) -> Callable[[OpenedBundle], str]:
    """The check that the bundle is signed by the key one trusts."""

    def authenticity(bundle: OpenedBundle) -> str:
        if bundle.seal.public_key != trusted:
            raise CheckFailed(f"signed by {ed25519.fingerprint(bundle.seal.public_key)}, not by the trusted key")
        return "signed by the trusted key"

    return authenticity


CHECKED_AS: Final = {CARD: "card"}
"""Names of checks of generated files that are not the file's."""

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
    ("columns", columns),
    *((CHECKED_AS.get(name, name), generated(name)) for name in MAKERS),
)
