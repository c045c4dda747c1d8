"""Policy in force, its checks at every step, and its change: the difference of two policies and an adoption.

Policy in force, and its checks at every step. A check returns nothing or raises, so that no caller can overlook its
answer. The database enforces approvals and limits once more.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from flows.workspace.policy_file import read_policy, read_policy_in_force, read_policy_version
from flows.workspace.workspace import Workspace
from models_db.errors import Refused, UsageError
from models_db.policies.checks import PolicySubject, require_allowed
from models_db.policies.policy import POLICY_PAGE, Policy
from models_db.services import artifacts, datasets, people, policies, requests
from models_db.services.audit.chain import Actor
from models_db.services.audit.stored_text import request_body, result_of
from models_db.services.budget import BudgetExceeded
from models_db.tables import PolicyVersion, Request
from models_db.values.canonical_json import Json, digest
from models_db.values.requests import model_to_json
from models_db.writes.database_errors import LimitInOrdersExceeded
from tasks.accounting.renyi_account import bounds_of, terms_of
from tasks.common.extensions import is_of_extension
from tasks.common.files import open_user_file
from tasks.values.results import MetricResult

ROLES_SEEING_BALANCES = frozenset({"steward", "auditor", "admin"})
"""Roles that see remaining budgets even under `refusals: quiet`."""


def require_policy(policy: Policy, body: Mapping[str, Any]) -> None:
    """Check a canonical request against a policy.

    Raises:
        PolicyForbids: the request breaks rules; the error lists all of them.
    """
    subject = PolicySubject.from_request(body)
    rules = policy.rules_for(subject.dataset)
    require_allowed(rules, bounds_of(rules), subject)


def require_bounds(session: Session, request_id: int, reasons: Iterable[str]) -> None:
    """Check the stored figures of a request's artifact against the bounds of its policy.

    Args:
        reasons: the reasons of its approvals; figures outside the bounds are admitted if the policy allows overrides
            and every reason overrides them.

    Raises:
        OutsideBounds: figures are outside or missing; the error lists all of them.
    """
    from tasks.evaluation.policy_bounds import require_admitted  # loads the metrics

    request = requests.find_request(session, request_id)
    artifact = artifacts.artifact_of(session, request_id)
    stored = artifacts.evaluations(session, artifact) if artifact else ()
    measured = {e.metric: MetricResult.from_json(result_of(e)) for e in stored if e.exposure != "internal"}
    dataset = request_body(request)["dataset"]["name"]
    require_admitted(request_id, policy_of_request(session, request).rules_for(dataset), measured, reasons)


def policy_of_request(session: Session, request: Request) -> Policy:
    """Return the policy of a request.

    Raises:
        PolicyAltered: the ledger's text differs from the adopted one.
    """
    return read_policy_version(session, session.get_one(PolicyVersion, request.policy_id))


def require_in_force(session: Session, workspace: Workspace) -> None:
    """Check that the policy of this home is in force.

    The file of an admin's home need not be in force yet, because the admin's request adopts it.

    Raises:
        PolicyDiffers: another policy is in force, and the owner of this home may not adopt this one.
    """
    version = policies.policy_in_force(session)
    same = version is not None and version.digest == workspace.policy_digest
    if not same and "admin" not in people.roles_of(session, workspace.actor.id):
        raise PolicyDiffers(str(workspace.home.policy), version.digest if version else None)


def version_for_request(session: Session, workspace: Workspace) -> PolicyVersion:
    """Return the ledger's row for the policy of a new request; adopt an admin's file if it is not in force.

    Raises:
        PolicyDiffers: another policy is in force, and the owner of this home may not change that.
    """
    require_in_force(session, workspace)
    version = policies.policy_in_force(session)
    if version is None or version.digest != workspace.policy_digest:
        return adopt_policy(session, workspace.actor, workspace.policy)
    return version


def adopt_policy(session: Session, actor: Actor, policy: Policy) -> PolicyVersion:
    """Put a policy in force, as an admin.

    Raises:
        NotMeasurable, InvalidTarget: no release can satisfy its demands.
        RoleRequired: only an admin adopts a policy.
    """
    require_satisfiable(policy)
    return policies.adopt(session, actor, terms_of(policy))


def require_satisfiable(policy: Policy) -> None:
    """Check that releases can satisfy every demand of a policy, which its format does not ensure.

    Raises:
        NotMeasurable: the policy requires a metric or figure that no gate can read.
        InvalidTarget: its limits are below the smallest amount that the ledger can count.
        MechanismUnknown: it allows a mechanism that does not exist.
    """
    for dataset in ("", *policy.datasets):
        from tasks.evaluation.policy_bounds import require_measurable  # loads the metrics

        require_measurable(policy.rules_for(dataset).required)
    terms_of(policy)
    _require_known_mechanisms(policy)


def _require_known_mechanisms(policy: Policy) -> None:
    allowed = [policy.mechanisms, *(rules.mechanisms for rules in policy.datasets.values())]
    named = {name for names in allowed for name in names or () if not is_of_extension(name)}
    if not named:
        return
    from tasks.systems.registry import SYSTEMS  # most policies name none, and need not wait for every system

    if unknown := sorted(named - SYSTEMS.own.keys()):
        raise UsageError(
            f"The policy allows mechanisms that do not exist: {', '.join(unknown)}.",
            f"Write names of these: {', '.join(sorted(SYSTEMS.own))}; or of extensions, with a dot ({POLICY_PAGE}).",
            {"unknown": unknown},
            code="MechanismUnknown",
        )


def hides_balances(session: Session, actor: Actor) -> bool:
    """Return whether the policy in force hides balances from `actor`."""
    return withholds_balances(read_policy_in_force(session), people.roles_of(session, actor.id))


def withholds_balances(policy: Policy | None, roles: Collection[str]) -> bool:
    """Return whether a policy hides balances from people with these roles."""
    return policy is not None and policy.refusals != "full" and not ROLES_SEEING_BALANCES & set(roles)


def require_visible_balances(workspace: Workspace, dataset: str) -> None:
    """Check that the owner of this home may see balances.

    Raises:
        BalancesWithheld: the policy hides them.
    """
    with workspace.database.read() as session:
        if hides_balances(session, workspace.actor):
            raise Refused(
                f"The policy hides the remaining budget of {dataset!r} from analysts (`refusals: quiet`).",
                "Ask a steward, an auditor or an admin.",
                {"dataset": dataset},
                code="BalancesWithheld",
            )


@contextmanager
def redact_refusals(workspace: Workspace) -> Iterator[None]:
    """Remove from refusals in the block the budget figures that the policy in force hides."""
    try:
        yield
    except (BudgetExceeded, LimitInOrdersExceeded) as refusal:
        with workspace.database.read() as session:
            quiet = hides_balances(session, workspace.actor)
        if quiet:
            dataset = str(refusal.facts["dataset"])
            raise Refused(
                f"The budget of dataset {dataset!r} does not allow this.",
                "Request less, or ask a steward what fits: the policy hides balances from analysts (`refusals:"
                " quiet`).",
                {"dataset": dataset},
                code="BudgetRefused",
            ) from None
        raise


class PolicyDiffers(Refused):
    """The policy of this home differs from the one in force."""

    def __init__(self, path: str, in_force: str | None) -> None:
        state = "another policy is" if in_force else "no policy is"
        super().__init__(
            f"Requests under {path} are refused: {state} in force, and only an admin can adopt a policy.",
            "See the differences with `almoner policy check FILE`; `almoner policy show` prints the policy in force.",
            {"policy": path, "in_force": in_force},
        )


@dataclass(frozen=True)
class FieldDifference:
    """One field of two policies; None for a policy that lacks it."""

    field: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class PolicyChange:
    """A valid policy beside the one in force.

    Attributes:
        policy: the new policy.
        before: the policy in force; None in a ledger without one.
        unknown_datasets: names in the policy's rules for single datasets that no dataset has.
    """

    policy: Policy
    before: Policy | None
    unknown_datasets: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Return the digest of the new policy."""
        return digest(model_to_json(self.policy))

    @property
    def digest_before(self) -> str | None:
        """Return the digest of the policy in force; None if there is none."""
        return None if self.before is None else digest(model_to_json(self.before))

    @property
    def differences(self) -> list[FieldDifference]:
        """Return the changes of the new policy, field by field; all fields if no policy is in force."""
        before, after = (dict(_flatten_leaves(_with_defaults(each))) for each in (self.before, self.policy))
        return [
            FieldDifference(field, before.get(field), after.get(field))
            for field in sorted({*before, *after})
            if before.get(field) != after.get(field)
        ]


