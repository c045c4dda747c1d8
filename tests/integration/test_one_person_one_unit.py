"""One person is one unit from the file to the erasure; what looks wrong is said on the terminal alone."""

import json
import logging
import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from models_db.services import datasets
from tasks.corpus.store import open_corpus
from tests.integration.story import Almoner

REGISTER = "--unit pid --epsilon 8 --delta 1e-6 --population 200"
TEXT = "A cough for two weeks, no fever."


def source(almoner: Almoner, units: Sequence[object], name: str = "notes.jsonl", each: int = 1) -> str:
    rows = [{"pid": unit, "text": f"{TEXT} {number}"} for unit in units for number in range(each)]
    return str(almoner.write(name, "".join(json.dumps(row) + "\n" for row in rows)))


@pytest.fixture
def clinic(almoner: Almoner) -> Almoner:
    almoner.type("init")
    almoner.type(f"dataset register clinic {REGISTER}")
    return almoner


def test_a_chat_with_invisible_marks_is_one_person_and_erased_as_one(clinic: Almoner) -> None:
    """Direction marks of WhatsApp made seven units of two people, and an erasure missed six of them."""
    spellings = ["Ana", "\u200eAna", "\u202aAna\u202c", "Ana\ufeff", "+49 170 00", "\u202a+49\u00a0170\u202f00\u202c"]
    clinic.type(f"dataset ingest clinic {source(clinic, spellings)}")
    with clinic.database.read() as session:
        (version,) = datasets.list_versions(session, datasets.find_dataset(session, "clinic"))
    assert len(list(open_corpus(clinic.home, version.uid).texts())) == 6
    done = clinic.ask("dataset erase clinic --unit '\u200e Ana' --reason 'a wish' --confirm clinic")
    assert done["documents"] == 4
    clinic.type(f"dataset ingest clinic {source(clinic, spellings)}")
    with clinic.database.read() as session:
        version = datasets.list_versions(session, datasets.find_dataset(session, "clinic"))[-1]
    assert len(list(open_corpus(clinic.home, version.uid).texts())) == 2
    refused = clinic.ask("dataset erase clinic --unit 'A\u200bna' --reason 'a wish' --confirm clinic", expected=2)
    assert refused["error"] == "UnitInvalid"
    assert refused["advice"].startswith("Give the id as the records have it")  # and not "repair the records"
    assert "No version" not in refused["advice"]  # one of an older almoner may


def test_a_reason_does_not_name_the_person_in_another_spelling(clinic: Almoner) -> None:
    clinic.type(f"dataset ingest clinic {source(clinic, ['Ana Maria', 'P2'])}")
    for reason in ("a wish of A\u200bna Maria", "ANA\u00a0MARIA asked"):
        line = f"dataset erase clinic --unit 'Ana Maria' --reason '{reason}' --confirm clinic"
        assert clinic.ask(line, expected=2)["error"] == "InvalidErasureReason"


def test_check_counts_and_names_the_words_for_nobody(almoner: Almoner) -> None:
    almoner.type("init")
    path = source(almoner, ["P1", "NULL", "\\N", "null", "", "P2", '="007"'])
    refused = almoner.ask(f"dataset register clinic {REGISTER} --check {path}", expected=2)
    assert refused["error"] == "NoUnit"
    assert refused["facts"] == {"file": "notes.jsonl", "position": 2}
    for told in ("Of the first 7 records 5 have none", "2 NULL", "1 \\N", "1 missing or empty", "1 of a spreadsheet"):
        assert told in refused["message"]
    assert "nothing was registered" in refused["advice"]
    assert "007" not in refused["message"].partition("Of the first")[2]
    almoner.type(f"dataset register clinic {REGISTER}")
    refused = almoner.ask(f"dataset ingest clinic {path}", expected=2)
    assert "Line 2 " in refused["message"]
    assert "almoner dataset register" in refused["advice"]


def test_a_text_that_is_missing_is_no_reason_to_register_again_what_is_not_registered(almoner: Almoner) -> None:
    almoner.type("init")
    path = almoner.write("notes.jsonl", '{"pid": 1, "text": "\\u200b"}\n')
    refused = almoner.ask(f"dataset register clinic {REGISTER} --check {path}", expected=2)
    assert refused["error"] == "NoText"
    assert "almoner dataset register" not in refused["advice"]


def test_a_person_called_null_is_allowed_by_that_spelling_alone(almoner: Almoner) -> None:
    almoner.type("init")
    path = source(almoner, ["Null", "P1", "P2"])
    line = f"dataset register clinic {REGISTER} --check {path}"
    assert almoner.ask(f"{line} --allow-unit NULL", expected=2)["error"] == "NoUnit"
    almoner.type(f"{line} --allow-unit Null")
    assert almoner.ask(f"dataset ingest clinic {path}", expected=2)["error"] == "NoUnit"
    almoner.type(f"dataset ingest clinic {path} --allow-unit Null")
    assert almoner.ask("dataset erase clinic --unit Null --reason 'a wish' --confirm clinic")["documents"] == 1


