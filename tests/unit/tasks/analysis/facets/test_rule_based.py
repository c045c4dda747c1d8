"""Facets without a model: what is found, in any language, and that a text is looked at by itself."""

import json
import os
import subprocess
import sys
import warnings

import pytest

from tasks.analysis.facets import rule_based
from tasks.analysis.facets.extractor import extractor_for
from tasks.analysis.facets.facet_settings import FacetField, FacetSettings
from tasks.analysis.facets.rule_based import (
    CODE,
    READ_CHARACTERS,
    SUMMARY_CHARACTERS,
    RuleBasedExtractor,
    rake,
    tidy_facets,
)
from tasks.values.results import Facets

pytestmark = pytest.mark.dear
CONCERNS = ("tasks/analysis/facets", "tasks/workers")

TRAVEL = (
    "Please help me plan a railway journey through northern Italy. I want railway tickets that let me stop in Turin"
    " and Milan, and I need to know whether railway passes are cheaper than single tickets."
)
CODING = "Explain list comprehensions in Python. My list comprehensions raise a syntax error when I nest them."
TEXTS = {
    "English": TRAVEL,
    "German": "Ich möchte eine Bahnreise durch Norditalien planen und brauche günstige Fahrkarten.",
    "Chinese": "我想计划一次穿越意大利北部的火车旅行，需要便宜的车票。",
    "Arabic": "أريد التخطيط لرحلة بالقطار عبر شمال إيطاليا.",
    "Thai": "ฉันอยากวางแผนเดินทางด้วยรถไฟ",
    "emoji": "🚂🇮🇹 🍕",
    "empty": "",
    "spaces": " \n\t ",
    "marks": "?!... --- ***",
    "function words": "the of and to",
    "digits": "1 22 333,4",
    "one long word": "a" * 50_000,
    "one long line": "word " * 10_000,
    "control characters": "a\x00b\x1f \x7f railway",
    "half a pair": "railway \ud800 tickets",
}


def extractor(**settings: object) -> RuleBasedExtractor:
    made = extractor_for(FacetSettings(**settings))
    assert isinstance(made, RuleBasedExtractor)
    return made


def test_keywords_are_the_texts_own_phrases():
    (found,) = extractor()([TRAVEL])
    assert any("railway" in phrase for phrase in found.keywords)
    assert 3 <= len(found.keywords) <= 5
    assert all(word in TRAVEL.casefold() for phrase in found.keywords for word in phrase.split())
    assert found.summary == TRAVEL
    assert found.values["intent"] == found.values["entities"] == ()
    assert list(found.values) == ["topics", "subtopics", "intent", "entities", "keywords", "summary"]


def test_words_of_asking_are_no_keywords():
    (found,) = extractor()(["Please give me a list. Explain the following text."])
    assert found.keywords == ()


@pytest.mark.parametrize("words", [1, 2, 3])
def test_phrases_have_at_most_so_many_words(words):
    (found,) = extractor(phrase_words=words)([TRAVEL])
    assert found.keywords
    assert all(len(phrase.split()) <= words for phrase in found.keywords)


@pytest.mark.parametrize("language", TEXTS)
def test_no_text_fails(language, caplog):
    """Each has all fields, in their limits; whatever a text is, nothing of it is logged and nothing is warned of."""
    settings = FacetSettings()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (found,) = extractor()([TEXTS[language]])
    assert list(found.values) == [field.name for field in settings.fields]
    assert len(found.keywords) <= 5
    assert all(0 < len(phrase) <= 30 for phrase in found.keywords)
    assert len(found.summary) <= SUMMARY_CHARACTERS
    assert json.dumps(dict(found.values)).encode()
    found.text.encode()
    assert caplog.records == []


def test_other_languages_have_keywords_too():
    """Function words of other languages are not known, so some are among them: that is what is stated."""
    german, chinese = extractor()([TEXTS["German"], TEXTS["Chinese"]])
    assert any("bahnreise" in phrase for phrase in german.keywords)
    assert chinese.summary == TEXTS["Chinese"]


