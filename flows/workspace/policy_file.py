"""`policy.yaml`: the default of a new home, its reader and its writer."""

from functools import lru_cache
from pathlib import Path

import yaml
from sqlalchemy.orm import Session

from flows.workspace.yaml_files import read_fields
from models_db.errors import EnvironmentProblem
from models_db.policies.policy import POLICY_PAGE, Policy
from models_db.policies.rules import PolicyTerms
from models_db.services.catalogue import policies
from models_db.tables import PolicyVersion
from models_db.values.requests import model_to_json, parse_model
from tasks.accounting.policy_limits import terms_of

DEFAULT_POLICY = """\
# The policy of this project home; every field is explained in docs/policy.md. Every request records the version it
# was made under, and every card says what it allows. A change does not touch requests that were made before it.
# After a change: `almoner policy check FILE` says what it means, `almoner policy adopt FILE` puts it in force.
version: 1

# One person may request, approve and run the same release. For a team, set this to false.
several_roles: true

# How many stewards have to approve: before private data is touched (spend), before anything leaves (publish), and
# before a cap is raised, a schedule authorised or a release retracted (proposal).
approvals: {spend: 1, publish: 1, proposal: 1}

# Days until an approval, or an undecided request or proposal, expires.
approval_days: 30
request_days: 90

# Days after which a delegation ends at the latest.
delegation_days: 365

# How often one approved request may be run; a failed run has spent what it armed.
attempts: 5

# The most one release may claim. Without this line only the lifetime budget limits it.
# release: {epsilon_max: 4, delta_max: 1.0e-6}

# Refuse a release whose delta is not below 1/population; needs datasets that declare one (--population).
delta_below_population: false

# What may be used. Without these lines: every mechanism, and every model that is installed.
# mechanisms: [invisible_ink, public_only]
# models: [smollm2-135m-instruct]

# What has to be measured, and within which bounds, before a release may be published.
# evaluation: {required: {length: {cut_share: {max: 0.5}}, distinct: {}}}

# How much of a dataset's lifetime budget may be reserved in one calendar week or month. Nothing is ever refilled.
# pacing: {every: month, share: 0.25}

# `quiet`: who is neither steward, auditor nor admin is not told what is left of a budget.
refusals: full

# `bar_viewers`: whoever has seen unprotected figures (`evaluate --internal`) of a dataset's account neither requests,
# proposes nor decides on it any more. `mark`: every later card and gate says that they were seen, and no more.
internal_figures: mark

# What is different for one dataset, by its name: approvals, release, delta_below_population, mechanisms, models,
# evaluation, internal_figures.
# datasets: {clinic: {approvals: {spend: 2, publish: 2}}}
"""


def read_policy(path: Path, what: str) -> Policy:
    """The policy in a file; `what` names it in errors.

    Raises:
        FileUnreadable: it cannot be read.
        FileInvalid: it is no policy.
    """
    return parse_model(Policy, read_fields(path, what, Policy.model_fields, POLICY_PAGE), what, POLICY_PAGE)


def policy_of_home(session: Session, path: Path, in_force: PolicyVersion | None) -> Policy:
    """The policy a home works under: its own file, or where it has none, the one in force in the ledger.

    Raises:
        FileUnreadable, FileInvalid: the file is no policy, or there is neither.
        PolicyAltered: the ledger's text is not the one that was adopted.
    """
    if in_force is None or path.exists():
        return read_policy(path, "policy.yaml")
    return read_policy_version(session, in_force)


def read_policy_version(session: Session, version: PolicyVersion) -> Policy:
    """A policy as the ledger keeps it; what guards read of it in columns is what its text gives.

    Raises:
        PolicyAltered: its text is not the one that its digest names, or columns and rules are not those of its text.
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
    """The policy that a text says, and what the ledger keeps of it."""
    policy = Policy.model_validate_json(body)
    return policy, terms_of(policy)


def policy_text(policy: Policy) -> str:
    """A policy as YAML that reads back as the same policy."""
    return yaml.safe_dump(model_to_json(policy), sort_keys=False, allow_unicode=True)


class PolicyAltered(EnvironmentProblem):
    """A policy in the ledger differs from the one that was adopted."""

    def __init__(self, named: str) -> None:
        super().__init__(
            f"The ledger's policy {named} does not match its digest: its text differs, or the columns that the ledger"
            " enforces.",
            "Somebody has changed the ledger. Run `almoner doctor` and `almoner audit verify`.",
            {"policy": named},
        )
