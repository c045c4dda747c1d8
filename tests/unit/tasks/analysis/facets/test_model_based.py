"""Facets by the model: the prompt, what is read out of answers, and what happens to those that are none."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tasks.analysis.facets import model_based
from tasks.analysis.facets.extractor import cached, extractor_for
from tasks.analysis.facets.facet_settings import FacetExample, FacetField, FacetSettings
from tasks.analysis.facets.model_based import ModelExtractor, facets_in
from tasks.analysis.facets.rule_based import no_facets
from tasks.inference.catalogue.model_check import ContextTooLong
from tasks.inference.engine.engine import Engine
from tasks.inference.structured_output.grammar_constraint import TokenLimitTooSmall
from tests.tiny_model import tiny_model

pytestmark = pytest.mark.dear

FIELDS = (
    FacetField(name="keywords", about="words that {tell} it from others", most_items=2, most_characters=6),
    FacetField(name="summary", about="a sentence", kind="text", most_characters=9),
)
ASKED = {"extractor": "model", "fields": FIELDS, "examples": (), "max_text_tokens": 24, "max_new_tokens": 60}
GOOD = '{"keywords": ["Rail", "rail", "fares"], "summary": "a  journey"}'
NONSENSE = [
    None,
    "",
    "no JSON",
    '{"keywords": ["rail"], "summary": "cut',
    "[]",
    "null",
    "{}",
    '{"keywords": ["rail"]}',
    '{"keywords": "rail", "summary": "a"}',
    '{"keywords": ["rail"], "summary": ["a"]}',
    '{"keywords": [1], "summary": "a"}',
    '{"keywords": null, "summary": null}',
    '{"keywords": NaN, "summary": Infinity}',
    "[" * 100_000,
    "1" * 10_000,
]


@pytest.fixture
def engine() -> Engine:
    return Engine(tiny_model(), memory=2**30)


def extractor(engine: Engine, **changes: Any) -> ModelExtractor:
    made = extractor_for(FacetSettings(**{**ASKED, **changes}), engine)
    assert isinstance(made, ModelExtractor)
    return made


def answering(monkeypatch: pytest.MonkeyPatch, answer: Callable[[str], str | None]) -> None:
    """A model that says what the test wants."""

    def fake(engine: object, prompt: object, texts: Sequence[str], *rest: object, **more: object) -> list[str | None]:
        return [answer(text) for text in texts]

    monkeypatch.setattr(model_based, "complete_constrained", fake)


def test_an_answer_becomes_facets():
    found = facets_in(FIELDS, GOOD)
    assert found.values == {"keywords": ("rail", "fares"), "summary": ("a journey",)}
    assert found.keywords == ("rail", "fares")
    assert found.summary == "a journey"


@pytest.mark.parametrize("answer", NONSENSE)
def test_nonsense_is_an_empty_row(answer):
    assert facets_in(FIELDS, answer) == no_facets(FIELDS)


def test_a_model_that_talks_nonsense_about_one_text_disturbs_no_other(monkeypatch, engine):
    """Whatever it says: empty facets there, no exception, and the others' facets as they were."""
    for nonsense in NONSENSE:
        answering(monkeypatch, lambda text, said=nonsense: said if text == "bad" else GOOD)
        found = extractor(engine)(["a", "bad", "b"])
        assert found == [facets_in(FIELDS, GOOD), no_facets(FIELDS), facets_in(FIELDS, GOOD)]


def test_half_of_a_pair_in_an_answer_can_be_stored():
    found = facets_in(FIELDS, json.dumps({"keywords": ["\ud800 x"], "summary": "a\ud800"}))
    assert found.keywords == ("? x",)
    assert found.text.encode()


def test_the_tiny_model_gives_facets_of_the_schema(engine):
    texts = ["a railway journey", "", "语言", "another text"]
    found = extractor(engine)(texts)
    assert found[1] == no_facets(FIELDS)
    for facets in found:
        assert list(facets.values) == ["keywords", "summary"]
        assert len(facets.keywords) <= 2
        assert len(facets.summary) <= 9
    assert any(facets.summary or facets.keywords for facets in found)
    assert extractor(engine)(texts[::-1]) == found[::-1]


def test_the_model_is_told_the_fields(engine):
    prompt = engine.model.tokenizer.decode(extractor(engine).prompt.prefix)
    assert "- keywords: words that {tell} it from others\n" in prompt
    assert "- summary: a sentence\n" in prompt


def test_the_model_is_shown_the_examples(engine):
    """Of each what it has of the fields, in their order and in the form of an answer."""
    shown = FacetExample(text="Two {fares}?", facets={"summary": ("A question.",), "other": ("x",)})
    more = FacetExample(text="Rail.", facets={"summary": ("A word.",), "keywords": ("rail", "fare")})
    prompt = engine.model.tokenizer.decode(extractor(engine, examples=(shown, more)).prompt.prefix)
    assert 'Text: Two {fares}?\nFacets: {"summary": "A question."}\n\n' in prompt
    assert 'Text: Rail.\nFacets: {"keywords": ["rail", "fare"], "summary": "A word."}\n\nText: ' in prompt
    assert "Text: Two" not in engine.model.tokenizer.decode(extractor(engine).prompt.prefix)


def test_the_name_says_what_facets_depend_on(engine):
    names = {
        extractor(engine).name,
        extractor(engine, max_text_tokens=25).name,
        extractor(engine, max_new_tokens=61).name,
        extractor(engine, contrast=2).name,
        extractor(engine, fields=FIELDS[::-1]).name,
        extractor(Engine(tiny_model("bfloat16"), memory=2**30)).name,
    }
    assert len(names) == 6
    assert all(tiny_model().digest in name for name in names)


def test_other_words_have_another_name(monkeypatch, engine):
    before = extractor(engine).name
    monkeypatch.setattr(model_based, "SYSTEM", "Other words.")
    assert extractor(engine).name != before


def test_what_does_not_fit_is_refused_when_it_is_made(engine):
    with pytest.raises(TokenLimitTooSmall):
        extractor(engine, max_new_tokens=16)
    with pytest.raises(ContextTooLong):
        extractor(engine, max_text_tokens=1000)
    with pytest.raises(ValueError, match="engine"):
        extractor_for(FacetSettings(**ASKED))


def test_with_the_cache_nothing_is_asked_twice(monkeypatch, engine, tmp_path: Path):
    heard: list[str] = []

    def answer(text: str) -> str:
        heard.append(text)
        return GOOD

    answering(monkeypatch, answer)
    first = cached(extractor(engine), tmp_path, bytes(32))(["a", "b", "a"])
    assert cached(extractor(engine), tmp_path, bytes(32))(["b", "a"]) == first[:2]
    assert heard == ["a", "b"]
