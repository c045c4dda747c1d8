"""`almoner passkey`: keys of browsers and tokens with which people decide on the dashboard's pages."""

from pathlib import Path
from typing import Annotated, cast

import typer
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.tables import table
from flows.governance import passkeys as flow
from flows.governance.passkeys import CertifiedPasskey
from flows.workspace.workspace import open_read_only, open_workspace, signing_key_path
from models_db.errors import UsageError
from models_db.services.audit import chain
from tasks.release.signatures.ed25519 import SigningKey

app = typer.Typer(
    no_args_is_help=True, help="Manage passkeys, with which you decide in a browser: invite, add, import, list, revoke."
)


class PasskeyInvitation(TypedDict):
    """An invitation of a browser."""

    name: str
    url: str
    origin: str
    ledger: str
    expires_at: str


class PasskeyRecorded(TypedDict):
    """A passkey that decides from now on."""

    passkey: int
    name: str
    origin: str
    key: str


class PasskeyFile(TypedDict):
    """A file with a certified passkey, for an admin."""

    file: str
    key: str


class PasskeyData(TypedDict):
    """A passkey in force."""

    number: int
    name: str
    origin: str
    key: str
    since: str
    certified: bool


class PasskeyList(TypedDict):
    """All passkeys in force."""

    ledger: str
    passkeys: list[PasskeyData]


class WithdrawnApproval(TypedDict):
    """An approval that ends with its passkey."""

    number: int
    gate: str


class PasskeyRevoked(TypedDict):
    """A revoked passkey."""

    passkey: int
    name: str
    withdrawn: list[WithdrawnApproval]


LOCAL = "http://localhost:8717"

Origin = Annotated[
    str,
    typer.Option(metavar="ADDRESS", help="The dashboard's address as a browser shows it, such as https://HOST:PORT."),
]
PersonName = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="Your name for the browser, in a home that reaches no ledger."),
]
LedgerIdentity = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="IDENTITY",
        help="The ledger for which you will decide, in a home that reaches none: as `passkey list` shows it elsewhere.",
    ),
]
Answer = Annotated[str, typer.Argument(help="The browser's answer, as the dashboard's page shows it.")]
Export = Annotated[
    Path | None,
    typer.Option(
        "--export", metavar="FILE", help="Write the signed passkey to this new file, for an admin to import it."
    ),
]
File = Annotated[Path, typer.Argument(metavar="FILE", help="A file that `passkey add --export` wrote.")]
Number = Annotated[int, typer.Argument(min=1, metavar="NUMBER", help="Number of the passkey, as `list` shows it.")]
Reason = Annotated[str, typer.Option(help="Reason, recorded in the audit log.")]


@command(app, "invite")
def invite(
    context: CommandContext, origin: Origin = LOCAL, name: PersonName = None, ledger: LedgerIdentity = None
) -> CommandResult[PasskeyInvitation]:
    """Invite your browser to create a passkey. The invitation holds for 15 minutes, and for one passkey.

    Example: almoner passkey invite --origin https://ledger.example.org:8717
    """
    key = SigningKey.load(signing_key_path(context.home.require()))
    person, identity = _person_and_ledger(context, name, ledger)
    made = flow.invite(context.home, person, origin, identity)
    data = PasskeyInvitation(
        name=person,
        url=made.url(key.public_key),
        origin=made.origin,
        ledger=made.ledger,
        expires_at=made.expires_at,
    )
    steps = "It shows a command. Type it here, in this home: your own key then certifies the passkey."
    return CommandResult(data, ["Open this page in your browser:", data["url"], steps])


def _person_and_ledger(context: CommandContext, name: str | None, ledger: str | None) -> tuple[str, str]:
    """Return the name and the ledger of an invitation: those of the home, or both as typed where it reaches none."""
    if name is not None:
        return name, ledger or ""
    if ledger is not None:
        raise UsageError(
            "This home reaches its ledger, so the passkey is for that one.",
            "Leave --ledger out, or give --name as well.",
            code="LedgerKnown",
        )
    workspace = open_workspace(context.home)
    with workspace.database.read() as session:
        return workspace.actor.name, chain.ledger_id(session)


@command(app, "add")
def add(context: CommandContext, answer: Answer, export: Export = None) -> CommandResult[PasskeyRecorded | PasskeyFile]:
    """Certify the passkey that your browser has created, and record it; or write it to a file for an admin.

    Example: almoner passkey add eyJhdHRlc3RhdGlvbiI6...
    """
    home = context.home.require()
    key = SigningKey.load(signing_key_path(home))
    if export is None:
        workspace = open_workspace(home)  # refuse before the invitation is used up
        certified = flow.certify(home, key, answer)
        return _recorded(*flow.record(workspace, certified), certified)
    certified = flow.certify(home, key, answer)
    flow.write_certified(export, certified)
    line = f"The passkey is in {export}; an admin records it with `almoner passkey import {export.name}`."
    return CommandResult(PasskeyFile(file=str(export), key=flow.passkey_fingerprint(certified.public_key)), [line])


@command(app, "import")
def import_passkey(context: CommandContext, file: File) -> CommandResult[PasskeyRecorded]:
    """Record the passkey of a person whose home reaches no ledger (admins only). Its person's key certified it.

    Example: almoner passkey import passkey.json
    """
    certified = flow.read_certified(file)
    return _recorded(*flow.record(open_workspace(context.home), certified), certified)


@command(app, "list")
def list_all(context: CommandContext) -> CommandResult[PasskeyList]:
    """List the passkeys in force, and whether their people certified them. Needs no key.

    Example: almoner passkey list --json
    """
    with open_read_only(context.home).database.read() as session:
        rows, ledger = cast(list[PasskeyData], flow.list_passkeys(session)), chain.ledger_id(session)
    columns = ("number", "name", "origin", "key", "since", "certified")
    shown = table(columns, [list(row.values()) for row in rows])
    return CommandResult(PasskeyList(ledger=ledger, passkeys=rows), [shown, f"Identity of this ledger: {ledger}"])


@command(app, "revoke")
def revoke(context: CommandContext, number: Number, reason: Reason) -> CommandResult[PasskeyRevoked]:
    """Revoke a passkey: your own, with the approvals that it gave and nobody has used; or, as an admin, anybody's.

    Example: almoner passkey revoke 1 --reason "the telephone is lost"
    """
    if not reason.strip():
        raise UsageError("This needs a reason.", 'Say why: --reason "...".', code="PasskeyReasonMissing")
    workspace = open_workspace(context.home)
    name, taken_back = flow.revoke(workspace, number, reason.strip())
    withdrawn = [WithdrawnApproval(number=n, gate=gate) for n, gate in taken_back]
    data = PasskeyRevoked(passkey=number, name=name, withdrawn=withdrawn)
    lines = [f"Passkey {number} of {name} decides nothing any more."]
    lines += [f"Its approval at the {gate} gate of {n} is withdrawn." for n, gate in taken_back]
    if name != workspace.actor.name:
        lines.append(
            f"What it approved and nobody has used counts no more; before {name} decides there again, they take it back"
            " with `almoner withdraw-approval`."
        )
    return CommandResult(data, lines)


def _recorded(number: int, name: str, certified: CertifiedPasskey) -> CommandResult[PasskeyRecorded]:
    key = flow.passkey_fingerprint(certified.public_key)
    data = PasskeyRecorded(passkey=number, name=name, origin=certified.origin, key=key)
    return CommandResult(data, [f"Passkey {number} ({key}) decides for {name} at {certified.origin}."])
