"""`almoner user`: principals of the ledger and their roles, and the rights of their logins in the database.

Changes of database roles are told as those that were applied and those left to an administrator; `almoner init` tells
them in the same words.
"""

from collections.abc import Sequence
from typing import Annotated, cast

import typer
from rich.console import RenderableType
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.tables import fact_list, table
from flows.governance import principals as flow
from flows.workspace.workspace import Workspace, open_read_only, open_workspace
from migrations.database_roles import RoleChanges, grant_login, require_valid_login, revoke_login
from models_db.database.base import utc_now
from models_db.errors import UsageError
from models_db.services import people
from tasks.release.signatures.ed25519 import fingerprint, parse_public_key


class DatabaseRights(TypedDict):
    """Changes of database roles: statements that were executed, and those that an administrator has to execute."""

    done: list[str]
    todo: list[str]


def describe_grants(rights: RoleChanges) -> Sequence[str]:
    """Return the grants as lines for people; no lines if there was nothing to grant."""
    sentences = []
    if rights.applied:
        sentences.append("Done in the database:\n" + _indented(rights.applied))
    if rights.pending:
        sentences.append(
            "This session may not do the rest. A database administrator must run:\n" + _indented(rights.pending)
        )
    return sentences


def grants_to_json(rights: RoleChanges) -> DatabaseRights:
    """Return the grants as JSON for programs."""
    return DatabaseRights(done=list(rights.applied), todo=list(rights.pending))


def _indented(statements: Sequence[str]) -> str:
    return "\n".join(f"    {statement};" for statement in statements)


app = typer.Typer(no_args_is_help=True, help="Manage people and roles: add, list, grant, revoke.")


class UserAdded(TypedDict):
    """An enrolled person."""

    name: str
    public_key: str
    fingerprint: str
    login: str | None
    roles: list[str]
    database_rights: DatabaseRights


RoleData = TypedDict(
    "RoleData", {"role": str, "from": str, "until": str | None, "reason": str, "granted_by": str | None}
)
"""A role of a person, present or future."""


class PersonData(TypedDict):
    """A person with their roles."""

    name: str
    login: str | None
    fingerprint: str | None
    public_key: str
    since: str
    roles: list[RoleData]


class UserList(TypedDict):
    """All people."""

    people: list[PersonData]


RoleGranted = TypedDict(
    "RoleGranted",
    {"name": str, "role": str, "from": str, "until": str | None, "database_rights": DatabaseRights},
)
"""A role that was granted."""


class RoleRevoked(TypedDict):
    """A role that was revoked; `ended` counts the grants that ended."""

    name: str
    role: str
    ended: int
    database_rights: DatabaseRights


READ_ONLY_ROLES = frozenset({"auditor"})
"""Roles whose logins need only the right to read."""

Name = Annotated[str, typer.Argument(help="The person's name in the ledger.")]
Role = Annotated[str, typer.Argument(help="analyst, runner, steward, auditor or admin.")]
Reason = Annotated[str, typer.Option(help="Reason, recorded in the audit log.")]
Since = Annotated[str | None, typer.Option("--from", metavar="DAY", help="First day (UTC) [today].")]
Until = Annotated[str | None, typer.Option(metavar="DAY", help="Last day (UTC). Default: no end.")]


@command(app, "add")
def add_user(
    context: CommandContext,
    name: Name,
    key: Annotated[str, typer.Option(help="Public key: 64 digits, an ssh-ed25519 line, or a file with either.")],
    login: Annotated[
        str | None,
        typer.Option(metavar="ROLE", help="PostgreSQL role this person works under (docs/people.md)."),
    ] = None,
    role: Annotated[list[str] | None, typer.Option(help="A role to grant; may be given several times.")] = None,
    reason: Annotated[str, typer.Option(help="Reason, recorded in the audit log.")] = "added",
) -> CommandResult[UserAdded]:
    """Enrol a person by the public key that `almoner init` printed for them. Compare the fingerprint first.

    Example: almoner user add anna --key anna.pub --login anna --role analyst
    """
    _require_reason(reason)
    public_key, roles = parse_public_key(key), list(dict.fromkeys(role or ()))
    workspace = open_workspace(context.home)
    if login is not None:
        require_valid_login(login)
    principal = flow.add_user(workspace, name, public_key, login, roles, reason)
    rights = _grant_database_access(workspace, login, roles)
    data = UserAdded(
        name=principal.name,
        public_key=public_key,
        fingerprint=fingerprint(public_key),
        login=login,
        roles=roles,
        database_rights=grants_to_json(rights),
    )
    facts = {name: value for name, value in data.items() if name != "database_rights"}
    renderables: list[RenderableType] = [
        f"{principal.name} is enrolled.",
        fact_list({**facts, "roles": ", ".join(roles) or "none yet"}),
    ]
    if login is None and not workspace.database.is_sqlite:
        renderables.append("Without a login this person can only sign approvals elsewhere, which others import.")
    return CommandResult(data, [*renderables, *describe_grants(rights)])