def signs(almoner: Almoner, line: str) -> str:
    """What the terminal is told of the units, as one line."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m|[│!]", " ", almoner.type(line).err).split())


def test_a_wrongly_chosen_unit_is_told_on_the_terminal_and_nowhere_else(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    almoner.type("init")
    caplog.set_level(logging.DEBUG)
    path = source(almoner, [f"row{number}" for number in range(20)])
    quiet = almoner.type(f"dataset register quiet {REGISTER} --check {path}")
    assert "its own value" not in quiet.out + quiet.err
    monkeypatch.setattr(Console, "is_terminal", True)
    as_json = almoner.type(f"dataset register json {REGISTER} --check {path} --json")
    assert "its own value" not in as_json.out + as_json.err
    assert "first 20 records has its own value in 'pid'" in signs(
        almoner, f"dataset register clinic {REGISTER} --check {path}"
    )
    assert "its own value" in signs(almoner, f"dataset ingest clinic {path}")
    almoner.type(f"dataset register swapped --unit text --text pid --epsilon 8 --delta 1e-6 --check {path}")
    assert "look swapped" in signs(
        almoner, f"dataset register other --unit text --text pid --epsilon 8 --delta 1e-6 --check {path}"
    )
    assert "its own value" not in caplog.text
    log = almoner.type("audit log --json").out
    assert not any(sign in log for sign in ("its own value", "swapped'"))


def test_an_ordinary_corpus_is_told_nothing(clinic: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Console, "is_terminal", True)
    path = source(clinic, [f"P{number:03}" for number in range(20)], each=2)
    assert "Is the unit" not in signs(clinic, f"dataset ingest clinic {path}")
    more = source(clinic, [f"P{number:03}" for number in range(40)], "more.jsonl", each=2)
    assert "Is the unit" not in signs(clinic, f"dataset ingest clinic {more}")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([f"{n:03}" for n in range(1, 20)], list(range(1, 20))),
        (list(range(1, 20)), [f"{n:03}" for n in range(1, 20)]),
        (list(range(1, 20)), [f"{n}.0" for n in range(1, 20)]),
        ([f"p{n:02}" for n in range(20)], [f"P{n:02}" for n in range(20)]),
    ],
    ids=["zeros lost", "zeros put in front", "a decimal point", "capitals"],
)
def test_people_who_return_in_another_spelling_are_told_of(
    clinic: Almoner, monkeypatch: pytest.MonkeyPatch, first: Sequence[object], second: Sequence[object]
) -> None:
    monkeypatch.setattr(Console, "is_terminal", True)
    clinic.type(f"dataset ingest clinic {source(clinic, first, each=2)}")
    told = signs(clinic, f"dataset ingest clinic {source(clinic, second, 'second.jsonl', each=2)}")
    assert "were in an earlier one" in told
    assert "second budget" in told


def test_a_version_in_which_nobody_returns_is_told_of(clinic: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Console, "is_terminal", True)
    clinic.type(f"dataset ingest clinic {source(clinic, [f'a{n}' for n in range(10)], each=2)}")
    again = source(clinic, [f"b{n}" for n in range(10)], "second.jsonl", each=2)
    assert "No unit of this version was in an earlier one" in signs(clinic, f"dataset ingest clinic {again}")


def test_spellings_of_one_id_in_one_file_are_told_of(clinic: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Console, "is_terminal", True)
    path = source(clinic, ["007", 7, "x1", "x2", "x3"], each=2)
    assert "differ only in zeros" in signs(clinic, f"dataset ingest clinic {path}")
    assert "differ only in zeros" in signs(clinic, f"dataset register other {REGISTER} --check {path}")


@pytest.mark.parametrize("field", ["snapshot", "date"])
@pytest.mark.parametrize("unit", ["", "--unit pid"])
def test_two_snapshots_of_one_table_are_told_of(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch, field: str, unit: str
) -> None:
    """Without a unit field each copy of a record is a unit, so the promise to a person is half as strong as it says."""
    almoner.type("init")
    rows = [{"pid": f"p{n % 300}", "text": f"Note {n}: the patient is as well as before."} for n in range(1200)]
    for number, kept in enumerate((rows, [*rows, {"pid": "q", "text": "A later note."}])):
        path = almoner.folder / "table" / f"{field}=2024-01-0{number + 1}" / "part-0.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in kept))
    check = f"dataset register {{}} {unit} --epsilon 8 --delta 1e-6 --check {almoner.folder / 'table'}"
    quiet = almoner.type(check.format("quiet"))
    monkeypatch.setattr(Console, "is_terminal", True)
    as_json = almoner.type(check.format("json") + " --json")
    assert "come again" not in quiet.out + quiet.err + as_json.out + as_json.err
    assert "come again in other files" in signs(almoner, check.format("notes"))
    assert "come again in other files" in signs(almoner, f"dataset ingest notes {almoner.folder / 'table'}")
    (earlier := almoner.folder / "table" / f"{field}=2024-01-01" / "part-0.jsonl").unlink()
    earlier.parent.rmdir()
    assert "come again" not in signs(almoner, check.format("once"))


def test_people_read_in_another_encoding_are_told_of(clinic: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Console, "is_terminal", True)
    rows = "".join(f"M\u00fcller {n};x\r\n" for n in range(9)) * 2
    path = clinic.write("a.csv", f"pid;text\r\n{rows}".encode("cp1252"))
    clinic.type(f"dataset ingest clinic {path} --encoding cp1252")
    told = signs(clinic, f"dataset ingest clinic {path} --encoding mac-roman")
    assert "letters of another encoding" in told
    assert "ller" not in told


@pytest.mark.parametrize("order", [("text", "int"), ("int", "text")])
def test_an_integer_column_and_text_with_zeros_are_told_of(
    clinic: Almoner, monkeypatch: pytest.MonkeyPatch, order: tuple[str, str]
) -> None:
    """A table with ids of 16 digits that was read as numbers, before or after."""
    monkeypatch.setattr(Console, "is_terminal", True)
    ids = {"int": list(range(1, 9)), "text": [f"{number:016}" for number in range(1, 9)]}
    told = []
    for kind in order:
        path = clinic.folder / f"{kind}.parquet"
        pq.write_table(pa.table({"pid": ids[kind] * 2, "text": [TEXT] * 16}), path)
        told.append(signs(clinic, f"dataset ingest clinic {path}"))
    assert ["were in an earlier one" in each for each in told] == [False, True]
