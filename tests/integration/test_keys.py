"""Another key in place of one that says who a person is, or in which block, is refused by name, and nothing changes."""

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

import almoner as almoner_package
from cli.commands.operations import home as init_command
from flows.workspace.home_keys import load_overlap_key, load_partition_key
from models_db.services import datasets
from tasks.common.files import encode_json
from tests.integration.killing import killed
from tests.integration.story import NOTES, Almoner
from tests.integration.test_altered_ledger import alter
from tests.integration.test_extend import produced as keyphrases_produced
from tests.integration.test_extend import published as keyphrases_published
from tests.refusals import refusal
from tests.support import fetch

CONCERNS = ("flows/workspace", "flows/datasets", "flows/releases", "flows/backup", "tasks/corpus", "migrations/schema")

UNIT = NOTES[0]["patient_id"]
ALTERATIONS: dict[str, Callable[[bytes], bytes]] = {
    "one bit": lambda key: bytes([key[0] ^ 1]) + key[1:],
    "the last bit": lambda key: key[:-1] + bytes([key[-1] ^ 128]),
    "zeros": lambda key: bytes(len(key)),
    "truncated": lambda key: key[:-1],
    "empty": lambda key: b"",
    "a newline more": lambda key: key + b"\n",
    "drawn again": lambda key: bytes(reversed(key)),
}


def key_of(almoner: Almoner, kind: str, dataset: str = "clinic") -> Path:
    """The file of the overlap key, or of the key of a dataset's partition."""
    if kind == "overlap":
        return almoner.home.keys / "overlap.key"
    query = "SELECT a.key_name FROM account a JOIN dataset d ON d.account_id = a.id"
    [(name,)] = fetch(almoner.database, f"{query} WHERE d.name = '{dataset}'")
    return almoner.home.keys / f"partition-{name}.key"


def refuses(almoner: Almoner, line: str, key: Path, error: str = "KeyDiffers") -> None:
    """A command is refused with the name of the key; no row of the ledger and no file of the home differs then."""
    before = almoner.everything()
    told = almoner.ask(line, expected=3)
    assert (told["error"], told["facts"]["key"]) == (error, str(key)), (line, told)
    assert key.name in told["message"]
    rows, files = almoner.everything()
    assert rows == before[0], line
    assert {name for name in files if files[name] != before[1].get(name)} <= {"seen.json"}, line


def doctor_names(almoner: Almoner, *said: str) -> None:
    told = almoner.ask("doctor", expected=3)
    [finding] = [each for each in told["findings"] if each["check"] == "keys are those of the beginning"]
    assert not finding["ok"]
    assert all(each in finding["detail"] for each in said), finding


@pytest.mark.parametrize("kind", ["partition", "overlap"])
def test_any_flipped_bit_is_another_key(any_almoner: Almoner, kind: str) -> None:
    """Two bits of every byte, of both keys, against the commitments as either database returns them."""
    any_almoner.registered()
    path = key_of(any_almoner, kind)
    key, refused = path.read_bytes(), 0
    with any_almoner.database.read() as session:
        clinic = datasets.find_dataset(session, "clinic")

        def load() -> bytes:
            if kind == "overlap":
                return load_overlap_key(any_almoner.home, session)
            return load_partition_key(any_almoner.home, session, clinic)

        assert load() == key
        for place in range(len(key)):
            for bit in (place % 8, (place + 3) % 8):
                path.write_bytes(key[:place] + bytes([key[place] ^ (1 << bit)]) + key[place + 1 :])
                with refusal("KeyDiffers", match=path.name):
                    load()
                refused += 1
        path.write_bytes(key)
        assert load() == key
    assert refused == 64