def policy_in_force(workspace: Workspace) -> Policy | None:
    """Return the last adopted policy.

    Raises:
        PolicyAltered: the ledger's text differs from the adopted one.
    """
    with workspace.database.read() as session:
        return read_policy_in_force(session)


def compare_policy(workspace: Workspace, path: Path) -> PolicyChange:
    """Read a policy and compare it with the one in force.

    Raises:
        FileUnreadable, FileInvalid: the file holds no valid policy.
        NotMeasurable, InvalidTarget, MechanismUnknown: no release can satisfy its demands.
    """
    policy = read_policy(path, str(path))
    require_satisfiable(policy)
    before = policy_in_force(workspace)
    with workspace.database.read() as session:
        registered = {dataset.name for dataset in datasets.list_all(session)}
    return PolicyChange(policy, before, tuple(sorted(set(policy.datasets) - registered)))


def adopt_policy_file(workspace: Workspace, path: Path) -> PolicyChange:
    """Put the policy in a file in force, and make it this home's `policy.yaml`.

    The file is replaced before the ledger's transaction ends. If the process dies in between, the next request of the
    owner, an admin, adopts the file's policy; the home never falls back to the old one.

    Raises:
        RoleRequired: only an admin adopts a policy.
        FileUnreadable, FileInvalid: the file holds no valid policy.
        NotMeasurable, InvalidTarget, MechanismUnknown: no release can satisfy its demands.
    """
    change = compare_policy(workspace, path)
    with open_user_file(path) as file:
        text = file.read()
    with workspace.database.write() as session:
        adopt_policy(session, workspace.actor, change.policy)
        _replace_file(workspace.home.policy, text)
    return change


def adopt_first_policy(workspace: Workspace) -> None:
    """Put the policy of a new home in force if its ledger has none yet and its owner may do so."""
    with workspace.database.read() as session:
        if policies.policy_in_force(session) is not None:
            return
        if "admin" not in people.roles_of(session, workspace.actor.id):
            return
    with workspace.database.write() as session:
        adopt_policy(session, workspace.actor, workspace.policy)


def _replace_file(path: Path, text: bytes) -> None:
    """Replace the content of a file atomically."""
    if path.exists() and path.read_bytes() == text:
        return
    new = path.with_suffix(".new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    new.replace(path)


def _with_defaults(policy: Policy | None) -> Json:
    """Return a policy as JSON with its defaults, for comparison."""
    if policy is None:
        return {}
    return {name: model_to_json(getattr(policy, name)) for name in Policy.model_fields}


def _flatten_leaves(value: Json, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every leaf with its dotted name, without None and empty values."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _flatten_leaves(item, f"{path}.{name}" if path else name)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        if value:
            yield path, ", ".join(str(item) for item in value)
    elif value is not None:
        yield path, str(value).lower() if isinstance(value, bool) else str(value)
