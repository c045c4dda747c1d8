"""`almoner init` and `almoner doctor`: the project home itself."""

import getpass
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType
from typing_extensions import TypedDict

from cli.commands.governance.user import DatabaseRights, describe_grants, grants_to_json
from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.prompts import read_passphrase
from cli.framework.tables import fact_list, table
from flows.audit import health
from flows.datasets.erase import stored_versions
from flows.governance.policy import adopt_first_policy
from flows.governance.principals import find_member
from flows.workspace.file_system import require_local_ledger
from flows.workspace.policy_file import DEFAULT_POLICY
from flows.workspace.rollback_guard import require_same_ledger
from flows.workspace.workspace import Workspace, open_workspace, overlap_key_path, signing_key_path
from migrations.database_roles import RoleChanges, grant_access, grant_login, may_upgrade, require_valid_login
from migrations.schema_inventory import newest_revision, schema_differences
from migrations.upgrade import stated_revisions, upgrade
from models_db.errors import AlmonerError, Finding
from models_db.home import ProjectHome
from models_db.services import logins, people
from models_db.services.audit.chain import Actor
from models_db.sessions.database import Database, LedgerForbidden, LedgerUnreachable
from models_db.tables.principals import ROLES
from tasks.corpus.keys import ensure_key
from tasks.release.signatures.ed25519 import SigningKey, home_key


class HomeData(TypedDict):
    """A project home: its folder, the address of its ledger, where its policy is, and its owner's key."""

    home: str
    ledger: str
    policy: str
    public_key: str
    fingerprint: str


class HomeReady(HomeData):
    """A home whose owner the ledger knows."""

    principal: str
    enrolled: bool
    database_rights: DatabaseRights


class InitProblem(TypedDict):
    """Why the ledger could not be reached."""

    error: str
    message: str


class HomeNotEnrolled(HomeData):
    """A home whose owner an admin has to add with the command `admin_types`."""

    principal: None
    enrolled: bool
    admin_types: str
    problem: InitProblem | None


class Diagnosis(TypedDict):
    """What `doctor` found; exit code 3 if a check failed. `home_from` says what named the home."""

    ok: bool
    home: str
    home_from: str
    findings: list[Finding]


KeyFile = Annotated[
    Path | None,
    typer.Option("--key", help="Sign with a copy of this OpenSSH private key (ssh-ed25519), instead of a new one."),
]
Login = Annotated[
    str | None,
    typer.Option(help="The PostgreSQL role of the founder. Default: the role of this session (docs/people.md)."),
]


def register(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "init")(init_home)
    command(app, "doctor")(doctor)


def init_home(
    context: CommandContext, key_file: KeyFile = None, login: Login = None
) -> CommandResult[HomeReady | HomeNotEnrolled]:
    """Create a project home: folders, keys, policy, ledger. Safe to repeat: it keeps what exists.

    The first home founds the ledger. For any other home, an admin adds its owner with the printed command.

    Example: almoner init --home ./clinic-home
    """
    home = context.home
    require_local_ledger(home)
    home.create()
    key = home_key(signing_key_path(home), key_file, read_passphrase)
    database = Database(home.database_url)
    try:
        rights = _prepare_ledger(home, database)
        actor, more = _join_ledger(home, database, key, login)
    except (LedgerUnreachable, LedgerForbidden) as problem:
        if database.is_sqlite:
            raise
        return _enrolment_result(home, database, key, problem)
    if actor is None:
        return _enrolment_result(home, database, key, None)
    adopt_first_policy(open_workspace(home))
    rights += more
    facts = _home_facts(home, database, key)
    data = HomeReady(**facts, principal=actor.name, enrolled=True, database_rights=grants_to_json(rights))
    advice = "Back up the keys folder: without it a partition cannot be continued and nothing can be signed."
    return CommandResult(
        data,
        [
            "Project home ready.",
            fact_list({**facts, "principal": actor.name}),
            advice,
            *describe_grants(rights),
            _home_option_hint(home),
        ],
    )


def _prepare_ledger(home: ProjectHome, database: Database) -> RoleChanges:
    """Migrate the ledger to the newest schema and grant the rights on its tables; only their owner may do either."""
    require_same_ledger(home, database)
    if not may_upgrade(database):
        return RoleChanges()
    upgrade(database)
    return grant_access(database)


