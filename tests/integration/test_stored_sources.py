"""A corpus in a bucket is ingested like one on disk: all of it or nothing, and copied nowhere else."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from flows.workspace.object_stores import open_source
from models_db.errors import AlmonerError
from models_db.home import ProjectHome
from tasks.corpus.readers import sources
from tasks.corpus.readers.readers import read_documents
from tasks.object_storage.address import Address, parse_place
from tests.integration.canary import leaks, text_of
from tests.integration.story import NOTES, Almoner
from tests.object_store import SECRET, ObjectStore
from tests.refusals import refusal

CONCERNS = ("tasks/corpus", "tasks/object_storage")

FEW = NOTES[:9]
KINDS = ("jsonl", "csv", "parquet", "shards", "folder")
JSONL = "".join(json.dumps(note) + "\n" for note in NOTES).encode()


def manifest(almoner: Almoner) -> list[tuple[str, str]]:
    """Content and source marks of all versions: equal for equal corpora."""
    with almoner.database.read() as session:
        from models_db.services import datasets

        rows = datasets.list_versions(session, datasets.find_dataset(session, "clinic"))
        return [(row.manifest_mark, row.source_mark) for row in rows]


def written(folder: Path, kind: str) -> Path:
    """The notes as a file of that kind, or as a folder."""
    path = folder / f"notes.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(note) + "\n" for note in FEW))
    elif kind == "csv":
        import csv

        with path.open("w", newline="") as file:
            rows = csv.DictWriter(file, sorted(NOTES[0]))
            rows.writeheader()
            rows.writerows(FEW)
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist(FEW), path)
    elif kind == "shards":
        for number, note in enumerate(FEW):
            shard = path / f"part={number % 2}" / f"{number}.feather"
            shard.parent.mkdir(parents=True, exist_ok=True)
            pa.feather.write_feather(pa.Table.from_pylist([note]), shard)
        (path / "_SUCCESS").touch()
    else:
        for number, note in enumerate(FEW):
            file = path / note["patient_id"] / f"{number}{'.TXT' if number % 2 else '.txt'}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(note["text"])
        (path / "ignored.md").write_text("no text")
    return path


def sent(s3: ObjectStore, bucket: str, path: Path) -> str:
    """The same in a bucket; its address."""
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_file():
            s3.put(f"{bucket}/in/{file.relative_to(path.parent)}", file.read_bytes())
    return f"s3://{bucket}/in/{path.name}"


@pytest.mark.slow_except("jsonl", "parquet")
@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_finds_what_it_finds_on_disk(s3, bucket, tmp_path, kind):
    path = written(tmp_path, kind)
    home = ProjectHome(tmp_path)
    s3.told_to(tmp_path, bucket)
    unit = "folder" if kind == "folder" else "patient_id"
    with open_source(home, parse_place(sent(s3, bucket, path))) as stored:
        assert list(read_documents(stored, unit)) == list(read_documents(path, unit))
        assert sources.source_digest(stored) == sources.source_digest(path)
        assert sources.source_state(stored).size == sources.source_state(path).size


def test_a_corpus_is_ingested_from_a_bucket(almoner, s3, bucket, tmp_path_factory):
    almoner.registered()
    s3.told_to(almoner.home.root, bucket)
    s3.put(f"{bucket}/notes.jsonl", JSONL)
    local = almoner.write("notes.jsonl", JSONL)
    told = almoner.type(f"dataset ingest clinic s3://{bucket}/notes.jsonl --label-field section")
    assert "Ingested version 1" in told.out
    with open_source(almoner.home, Address(bucket, "notes.jsonl")) as stored:
        assert sources.source_digest(stored) == sources.source_digest(local)
    assert len(manifest(almoner)) == 1
    local.unlink()
    almoner.home.stores.unlink()
    outside = [text_of(path) for path in almoner.home.root.iterdir() if path.name != "corpora" and path.is_dir()]
    assert leaks("".join(outside)) == []
    everything = text_of(almoner.home.root)
    assert SECRET not in everything
    assert bucket not in text_of(almoner.home.corpora)


def test_a_table_with_a_log_is_refused_from_wherever_it_is_reached(s3, bucket, tmp_path):
    s3.told_to(tmp_path, bucket)
    for key in ("lake/table/_spark_metadata/0", "ice/t/metadata/v1.metadata.json", "ice/t/data/day=1/a.jsonl"):
        s3.put(f"{bucket}/{key}", b"{}")
    for name in ("day=1/a.jsonl", "day=2/b.jsonl"):
        s3.put(f"{bucket}/lake/table/{name}", JSONL)
    inside = (
        "lake",
        "lake/table",
        "lake/table/day=1",
        "lake/table/day=1/a.jsonl",
        "ice/t/data",
        "ice/t/data/day=1/a.jsonl",
    )
    for key in inside:
        with open_source(ProjectHome(tmp_path), Address(bucket, key)) as stored, refusal("TableLogUnread"):
            list(read_documents(stored, "patient_id"))


def test_a_saved_dataset_is_read_by_its_description(s3, bucket, tmp_path):
    s3.told_to(tmp_path, bucket)
    for split in ("train", "test", "stray"):
        for name in ("data-00000-of-00001.arrow", "cache-31a37cf955471907.arrow"):
            part = pa.table({"text": [f"{split}, {name[:4]}"]})
            pyarrow.feather.write_feather(part, tmp_path / "a.feather")
            s3.put(f"{bucket}/saved/{split}/{name}", (tmp_path / "a.feather").read_bytes())
        s3.put(f"{bucket}/saved/{split}/state.json", b'{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}')
    s3.put(f"{bucket}/saved/dataset_dict.json", b'{"splits": ["train", "test"]}')
    with open_source(ProjectHome(tmp_path), Address(bucket, "saved")) as stored:
        assert [document.text for document in read_documents(stored, None)] == ["test, data", "train, data"]
    kept = Address(bucket, "saved/test/cache-31a37cf955471907.arrow")
    with open_source(ProjectHome(tmp_path), kept) as stored, refusal("SavedDatasetUnfit"):
        read_documents(stored, None)
    s3.remove(f"{bucket}/saved/test/data-00000-of-00001.arrow")
    with open_source(ProjectHome(tmp_path), Address(bucket, "saved")) as stored, refusal("SavedDatasetUnfit"):
        list(read_documents(stored, None))


WRONG = {
    "s3://{bucket}/nothing.jsonl": ("SourceMissing", 2),
    "s3://{bucket}/notes.docx": ("UnknownFileType", 2),
    "s3://{bucket}/broken.jsonl": ("NotJson", 2),
    "s3://{bucket}/broken.parquet": ("SourceUnreadable", 3),
    "s3://{bucket}-missing/notes.jsonl": ("BucketMissing", 3),
    "s3://{bucket}-closed/notes.jsonl": ("StoreDenied", 3),
    "s3://{bucket}/../notes.jsonl": ("AddressUnfit", 2),
    "swift://{bucket}/notes.jsonl": ("SchemeUnknown", 2),
}


@pytest.mark.slow
def test_what_goes_wrong_has_a_name_and_leaves_nothing(almoner, s3, bucket):
    almoner.registered()
    s3.told_to(almoner.home.root, bucket, f"{bucket}-missing", f"{bucket}-closed")
    for name in ("notes.docx", "broken.jsonl", "broken.parquet"):
        s3.put(f"{bucket}/{name}", b"not " + JSONL)
    s3.bucket(f"{bucket}-closed")
    s3.put(f"{bucket}-closed/notes.jsonl", JSONL)
    s3.forbid(f"{bucket}-closed", "s3:GetObject")
    before = almoner.everything()
    for place, (error, code) in WRONG.items():
        told = almoner.ask(f"dataset ingest clinic {place.format(bucket=bucket)}", code)
        assert told["error"] == error
        assert SECRET not in json.dumps(told)
        assert leaks(json.dumps(told)) == []
    assert almoner.everything() == before


@pytest.mark.slow
def test_a_file_of_a_folder_is_named_by_its_number(almoner, s3, bucket):
    almoner.registered()
    s3.told_to(almoner.home.root, bucket)
    s3.put(f"{bucket}/in/Zebulon Quartermaine.txt", b"\xff\xff")
    told = almoner.ask(f"dataset ingest clinic s3://{bucket}/in", 2)
    assert told["error"] in ("UnknownFolderUnit", "NotUtf8")
    with open_source(almoner.home, Address(bucket, "in")) as stored:
        documents = read_documents(stored, None)
        s3.remove(f"{bucket}/in/Zebulon Quartermaine.txt")
        with pytest.raises(AlmonerError) as refused:
            list(documents)
    assert "Zebulon" not in refused.value.diagnostics()


@pytest.mark.parametrize("kind", ["jsonl", *(pytest.param(k, marks=pytest.mark.slow) for k in KINDS[1:])])
def test_what_changes_while_it_is_read_is_not_kept(s3, bucket, tmp_path, monkeypatch, kind):
    monkeypatch.setattr("tasks.object_storage.bucket._READ_AHEAD", 1 << 10)  # several requests even for a small object
    path = written(tmp_path, kind)
    s3.told_to(tmp_path, bucket)
    address = sent(s3, bucket, path)
    with open_source(ProjectHome(tmp_path), parse_place(address)) as stored:
        before = sources.source_state(stored)
        documents = read_documents(stored, None)
        if kind != "parquet":  # of so small a file everything is read at once
            assert next(documents).text
        for key in s3.keys(bucket):
            s3.put(f"{bucket}/{key}", s3.get(f"{bucket}/{key}").replace(b"e", b"o"))
        assert sources.source_state(stored) != before
        with refusal("SourceChanged"):
            list(documents)


@pytest.mark.slow
def test_a_store_that_goes_away(almoner, s3, bucket, monkeypatch):
    """Its own server, because it is killed."""
    almoner.registered()
    server = ObjectStore.start()
    server.bucket(bucket)
    server.put(f"{bucket}/notes.jsonl", JSONL)
    server.told_to(almoner.home.root, bucket)
    before = almoner.everything()
    real = sources.source_digest

    def then_gone(source):
        found = real(source)
        server.stop()
        return found

    monkeypatch.setattr("tasks.corpus.ingest.source_digest", then_gone)
    told = almoner.ask(f"dataset ingest clinic s3://{bucket}/notes.jsonl", 3)
    assert told["error"] == "StoreUnreachable"
    assert almoner.everything() == before
