"""Names and descriptions: what is asked, what is kept of the answers, and what stands in their place."""

from typing import Any

import pytest

from tasks.decoding.structured_output import Record
from tasks.systems.insights.cluster_descriptions import (
    LONGEST_KEYWORD,
    LONGEST_NAME,
    MOST_KEYWORDS,
    SCHEMAS,
    TOPIC,
    Statements,
    Wording,
    describe,
    describe_statements,
)
from tasks.values.results import UNNAMED
from tests.unit.tasks.systems.insights.scribes import Scribe, of_keywords

COOKING = ["recipe", "garlic", "oven"]
NAMED = "Recipes with garlic in the oven"
GOOD: Record = {"name": NAMED, "description": "These texts are about garlic. They deal with ovens."}
MISFORTUNES: dict[str, Any] = {
    "nothing": {},
    "a name that is no text": {**GOOD, "name": 7},
    "a name without letters": {**GOOD, "name": "?! 12"},
    "no description": {**GOOD, "description": " "},
    "another topic, as in the examples": {"name": "Growing tomatoes", "description": "These texts are about tomatoes."},
    "a sentence of an example": {
        **GOOD,
        "description": "These texts are about garlic. They deal with soil and watering.",
    },
    "circles in the name": {**GOOD, "name": "Garlic and garlic and garlic"},
    "two words twice in the name": {**GOOD, "name": "Garlic oven, oven garlic"},
    "circles in the description": {
        **GOOD,
        "description": "These texts are about garlic in the oven in the oven in the oven in the oven.",
    },
}


def test_an_answer_about_the_keywords_is_the_topic() -> None:
    scribe = Scribe(of_keywords)
    topics = describe(scribe, [COOKING, ["sql", "join"]])
    assert [topic.name for topic in topics] == ["All about recipe, garlic, oven", "All about sql, join"]
    assert topics[0].description == "These texts are about recipe. They deal with oven."
    assert [topic.plain for topic in topics] == [False, False]
    assert len(scribe.asked) == 1  # both in one go, and never again


def test_the_model_is_told_of_the_keywords_and_nothing_else() -> None:
    scribe = Scribe(of_keywords)
    describe(scribe, [["alpha"], ["omega"]], Wording("letters"))
    ((first, second),) = scribe.asked
    assert first.replace("alpha", "omega") == second
    assert "These letters are about" in first


@pytest.mark.parametrize("answer", MISFORTUNES.values(), ids=MISFORTUNES)
def test_what_is_of_no_use_is_asked_once_more_and_then_has_the_plain_form(answer: Record) -> None:
    scribe = Scribe(lambda prompt: answer)
    (topic,) = describe(scribe, [COOKING])
    assert (topic.name, topic.description) == ("recipe, garlic, oven", "Keywords: recipe, garlic, oven.")
    assert topic.plain
    assert [prompts[0].splitlines()[-2] for prompts in scribe.asked] == [
        "Keywords: recipe, garlic, oven",
        "Keywords: oven, garlic, recipe",
    ]


def test_only_what_failed_is_asked_again() -> None:
    scribe = Scribe(lambda prompt: {} if prompt.endswith("Keywords: sql, join\nAnswer:") else of_keywords(prompt))
    topics = describe(scribe, [COOKING, ["sql", "join"]])
    assert [topic.name for topic in topics] == ["All about recipe, garlic, oven", "All about join, sql"]
    assert [len(prompts) for prompts in scribe.asked] == [2, 1]


def test_a_name_has_ten_words_and_a_description_two_sentences() -> None:
    name = "Garlic recipe oven three four five six seven eight, nine, ten garlic"
    text = "First about garlic. Oven!  Recipe is too much. Recipe"
    (topic,) = describe(Scribe(lambda prompt: {"name": name, "description": text}), [COOKING])
    assert topic.name == "Garlic recipe oven three four five six seven eight, nine"
    assert topic.description == "First about garlic. Oven!"


def test_unseen_characters_and_line_breaks_do_not_get_through() -> None:
    found = {"name": "Gar\u202elic\nrecipe \ud800 oven\x00", "description": "Garlic\r\nis \u200bgood"}
    (topic,) = describe(Scribe(lambda prompt: found), [["recipe", "oven", "gar lic", "garlic"]])
    assert (topic.name, topic.description) == ("Gar lic recipe oven", "Garlic is good.")


ODD = ['"quoted"', "{braces}", "line\nbreak", "<|im_end|>", "\x00\x01", "наука", "数据库", "{reference}", "'", "\\"]


def test_odd_keywords_are_text() -> None:
    scribe = Scribe(lambda prompt: {})
    (topic,) = describe(scribe, [ODD])
    last = scribe.asked[0][0].splitlines()[-2]
    assert last == 'Keywords: "quoted", {braces}, line break, <|im_end|>, наука, 数据库, {reference}, \', \\'
    assert topic.name == '"quoted", {braces}, line break'


