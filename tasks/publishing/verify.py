"""Verification of a bundle: offline, without a database, trusting only signed content."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from models_db.errors import AlmonerError, Refused, UsageError
from models_db.values.canonical_json import Json
from models_db.values.untrusted_text import escape_controls
from tasks.accounting.rounding import exact
from tasks.object_storage.address import Address, Place
from tasks.planning.secret_assignment import SecretAssignment
from tasks.publishing import checks
from tasks.publishing.checks import CHECKS, OpenedBundle
from tasks.release.bundle_format import RECORD
from tasks.release.claim import implied_epsilon
from tasks.release.signatures.ed25519 import checked_public_key, fingerprint

T = TypeVar("T")

# A bundle comes from a stranger: any exception while reading it is a failed check, never a crash.
_MALFORMED: Final = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RecursionError,
    MemoryError,
    OSError,
)

CONTENT_CHECKS: Final = ("files", "digests", "signature", "record", "request", "texts", "approvals", "revocations")
"""Names of the checks that a bundle's record and rows are those that were approved; they hold for bundles of every
version of almoner, unlike those that plan a release again or write its documents again."""


KINDS: Final = {
    "files and digests": ("files", "digests", "texts", "columns"),
    "signatures and approvals": (
        "signature", "authenticity", "approvals", "attestation", "revocations", "retraction", "checkpoint",
    ),
    "request, mechanisms and claim": (
        "record", "request", "plan", "events", "claim", "independent accountant", "charge",
    ),
    "measurements and policy": ("measurements", "policy"),
}  # fmt: skip
"""Names of checks by what they are about; every other check writes a document of the bundle again and compares it."""
EXPOSED: Final = (
    "The assignment of units to texts got out: the epsilon while it is secret, which the record states, has ended; the"
    " unconditional one holds."
)
_MOST_NAMED: Final = 10
DOCUMENTS: Final = "documents, written again"
_KIND_OF_CHECK: Final = {name: kind for kind, names in KINDS.items() for name in names}


@dataclass(frozen=True)
class Check:
    """Result of one check."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class VerificationReport:
    """Result of a verification.

    Attributes:
        checks: in order; a check that could not be carried out has failed.
        public_key: the key that the bundle is signed with, if it names one.
        pinned: whether it was compared with a key the reader trusts.
        release, dataset: as the record states them.
        artifact: the approved digest, which revocation lists name.
        epsilon, delta: the claim.
        rho, recomputed_epsilon: from the mechanisms' parameters alone; None if they could not be recomputed.
        secret_assignment: the claim while the assignment is secret, beside `epsilon`; None if the record states none,
            it does not follow from the events, or the assignment got out.
        exposed: whether a revocation list that was read says that the assignment got out.
        passed_over: names in the folder that are no part of the bundle and were not read (`checks.PASSED_OVER`).
    """

    checks: tuple[Check, ...]
    public_key: str | None
    pinned: bool
    release: int | None
    artifact: str | None
    dataset: str | None
    epsilon: str | None
    delta: str | None
    rho: str | None
    recomputed_epsilon: str | None
    secret_assignment: SecretAssignment | None
    exposed: bool
    passed_over: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Return whether every check passed."""
        return all(check.ok for check in self.checks)

    def count_by_kind(self) -> dict[str, int]:
        """Return the number of checks of each kind, in the order of `KINDS`, documents last."""
        counted = Counter(_KIND_OF_CHECK.get(check.name, DOCUMENTS) for check in self.checks)
        return {kind: counted[kind] for kind in (*KINDS, DOCUMENTS) if counted[kind]}

    @property
    def conclusion(self) -> str:
        """Return two or three sentences on the facts that a reader may rely on."""
        if not self.holds:
            failed = [check for check in self.checks if not check.ok]
            retracted = [check.detail for check in failed if check.name in ("revocations", "retraction")]
            names = ", ".join(check.name for check in failed)
            return " ".join([f"Do not rely on this bundle. Failed: {names}.", *retracted])
        exposed = f" {EXPOSED}" if self.exposed else ""
        if self.pinned:
            return (
                "The bundle is whole, its claim follows from its mechanisms, and the trusted key signed it. That the"
                f" approvers' keys are theirs is vouched for by the publisher alone.{exposed}"
            )
        key = fingerprint(self.public_key) if self.public_key else ""
        return (
            "The bundle is whole and its claim follows from its mechanisms. Its origin is unproven: compare the key"
            f" {key} with one from a source you trust.{exposed}"
        )

    def to_json(self) -> dict[str, Json]:
        """Return the report as programs read it."""
        return {
            "holds": self.holds,
            "authentic": self.holds and self.pinned,
            "conclusion": self.conclusion,
            "dataset": self.dataset,
            "release": self.release,
            "artifact_sha256": self.artifact,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "rho": self.rho,
            "recomputed_epsilon": self.recomputed_epsilon,
            "secret_assignment": self.secret_assignment.model_dump() if self.secret_assignment else None,
            "assignment_exposed": self.exposed,
            "public_key": self.public_key,
            "passed_over": list(self.passed_over),
            "checks": [{"name": check.name, "ok": check.ok, "detail": check.detail} for check in self.checks],
        }


def verify_release(folder: Path, trusted_key: str | None = None, later: Path | None = None) -> VerificationReport:
    """Check a bundle.

    Args:
        trusted_key: the publisher's public key from another source; without it, integrity is checked and authenticity
            stays unproven.
        later: another bundle of the publisher, whose revocation list this one is compared with.

    Raises:
        NoBundle: there is no such folder, or it is one of bundles.
        NotAPublicKey: the trusted key is not a public key.
    """
    for path in (folder, later):
        if path is not None:
            _require_bundle(path)
    bundle, checks_to_run = OpenedBundle(folder), list(CHECKS)
    if trusted_key is not None:
        checks_to_run.insert(3, ("authenticity", checks.carries_key(checked_public_key(trusted_key))))
    if later is not None:
        holds = verify_release(later).holds
        checks_to_run.append(("retraction", checks.not_retracted(OpenedBundle(later), holds=holds)))
    results = tuple(_run_check(name, check, bundle) for name, check in checks_to_run)
    return _report(bundle, results, OpenedBundle(later) if later else None, pinned=trusted_key is not None)


def open_unaltered(folder: Path, place: str) -> OpenedBundle:
    """Open a bundle whose record and rows are those that its approvers signed; its claim is not computed again.

    Args:
        place: the path or address that a person has named; errors repeat it.

    Raises:
        NoBundle: there is no such folder.
        BundleAltered: one of `CONTENT_CHECKS` fails.
    """
    _require_bundle(folder)
    bundle = OpenedBundle(folder)
    for name, check in CHECKS:
        if name in CONTENT_CHECKS and not (result := _run_check(name, check, bundle)).ok:
            raise _bundle_altered(place, result)
    return bundle


def _require_bundle(folder: Path) -> None:
    """Raise NoBundle if there is no folder, or one without a record whose folders have one."""
    if not folder.is_dir():
        raise no_bundle(folder)
    if not (folder / RECORD).exists() and (bundles := sorted(path.parent for path in folder.glob(f"*/{RECORD}"))):
        raise no_bundle(folder, bundles)


def _run_check(name: str, check: Callable[[OpenedBundle], str], bundle: OpenedBundle) -> Check:
    try:
        return Check(name, True, check(bundle))
    except AlmonerError as problem:
        return Check(name, False, problem.message)
    except _MALFORMED as problem:
        return Check(name, False, f"cannot be read ({type(problem).__name__})")


def _report(
    bundle: OpenedBundle, results: tuple[Check, ...], later: OpenedBundle | None, *, pinned: bool
) -> VerificationReport:
    record = _if_readable(lambda: bundle.record)
    claim = record.claim if record else None
    loss = _if_readable(lambda: bundle.vouched)
    lists = [one for one in (bundle, later) if one is not None]
    exposed = any(_if_readable(partial(checks.is_exposed, bundle, one)) for one in lists)
    claim_holds = all(check.ok for check in results if check.name in ("record", "request", "plan", "events", "claim"))
    implied = _if_readable(lambda: implied_epsilon(loss, exact(claim.delta))) if loss and claim else None
    return VerificationReport(
        checks=results,
        public_key=_if_readable(lambda: bundle.seal.public_key),
        pinned=pinned,
        release=record.release if record else None,
        artifact=_if_readable(lambda: bundle.artifact),
        dataset=record.dataset.name if record else None,
        epsilon=claim.epsilon if claim else None,
        delta=claim.delta if claim else None,
        rho=loss.rho_text if loss else None,
        recomputed_epsilon=str(implied) if implied is not None else None,
        secret_assignment=claim.secret_assignment if claim and claim_holds and not exposed else None,
        exposed=exposed,
        passed_over=tuple(_if_readable(lambda: checks.passed_over(bundle)) or ()),
    )


def _if_readable(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except (AlmonerError, *_MALFORMED):
        return None


def no_bundle(place: Place, inside: Sequence[Path] = ()) -> UsageError:
    """Return the error of a path or address without a bundle, or of a folder that bundles are in."""
    missing = "nothing at" if isinstance(place, Address) else "no folder"
    named = ", ".join(escape_controls(bundle) for bundle in inside[:_MOST_NAMED])
    more = f" and {len(inside) - _MOST_NAMED} more" if len(inside) > _MOST_NAMED else ""
    problem, advice = f"There is {missing} {place}.", "Give the path of the bundle that `almoner publish` wrote."
    if inside:
        problem, advice = f"{place} is a folder of bundles.", f"Give one of them: {named}{more}."
    return UsageError(problem, advice, {"bundle": str(place)}, code="NoBundle")


def _bundle_altered(place: str, failed: Check) -> Refused:
    detail = escape_controls(failed.detail).rstrip(".")
    return Refused(
        f"The bundle {escape_controls(place)} cannot be used: {failed.name}: {detail}.",
        "Fetch it again from its publisher; `almoner verify-release` shows every check.",
        {"bundle": place, "check": failed.name, "detail": detail},
        code="BundleAltered",
    )
