"""An older ledger is refused by its home, by a bundle and by a checkpoint, and a newer one is not.

So is one that was rewritten or cut. What lies outside the ledger is named with `audit verify --against`.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flows.workspace.workspace import open_workspace
from tasks.release.signatures.publisher_statements import Checkpoint
from tests.contract.altered import cut_off, write_anew
from tests.integration.killing import ledger
from tests.integration.story import Almoner

pytestmark = [pytest.mark.contract, pytest.mark.usefixtures("own_connections")]

CONCERNS = ("flows/audit", "flows/workspace", "migrations/schema", "models_db/services")

READING = ("audit log", "audit verify", "audit export --to {folder}/export.jsonl")
WRITING = (
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
    "backup --to {folder}/b.tar",
)


@dataclass(frozen=True)
class Copies:
    """Copies of a ledger, of either kind, and of what its home remembers."""

    almoner: Almoner

    def keep(self, name: str) -> None:
        """Copy the ledger and the home."""
        if self.almoner.served:
            self.almoner.served.keep(name)
        else:
            self.almoner.complete_file()
        # By another process: whoever closes a file loses this process' locks on it, and SQLite rests on them.
        subprocess.run(["cp", "-a", str(self.almoner.home.root), str(self.almoner.folder / name)], check=True)

    def put_back(self, name: str, *, home: bool = False) -> None:
        """Put a copy of the ledger back; with `home` also what its home remembers."""
        root, copy = self.almoner.home.root, self.almoner.folder / name
        if self.almoner.served:
            self.almoner.served.bring(name)
        else:
            for path in root.glob("almoner.db*"):
                path.unlink()
            shutil.copy(copy / "almoner.db", root)
        if home:
            shutil.copy(copy / "seen.json", root)


@pytest.fixture
def copies(any_almoner: Almoner) -> Iterator[Copies]:
    yield Copies(any_almoner)
    for folder in any_almoner.folder.glob("*/keys"):
        if any_almoner.served and folder.parent != any_almoner.home.root:
            server = any_almoner.served.server
            server.drop(server.database(folder.parent.name))


@pytest.fixture
def rolled_back(copies: Copies) -> Copies:
    """The ledger is an older one; what was done since is lost, and the copy `newest` still has it."""
    almoner = copies.almoner
    almoner.type("init")
    copies.keep("older")
    almoner.type("dataset register clinic --unit patient_id --epsilon 8 --delta 1e-6")
    almoner.type(f"audit checkpoint --to {almoner.folder / 'head.json'}")
    copies.keep("newest")
    copies.put_back("older")
    return copies


def verdict(almoner: Almoner, witness: Path, expected: int) -> tuple[bool, str]:
    """Whether the ledger is sound against a witness, and what is said of the witness."""
    found = almoner.ask(f"audit verify --against {witness}", expected)
    [placed] = found["against"]
    return found["sound"], placed["verdict"]


# --- the home remembers ----------------------------------------------------------------------------------------------


def test_nothing_works_on_a_ledger_that_was_put_back(rolled_back: Copies) -> None:
    almoner = rolled_back.almoner
    before = almoner.everything()
    for line in WRITING:
        told = almoner.ask(line.format(folder=almoner.folder), expected=1)
        assert told["error"] == "LedgerRolledBack", line
        assert almoner.everything() == before


def test_it_can_still_be_read_and_everything_read_says_so(rolled_back: Copies) -> None:
    almoner = rolled_back.almoner
    for line in READING:
        told = almoner.type(line.format(folder=almoner.folder), expected=1 if "verify" in line else 0)
        assert "The ledger differs from the one that this home has seen" in told.err
    found = almoner.ask(f"audit verify --against {almoner.folder / 'head.json'}", expected=1)
    assert (found["holds"], found["sound"]) == (True, False)
    assert "has seen" in found["home"]
    assert found["against"][0]["verdict"] == "older copy"
    told = almoner.ask("doctor", expected=3)
    assert [f["check"] for f in told["findings"] if "has seen" in f["detail"]] == ["home opens"]


def test_the_newest_ledger_is_welcome_again(rolled_back: Copies) -> None:
    almoner = rolled_back.almoner
    rolled_back.put_back("newest")
    assert [d["name"] for d in almoner.ask("dataset list")] == ["clinic"]
    assert verdict(almoner, almoner.folder / "head.json", 0) == (True, "on the chain")


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_ledger_that_is_gone_is_not_replaced_by_a_new_one(rolled_back: Copies) -> None:
    """`init` would make an empty one, with everybody's whole budget."""
    (rolled_back.almoner.home.root / "almoner.db").unlink()
    assert rolled_back.almoner.ask("init", expected=1)["error"] == "LedgerRolledBack"
    assert rolled_back.almoner.ask("dataset list", expected=1)["error"] == "LedgerRolledBack"


def test_a_ledger_that_was_cut_is_refused(any_almoner: Almoner) -> None:
    any_almoner.registered()
    newest = any_almoner.ask("audit log --limit 1")[0]["seq"]
    cut_off(any_almoner.database, newest - 1, forget=False)
    assert any_almoner.ask("dataset list", expected=1)["error"] == "LedgerRolledBack"
    assert "link" in any_almoner.ask("audit verify", expected=1)["home"]