@pytest.mark.parametrize("how", ALTERATIONS)
@pytest.mark.parametrize("kind", ["partition", "overlap"])
def test_nothing_is_read_ingested_registered_or_saved_with_another_key(
    any_almoner: Almoner, kind: str, how: str
) -> None:
    any_almoner.approved()
    path = key_of(any_almoner, kind)
    key = path.read_bytes()
    path.write_bytes(ALTERATIONS[how](key))
    for line in (
        "run 1",
        "run 1 --workers 2",
        f"dataset ingest clinic {any_almoner.folder / 'notes.jsonl'}",
        "dataset register second --unit patient_id --epsilon 8 --delta 1e-6",
        "dataset register second --unit patient_id --shares-account-with clinic",
        f"backup --to {any_almoner.folder / 'saved.tar'}",
    ):
        refuses(any_almoner, line, path)
    assert not (any_almoner.folder / "saved.tar").exists()
    doctor_names(any_almoner, path.name, *(["'clinic'"] if kind == "partition" else []))
    path.write_bytes(key)
    assert any_almoner.ask("doctor")["ok"] is True


def test_no_unit_is_erased_under_another_overlap_key(any_almoner: Almoner) -> None:
    """The unit's mark would be recorded as another person's; a whole version is erased without any key."""
    any_almoner.ingested()
    path = key_of(any_almoner, "overlap")
    path.write_bytes(bytes(32))
    erase = 'dataset erase clinic {} --reason "agreed in May"'
    refuses(any_almoner, f"{erase.format(f'--unit {UNIT}')} --confirm clinic", path)
    refuses(any_almoner, f"dataset erase clinic --unit {UNIT} --dry-run", path)
    any_almoner.type(f"{erase.format('--version 1')} --confirm clinic")


def test_the_same_people_get_no_second_budget(any_almoner: Almoner) -> None:
    """Under another overlap key they would be strangers."""
    any_almoner.ingested()
    any_almoner.type("dataset register second --unit patient_id --epsilon 8 --delta 1e-6")
    notes, path = any_almoner.folder / "notes.jsonl", key_of(any_almoner, "overlap")
    assert any_almoner.ask(f"dataset ingest second {notes}", expected=1)["error"] == "UnitsOverlap"
    path.write_bytes(ALTERATIONS["one bit"](path.read_bytes()))
    refuses(any_almoner, f"dataset ingest second {notes}", path)


@pytest.mark.parametrize("kind", ["partition", "overlap"])
def test_a_missing_key_and_one_of_another_dataset(any_almoner: Almoner, kind: str) -> None:
    any_almoner.approved()
    any_almoner.type("dataset register second --unit patient_id --epsilon 8 --delta 1e-6")
    path, other = key_of(any_almoner, kind), key_of(any_almoner, "partition", "second")
    key = path.read_bytes()
    ingest = f"dataset ingest clinic {any_almoner.folder / 'notes.jsonl'}"
    path.write_bytes(other.read_bytes())
    for line in ("run 1", ingest):
        refuses(any_almoner, line, path)
    path.unlink()
    for line in ("run 1", ingest):
        refuses(any_almoner, line, path, "KeyMissing")
    doctor_names(any_almoner, path.name)
    path.write_bytes(key)
    path.chmod(0o600)
    other.unlink()  # without data, a home needs no key
    assert any_almoner.ask("doctor")["ok"] is True


def test_a_run_does_not_go_on_under_another_key(almoner: Almoner) -> None:
    almoner.approved(epsilon=2)
    killed("run 1", "mid generation")
    almoner.type("run sweep")  # ends the dead attempt, which needs no key
    for kind in ("partition", "overlap"):
        path = key_of(almoner, kind)
        key = path.read_bytes()
        path.write_bytes(ALTERATIONS["the last bit"](key))
        refuses(almoner, "run 1", path)
        refuses(almoner, "run 1 --anew", path)
        path.write_bytes(key)
    almoner.type("run 1")
    assert almoner.ask("doctor")["ok"] is True


def test_a_program_gets_the_same_refusal(almoner: Almoner) -> None:
    almoner.approved()
    path = key_of(almoner, "partition")
    path.write_bytes(bytes(32))
    before = almoner.everything()
    with refusal("KeyDiffers", match=path.name):
        almoner_package.open(almoner.home.root).request(1).run()
    assert almoner.everything()[0] == before[0]