@command(app, "list")
def list_all(context: CommandContext) -> CommandResult[UserList]:
    """List people with roles, periods, keys and logins. Needs no key.

    Example: almoner user list --json
    """
    with open_read_only(context.home).database.read() as session:
        persons = cast(list[PersonData], flow.list_people(session))
    rows = [(p["name"], _roles_text(p["roles"]), p["login"], p["fingerprint"], str(p["since"])[:10]) for p in persons]
    shown = [table(("name", "roles", "login", "key", "since"), rows)]
    return CommandResult(UserList(people=persons), shown)


@command(app, "grant")
def grant_role(
    context: CommandContext, name: Name, role: Role, reason: Reason, since: Since = None, until: Until = None
) -> CommandResult[RoleGranted]:
    """Grant a role (admins only).

    Example: almoner user grant anna steward --reason "elected to the board" --until 2027-12-31
    """
    _require_reason(reason)
    start, end = flow.parse_period(since, until)
    workspace = open_workspace(context.home)
    grant = flow.grant_role(workspace, name, role, reason, start, end)
    with workspace.database.read() as session:
        login = people.find_principal(session, name).login
    rights = _grant_database_access(workspace, login, [role])
    data: RoleGranted = {
        "name": name,
        "role": role,
        "from": grant.valid_from,
        "until": end,
        "database_rights": grants_to_json(rights),
    }
    span = f"from {grant.valid_from[:10]}" + (f" through {until}" if until else ", for good")
    return CommandResult(data, [f"{name} has the role {role} {span}.", *describe_grants(rights)])


@command(app, "revoke")
def revoke_role(context: CommandContext, name: Name, role: Role, reason: Reason) -> CommandResult[RoleRevoked]:
    """Revoke a role (admins only); unused approvals that rest on it no longer count.

    Example: almoner user revoke anna steward --reason "left the board"
    """
    _require_reason(reason)
    workspace = open_workspace(context.home)
    ended = flow.revoke_role(workspace, name, role, reason)
    with workspace.database.read() as session:
        principal = people.find_principal(session, name)
        login = principal.login
        remaining = {g.role for g in people.unexpired_grants(session) if g.principal_id == principal.id}
    rights = (
        revoke_login(workspace.database, login, including_read=not remaining)
        if login and remaining <= READ_ONLY_ROLES
        else RoleChanges()
    )
    sentences = [f"{name} no longer has the role {role}.", *describe_grants(rights)]
    data = RoleRevoked(name=name, role=role, ended=ended, database_rights=grants_to_json(rights))
    return CommandResult(data, sentences)


def _grant_database_access(workspace: Workspace, login: str | None, roles: list[str]) -> RoleChanges:
    if login is None or workspace.database.is_sqlite:
        return RoleChanges()
    return grant_login(workspace.database, login, writes=not roles or not READ_ONLY_ROLES.issuperset(roles))


def _roles_text(roles: list[RoleData]) -> str:
    now = utc_now()
    parts = []
    for each in roles:
        start = f" from {each['from'][:10]}" if each["from"] > now else ""
        parts.append(each["role"] + start + (f" until {each['until'][:10]}" if each["until"] else ""))
    return ", ".join(parts) or "none"


def _require_reason(reason: str) -> None:
    if not reason.strip():
        raise UsageError("This needs a reason.", 'Say why: --reason "...".', code="RoleReasonMissing")