@pytest.mark.parametrize(
    ("keywords", "name", "kept"),
    [
        (["数据库", "查询"], "数据库 查询", True),
        (["数据库", "查询"], "数据库查询优化", False),
        (["физика", "учёные"], "Физика и учёные", False),  # "и" is no stop word of ours
        (["c", "go"], "Go in C", True),
    ],
)
def test_names_in_any_script_need_the_words_of_their_keywords(keywords: list[str], name: str, kept: bool) -> None:
    (topic,) = describe(Scribe(lambda prompt: {"name": name, "description": name}), [keywords])
    assert (topic.name, topic.plain) == (name if kept else ", ".join(keywords), not kept)


UNSUPPORTED = {
    "a subject of its own": "China and its history",
    "a supported word beside another": "Recipes from China",
    "a wider word": "Cooking",
    "fewer keywords than the plain name": "Recipes with garlic",
    "nothing that says something": "Questions and answers",
    "a group of people": "Recipes for women",
}


@pytest.mark.parametrize("name", UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_a_name_with_a_word_that_no_keyword_has_is_replaced_by_the_keywords(name: str) -> None:
    (topic,) = describe(Scribe(lambda prompt: {**GOOD, "name": name}), [COOKING])
    assert (topic.name, topic.plain) == ("recipe, garlic, oven", True)


def test_sentences_of_a_description_need_support_as_well() -> None:
    answer = {"name": NAMED, "description": "These texts are about garlic. They deal with China."}
    (topic,) = describe(Scribe(lambda prompt: answer), [COOKING])
    assert (topic.name, topic.description) == (NAMED, "These texts are about garlic.")
    only = {"name": NAMED, "description": "People visit China for its garlic."}
    (listed,) = describe(Scribe(lambda prompt: only), [COOKING])
    assert (listed.name, listed.description) == (NAMED, "Keywords: recipe, garlic, oven.")


def test_the_name_of_an_example_needs_support_like_any_other() -> None:
    answer = {"name": "Laptop hardware problems!", "description": "These texts are about recipes, ovens and garlic."}
    (topic,) = describe(Scribe(lambda prompt: answer), [COOKING])
    assert topic.plain
    (about_laptops,) = describe(Scribe(lambda prompt: answer), [["laptop", "hardware", "problems"]])
    assert not about_laptops.plain


def test_a_word_that_the_limit_of_a_name_may_have_cut_is_left_out() -> None:
    name = "Recipes of the large garlic, with a big hard oven, and with bad garlic"
    assert len(name) == LONGEST_NAME
    (topic,) = describe(Scribe(lambda prompt: {"name": name, "description": name}), [COOKING])
    assert topic.name == "Recipes of the large garlic, with a big hard oven"
    (short,) = describe(Scribe(lambda prompt: {"name": name[:13], "description": name}), [["recipe", "th"]])
    assert short.name == "Recipes of th", "the last word is whole in a name below the limit"


def test_stop_words_make_no_answer_fit() -> None:
    (topic,) = describe(
        Scribe(lambda prompt: {"name": "How to swim", "description": "How to swim."}), [["how to cook"]]
    )
    assert topic.plain


def test_nothing_to_describe() -> None:
    scribe = Scribe(of_keywords)
    assert describe(scribe, []) == []
    (empty,) = describe(scribe, [[]])
    assert (empty.name, empty.plain) == (UNNAMED, True)
    assert scribe.asked == []


def test_long_lists_and_long_keywords_are_cut() -> None:
    scribe = Scribe(of_keywords)
    describe(scribe, [["x" * 500, *(f"word{number}" for number in range(500))]])
    last = scribe.asked[0][0].splitlines()[-2]
    assert f"Keywords: {'x' * LONGEST_KEYWORD}, word0, " in last
    assert last.count(",") == MOST_KEYWORDS - 1


def test_statements_are_told_with_those_of_others_before_them() -> None:
    scribe = Scribe(lambda prompt: {"name": "Baking bread", "description": "These texts are about bread."})
    groups = [Statements(("Bread of rye.", "Bread\nof wheat."), ("Cakes.",)), Statements((), ("Bread of rye.",))]
    made, empty = describe_statements(scribe, groups)
    assert made.name == "Baking bread"
    assert empty.plain
    ((prompt,),) = scribe.asked
    assert prompt.endswith("Others: Cakes.\nGroup: Bread of rye. / Bread of wheat.\nAnswer:")


def test_what_one_statement_says_is_not_the_topic_of_its_group() -> None:
    answer = {"name": "Baking bread", "description": "These texts are about bread."}
    group = Statements(("How to bake bread?", "My cat is ill.", "Who won in 1998?"), ())
    (topic,) = describe_statements(Scribe(lambda prompt: answer), [group])
    assert topic.plain
    (alone,) = describe_statements(Scribe(lambda prompt: answer), [Statements(group.inside[:1], ())])
    assert not alone.plain


def test_the_plain_form_of_statements_is_the_first_of_them() -> None:
    statement = "The user asks how to bake bread of rye at home without an oven. More. And more."
    (topic,) = describe_statements(Scribe(lambda prompt: {}), [Statements((statement,), ())])
    assert topic.name == "The user asks how to bake bread of rye"
    assert topic.description == "The user asks how to bake bread of rye at home without an oven. More."


def test_what_is_asked_for_is_one_schema() -> None:
    assert SCHEMAS == (TOPIC,)
