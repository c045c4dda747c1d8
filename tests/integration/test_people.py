"""People of a ledger as admins and stewards type them, on both backends."""

import getpass
from dataclasses import dataclass

import pytest

from flows.workspace.workspace import overlap_key_path
from tests.integration.story import Almoner
from tests.support import snapshot

LATE = "2090-12-31"


@dataclass(frozen=True)
class Circle:
    """The founder's home and others on the same ledger."""

    root: Almoner
    patch: pytest.MonkeyPatch

    def at(self, name: str) -> Almoner:
        """Sit down at somebody's home."""
        made = self.root if name == "root" else Almoner(self.root.folder / name)
        made.folder.mkdir(exist_ok=True)
        self.patch.setenv("ALMONER_HOME", str(made.home.root))
        self.patch.setattr(getpass, "getuser", lambda: name)
        return made

    def joined(self, name: str, *roles: str) -> Almoner:
        """Make a home and have it added, with the very command it prints."""
        typed = self.at(name).ask("init")["admin_types"].removeprefix("almoner ")
        typed = typed.split(" --login")[0].split(" --role")[0]
        self.at("root").type(" ".join([typed, *(f"--role {role}" for role in roles)]))
        return self.at(name)


@pytest.fixture
def circle(any_almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> Circle:
    """A founded ledger that several homes can name, with a dataset and separate roles."""
    made = Circle(any_almoner, monkeypatch)
    made.at("root")
    any_almoner.roles_apart()
    monkeypatch.setenv("ALMONER_DATABASE_URL", any_almoner.home.database_url)
    return made


def refused(almoner: Almoner, line: str, error: str, code: int = 1) -> None:
    """Refused under that name, and nothing in the ledger has changed."""
    before = snapshot(almoner.database)
    assert almoner.ask(line, expected=code)["error"] == error
    assert snapshot(almoner.database) == before


def test_a_second_home_says_what_an_admin_types_and_then_works(circle: Circle) -> None:
    anna = circle.at("anna")
    before = snapshot(anna.database)
    made = anna.ask("init")
    assert (made["enrolled"], made["principal"], made["problem"]) == (False, None, None)
    assert made["admin_types"].startswith(f"almoner user add anna --key {made['public_key']} ")
    assert made["admin_types"].endswith("--role ROLE")
    assert snapshot(anna.database) == before  # it does not enrol itself
    assert made["fingerprint"] in anna.type("init").out
    assert anna.ask("dataset list", expected=3)["error"] == "PrincipalUnknown"
    anna = circle.joined("anna", "analyst")
    again = anna.ask("init")
    assert (again["enrolled"], again["principal"]) == (True, "anna")
    assert not anna.home.policy.exists()  # it follows the policy in force
    assert not overlap_key_path(anna.home).exists()  # a second one could not recognise the same people
    assert anna.ask("policy show")["home"] == circle.at("root").ask("policy show")["digest"]
    circle.at("anna").type("dataset list")


def test_everybody_is_listed_with_roles_days_and_keys(circle: Circle) -> None:
    circle.joined("anna", "analyst", "auditor")
    circle.at("root").type(f'user grant anna runner --reason "night shifts" --from 2090-01-01 --until {LATE}')
    told = circle.at("anna").ask("user list")
    root, anna = told["people"]
    assert {grant["role"] for grant in root["roles"]} == {"analyst", "runner", "steward", "auditor", "admin"}
    assert [grant["role"] for grant in anna["roles"]] == ["analyst", "auditor", "runner"]
    assert anna["roles"][2]["from"] == "2090-01-01T00:00:00.000000Z"
    assert anna["roles"][2]["until"] == "2091-01-01T00:00:00.000000Z"
    assert anna["roles"][2]["granted_by"] == "root"
    assert anna["fingerprint"].startswith("SHA256:")
    shown = circle.at("anna").type("user list").out
    assert "runner from 2090-01-01 until 2091-01-01" in shown


def test_a_role_that_was_taken_away_is_gone(circle: Circle) -> None:
    circle.joined("sue", "steward")
    told = circle.at("root").ask('user revoke sue steward --reason "left the board"')
    assert told["ended"] == 1
    assert circle.at("root").ask("user list")["people"][1]["roles"] == []
    refused(circle.at("root"), 'user revoke sue steward --reason "again"', "RoleNotHeld")
    refused(circle.at("root"), 'user revoke root admin --reason "tired"', "RuleViolated")  # a ledger keeps an admin
    kinds = [link["kind"] for link in circle.at("root").ask("audit log --actor root")]
    assert kinds[-1] == "role.revoked"


REFUSED = (
    ("user add bob --key nothing", "NotAPublicKey", 2),
    ("user add ' bob' --key {key}", "InvalidPersonName", 2),
    ("user add ROOT --key {key}", "NameTaken", 1),
    ("user add bob --key {taken}", "NameTaken", 1),
    ("user add bob --key {key} --role king", "RoleUnknown", 2),
    ("user add bob --key {key} --reason ' '", "RoleReasonMissing", 2),
    ("user grant nobody steward --reason x", "PrincipalNotFound", 2),
    ("user grant root king --reason x", "RoleUnknown", 2),
    ("user grant root steward --reason x --until 2020-01-01", "InvalidPeriod", 2),
    ("user grant root steward --reason x --from soon", "InvalidDate", 2),
)


def test_what_cannot_be_is_refused_by_name(circle: Circle) -> None:
    key = circle.at("bob").ask("init")["public_key"]
    root = circle.at("root")
    taken = root.ask("init")["public_key"]
    for line, error, code in REFUSED:
        refused(root, line.format(key=key, taken=taken), error, code)


def test_only_admins_change_people(circle: Circle) -> None:
    key = circle.at("bob").ask("init")["public_key"]
    sue = circle.joined("sue", "steward", "analyst", "runner", "auditor")
    refused(sue, f"user add bob --key {key}", "RoleRequired")
    refused(sue, "user grant sue admin --reason mine", "RoleRequired")
    refused(sue, "user revoke root admin --reason mine", "RoleRequired")


def waiting(circle: Circle) -> None:
    """Request 1 of anna waits; sue and tom are stewards, dora is nothing."""
    root = circle.at("root")
    root.type(f"dataset ingest clinic {root.notes_file()}")
    for name, *roles in (("anna", "analyst"), ("sue", "steward"), ("tom", "steward"), ("dora",)):
        circle.joined(name, *roles)
    anna = circle.at("anna")
    anna.type(f"release request {circle.root.request_file()}")


def test_a_deputy_decides_until_the_role_is_taken_back(circle: Circle) -> None:
    waiting(circle)
    line = 'approve 1 --gate spend --reason "for sue"'
    assert circle.at("dora").ask(line, expected=1, piped="clinic\n")["error"] == "RoleDenied"
    circle.at("root").type(f'user grant dora steward --until {LATE} --reason "sue is away"')
    assert circle.at("dora").ask(line, piped="clinic\n")["state"] == "approved"
    circle.at("root").type('user revoke dora steward --reason "sue is back"')
    assert circle.at("root").ask("run 1", expected=1)["error"] in ("GateClosed", "WrongState")
