"""Folders of tables, texts of several fields, and fictional records, from the command line to the store."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from models_db.services import datasets
from tasks.corpus.store import Corpus, open_corpus
from tests.integration.story import NOTES, Almoner

REGISTER = "--epsilon 8 --delta 1e-6 --population 200"


def corpus_of(almoner: Almoner, name: str) -> Corpus:
    with almoner.database.read() as session:
        version = datasets.list_versions(session, datasets.find_dataset(session, name))[-1]
    return open_corpus(almoner.home, version.uid)


def test_a_partitioned_table_with_titles_becomes_a_corpus(almoner: Almoner) -> None:
    almoner.type("init")
    folder = almoner.folder / "reviews"
    for stars, titles in {"1": ["Awful", None], "5": ["Fine"]}.items():
        path = folder / f"stars={stars}" / "part-0.parquet"
        path.parent.mkdir(parents=True)
        bodies = [f"Body {number} of {stars}." for number in range(len(titles))]
        customers = [f"c{stars}{number}" for number in range(len(titles))]
        pq.write_table(pa.table({"customer": customers, "title": pa.array(titles, pa.string()), "body": bodies}), path)
    (folder / "_SUCCESS").touch()
    almoner.type(
        f"dataset register reviews --unit customer --text '{{title}}\\n\\n{{body}}' {REGISTER} --check {folder}"
    )
    almoner.type(f"dataset ingest reviews {folder} --label-field stars")
    assert sorted(corpus_of(almoner, "reviews").labelled()) == [
        ("Awful\n\nBody 0 of 1.", "1"),
        ("Body 1 of 1.", "1"),
        ("Fine\n\nBody 0 of 5.", "5"),
    ]


def test_a_table_of_a_spreadsheet_is_read_and_said(almoner: Almoner) -> None:
    almoner.type("init")
    written = "Patient;text\nMüller;„Kühl“ – 5 €\nMüller;Nachtrag\n"
    wide, narrow = (
        almoner.write("wide.csv", written.encode("utf-16")),
        almoner.write("cp.csv", written.encode("cp1252")),
    )
    register = f"dataset register notes --unit Patient {REGISTER}"
    assert almoner.ask(f"{register} --encoding cp1252", expected=2)["error"] == "NothingToCheck"
    refused = almoner.ask(f"{register} --check {narrow}", expected=2)
    assert refused["error"] == "NotUtf8"
    assert almoner.ask(f"{register} --check {narrow} --encoding nothing", expected=2)["error"] == "EncodingUnknown"
    assert (
        "Read as cp1252, cells separated by semicolons."
        in almoner.type(f"{register} --check {narrow} --encoding cp1252").err
    )
    assert "Read as utf-16, cells separated by semicolons." in almoner.type(f"dataset ingest notes {wide}").out
    found = almoner.type(f"dataset ingest notes {narrow} --encoding cp1252 --delimiter semicolon").out
    assert "This is version 1 again" in " ".join(found.split())
    assert almoner.ask(f"dataset ingest notes {wide} --delimiter tab", expected=2)["error"] == "ColumnMissing"


def test_a_person_whose_field_is_id_may_have_several_records(almoner: Almoner) -> None:
    almoner.type("init")
    source = almoner.write("notes.jsonl", '{"id": "p", "text": "one"}\n' * 2 + '{"id": "q", "text": "two"}\n')
    almoner.type(f"dataset register notes --unit id {REGISTER} --check {source}")
    assert "3 documents read" in almoner.type(f"dataset ingest notes {source}").out


def test_a_template_that_names_no_field_registers_nothing(almoner: Almoner) -> None:
    almoner.type("init")
    refused = almoner.type(f"dataset register reviews --unit customer --text '{{title' {REGISTER} --json", 2)
    assert refused.json["error"] == "TextTemplateInvalid"
    assert json.loads(almoner.type("dataset list --json").out) == []


def test_a_field_of_a_template_that_no_record_has_is_refused_by_check_and_ingest(almoner: Almoner) -> None:
    """Before, it was silently empty in every text, and the template of a dataset never changes."""
    almoner.type("init")
    source = almoner.write("notes.jsonl", '{"who": "p1", "title": "Fine"}\n{"who": "p2", "title": "Awful"}\n')
    register = f"dataset register reviews --unit who --text '{{title}} {{bodi}}' {REGISTER}"
    refused = almoner.ask(f"{register} --check {source}", expected=2)
    assert (refused["error"], refused["facts"]["field"]) == ("TemplateFieldMissing", "bodi")
    assert almoner.ask("dataset list") == []
    almoner.type(register)
    assert almoner.ask(f"dataset ingest reviews {source}", expected=2)["error"] == "TemplateFieldMissing"
    assert almoner.ask("dataset show reviews")["history"] == []


def test_a_mock_has_the_declared_fields_and_reads_nothing(almoner: Almoner) -> None:
    almoner.registered()
    almoner.type(f"dataset ingest clinic {almoner.notes_file()}")
    out = almoner.folder / "mock.jsonl"
    told = almoner.type(f"dataset mock clinic {out} --rows 30 --label-field section --label a --label b --json").out
    assert json.loads(told)["units"] == 10
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(records) == 30
    assert {tuple(sorted(record)) for record in records} == {("id", "patient_id", "section", "text")}
    assert len({record["patient_id"] for record in records}) == 10
    assert not set(corpus_of(almoner, "clinic").texts()) & {record["text"] for record in records}
    again = almoner.folder / "again.jsonl"
    almoner.type(f"dataset mock clinic {again} --rows 30 --label-field section --label a --label b")
    assert again.read_bytes() == out.read_bytes()
    almoner.type(f"dataset register tried --unit patient_id {REGISTER}")
    almoner.type(f"dataset ingest tried {out} --label-field section")
    assert len(list(corpus_of(almoner, "tried").labelled())) == 30


def test_a_mock_that_does_not_fit_writes_nothing(almoner: Almoner) -> None:
    almoner.registered()
    for asked in ("mock.csv", "mock.jsonl --rows 5 --units 6", "mock.jsonl --label-field text --label a"):
        refused = almoner.type(f"dataset mock clinic {almoner.folder}/{asked} --json", 2)
        assert refused.json["error"] == "MockUnfit"
    almoner.type(f"dataset mock clinic {almoner.folder / 'mock.jsonl'} --label ' ' --json", 2)
    assert list(almoner.folder.glob("mock*")) == []
    almoner.write("mock.jsonl", "kept")
    almoner.type(f"dataset mock clinic {almoner.folder / 'mock.jsonl'} --json", 2)
    assert (almoner.folder / "mock.jsonl").read_text() == "kept"


def test_the_same_file_again_is_a_version_with_a_warning(almoner: Almoner) -> None:
    """Also its content in another file; not where a note is missing."""
    almoner.ingested()
    again = almoner.type(f"dataset ingest clinic {almoner.notes_file()}").out
    assert "This is version 1 again" in " ".join(again.replace("│", " ").split())
    moved = almoner.notes_file("moved.jsonl", [dict(reversed(note.items())) for note in NOTES])
    assert almoner.ask(f"dataset ingest clinic {moved}")["repeats"] == 2
    assert almoner.ask(f"dataset ingest clinic {almoner.notes_file('fewer.jsonl', NOTES[1:])}")["repeats"] is None
    almoner.type("dataset register each --epsilon 8 --delta 1e-6")  # each record is a unit with a random id
    texts = almoner.notes_file("texts.jsonl", [{"text": "One."}])
    assert [almoner.ask(f"dataset ingest each {texts}")["repeats"] for _ in range(2)] == [None, 1]


def test_fields_are_listed_on_a_terminal_and_nowhere_else(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner.type("init")
    line = f"dataset register clinic --unit patient --epsilon 8 --delta 1e-6 --check {almoner.notes_file()}"
    for told in (almoner.type(line, 2), almoner.type(f"{line} --json", 2)):
        assert "NoUnit" in told.out + told.err
        assert "patient_id" not in told.out + told.err
    monkeypatch.setattr(Console, "is_terminal", True)
    told = almoner.type(line, 2)
    assert told.err.index("Fields of the source: ") < told.err.index("NoUnit")
    assert "patient_id" in told.err.partition("NoUnit")[0]
    assert "patient_id" not in told.err.partition("NoUnit")[2]
    as_json = almoner.type(f"{line} --json", 2)
    assert "patient_id" not in as_json.out + as_json.err
