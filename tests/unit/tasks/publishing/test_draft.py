"""The draft in quarantine: private to its owner, and noticed when a byte changes."""

import json
import os
import stat

import pytest

from tasks.publishing.draft import rehash, write_draft
from tasks.release.bundle_format import DRAFT_FILES, read_labelled
from tests.refusals import refusal
from tests.unit.tasks.publishing.builders import TEXTS, a_record, a_request, metrics_of


@pytest.fixture
def draft(release):
    return release.draft


@pytest.fixture
def files(release):
    return release.files


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_draft_is_its_owners_alone(draft):
    assert mode(draft) == 0o700
    assert {path.name: mode(path) for path in draft.iterdir()} == dict.fromkeys(DRAFT_FILES, 0o600)


def test_the_table_names_every_byte(draft, files):
    assert set(files) == set(DRAFT_FILES)
    for name, facts in files.items():
        assert facts["bytes"] == (draft / name).stat().st_size
    rehash(draft, files)


def test_texts_are_numbered_lines(draft):
    rows = [json.loads(line) for line in (draft / "texts.jsonl").read_text().splitlines()]
    assert rows == [{"id": 1, "text": TEXTS[0]}, {"id": 2, "text": TEXTS[1]}]


def test_any_text_can_be_written(tmp_path):
    texts = ["a\nb\u2028c\x00", "half a pair: \ud83d", '"quoted" \\', "\U0001f600"]
    folder = tmp_path / "odd"
    write_draft(folder, a_record(), texts, ())
    rows = [json.loads(line)["text"] for line in (folder / "texts.jsonl").read_bytes().split(b"\n")[:-1]]
    assert rows == ["a\nb\u2028c\x00", "half a pair: ?", '"quoted" \\', "\U0001f600"]


def test_a_steward_sees_the_first_texts(draft):
    assert list(read_labelled(draft, 1)) == [(TEXTS[0], None)]
    assert list(read_labelled(draft, 5)) == [(text, None) for text in TEXTS]


def test_measurements_are_stored_with_their_exposure(draft):
    stored = json.loads((draft / "evaluation.json").read_text())
    assert stored["format"] == "almoner-evaluation/1"
    assert [(m["name"], m["exposure"]) for m in stored["metrics"]] == [("length", "public"), ("distinct", "public")]


def test_an_internal_metric_is_not_written_on_governed_data(tmp_path):
    with refusal("UnpublishableMetric"):
        write_draft(tmp_path / "new", a_record(), TEXTS, metrics_of(TEXTS, "length", "verbatim_overlap"))
    assert not (tmp_path / "new").exists()
    write_draft(tmp_path / "new", a_record(a_request(governed=False)), TEXTS, metrics_of(TEXTS, "verbatim_overlap"))


def test_each_attempt_has_a_folder_of_its_own(draft):
    before = {path.name: path.read_bytes() for path in draft.iterdir()}
    with refusal("DraftUnwritable"):
        write_draft(draft, a_record(), ["other", "texts"], ())
    assert {path.name: path.read_bytes() for path in draft.iterdir()} == before


def test_a_draft_needs_its_parent(tmp_path):
    with refusal("DraftUnwritable"):
        write_draft(tmp_path / "none" / "draft", a_record(), TEXTS, ())


@pytest.mark.parametrize("name", DRAFT_FILES)
def test_a_changed_byte_is_noticed(draft, files, name):
    data = bytearray((draft / name).read_bytes())
    data[len(data) // 2] ^= 1
    (draft / name).write_bytes(data)
    with refusal("ArtifactChanged", match=name):
        rehash(draft, files)


@pytest.mark.parametrize("name", DRAFT_FILES)
def test_a_missing_file_is_noticed(draft, files, name):
    (draft / name).unlink()
    with refusal("ArtifactChanged", match=name):
        rehash(draft, files)


def test_a_file_too_many_is_noticed(draft, files):
    (draft / "notes.txt").write_text("extra")
    with refusal("ArtifactChanged", match="missing or unexpected"):
        rehash(draft, files)


@pytest.mark.parametrize("name", DRAFT_FILES)
def test_a_link_to_the_same_bytes_is_noticed(draft, files, name, tmp_path):
    (draft / name).rename(tmp_path / name)
    (draft / name).symlink_to(tmp_path / name)
    with refusal("ArtifactChanged", match="plain"):
        rehash(draft, files)


def test_a_pipe_does_not_hang(draft, files):
    (draft / "texts.jsonl").unlink()
    os.mkfifo(draft / "texts.jsonl")
    with refusal("ArtifactChanged"):
        rehash(draft, files)


def test_a_missing_folder_is_noticed(tmp_path, files):
    with refusal("ArtifactChanged"):
        rehash(tmp_path / "none", files)