def test_a_text_is_looked_at_by_itself():
    """Whatever came before, comes after, or is missing."""
    texts = list(TEXTS.values())
    alone = [extractor()([text])[0] for text in texts]
    together = extractor()
    assert together([*texts, CODING]) == [*alone, *extractor()([CODING])]
    assert together(texts[::-1]) == alone[::-1]


@pytest.mark.slow
def test_other_processes_find_the_same():
    """Whatever seed their string hashes have."""
    program = (
        "import json, sys\n"
        "from tasks.analysis.facets.facet_settings import FacetSettings\n"
        "from tasks.analysis.facets.extractor import extractor_for\n"
        "texts = json.loads(sys.stdin.read())\n"
        "found = extractor_for(FacetSettings())(texts)\n"
        "print(json.dumps([dict(facets.values) for facets in found]))\n"
    )
    texts = [TRAVEL, CODING, TRAVEL + " " + CODING]
    said = [
        subprocess.run(
            [sys.executable, "-c", program],
            input=json.dumps(texts),
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    here = json.dumps([dict(facets.values) for facets in extractor()(texts)])
    assert said == [here + "\n"] * 2


def test_a_failure_gives_empty_facets_and_disturbs_nobody(monkeypatch, caplog):
    def failing(text: str, words: int):
        if "Italy" in text:
            raise RuntimeError(text)
        return rake(text, words)

    with monkeypatch.context() as patched:
        patched.setattr(rule_based, "rake", failing)
        found = extractor()([CODING, TRAVEL, CODING])
    assert caplog.records == []
    assert found[1] == Facets({field.name: () for field in FacetSettings().fields})
    assert found[0] == found[2] == extractor()([CODING])[0]


def test_a_long_text_is_read_to_a_public_limit():
    """What stands behind it changes nothing."""
    long = "railway journey. " * (READ_CHARACTERS // 10)
    one, other = extractor()([long, long + "submarine cables. " * 1000])
    assert one == other


def test_only_the_fields_that_there_are_are_filled():
    fields = (FacetField(name="summary", about="x", kind="text"), FacetField(name="keywords", about="x", most_items=2))
    (found,) = extractor(fields=fields)([TRAVEL])
    assert list(found.values) == ["summary", "keywords"]
    assert len(found.keywords) == 2


def test_the_name_says_what_facets_depend_on():
    names = {
        extractor().name,
        extractor(phrase_words=3).name,
        extractor(fields=FacetSettings().fields[::-1]).name,
    }
    assert len(names) == 3
    assert all(f"code {CODE}" in name for name in names)
    assert extractor().name == extractor().name


def test_progress_is_told(monkeypatch):
    heard: list[tuple[int, int]] = []
    extractor_for(FacetSettings(), progress=lambda done, of: heard.append((done, of)))([CODING] * 2500)
    assert heard == [(1000, 2500), (2000, 2500), (2500, 2500)]


def test_phrases_are_tidied():
    fields = (
        FacetField(name="summary", about="x", kind="text", most_characters=10),
        FacetField(name="keywords", about="x", most_items=3, most_characters=8),
        FacetField(name="topics", about="x"),
    )
    found = tidy_facets(
        fields,
        {
            "summary": ["one  two\nthree four"],
            "keywords": ["Caf\u0065\u0301", "CAFÉ", " ", "much too long", "b", "c", "d"],
            "topics": ["New  York", "new york"],
            "unknown": ["left out"],
        },
    )
    assert found.values == {"summary": ("one two th",), "keywords": ("café", "b", "c"), "topics": ("New York",)}


def test_libraries_are_asked_for_when_they_are_needed():
    """Pricing reads settings, and must stay quick."""
    program = (
        "import sys; from tasks.analysis.facets import extractor, facet_settings;"
        " print({'torch', 'sklearn', 'transformers'} & set(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said == "set()\n"