# --- what lies outside the home ---------------------------------------------------------------------------------------


def test_a_home_that_was_put_back_with_its_ledger_is_refused_by_a_checkpoint(copies: Copies) -> None:
    """Nothing in the home knows; the checkpoint does, also after the older ledger went on."""
    almoner, head = copies.almoner, copies.almoner.folder / "head.json"
    almoner.type("init")
    copies.keep("older")
    almoner.type("dataset register clinic --unit patient_id --epsilon 8 --delta 1e-6")
    almoner.type(f"audit checkpoint --to {head}")
    copies.keep("newest")
    signed = json.loads(head.read_bytes())["seq"]
    copies.put_back("older", home=True)
    assert almoner.ask("audit verify")["sound"] is True
    assert verdict(almoner, head, 1) == (False, "older copy")
    for name in ("court", "ward", "harbour"):
        almoner.type(f"dataset register {name} --unit person --epsilon 1 --delta 1e-6")
    assert almoner.ask("audit log --limit 1")[0]["seq"] > signed
    assert almoner.ask("audit verify")["sound"] is True
    assert verdict(almoner, head, 1) == (False, "older copy")
    copies.put_back("newest", home=True)
    almoner.type("dataset register court --unit person --epsilon 1 --delta 1e-6")
    assert verdict(almoner, head, 0) == (True, "on the chain")


def test_a_home_that_was_put_back_with_its_ledger_is_refused_by_a_bundle(copies: Copies) -> None:
    almoner = copies.almoner
    almoner.approved()
    copies.keep("older")
    almoner.go_on_to("published", after="approved")
    assert verdict(almoner, almoner.bundle, 0) == (True, "on the chain")
    copies.put_back("older", home=True)
    assert almoner.ask("audit verify")["sound"] is True
    assert verdict(almoner, almoner.bundle, 1) == (False, "older copy")
    for name in "abcdefgh":
        almoner.type(f"dataset register {name} --unit person --epsilon 1 --delta 1e-6")
    assert verdict(almoner, almoner.bundle, 1) == (False, "older copy")


@pytest.fixture
def kept(any_almoner: Almoner) -> Almoner:
    """A home with a dataset, and a checkpoint that an auditor has taken away."""
    any_almoner.registered()
    any_almoner.type(f"audit checkpoint --to {any_almoner.folder / 'head.json'}")
    any_almoner.type("dataset register court --unit person --epsilon 1 --delta 1e-6")
    return any_almoner


def test_a_bundle_and_a_checkpoint_prove_the_ledger(almoner: Almoner) -> None:
    almoner.published()
    almoner.type(f"audit checkpoint --to {almoner.folder / 'head.json'}")
    almoner.type("dataset register court --unit person --epsilon 1 --delta 1e-6")  # it may go on
    found = almoner.ask(f"audit verify --against {almoner.bundle} --against {almoner.folder / 'head.json'}")
    assert found["sound"] is True
    assert [one["verdict"] for one in found["against"]] == ["on the chain"] * 2
    assert len({one["signer"] for one in found["against"]}) == 1
    told = almoner.type(f"audit verify --against {almoner.bundle}").out
    assert "lies on the chain" in told
    published = almoner.ask("audit log --kind release.published")[0]["seq"]
    cut_off(almoner.database, published - 2)  # a bundle has the head from before its publication
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
    write_anew(kept.database, 2, "somebody")
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


def test_an_unknown_signer_is_said_to_be_one(kept: Almoner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Almoner(tmp_path / "other")
    other.folder.mkdir()
    monkeypatch.setenv("ALMONER_HOME", str(other.home.root))
    monkeypatch.delenv("ALMONER_DATABASE_URL", raising=False)
    other.type("init")
    told = other.type(f"audit verify --against {kept.folder / 'head.json'}", expected=1).out
    assert "another ledger" in told
    for name in "abcd":
        other.type(f"dataset register {name} --unit person --epsilon 1 --delta 1e-6")
    assert verdict(other, kept.folder / "head.json", 1) == (False, "another ledger")  # and now it is longer
    assert "a key that this ledger does not know" in told


# --- recorded checkpoints ---------------------------------------------------------------------------------------------


def finding(almoner: Almoner) -> tuple[bool, bool, str]:
    [found] = [each for each in almoner.ask("doctor")["findings"] if each["check"] == "checkpoints"]
    return found["ok"], found["warning"], found["detail"]


def test_a_checkpoint_that_its_key_has_not_signed_is_named_and_stops_nobody(any_almoner: Almoner) -> None:
    """Of a bundle and of a file; whoever may record one must not be able to keep verification from ever passing."""
    almoner = any_almoner
    almoner.published()
    almoner.type(f"audit checkpoint --to {almoner.folder / 'head.json'}")
    assert finding(almoner) == (True, False, "all are signed")
    assert almoner.ask("audit verify")["unsigned_checkpoints"] == []
    named = f"checkpoint 3, recorded by {ledger(almoner).record_unsigned_checkpoint()}"
    ok, warning, detail = finding(almoner)
    assert (ok, warning) == (True, True)
    assert named in detail
    told = almoner.ask("audit verify")
    assert (told["sound"], told["unsigned_checkpoints"]) == (True, [named])
    assert named in almoner.type("audit verify").out
