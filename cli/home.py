"""`almoner init` and `almoner doctor`: the project home itself."""

import getpass
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from cli.asking import passphrase
from cli.command import Answer, Opened, command
from cli.tables import facts, table
from flows import health
from flows.policy_file import POLICY
from flows.workspace import Workspace, open_workspace, overlap_key_path, signing_key_path
from migrations.inventory import differences
from migrations.upgrade import upgrade
from models_db.engine import Database
from models_db.home import ProjectHome
from models_db.services import people
from models_db.services.health import Finding
from tasks.corpus.keys import create_key
from tasks.publishing.signing import home_key

KeyFile = Annotated[
    Path | None,
    typer.Option("--key", help="Sign with a copy of this OpenSSH private key (ssh-ed25519), instead of a new one."),
]


def add_to(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "init")(init)
    command(app, "doctor")(doctor)


def init(opened: Opened, key_file: KeyFile = None) -> Answer:
    """Make a project home: folders, keys, policy, ledger. Safe to repeat: what is there is kept.

    Example: almoner init --home ./clinic-home
    """
    home = opened.home
    home.create()
    key = home_key(signing_key_path(home), key_file, passphrase)
    if not overlap_key_path(home).exists():
        create_key(overlap_key_path(home))
    if not home.policy.exists():
        home.policy.write_text(POLICY)
        home.policy.chmod(0o600)
    database = Database(home.database_url)
    upgrade(database)
    with database.write() as session:
        people.enrol(session, getpass.getuser(), key.public_key)
    open_workspace(home)
    made = {
        "home": str(home.root),
        "ledger": database.engine.url.render_as_string(hide_password=True),
        "policy": str(home.policy),
        "principal": getpass.getuser(),
        "public_key": key.public_key,
        "fingerprint": key.fingerprint,
    }
    advice = "Back up the keys folder: without it a partition cannot be continued and nothing can be signed."
    return Answer(made, ["Project home ready.", facts(made), advice, _how_to_find(home)])


def doctor(opened: Opened) -> Answer:
    """Check the ledger (constraints, triggers, counters, chain), the home, the packages and the models.

    Example: almoner doctor --json
    """
    findings = health.examine(opened.home, _structure)
    rows = [("ok" if f.ok else "FAIL", f.check, f.detail) for f in findings]
    failed = sum(not f.ok for f in findings)
    summary = "Everything holds." if not failed else f"{failed} of {len(findings)} checks failed."
    return Answer(
        {"ok": not failed, "findings": [{"check": f.check, "ok": f.ok, "detail": f.detail} for f in findings]},
        [table(("", "check", "detail"), rows), summary],
        exit_code=3 if failed else 0,
    )


def _structure(workspace: Workspace) -> Iterator[Finding]:
    """The constraints, indexes and triggers in the database are those the migrations make."""
    with workspace.database.engine.begin() as connection:
        found = differences(connection)
    yield Finding("constraints, indexes and triggers are complete", ok=not found, detail="; ".join(found))


def _how_to_find(home: ProjectHome) -> str:
    found = ProjectHome.locate()
    if found == home and ("ALMONER_HOME" in os.environ or home.root.name == ".almoner"):
        return "Next: `almoner dataset register NAME --unit FIELD --epsilon E --delta D`."
    return f"Use it with `--home {home.root}` or `export ALMONER_HOME={home.root}`."
