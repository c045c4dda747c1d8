"""`policy.yaml`: the default of a new home, its reader and its writer."""

from functools import lru_cache
from pathlib import Path

import yaml
from sqlalchemy.orm import Session

from flows.workspace.yaml_files import read_fields
from models_db.errors import EnvironmentProblem
from models_db.policies.policy import POLICY_PAGE, Policy
from models_db.policies.rules import PolicyTerms
from models_db.services import policies
from models_db.tables import PolicyVersion
from models_db.values.requests import model_to_json, parse_model
from tasks.accounting.renyi_account import terms_of

DEFAULT_POLICY = """\
# The policy of this project home; docs/policy.md explains every field. Every request records its version of the
# policy, and every card shows the rules. A change does not affect earlier requests.
# After a change: `almoner policy check FILE` shows the effect, `almoner policy adopt FILE` puts it in force.
version: 1

# One person may request, approve and run the same release. For a team, set this to false.
several_roles: true

# Number of stewards who must approve: before a run reads private data (spend), before a release is published
# (publish), and before a cap changes, a schedule is authorised or a release is retracted (proposal).
approvals: {spend: 1, publish: 1, proposal: 1}

# Days until an approval, or an undecided request or proposal, expires.
approval_days: 30
request_days: 90


# Most attempts of one approved request; a failed attempt has spent the amount that it armed.
attempts: 5

# The most one release may claim. Without this line only the lifetime budget limits it.
# release: {epsilon_max: 4, delta_max: 1.0e-6}

# Refuse a release whose delta is not below 1/population; needs datasets that declare one (--population).
delta_below_population: false

# Allowed mechanisms and models. Without these lines: every mechanism, and every installed model.
# mechanisms: [invisible_ink, public_only]
# models: [smollm2-135m-instruct]

# Metrics that a release needs before publication, and their bounds.
# evaluation: {required: {length: {cut_share: {max: 0.5}}, distinct: {}}}

# The most that all releases of a dataset may come to while nobody knows which units were behind which texts. The
# lifetime budget, which is unconditional, holds beside it.
# lifetime_while_secret: {epsilon: 4, delta: 1.0e-6}

# `quiet`: only stewards, auditors and admins see remaining budgets.
refusals: full

# Rules of single datasets, by name: approvals, release, delta_below_population, mechanisms, models, evaluation,
# lifetime_while_secret.
# datasets: {clinic: {approvals: {spend: 2, publish: 2}}}
"""


def read_policy(path: Path, what: str) -> Policy:
    """Read the policy in a file; `what` names it in errors.

    Raises:
        FileUnreadable: the file cannot be read.
        FileInvalid: the file holds no valid policy.
    """
    return parse_model(Policy, read_fields(path, what, Policy.model_fields, POLICY_PAGE), what, POLICY_PAGE)


def policy_of_home(session: Session, path: Path, in_force: PolicyVersion | None) -> Policy:
    """Return the policy of a home: its own file, or without one the policy in force in the ledger.

    Raises:
        FileUnreadable, FileInvalid: the file holds no valid policy, or there is neither a file nor a policy in force.
        PolicyAltered: the ledger's text differs from the adopted one.
    """
    if in_force is None or path.exists():
        return read_policy(path, "policy.yaml")
    return read_policy_version(session, in_force)


def read_policy_in_force(session: Session) -> Policy | None:
    """Return the policy in force; None before the first.

    Raises:
        PolicyAltered: as `read_policy_version`.
    """
    version = policies.policy_in_force(session)
    return None if version is None else read_policy_version(session, version)


def read_policy_version(session: Session, version: PolicyVersion) -> Policy:
    """Read a policy from the ledger, and check that the columns for the guards follow from its text.

    Raises:
        PolicyAltered: the text does not match its digest, or the columns and rules differ from the text.
    """
    try:
        policy, terms = _parse_stored_policy(version.body)
        same = terms.digest == version.digest and policies.terms_of(session, version) == terms
    except (ValueError, TypeError, RecursionError):  # no policy at all
        raise PolicyAltered(version.digest) from None
    if not same:
        raise PolicyAltered(version.digest)
    return policy


@lru_cache(maxsize=64)
def _parse_stored_policy(body: str) -> tuple[Policy, PolicyTerms]:
    """Parse the text of a policy into the policy and its terms in the ledger."""
    policy = Policy.model_validate_json(body)
    return policy, terms_of(policy)


def policy_text(policy: Policy) -> str:
    """Return a policy as YAML that parses to the same policy."""
    return yaml.safe_dump(model_to_json(policy), sort_keys=False, allow_unicode=True)


class PolicyAltered(EnvironmentProblem):
    """A policy in the ledger differs from the adopted one."""

    def __init__(self, label: str) -> None:
        super().__init__(
            f"The ledger's policy {label} does not match its digest: its text differs, or the columns that the ledger"
            " enforces.",
            "The ledger was changed by hand. Run `almoner doctor` and `almoner audit verify`.",
            {"policy": label},
        )