def _join_ledger(
    home: ProjectHome, database: Database, key: SigningKey, login: str | None
) -> tuple[Actor | None, RoleChanges]:
    """Return the owner of this home as a principal, who founds an empty ledger; None if an admin has to add them."""
    with database.read() as session:
        founded = people.is_founded(session)
    if founded:
        return find_member(database, key.public_key), RoleChanges()
    if login is not None:
        logins.require_logins(database.is_sqlite)
        require_valid_login(login)
    overlap_commitment = ensure_key(overlap_key_path(home))
    if not home.policy.exists():
        home.policy.write_text(DEFAULT_POLICY)
        home.policy.chmod(0o600)
    with database.write() as session:
        actor = people.found_ledger(session, getpass.getuser(), key.public_key, overlap_commitment, login)
    return actor, grant_login(database, login, writes=True) if login is not None else RoleChanges()


def _enrolment_result(
    home: ProjectHome, database: Database, key: SigningKey, problem: AlmonerError | None
) -> CommandResult[HomeNotEnrolled]:
    """Return the command with which an admin adds the owner of this home."""
    name = getpass.getuser()
    login = "" if database.is_sqlite else f" --login {shlex.quote(database.engine.url.username or name)}"
    typed = f"almoner user add {shlex.quote(name)} --key {key.public_key}{login} --role ROLE"
    facts = _home_facts(home, database, key)
    renderables: list[RenderableType] = [
        "This home has its folders and its key; the ledger does not know its owner yet."
    ]
    if problem is not None:
        renderables = [f"This home has its folders and its key, but: {problem.message}"]
    steps = (f"An admin types in their own home (ROLE: {', '.join(ROLES)}):\n\n    {typed}\n\n"
             f"and compares the fingerprint {key.fingerprint} with you. Then type `almoner init` again to see that it"
             " works.")  # fmt: skip
    reason = None if problem is None else InitProblem(error=problem.code, message=problem.message)
    return CommandResult(
        HomeNotEnrolled(**facts, principal=None, enrolled=False, admin_types=typed, problem=reason),
        [*renderables, fact_list(facts), steps],
        exit_code=0 if problem is None else problem.exit_code,
    )


def _home_facts(home: ProjectHome, database: Database, key: SigningKey) -> HomeData:
    return HomeData(
        home=str(home.root),
        ledger=database.engine.url.render_as_string(hide_password=True),
        policy=str(home.policy) if home.policy.exists() else "the policy in force in the ledger",
        public_key=key.public_key,
        fingerprint=key.fingerprint,
    )


def doctor(context: CommandContext) -> CommandResult[Diagnosis]:
    """Check the ledger (constraints, triggers, counters, chain), the home, the packages and the models.

    It begins with the project home that it looks at, and with what named it.

    Example: almoner doctor --json
    """
    findings = health.check_home(context.home, _check_structure, stored_versions)
    rows = [(_verdict_text(f), f.check, f.detail) for f in findings]
    failed = sum(not f.ok for f in findings)
    named = f"Project home: {context.home.root}, from {context.home.origin}."
    summary = "Everything holds." if not failed else f"{failed} of {len(findings)} checks failed."
    return CommandResult(
        Diagnosis(
            ok=not failed,
            home=str(context.home.root),
            home_from=context.home.origin,
            findings=list(findings),
        ),
        [named, table(("", "check", "detail"), rows), summary],
        exit_code=3 if failed else 0,
    )


def _verdict_text(finding: Finding) -> str:
    if not finding.ok:
        return "FAIL"
    return "warning" if finding.warning else "ok"


def _check_structure(workspace: Workspace) -> Iterator[Finding]:
    """Compare the constraints, indexes and triggers of the database with those of the migrations."""
    with workspace.database.engine.begin() as connection:
        stated, newest = stated_revisions(connection), newest_revision()
    at = " and ".join(stated) or "none"
    yield Finding("revision of the schema", ok=stated == (newest,), detail=f"{at}; this almoner makes {newest}")
    if not may_upgrade(workspace.database):
        detail = "not compared: this needs the login of the tables' owner"
        yield Finding("constraints, indexes and triggers", ok=True, detail=detail)
        return
    with workspace.database.engine.begin() as connection:
        differences = schema_differences(connection)
    yield Finding("constraints, indexes and triggers are complete", ok=not differences, detail="; ".join(differences))


def _home_option_hint(home: ProjectHome) -> str:
    if not home.origin.startswith("--home"):
        return "Next: `almoner dataset register NAME --unit FIELD --epsilon E --delta D`."
    return f"Use it with `--home {home.root}` or `export ALMONER_HOME={home.root}`."
