"""Change of the policy: the difference between two policies, and the adoption of a file."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.governance.policy import adopt_policy, require_satisfiable
from flows.workspace.policy_file import read_policy, read_policy_in_force
from flows.workspace.workspace import Workspace
from models_db.policies.policy import Policy
from models_db.services import datasets, people, policies
from models_db.values.canonical_json import Json, digest
from models_db.values.requests import model_to_json
from tasks.common.files import open_user_file


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
