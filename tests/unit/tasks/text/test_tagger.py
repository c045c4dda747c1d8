"""The pinned tagger: what it is, what it finds, and what it makes of hard texts."""

import json
import socket
from importlib.metadata import metadata
from pathlib import Path

import pytest

from tasks.evaluation.lexical import KINDS
from tasks.text import public_models
from tasks.text.public_models import Entity, SpacyTagger, files_digest, load_tagger
from tests.refusals import refusal

pytestmark = pytest.mark.dear

NOTE = "Angela Merkel met twelve doctors in Berlin on 3 May 2011. The small clinic paid $5 million to Siemens."


@pytest.fixture(scope="module")
def tag() -> SpacyTagger:
    return load_tagger()


def test_names_and_phrases_of_a_plain_text(tag):
    (found,) = tag([NOTE])
    assert {Entity("PERSON", "Angela Merkel"), Entity("GPE", "Berlin"), Entity("DATE", "3 May 2011")} <= set(found)
    assert Entity("MONEY", "$5 million") in found
    assert {"twelve doctors", "The small clinic"} <= set(tag.noun_chunks([NOTE])[0])


def test_it_finds_easy_names(tag):
    """Twenty first and last names; its own metadata say 84 % F1 on hard text, and a tagger of noise finds none."""
    firsts, lasts = ("Mary", "John", "Susan", "Peter"), ("Smith", "Jones", "Brown", "Miller", "Davis")
    people = [f"{first} {last}" for first in firsts for last in lasts]
    found = tag([f"Yesterday {person} went to the hospital." for person in people])
    assert sum(Entity("PERSON", person) in names for person, names in zip(people, found, strict=True)) >= 17


def test_every_text_has_its_own_answer_whatever_its_neighbours(tag):
    alone = [tag([text])[0] for text in (NOTE, "Bob lives in Paris.")]
    assert tag(["", NOTE, " \n", "Bob lives in Paris.", ""]) == [[], alone[0], [], alone[1], []]
    assert tag([]) == []


@pytest.mark.parametrize(
    "text",
    ["\ud800 Bob", "\u4e2d\u6587\u3002", "\U0001f600" * 50, "\x00", "a" * 30_000],
    ids=["half a pair", "chinese", "faces", "null", "long"],
)
def test_strange_texts_do_no_harm(tag, text):
    assert len(tag([text])) == len(tag.noun_chunks([text])) == 1


@pytest.mark.slow
def test_a_very_long_text_is_read_to_its_end(tag):
    text = "The nurse wrote it down again. " * 900 + "Angela Merkel was in Berlin."
    assert Entity("GPE", "Berlin") in tag([text])[0]


def test_pieces_are_the_text_cut_between_words():
    text = "word " * 10_000
    pieces = list(public_models._pieces_of_text(text))
    assert "".join(pieces) == text
    assert all((len(piece) <= 20_000 and not piece[-1].isalnum()) or piece.endswith("word") for piece in pieces)
    assert len(pieces) == 3


def test_kinds_licence_and_parts_are_what_we_say(tag):
    assert set(tag.pipeline.get_pipe("ner").labels) == set(KINDS)
    about = metadata(public_models.TAGGER_PACKAGE)
    assert (about["License"], about["Version"]) == ("MIT", public_models.TAGGER_VERSION)
    described = json.loads((public_models._tagger_folder() / "meta.json").read_text())
    assert described["author"] == "Explosion"
    assert public_models.TAGGER_DIGEST[:12] in tag.name


def test_no_code_and_no_pickle_comes_with_it():
    """Everything but the configuration is JSON, text, msgpack tables or arrays; a pickle begins with 0x80."""
    files = [path for path in public_models._tagger_folder().rglob("*") if path.is_file()]
    assert not [path.name for path in files if path.suffix in {".py", ".so", ".pkl"}]
    pickled = {bytes([0x80, protocol]) for protocol in range(2, 6)}
    assert not [path.name for path in files if path.read_bytes()[:2] in pickled]


def test_it_needs_no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert load_tagger()(["Bob lives in Paris."])[0]


def test_other_files_are_refused(tmp_path: Path, monkeypatch):
    (tmp_path / "config.cfg").write_text("[nlp]")
    monkeypatch.setattr(public_models, "_tagger_folder", lambda: tmp_path)
    with refusal("TaggerChanged", match="not the pinned one") as refused:
        load_tagger()
    assert refused.value.facts["found"] == files_digest(tmp_path)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(public_models, "TAGGER_PACKAGE", "no_such_pipeline")
    with refusal("TaggerChanged", match="not installed") as refused:
        load_tagger()
    assert "pip install 'almoner[generation]'" in refused.value.advice


def test_the_digest_covers_names_and_contents(tmp_path: Path):
    (tmp_path / "a").write_text("1")
    first = files_digest(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    second = files_digest(tmp_path)
    (tmp_path / "b").write_text("2")
    assert len({first, second, files_digest(tmp_path)}) == 3


def test_progress_is_told(tag):
    told = []
    SpacyTagger(tag.name, tag.pipeline, lambda done, of: told.append((done, of)))(["Bob.", "", "Ann."])
    assert told == [(1, 3), (3, 3)]
