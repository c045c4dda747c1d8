"""Public keyword sets: what texts name, thinned out, and what a model may do to it."""

import hashlib
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.analysis.keywords.build_public_set import (
    REVISE_SCHEMA,
    SHOWN,
    Candidate,
    Occurrences,
    PublicTexts,
    build,
    candidates,
    different,
    read_public,
    revise_prompt,
)
from tasks.analysis.keywords.parameters import KeywordSettings, with_words_from_file
from tasks.inference.structured_output.json_schema import record_schema
from tasks.text.public_models import Entity
from tests.refusals import refusal

KINDS = {"Paris": "GPE", "Ada Lovelace": "PERSON", "June 4": "DATE", "1842": "CARDINAL"}


class Named:
    """A tagger for tests: it knows the entities above, and `(words)` is a noun chunk."""

    name = "brackets 1"

    def __call__(self, texts):
        return [[Entity(kind, name) for name, kind in KINDS.items() if name in text] for text in texts]

    def noun_chunks(self, texts):
        return [re.findall(r"\(([^)]+)\)", text) for text in texts]


def apart(texts):
    """Every text has an axis of its own."""
    return np.eye(max(len(texts), 1), dtype=np.float32)[: len(texts)]


def found(texts, least=2):
    return [each.keyword for each in candidates(texts, Named(), Occurrences(texts), least)]


def test_entities_noun_chunks_and_key_phrases_are_candidates():
    texts = ["We saw Paris and (the steam engine). Hand-made pottery, quickly!"] * 3
    assert set(found(texts)) >= {"paris", "steam engine", "hand-made pottery"}


def test_people_numbers_and_dates_are_none():
    texts = ["Ada Lovelace, on June 4, in 1842 (Ada Lovelace). Pottery."] * 3
    assert "ada lovelace" not in found(texts)
    assert not any(any(map(str.isdecimal, keyword)) for keyword in found(texts))


def test_words_at_the_ends_that_say_nothing_are_left_out():
    texts = ["(the following cities) and (a good example of pottery)"] * 2
    assert {"cities", "pottery"} <= set(found(texts))
    assert not any("following" in keyword for keyword in found(texts))


def test_forms_of_one_word_are_one_candidate():
    texts = ["(cities)", "(city)", "(cities)", "(the City)", "(cities)"]
    assert found(texts) == ["cities"]
    assert candidates(texts, Named(), Occurrences(texts))[0].texts == 5


def test_a_word_of_one_text_is_none():
    assert found(["(pottery)", "(chess)", "(pottery)"]) == ["pottery"]


def test_a_phrase_is_ranked_without_what_longer_ones_explain():
    """`solar` is nothing but a part of `solar system`, and `system` is more."""
    texts = ["(solar system)"] * 6 + ["(system)"] * 2 + ["(solar)"] * 0 + ["(chess)"] * 5
    ranked = {each.keyword: each for each in candidates(texts, Named(), Occurrences(texts))}
    assert ranked["solar system"].worth > ranked["chess"].worth > ranked["system"].worth
    assert ranked["system"].texts == 8


@given(st.lists(st.text(alphabet="ab ()漢'", max_size=30), max_size=6))
def test_whatever_texts_hold_candidates_are_keywords(texts):
    for each in candidates(texts, Named(), Occurrences(texts), least=1):
        KeywordSettings(method="public", words=(each.keyword,))
        assert 1 <= each.texts <= len(texts)


def test_what_is_like_a_worthier_one_is_left_out():
    ranked = [Candidate(word, 5, 5.0) for word in ("car", "automobile", "fish")]

    def embed(texts):
        axis = {"car": [1, 0], "automobile": [0.9, 0.436], "fish": [0, 1]}
        return np.array([axis[text] for text in texts], np.float32)

    assert [each.keyword for each in different(ranked, embed)] == ["car", "fish"]


TEXTS = tuple(f"(pottery) (chess) (word{chr(97 + n % 8)}) (opera singers)" for n in range(40))


def test_a_set_has_so_many_words_the_worthiest_first():
    built = build(TEXTS, 3, Named(), apart)
    assert [each.keyword for each in built.keywords] == ["opera singers", "chess", "pottery"]
    assert built.considered == 11
    assert (built.removed, built.appended) == (0, 0)


def test_a_set_of_few_candidates_is_smaller():
    assert len(build(TEXTS, 500, Named(), apart).keywords) == 11


