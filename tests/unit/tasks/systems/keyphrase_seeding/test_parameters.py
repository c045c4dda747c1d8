"""What a request of keyphrase seeding may say, and what is stored of it."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from models_db.values.requests import model_to_json
from tasks.systems.keyphrase_seeding.stages import (
    TOPICS_FROM,
    KeyphraseParameters,
    KeyphraseShares,
    VocabularySettings,
    with_public_words,
)
from tasks.text.public_topics import PUBLIC_TOPICS
from tests.refusals import refusal

LEAST: dict[str, Any] = {"samples": 4, "references": 100}


def asked(**changes: Any) -> KeyphraseParameters:
    return KeyphraseParameters.model_validate(LEAST | changes)


def test_what_is_stored_is_read_again_alike():
    for wanted in (asked(), asked(labels=["a", "b"], vocabulary={"method": "public", "words": ["Red wine", "tea"]})):
        stored = model_to_json(wanted)
        assert KeyphraseParameters.model_validate(json.loads(json.dumps(stored))) == wanted
        assert model_to_json(KeyphraseParameters.model_validate(stored)) == stored


def test_public_words_have_one_spelling_and_stand_once():
    words = asked(vocabulary={"method": "public", "words": ["Red  Wine", "red wine", "the", "tea"]}).vocabulary.words
    assert words == ("red wine", "tea")


@pytest.mark.parametrize(
    "wrong",
    [
        {"samples": 0},
        {"references": 0},
        {"features": 0},
        {"bandwidth": 0},
        {"phrases_per_text": 0},
        {"phrases_per_unit": 21},
        {"least_deviations": -1},
        {"strongest": -1},
        {"sequences": "sideways"},
        {"sequences": "iterative", "phrases_per_text": 9},
        {"phrases_per_unit": 2},  # below vocabulary.per_unit
        {"vocabulary": {"method": "public"}},
        {"vocabulary": {"method": "counted"}},
        {"vocabulary": {"method": "public", "words": ["the", "!"]}},
        {"vocabulary": {"method": "private", "words": ["tea"]}},
        {"vocabulary": {"size": 2001}},
        {"vocabulary": {"counting_share": "0.6"}},
        {"shares": {"vocabulary": 0}},
        {"labels": ["a", "a"]},
        {"background": "labels"},
        {"background": "labels", "labels": ["a"]},
        {"seed": 1},
    ],
)
def test_what_is_out_of_range_is_refused(wrong):
    with pytest.raises(ValidationError):
        asked(**wrong)


def test_as_many_phrases_count_as_a_text_has():
    assert asked().counting == 24
    assert asked(strongest=1, phrases_per_text=4).counting == 4
    assert asked(strongest=0).counting is None


def test_a_public_vocabulary_that_names_nothing_is_the_built_in_list():
    for method in ("public", "counted"):
        found = with_public_words(LEAST | {"vocabulary": {"method": method}})
        assert found["vocabulary"] == {"method": method, "words": list(PUBLIC_TOPICS), "words_from": TOPICS_FROM}
        assert KeyphraseParameters.model_validate(found).vocabulary.words_from == TOPICS_FROM


def test_words_of_a_file_take_the_place_of_its_name(tmp_path: Path):
    file = tmp_path / "words.json"
    file.write_text(json.dumps({"words": ["kettle", "violin"]}))
    found = with_public_words(LEAST | {"vocabulary": {"method": "public", "file": str(file)}})
    assert found["vocabulary"] == {"method": "public", "words": ["kettle", "violin"], "words_from": "words.json"}
    with refusal("WordsUnreadable"):
        with_public_words(LEAST | {"vocabulary": {"method": "public", "file": str(tmp_path / "none")}})


@pytest.mark.parametrize("vocabulary", [None, "tea", {"method": "private"}, {"method": "public", "words": ["tea"]}])
def test_what_names_its_words_or_needs_none_stays_as_it_is(vocabulary):
    assert with_public_words(LEAST | {"vocabulary": vocabulary}) == LEAST | {"vocabulary": vocabulary}


def test_shares_are_parts_of_rho_and_a_public_vocabulary_leaves_all_to_the_sketches():
    shares = KeyphraseShares(vocabulary=Decimal(1), sketches=Decimal(3))
    assert shares.of(1001, charged=True) == (250, 750)
    assert shares.of(1001, charged=False) == (0, 1001)


def test_the_background_is_the_labels_where_there_are_some():
    assert asked().subtracted == "median"
    assert asked(labels=["a"]).subtracted == "median"
    assert asked(labels=["a", "b"]).subtracted == "labels"
    assert asked(labels=["a", "b"], background="none").subtracted == "none"


def test_positions_follow_from_the_sequences():
    assert asked().positions == 1
    assert asked(sequences="iterative", phrases_per_text=5).positions == 5


def test_a_selected_vocabulary_is_a_keyword_set_of_the_units_own_phrases():
    found = VocabularySettings(size=70, per_unit=3, counting_share=Decimal("0.2")).selected
    assert (found.method, found.size, found.per_unit, found.counting_share) == ("model", 70, 3, Decimal("0.2"))
