"""The record as auditors use it: its log, proof against what they kept, a ledger that was put back, read-only homes."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from flows.workspace.workspace import open_workspace
from models_db.services.audit import chain
from tasks.release.signatures.chain_checkpoint import Checkpoint
from tests.contracts.tampering import FORGET_CHECKPOINTS, rewrite, superuser, truncate
from tests.integration.story import Almoner
from tests.support import fetch

pytestmark = pytest.mark.usefixtures("own_connections")

READING = ("audit log", "audit verify", "audit export --to {folder}/export.jsonl")


@pytest.fixture
def kept(any_almoner: Almoner) -> Almoner:
    """A home with a dataset, and a checkpoint that an auditor has taken away."""
    any_almoner.registered()
    any_almoner.type(f"audit checkpoint --to {any_almoner.folder / 'head.json'}")
    any_almoner.type("dataset register court --unit person --epsilon 1 --delta 1e-6")
    return any_almoner


def test_the_log_folds_no_kind_and_no_time(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner.published()
    monkeypatch.setattr("cli.framework.command.WIDTH_WITHOUT_TERMINAL", 80)
    out = almoner.type("audit log").out
    assert max(map(len, out.splitlines())) <= 80
    for link in almoner.ask("audit log"):
        assert re.search(rf"^ +{link['seq']} +{link['at'][:19]} +{re.escape(link['kind'])}: ", out, re.MULTILINE)
    assert "add --before" in almoner.type("audit log --limit 1").out


def test_a_bundle_and_a_checkpoint_prove_the_ledger(almoner: Almoner) -> None:
    almoner.published()
    almoner.type(f"audit checkpoint --to {almoner.folder / 'head.json'}")
    found = almoner.ask(f"audit verify --against {almoner.bundle} --against {almoner.folder / 'head.json'}")
    assert found["sound"] is True
    assert [one["verdict"] for one in found["against"]] == ["on the chain"] * 2
    assert len({one["signer"] for one in found["against"]}) == 1
    told = almoner.type(f"audit verify --against {almoner.bundle}").out
    assert "lies on the chain" in told
    [(published,)] = fetch(almoner.database, "SELECT min(seq) FROM audit WHERE kind = 'release.published'")
    truncate(almoner.database, int(str(published)) - 2)  # a bundle has the head from before its publication
    superuser(almoner.database, FORGET_CHECKPOINTS)
    told = almoner.type(f"audit verify --against {almoner.bundle}", expected=1).out
    assert "DOES NOT LIE ON THE CHAIN (cut off" in told


@pytest.mark.parametrize(
    "change", [{"rho": "0.5"}, {"rho": "99"}, {"delta": "1"}, {"blocks": (0, 1)}, {"artifact": "e"}]
)
def test_a_bundle_with_another_charge_than_the_entries_is_named(any_almoner: Almoner, change: dict[str, Any]) -> None:
    """The publisher's own key signs it."""
    almoner = any_almoner
    almoner.published(epsilon=1.0, evaluation=["length"])
    file = almoner.bundle / "checkpoint.json"
    said = Checkpoint.from_bytes(file.read_bytes())
    artifact = change.get("artifact", "") * 64 or said.artifact_sha256
    charged = said.charged.model_copy(update={name: value for name, value in change.items() if name != "artifact"})
    assert (charged, artifact) != (said.charged, said.artifact_sha256)
    key = open_workspace(almoner.home).key
    file.write_bytes(Checkpoint.signed(artifact, said.ledger_head, charged, key).to_bytes())
    for witness in (almoner.bundle, file):
        found = almoner.ask(f"audit verify --against {witness}", 1)
        assert (found["holds"], found["sound"], found["against"][0]["genuine"]) == (True, False, True)
        assert [line.partition(" states a charge of ")[0] for line in found["differences"]] == [str(witness)]


def test_a_rewritten_ledger_is_named(kept: Almoner) -> None:
    rewrite(kept.database, {2: {"actor": "somebody"}})
    superuser(kept.database, FORGET_CHECKPOINTS)
    told = kept.type(f"audit verify --against {kept.folder / 'head.json'}", expected=1)
    assert "DOES NOT LIE ON THE CHAIN (rewritten" in told.out
    assert "The chain holds" in told.out


def test_an_altered_witness_proves_nothing(kept: Almoner) -> None:
    path = kept.folder / "head.json"
    path.write_bytes(path.read_bytes().replace(b'"seq":', b'"seq":1'))
    told = kept.ask(f"audit verify --against {path}", expected=1)
    assert (told["holds"], told["sound"], told["against"][0]["genuine"]) == (True, False, False)
    assert "proves nothing" in kept.type(f"audit verify --against {path}", expected=1).out


def test_what_is_no_witness_is_named(kept: Almoner) -> None:
    for path in (kept.folder / "none.json", kept.write("notes.json", "{}\n"), kept.folder):
        assert kept.ask(f"audit verify --against {path}", expected=1)["error"] == "FileUnfit"


# --- an older ledger is put back ------------------------------------------------------------------------------------


