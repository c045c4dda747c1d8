"""A team of people on one ledger, each with a home and a key of their own."""

from dataclasses import dataclass

import pytest
import yaml

from flows.workspace.workspace import open_workspace, signing_key_path
from models_db.services import people
from tasks.release.signatures.ed25519 import SigningKey
from tests.integration.story import Almoner


@dataclass(frozen=True)
class Team:
    """The home of root, who founded the ledger, asks and runs; and homes of others on the same ledger."""

    root: Almoner
    ledger: str
    patch: pytest.MonkeyPatch

    def at(self, almoner: Almoner, ledger: bool = True) -> Almoner:
        """Sit down at somebody's home; without `ledger` at a machine that does not reach it."""
        self.patch.setenv("ALMONER_HOME", str(almoner.home.root))
        nowhere = f"sqlite:///{almoner.folder / 'nowhere' / 'almoner.db'}"
        self.patch.setenv("ALMONER_DATABASE_URL", self.ledger if ledger else nowhere)
        return almoner

    def home(self, name: str) -> Almoner:
        """A home with a key and root's policy, and nothing else."""
        folder = self.root.folder / name
        made = Almoner(folder)
        if not made.home.root.exists():
            folder.mkdir()
            made.home.create()
            SigningKey.create(signing_key_path(made.home))
            made.home.policy.write_text(self.root.home.policy.read_text())
        return made

    def key(self, name: str) -> SigningKey:
        return SigningKey.load(signing_key_path(self.home(name).home))

    def enrol(self, name: str, *roles: str) -> Almoner:
        """Somebody new in the ledger."""
        self.at(self.root)
        workspace = open_workspace(self.root.home)
        with workspace.database.write() as session:
            people.enrol(session, workspace.actor, name, self.key(name).public_key)
            for role in roles:
                people.grant(session, workspace.actor, name, role, "a test")
        return self.home(name)


def gathered(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> Team:
    """Separate roles; sue is a steward; anna's request 1 waits at the spend gate."""
    almoner.brought("a team that approves", lambda: gather(almoner, monkeypatch))
    made = Team(almoner, almoner.home.database_url, monkeypatch)
    made.at(almoner)
    return made


def gather(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner.roles_apart()
    made = Team(almoner, almoner.home.database_url, monkeypatch)
    made.enrol("sue", "steward")
    made.at(almoner).type(f"dataset ingest clinic {almoner.notes_file()}")
    made.at(made.enrol("anna", "analyst")).type(f"release request {almoner.request_file()}")


def with_tight_bounds(team: Team) -> Almoner:
    """Adopt a policy whose bounds no release keeps, under which anna asks for request 2; root sits at root's home."""
    root = team.root
    policy = yaml.safe_load(root.home.policy.read_text())
    policy["evaluation"] = {"required": {"length": {"texts": {"max": 2}}}}
    root.home.policy.write_text(yaml.safe_dump(policy))
    root.type(f"policy adopt {root.home.policy}")
    anna = team.at(team.home("anna"))
    anna.home.policy.write_text(root.home.policy.read_text())
    anna.type(f"release request {root.request_file(epsilon=3.9)}")
    return team.at(root)
