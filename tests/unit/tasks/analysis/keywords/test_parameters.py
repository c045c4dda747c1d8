"""What a request may say about its keyword set, and how public words get into it."""

import json

import pytest

from models_db.values.canonical_json import encode_canonical
from models_db.values.requests import model_to_json, parse_model
from tasks.analysis.keywords.parameters import LARGEST_FILE, KeywordSettings, with_words_from_file
from tests.refusals import refusal


def settings(**written):
    return parse_model(KeywordSettings, written, "`keywords`")


def test_settings_are_stored_as_canonical_json_and_read_back():
    wanted = settings(method="hybrid", words=["Law", "tax "], frequency_share="0.25")
    stored = model_to_json(wanted)
    assert encode_canonical(stored)
    assert parse_model(KeywordSettings, stored, "`keywords`") == wanted
    assert wanted.words == ("law", "tax")


def test_words_are_spelt_once():
    assert settings(method="public", words=["Law", "LAW", "tax"]).words == ("law", "tax")


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ({"method": "public"}, "needs `words`"),
        ({"method": "hybrid"}, "needs `words`"),
        ({"method": "tfidf", "words": ["law"]}, "has no public `words`"),
        ({"method": "model", "words_from": "a.json"}, "has no public `words`"),
        ({"method": "public", "words": ["law", "<b>"]}, "no keyword can be made of '<b>'"),
        ({"frequency_share": "0.5", "counting_share": "0.5"}, "leave nothing"),
        ({"size": 0}, "greater than or equal to 1"),
        ({"per_unit": 0}, "greater than or equal to 1"),
        ({"tokens_per_unit": 0}, "greater than or equal to 1"),
        ({"method": "best"}, "input should be"),
        ({"ranking": "luck"}, "input should be"),
        ({"unknown": 1}, "extra inputs"),
    ],
)
def test_what_cannot_be_is_named(written, problem):
    with refusal("FileInvalid", match=problem):
        settings(**written)


def test_only_a_public_set_is_free():
    assert not settings(method="public", words=["law"]).charged
    assert settings(method="hybrid", words=["law"]).charged
    assert settings().charged


def written_words(folder, **more):
    path = folder / "words.json"
    path.write_text(json.dumps({"words": ["law", "tax"], **more}))
    return path


def test_words_of_a_file_are_written_out_with_where_they_come_from(tmp_path):
    path = written_words(tmp_path, source={"file": "chat.jsonl", "sha256": "ab" * 32})
    found = with_words_from_file({"method": "public", "file": str(path)})
    assert found["words"] == ["law", "tax"]
    assert found["words_from"] == f"words.json, from chat.jsonl, SHA-256 {'ab' * 32}, declared to be public"
    assert settings(**found).words == ("law", "tax")
    assert with_words_from_file(found) == found


def test_a_list_of_ones_own_needs_no_origin(tmp_path):
    found = with_words_from_file({"method": "hybrid", "file": str(written_words(tmp_path))})
    assert found == {"method": "hybrid", "words": ["law", "tax"], "words_from": "words.json"}


@pytest.mark.parametrize("given", [{"method": "tfidf"}, {"file": 3}, "tfidf", None, {"file": "x", "words": ["law"]}])
def test_what_names_no_file_is_left_to_the_format(given):
    assert with_words_from_file(given) == given


def test_a_file_that_is_not_there_is_named(tmp_path):
    with refusal("WordsUnreadable", match="No such file"):
        with_words_from_file({"file": str(tmp_path / "none.json")})


@pytest.mark.parametrize("content", ["", "[]", '{"words": "law"}', '{"words": [1]}', "\xff", "[" * 5000])
def test_a_file_that_is_none_is_named(tmp_path, content):
    path = tmp_path / "words.json"
    path.write_bytes(content.encode("latin-1"))
    with refusal("WordsInvalid"):
        with_words_from_file({"file": str(path)})


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "words.json"
    path.write_bytes(b" " * (LARGEST_FILE + 1))
    with refusal("WordsInvalid"):
        with_words_from_file({"file": str(path)})