@pytest.fixture
def rolled_back(almoner: Almoner) -> Almoner:
    """SQLite: the file is an older one; what was done since is lost, and `newest.db` still has it."""

    def make() -> None:
        almoner.type("init")
        shutil.copy(almoner.home.root / "almoner.db", almoner.folder / "older.db")
        almoner.type("dataset register clinic --unit patient_id --epsilon 8 --delta 1e-6")
        almoner.type(f"audit checkpoint --to {almoner.folder / 'head.json'}")
        shutil.copy(almoner.home.root / "almoner.db", almoner.folder / "newest.db")
        shutil.copy(almoner.folder / "older.db", almoner.home.root / "almoner.db")

    almoner.brought("a ledger put back", make)
    return almoner


@pytest.mark.parametrize(
    "line",
    [
        "init",
        "dataset list",
        "dataset register clinic --unit patient_id --epsilon 8 --delta 1e-6",
        "budget show clinic",
        "release list",
        "run 1",
        "run sweep",
        'reject 1 --gate spend --reason "x"',
        "publish 1 --to {folder}/out",
        "audit checkpoint --to {folder}/new.json",
    ],
)
def test_nothing_works_on_a_ledger_that_was_put_back(rolled_back: Almoner, line: str) -> None:
    before = rolled_back.everything()
    told = rolled_back.ask(line.format(folder=rolled_back.folder), expected=1)
    assert told["error"] == "LedgerRolledBack"
    assert rolled_back.everything() == before


def test_it_can_still_be_read_and_everything_read_says_so(rolled_back: Almoner) -> None:
    for line in READING:
        told = rolled_back.type(line.format(folder=rolled_back.folder), expected=1 if "verify" in line else 0)
        assert "The ledger differs from the one that this home has seen" in told.err
    found = rolled_back.ask(f"audit verify --against {rolled_back.folder / 'head.json'}", expected=1)
    assert (found["holds"], found["sound"]) == (True, False)
    assert "has seen" in found["home"]
    assert found["against"][0]["verdict"] == "older copy"
    told = rolled_back.ask("doctor", expected=3)
    assert [f["check"] for f in told["findings"] if "has seen" in f["detail"]] == ["home opens"]


def test_the_newest_ledger_is_welcome_again(rolled_back: Almoner) -> None:
    shutil.copy(rolled_back.folder / "newest.db", rolled_back.home.root / "almoner.db")
    assert [d["name"] for d in rolled_back.ask("dataset list")] == ["clinic"]
    assert rolled_back.ask(f"audit verify --against {rolled_back.folder / 'head.json'}")["sound"] is True


def test_a_ledger_that_is_gone_is_not_replaced_by_a_new_one(rolled_back: Almoner) -> None:
    """`init` would make an empty one, with everybody's whole budget."""
    (rolled_back.home.root / "almoner.db").unlink()
    assert rolled_back.ask("init", expected=1)["error"] == "LedgerRolledBack"
    assert rolled_back.ask("dataset list", expected=1)["error"] == "LedgerRolledBack"


def test_on_postgresql_as_well(team_almoner: Almoner) -> None:
    team_almoner.registered()
    with team_almoner.database.read() as session:
        head = chain.read_chain_head(session).seq
    truncate(team_almoner.database, head - 1)
    assert team_almoner.ask("dataset list", expected=1)["error"] == "LedgerRolledBack"
    assert "link" in team_almoner.ask("audit verify", expected=1)["home"]


# --- auditors -------------------------------------------------------------------------------------------------------


def test_an_auditor_needs_no_key_and_no_home(any_almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """On SQLite a copy of the file is enough, on PostgreSQL the address."""
    any_almoner.registered()
    links = len(any_almoner.ask("audit log"))
    desk = any_almoner.folder / "desk"
    desk.mkdir()
    if any_almoner.database.is_sqlite:
        shutil.copy(any_almoner.home.root / "almoner.db", desk / "almoner.db")
    for line in READING:
        any_almoner.type(f"{line.format(folder=desk)} --home {desk}")
    monkeypatch.setenv("ALMONER_HOME", str(any_almoner.home.root))
    assert len((desk / "export.jsonl").read_text().splitlines()) == links
    assert not (desk / "keys").exists()


def test_reading_commands_change_nothing(any_almoner: Almoner) -> None:
    any_almoner.registered()
    before = any_almoner.everything()
    for line in READING:
        any_almoner.type(line.format(folder=any_almoner.folder))
    assert any_almoner.everything() == before


def test_a_home_without_a_ledger_is_named_and_not_made(almoner: Almoner, tmp_path: Path) -> None:
    assert almoner.ask("audit log", expected=3)["error"] == "HomeMissing"
    assert not almoner.home.root.exists()


def test_an_unknown_signer_is_said_to_be_one(kept: Almoner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Almoner(tmp_path / "other")
    other.folder.mkdir()
    monkeypatch.setenv("ALMONER_HOME", str(other.home.root))
    monkeypatch.delenv("ALMONER_DATABASE_URL", raising=False)
    other.type("init")
    told = other.type(f"audit verify --against {kept.folder / 'head.json'}", expected=1).out
    assert "another ledger" in told
    assert "a key that this ledger does not know" in told
