"""`almoner policy`: the rules of the home."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.tables import table
from flows.governance.policy import PolicyChange, adopt_policy_file, compare_policy, policy_in_force
from flows.workspace.policy_file import policy_text
from flows.workspace.workspace import open_workspace
from models_db.policies.policy import Policy
from models_db.values.canonical_json import digest
from models_db.values.requests import model_to_json

app = typer.Typer(no_args_is_help=True, help="Manage the policy: show, check, adopt, schema.")


class PolicyShown(TypedDict):
    """The policy in force; `home` is the digest of the policy.yaml of this home."""

    digest: str | None
    policy: Policy | None
    home: str | None


class PolicyDifference(TypedDict):
    """A field that differs; null where one of the two lacks it."""

    field: str
    in_force: str | None
    file: str | None


class PolicyChangeData(TypedDict):
    """A policy file beside the policy in force."""

    digest: str
    in_force: str | None
    differences: list[PolicyDifference]
    unknown_datasets: list[str]


class PolicyChecked(PolicyChangeData):
    """A policy file that can be adopted."""

    valid: bool


class PolicyAdopted(PolicyChangeData):
    """A policy file that is in force now; `adopted` is false in a dry run."""

    adopted: bool


File = Annotated[Path, typer.Argument(help="The policy, a YAML file (docs/policy.md).")]


@command(app, "show")
def show_policy(context: CommandContext) -> CommandResult[PolicyShown]:
    """Print the policy in force as YAML, fit for a home's policy.yaml.

    Example: almoner policy show
    """
    workspace = open_workspace(context.home)
    policy = policy_in_force(workspace)
    file_digest = workspace.policy_digest
    if policy is None:
        heading = "# No policy is in force yet; the first request of an admin adopts the policy of their home."
        return CommandResult(PolicyShown(digest=None, policy=None, home=file_digest), [heading])
    policy_digest = digest(model_to_json(policy))
    data = PolicyShown(digest=policy_digest, policy=policy, home=file_digest)
    same = "" if file_digest == policy_digest else "\n# The policy.yaml of this home differs from it."
    return CommandResult(data, [f"# Policy {policy_digest}{same}\n{policy_text(policy).rstrip()}"])


@command(app, "check")
def check_policy(context: CommandContext, file: File) -> CommandResult[PolicyChecked]:
    """Validate a policy file and show its differences from the policy in force. Changes nothing.

    Example: almoner policy check policy.yaml
    """
    change = compare_policy(open_workspace(context.home), file)
    data = PolicyChecked(valid=True, **_change_data(change))
    return CommandResult(data, [f"{file} is a valid policy.", *_changes_table(change)])


@command(app, "adopt")
def adopt(
    context: CommandContext,
    file: File,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change and stop.")] = False,
) -> CommandResult[PolicyAdopted]:
    """Put a policy in force (admins only); earlier requests keep theirs. The file becomes this home's policy.yaml.

    Example: almoner policy adopt policy.yaml --dry-run
    """
    workspace = open_workspace(context.home)
    change = compare_policy(workspace, file) if dry_run else adopt_policy_file(workspace, file)
    done = "Dry run: nothing was adopted." if dry_run else f"In force: policy {change.digest}."
    data = PolicyAdopted(adopted=not dry_run, **_change_data(change))
    return CommandResult(data, [*_changes_table(change), done])


@command(app, "schema")
def show_schema(context: CommandContext) -> CommandResult[dict[str, object]]:
    """Print the JSON schema of policy.yaml, for editors and pipelines.

    Example: almoner policy schema
    """
    content = Policy.model_json_schema()
    return CommandResult(content, [json.dumps(content, indent=2)])


def _change_data(change: PolicyChange) -> PolicyChangeData:
    return PolicyChangeData(
        digest=change.digest,
        in_force=change.digest_before,
        differences=[PolicyDifference(field=d.field, in_force=d.before, file=d.after) for d in change.differences],
        unknown_datasets=list(change.unknown_datasets),
    )


def _changes_table(change: PolicyChange) -> list[RenderableType]:
    rows = [(d.field, d.before, d.after) for d in change.differences]
    shown: list[RenderableType] = [table(("field", "in force", "file"), rows)] if rows else []
    if not rows:
        shown.append("It is the policy in force.")
    if change.unknown_datasets:
        names = ", ".join(change.unknown_datasets)
        shown.append(f"No dataset has the name {names}: those rules protect nothing until one does.")
    return shown
