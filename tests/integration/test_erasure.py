"""Erasing: no file of the home holds what was erased, everything else stays, and nothing reads past it."""

import io
import json
import shutil
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import flows.datasets.erase
import flows.releases.execute
from flows.releases.resume import journal_folder
from models_db.services import people
from models_db.services.audit.chain import Actor
from tasks.analysis.facets import extractor as facet_cache
from tasks.corpus.versions import version_uids
from tasks.values.results import Facets
from tests.integration.canary import spans
from tests.integration.story import NOTES, SECRETS, Almoner
from tests.support import fetch, snapshot

CONCERNS = ("flows/datasets", "flows/backup", "flows/workspace", "models_db/services")

UNIT = str(NOTES[0]["patient_id"])
OWN = [note for note in NOTES if note["patient_id"] == UNIT]
OTHERS = [note for note in NOTES if note["patient_id"] != UNIT]
SMALL = {"epsilon": 1.0, "evaluation": ["length"]}
REASON = '--reason "agreed in May" --confirm clinic'
TARGETS = {"unit": f"--unit {UNIT}", "version": "--version 1", "all": "--all"}
BOTH = pytest.mark.parametrize("scope", TARGETS)


def planted_in(notes: list[Any]) -> list[str]:
    """What must not be found of some notes: their secrets, their words in a row, their units' ids."""
    texts = [note["text"] for note in notes]
    secrets = [secret for secret in SECRETS if any(secret in text for text in texts)]
    own = [*secrets, *(span for text in texts for span in spans(text)), *{note["patient_id"] for note in notes}]
    others = "\n".join(note["text"] for note in NOTES if note not in notes)
    return [one for one in own if one not in others]  # fictional notes share some sentences


CANARIES = {"unit": planted_in(OWN), "version": planted_in(NOTES), "all": planted_in(NOTES)}


def everything_in(path: Path) -> str:
    """A file's bytes as text, and what a Parquet file or an archive holds."""
    data = path.read_bytes()
    found = [data.decode("utf-8", "replace"), data.decode("utf-16-le", "replace")]
    if path.suffix == ".parquet":
        found.append(json.dumps(pq.read_table(path).to_pylist(), ensure_ascii=False))
    if tarfile.is_tarfile(path):
        with tarfile.open(fileobj=io.BytesIO(data)) as archive, suppress(tarfile.ReadError):  # damaged
            files = [archive.extractfile(member) for member in archive]
            found += [file.read().decode("utf-8", "replace") for file in files if file is not None]
    return "\n".join(found)


def left_of(almoner: Almoner, scope: str) -> dict[str, list[str]]:
    """By file of the home, and of the ledger on a server, what there is of the canaries."""
    texts = {
        str(p.relative_to(almoner.home.root)): everything_in(p) for p in almoner.home.root.rglob("*") if p.is_file()
    }
    texts["ledger"] = repr(snapshot(almoner.database))
    found = {name: [one for one in CANARIES[scope] if one in text] for name, text in texts.items()}
    return {name: canaries for name, canaries in found.items() if canaries}