@pytest.mark.parametrize("size", [0, 2001])
def test_an_impossible_size_is_named(size):
    with refusal("SizeInvalid", match="1 to 2000"):
        build(TEXTS, size, Named(), apart)


@pytest.mark.parametrize("texts", [(), ("the and of",), ("pottery", "chess")])
def test_texts_that_name_nothing_together_are_told(texts):
    with refusal("KeywordCandidatesMissing"):
        build(texts, 3, Named(), apart)


def test_a_model_removes_and_appends_and_the_next_candidate_fills_the_room():
    asked = []

    def write(prompts, schema):
        asked.extend(prompts)
        return [{"remove": [2], "append": ["Opera", "ballet"]}]

    built = build(TEXTS, 3, Named(), apart, write, rounds=1)
    words = [each.keyword for each in built.keywords]
    assert "chess" not in words
    assert "opera" in words, "two texts have it"
    assert "ballet" not in words, "no text has it"
    assert (built.removed, built.appended, len(words)) == (1, 1, 3)
    assert "1. opera singers\n2. chess\n3. pottery" in asked[0]
    assert "(pottery) (chess) (worda)" in asked[0]


def test_a_model_that_removes_whatever_it_sees_does_not_empty_the_set():
    built = build(TEXTS, 6, Named(), apart, lambda prompts, schema: [{"remove": [1, 2, 3, 4], "append": []}], 50)
    assert built.removed == 3, "half of the set"
    assert len(built.keywords) == 6


@given(
    st.dictionaries(
        st.sampled_from(["remove", "append", "other"]),
        st.one_of(st.none(), st.integers(), st.lists(st.one_of(st.integers(-2, 90), st.text(max_size=9), st.none()))),
    ),
    st.integers(1, 3),
)
def test_whatever_a_model_says_the_set_stays_one(answer, rounds):
    built = build(TEXTS, 4, Named(), apart, lambda prompts, schema: [answer], rounds)
    words = [each.keyword for each in built.keywords]
    assert len(set(words)) == len(words) <= 4
    assert words, "what was left out makes room for the next ones"
    KeywordSettings(method="public", words=tuple(words))


def test_each_round_shows_other_texts_and_other_words():
    asked = []

    def write(prompts, schema):
        asked.extend(prompts)
        return [{}]

    texts = tuple(f"(word{a}{b}) number{a}" for a in "abcdefghij" for b in "abcdefghij" for _ in (1, 2))
    built = build(texts, 100, Named(), apart, write, rounds=2)
    assert len(built.keywords) == 100
    shown = [set(re.findall(r"^\d+\. (\w+)$", prompt, re.M)) for prompt in asked]
    assert [len(words) for words in shown] == [SHOWN, 40]
    assert len(shown[0] | shown[1]) == 100
    assert asked[0].split("texts:")[1] != asked[1].split("texts:")[1]


def test_the_answer_has_a_grammar_that_we_can_hold_a_model_to():
    assert record_schema(REVISE_SCHEMA)["required"] == ["remove", "append"]
    assert "1. law" in revise_prompt(["law"], ["A text."])


def written_lines(folder, texts):
    path = folder / "public.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def test_a_corpus_is_read_and_named_by_its_digest(tmp_path):
    path = written_lines(tmp_path, TEXTS)
    source = read_public(path)
    assert source == PublicTexts("public.jsonl", hashlib.sha256(path.read_bytes()).hexdigest(), 40, TEXTS)


def test_of_a_large_corpus_a_repeatable_sample_is_read(tmp_path):
    texts = [f"text number {n}" for n in range(300)]
    path = written_lines(tmp_path, texts)
    some = read_public(path, most=50)
    assert some == read_public(path, most=50)
    assert (some.total, len(some.texts)) == (300, 50)
    places = [texts.index(text) for text in some.texts]
    assert places == sorted(places)
    assert 80 < sum(places) / 50 < 220, "from all of it"


def test_what_is_written_is_what_requests_read(tmp_path):
    path = written_lines(tmp_path, TEXTS)
    source = read_public(path)
    built = build(source.texts, 3, Named(), apart)
    to = tmp_path / "words.json"
    to.write_text(json.dumps(built.to_json(source, {"size": 3})))
    settings = KeywordSettings.model_validate(with_words_from_file({"method": "public", "file": str(to)}))
    assert settings.words == ("opera singers", "chess", "pottery")
    assert source.digest in (settings.words_from or "")
    assert json.loads(to.read_text())["texts_with"] == [40, 40, 40]