def test_a_release_is_not_extended_under_another_key(almoner: Almoner) -> None:
    keyphrases_produced(almoner)
    keyphrases_published(almoner, 1)
    almoner.type("release extend 1 --samples 9")
    almoner.type('approve 2 --gate spend --reason "no charge"')
    path = key_of(almoner, "partition")
    path.write_bytes(ALTERATIONS["one bit"](path.read_bytes()))
    refuses(almoner, "run 2", path)


def rebuilt(backup: Path, into: Path, change: Callable[[str, bytes], bytes]) -> Path:
    """A backup whose members are changed, and whose manifest agrees with them."""
    with tarfile.open(backup) as archive:
        found = {info.name: change(info.name, archive.extractfile(info).read()) for info in archive}  # type: ignore[union-attr]
    manifest = json.loads(found.pop("manifest.json"))
    manifest["files"] = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} for name, data in found.items()
    }
    with tarfile.open(into, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in {**found, "manifest.json": encode_json(manifest)}.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o600
            archive.addfile(info, io.BytesIO(data))
    return into


@pytest.mark.usefixtures("own_connections")
@pytest.mark.parametrize("kind", ["partition", "overlap"])
def test_a_backup_with_another_key_is_not_restored(any_almoner: Almoner, kind: str) -> None:
    any_almoner.approved()
    name, saved = f"keys/{key_of(any_almoner, kind).name}", any_almoner.folder / "saved.tar"
    any_almoner.type(f"backup --to {saved}")
    foreign = rebuilt(saved, any_almoner.folder / "foreign.tar", lambda each, data: bytes(32) if each == name else data)
    any_almoner.home.root.rename(any_almoner.folder / "aside")
    refused = any_almoner.ask(f'restore {foreign} --reason "a disk"', expected=3)
    assert refused["error"] == "KeyDiffers"
    assert not any_almoner.home.root.exists()
    any_almoner.type(f'restore {saved} --reason "a disk"')
    assert any_almoner.ask("doctor")["ok"] is True
    path = key_of(any_almoner, kind)
    path.write_bytes(bytes(32))
    refuses(any_almoner, "run 1", path)


ALTERED = {
    "the partition key's commitment": f"UPDATE account SET key_commitment = '{'a' * 64}' WHERE id = 1",
    "the overlap key's commitment": f"UPDATE overlap_key SET key_commitment = '{'a' * 64}'",
    "no overlap key": "DELETE FROM overlap_key",
}


@pytest.mark.parametrize("what", ALTERED)
def test_a_commitment_altered_past_the_guards_is_found(any_almoner: Almoner, what: str) -> None:
    """Also one that is altered together with its key: the run is refused before the key is read."""
    any_almoner.approved()
    alter(any_almoner.database, ALTERED[what])
    verified = any_almoner.type("audit verify", expected=None)
    assert verified.code == 1, verified
    assert ("overlap_key" if "overlap" in what else "account") in verified.out + verified.err
    assert any_almoner.ask("doctor", expected=3)["ok"] is False
    assert any_almoner.ask("run 1", expected=1)["error"] == "LedgerAltered"
    assert fetch(any_almoner.database, "SELECT count(*) FROM entry") == [(0,)]


def test_the_chain_tells_the_commitments_and_no_key(almoner: Almoner) -> None:
    almoner.ingested()
    named = fetch(almoner.database, "SELECT body FROM audit")
    assert sum('"table":"overlap_key"' in str(body) for (body,) in named) == 1
    assert sum('"table":"account"' in str(body) for (body,) in named) == 1
    everything = str(almoner.everything()[0]) + str(named)
    for kind in ("partition", "overlap"):
        key = key_of(almoner, kind).read_bytes()
        assert key.hex() not in everything
        assert repr(key) not in everything


def test_a_founding_that_broke_off_goes_on_with_its_key(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key was drawn, and the ledger knew nobody yet: the next `init` commits the ledger to it."""

    def power_cut(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(init_command.people, "found_ledger", power_cut)
        almoner.type("init", expected=None)
    key = key_of(almoner, "overlap").read_bytes()
    almoner.registered()
    assert key_of(almoner, "overlap").read_bytes() == key
    assert almoner.ask("doctor")["ok"] is True