def lived_in(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home where the corpus has left its traces everywhere, made once for each backend."""
    almoner.brought("lived in", lambda: live_in(almoner, monkeypatch))


def live_in(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """One release out, one interrupted, one rejected."""
    almoner.published(**SMALL)
    almoner.type("evaluate 1 --internal")
    for number in (2, 3):
        almoner.type(f"release request {almoner.request_file(**SMALL)}")
        almoner.type(f'approve {number} --gate spend --reason "again"')
    with monkeypatch.context() as patch:
        patch.setattr(flows.releases.execute, "commit_artifact", interrupted)
        almoner.type("run 2", 1)
    almoner.type("run 3")
    almoner.type('reject 3 --gate publish --reason "too short"')
    home, text = almoner.home, "\n".join(note["text"] + note["patient_id"] for note in NOTES)
    [uid] = version_uids(home)
    ((artifact,),) = fetch(almoner.database, "SELECT digest FROM artifact WHERE request_id = 3")
    cache = facet_cache.cached(Whole(), home.derived, b"k" * 32)
    cache.of_units([note["patient_id"] for note in NOTES], [note["text"] for note in NOTES])
    almoner.type("report 1 --internal")
    for path in (
        home.derived / "facets.damaged-1",
        journal_folder(home, 2) / "answers",
        home.quarantine / "3-1" / "texts.jsonl",
        home.released / f"{artifact}.json",
        home.root / "reports" / "1-internal.html",
        home.root / "attacks" / f"0123-{uid[:12]}" / "stage.json",
        home.root / "rehearsals" / f"0123-{uid[:12]}" / "split.json",
        home.scratch / "attack-1" / "twin.txt",
        home.corpora / uid / "documents.sqlite-wal",
        home.corpora / ".incoming-0123456789abcdef" / "documents.sqlite",
    ):
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
    (home.root / "kept").mkdir()
    (home.quarantine / "note.txt").write_text(text)
    monday = home.root / "kept" / "monday.tar"
    almoner.type(f"backup --to {monday}")
    for folder in ("reports", "attacks", "keys", "corpora"):
        shutil.copy(monday, home.root / folder / "monday.tar")
    with tarfile.open(home.root / "kept" / "archives.tar.gz", "w:gz") as outer:
        outer.add(monday, "inside/monday.tar")
    with zipfile.ZipFile(home.root / "kept" / "archives.zip", "w") as stored:
        stored.write(monday, "inside/monday.tar")
    with zipfile.ZipFile(home.root / "kept" / "folder.zip", "w") as stored:
        stored.writestr(f"corpora/{uid}/documents.sqlite", text)
    damaged = home.root / "kept" / "damaged.tar"
    damaged.write_bytes(monday.read_bytes()[:-20_000])


class Whole:
    """An extractor that keeps everything."""

    name = "whole"

    def __call__(self, texts: Any) -> list[Facets]:
        return [Facets({"said": (text,)}) for text in texts]


def interrupted(*args: Any, **kwargs: Any) -> Any:
    raise KeyboardInterrupt


def erase(almoner: Almoner, scope: str, expected: int = 0) -> Any:
    return almoner.ask(f"dataset erase clinic {TARGETS[scope]} {REASON}", expected)


@pytest.mark.slow_except("sqlite-unit")
@BOTH
def test_no_file_holds_it(any_almoner: Almoner, monkeypatch: pytest.MonkeyPatch, scope: str) -> None:
    almoner = any_almoner
    lived_in(almoner, monkeypatch)
    before = left_of(almoner, scope)
    assert len({name.split("/")[0] for name in before} - {"ledger"}) >= 8
    kept = almoner.ask("budget show clinic"), fetch(almoner.database, "SELECT count(*) FROM unit_mark")
    listed = almoner.ask(f"dataset erase clinic {TARGETS[scope]} --dry-run")
    assert left_of(almoner, scope) == before
    done = erase(almoner, scope)
    assert left_of(almoner, scope) == {}
    assert listed["documents"] is None  # a dry run leaves no trace, so it counts nobody
    assert done == listed | {
        "erasure": 1, "places": done["places"], "documents": len(OWN if scope == "unit" else NOTES)
    }  # fmt: skip
    assert min(listed["places"].values()) >= 1
    assert (almoner.ask("budget show clinic"), fetch(almoner.database, "SELECT count(*) FROM unit_mark")) == kept
    almoner.type(f"verify-release {almoner.bundle}")
    almoner.type("audit verify")
    healthy(almoner)


@pytest.mark.parametrize("kind", [*flows.datasets.erase.PLACES, "stores", "beside stores", "sweep"])
def test_the_proof_finds_each_place_that_is_left_out(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    lived_in(almoner, monkeypatch)
    if kind in flows.datasets.erase.PLACES:
        places = dict(flows.datasets.erase.PLACES)
        del places[kind]
        monkeypatch.setattr(flows.datasets.erase, "PLACES", places)
        if kind == "scratch":
            monkeypatch.setattr(flows.datasets.erase, "remove_orphans", lambda workspace: 0)
    elif kind == "stores":
        monkeypatch.setattr(flows.datasets.erase, "remove_version", lambda home, uid: None)
    elif kind == "sweep":
        monkeypatch.setattr(flows.datasets.erase, "remove_orphans", lambda workspace: 0)
    else:
        monkeypatch.setattr(flows.datasets.erase, "remove_beside", lambda home, uid: None)
    scope = "unit" if kind == "beside stores" else "all"
    erase(almoner, scope)
    assert left_of(almoner, scope) != {}


def test_the_other_units_stay(any_almoner: Almoner) -> None:
    almoner = any_almoner
    almoner.ingested()
    erase(almoner, "unit")
    [uid] = version_uids(almoner.home)
    store = everything_in(almoner.home.corpora / uid / "documents.sqlite")
    assert all(note["text"][:40] in store for note in OTHERS)
    assert (almoner.home.corpora / uid / "documents.sqlite").stat().st_mode & 0o777 == 0o600
    almoner.type(f"release request {almoner.request_file(**SMALL)}")
    almoner.go_on_to("produced")
    healthy(almoner)


def test_later_versions_leave_the_unit_out(any_almoner: Almoner) -> None:
    almoner = any_almoner
    almoner.ingested()
    erase(almoner, "unit")
    told = almoner.type(f"dataset ingest clinic {almoner.notes_file('again.jsonl')}")
    assert f"{len(OWN):,} records of erased units were left out." in told.out
    assert f"{len(OTHERS):,} documents read" in told.out
    assert left_of(almoner, "unit") == {}
    assert "left_out" not in repr(fetch(almoner.database, "SELECT body FROM audit"))
    healthy(almoner)
    almoner.type(f"release request {almoner.request_file(**SMALL)}")
    almoner.go_on_to("produced")


@pytest.mark.parametrize("scope", ["version", "all"])
def test_what_waits_on_an_erased_version_is_refused(any_almoner: Almoner, scope: str) -> None:
    almoner = any_almoner
    almoner.submitted(**SMALL)
    almoner.type(f"release request {almoner.request_file(**SMALL)}")
    almoner.type('approve 2 --gate spend --reason "again"')
    erase(almoner, scope)
    for line in ('approve 1 --gate spend --reason "because"', "run 2"):
        told = almoner.ask(line, 1)
        assert told["error"] == "VersionErased"
        assert told["facts"] == {"dataset": "clinic", "version": 1}
    assert almoner.ask(f"release request {almoner.request_file(**SMALL)}", 1)["error"] == "NothingIngested"
    almoner.type('reject 1 --gate spend --reason "gone"')
    almoner.type("release withdraw 2")
    almoner.type(f"dataset ingest clinic {almoner.notes_file('again.jsonl', OTHERS)}")
    almoner.type(f"release request {almoner.request_file(**SMALL)}")
    assert almoner.ask("release show 3")["canonical"]["dataset"]["version"] == 2


def test_a_request_reads_the_newest_version_that_is_left(almoner: Almoner) -> None:
    almoner.ingested()
    almoner.type(f"dataset ingest clinic {almoner.notes_file('again.jsonl', OTHERS)}")
    almoner.type(f"dataset erase clinic --version 2 {REASON}")
    almoner.type(f"release request {almoner.request_file(**SMALL)}")
    assert almoner.ask("release show 1")["canonical"]["dataset"]["version"] == 1
    assert almoner.ask(f"dataset erase clinic --version 2 {REASON}")["erasure"] == 1
    assert almoner.ask(f"dataset erase clinic --version 3 {REASON}", 2)["error"] == "DatasetVersionUnknown"
    healthy(almoner)


def test_a_unit_that_is_not_there_yet_stays_out(almoner: Almoner) -> None:
    almoner.registered()
    assert erase(almoner, "unit")["documents"] == 0
    almoner.type(f"dataset ingest clinic {almoner.notes_file()}")
    assert left_of(almoner, "unit") == {}
    healthy(almoner)


def test_an_analyst_does_not_erase(almoner: Almoner) -> None:
    almoner.ingested()
    with almoner.database.write() as session:
        owner = people.list_all(session)[0]
        for role in ("steward", "admin"):
            if role == "admin":
                other = people.enrol(session, Actor(owner.id, owner.name), "other", "key of other")
                people.grant(session, Actor(owner.id, owner.name), other.name, "admin", "takes over")
            people.revoke(session, Actor(owner.id, owner.name), owner.name, role, "only an analyst now")
    almoner.type("dataset list")  # the home sees the newest link
    before = almoner.everything()
    for option in ("", "--dry-run"):
        told = almoner.ask(f"dataset erase clinic {TARGETS['unit']} {REASON} {option}", 1)
        assert told["error"] == "RoleRequired"
    assert almoner.everything() == before


@BOTH
def test_nothing_is_erased_while_a_release_is_undecided(any_almoner: Almoner, scope: str) -> None:
    almoner = any_almoner
    almoner.produced(**SMALL)
    before = almoner.everything()
    told = erase(almoner, scope, 1)
    assert (told["error"], told["facts"]["requests"]) == ("ErasureBlocked", [1])
    assert "request 1 (produced)" in told["message"]
    assert almoner.everything() == before


STEPS = ["erase_unit", "remove_beside", "clear_places", "erasures.end_erasure"]


@pytest.mark.parametrize("step", STEPS)
def test_an_erasure_that_is_cut_short_is_known_and_finished(
    any_almoner: Almoner, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    almoner = any_almoner
    almoner.ingested()
    with monkeypatch.context() as patch:
        patch.setattr(f"flows.datasets.erase.{step}", killed)
        with pytest.raises(Killed):
            erase(almoner, "unit")
    [finding] = [one for one in almoner.ask("doctor", 3)["findings"] if not one["ok"]]
    assert "erasure 1 of 'clinic' is unfinished" in finding["detail"]
    assert erase(almoner, "unit")["erasure"] == 1
    assert left_of(almoner, "unit") == {}
    healthy(almoner)


class Killed(BaseException):
    pass


def killed(*args: Any, **kwargs: Any) -> Any:
    raise Killed


def test_a_store_that_was_changed_is_found_and_not_made_right(almoner: Almoner) -> None:
    almoner.ingested()
    [uid] = version_uids(almoner.home)
    store = almoner.home.corpora / uid / "documents.sqlite"
    whole = store.read_bytes()
    erase(almoner, "unit")
    store.write_bytes(whole)  # somebody puts the old file back
    [finding] = [one for one in almoner.ask("doctor", 3)["findings"] if not one["ok"]]
    assert finding["detail"] == "version 1 of 'clinic' differs from its digest in the ledger"
    assert erase(almoner, "unit")["erasure"] == 1
    healthy(almoner)


REFUSALS: list[tuple[str, int, str]] = [
    (f"--unit {UNIT} --all {REASON}", 2, "InvalidErasureTarget"),
    (f"--version 1 --unit {UNIT} {REASON}", 2, "InvalidErasureTarget"),
    (REASON, 2, "InvalidErasureTarget"),
    (f"--version 9 {REASON}", 2, "DatasetVersionUnknown"),
    (f'--unit " " {REASON}', 2, "UnitInvalid"),
    (f'--unit {UNIT} --reason "{UNIT} asked" --confirm clinic', 2, "InvalidErasureReason"),
    (f'--unit {UNIT} --reason "{UNIT.upper()} asked" --confirm clinic', 2, "InvalidErasureReason"),
    ('--unit José --reason "asked by Jose\u0301" --confirm clinic', 2, "InvalidErasureReason"),
    ('--all --reason " " --confirm clinic', 2, "InvalidErasureReason"),
    ('--all --reason " " --dry-run', 2, "InvalidErasureReason"),
    ("--all --confirm clinic", 2, "InvalidErasureReason"),
    ('--all --reason "agreed" --confirm " "', 2, "ConfirmationMissing"),
    ('--all --reason "agreed" --confirm ward', 1, "ConfirmationWrong"),
    ('--all --reason "agreed"', 2, "ConfirmationMissing"),
]


def test_the_id_of_a_unit_is_read_from_standard_input(almoner: Almoner) -> None:
    """Then it stands in no list of processes: neither on the command line, nor in what is printed or recorded."""
    almoner.ingested()
    line = f"dataset erase clinic --unit - {REASON}"
    assert almoner.ask(f"{line} --dry-run", piped=f"{UNIT}\n")["scope"] == "unit"
    before = almoner.everything()
    for given, error in (("", "UnitInvalid"), ("\n", "UnitInvalid"), ("x" * 5000 + "\n", "LineUnreadable"),
                         (f"{UNIT}\nward\n", "ConfirmationWrong"),
                         (f"{UNIT}\n", "ConfirmationMissing")):  # fmt: skip
        line_alone = line.replace(" --confirm clinic", "")
        told = almoner.type(f"{line_alone} --json", None, piped=given)
        assert told.json["error"] == error
        assert UNIT not in told.out + told.err
    assert almoner.everything() == before
    told = almoner.ask(line.replace(" --confirm clinic", ""), piped=f"{UNIT}\nclinic\n")
    assert (told["scope"], told["documents"]) == ("unit", len(OWN))
    assert UNIT not in json.dumps(told)


def test_refusals_change_nothing_and_name_nobody(almoner: Almoner) -> None:
    almoner.ingested()
    before = almoner.everything()
    for line, code, error in REFUSALS:
        told = almoner.ask(f"dataset erase clinic {line}", code, piped=None)
        assert told["error"] == error
        assert UNIT not in json.dumps(told)
    assert almoner.everything() == before


def test_units_without_names_are_erased_by_version_alone(almoner: Almoner) -> None:
    almoner.type("init")
    almoner.type("dataset register clinic --epsilon 8 --delta 1e-6")
    almoner.type(f"dataset ingest clinic {almoner.notes_file()}")
    assert erase(almoner, "unit", 1)["error"] == "UnitsNotNamed"
    healthy(almoner)
    erase(almoner, "version")
    assert left_of(almoner, "version") == {}


def healthy(almoner: Almoner) -> None:
    found = almoner.type("doctor --json", None).json
    assert [one for one in found["findings"] if not one["ok"]] == []
