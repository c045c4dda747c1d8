"""The benchmark of facts: worlds, the string rule, what the systems may say, and the page's table."""

import json
from collections import Counter

import pytest

from tasks.text.keyword_normalisation import roots

SCRIPTS = ("facts",)


@pytest.fixture(scope="module")
def facts(bench):
    return bench["facts"]


def test_a_world_follows_from_its_number_and_tells_each_fact_as_often_as_it_says(facts):
    world = facts.World.of(1)
    assert world == facts.World.of(1)
    assert world != facts.World.of(2)
    creatures = [fact.creature for other in map(facts.World.of, range(4)) for fact in (*other.shared, *other.private)]
    assert len(set(creatures)) == len(creatures) == 160
    assert len(world.texts) == facts.SHARED * facts.SHARED_BY / 2
    told = Counter(word for text in world.texts for word in roots(text))
    for fact in world.private:
        assert told[next(iter(roots(fact.creature)))] == 1
    for fact in world.shared:  # a pair of equal facts is told once
        assert facts.SHARED_BY - 30 <= told[next(iter(roots(fact.creature)))] <= facts.SHARED_BY


def test_names_and_values_are_words_of_their_own(facts):
    words = [value for _, values in facts.RELATIONS.values() for value in values]
    assert all(len(roots(word)) == 1 for word in words)
    assert len(set().union(*map(roots, words))) == len(words)
    wordings = [wording.format(s="", v="") for own, _ in facts.RELATIONS.values() for wording in own]
    others = set().union(*map(roots, (*facts.FILLERS, *wordings)))
    assert not others & set().union(*map(roots, words))


def test_the_rule_wants_the_name_and_exactly_one_value(facts):
    fact = facts.Fact("velmara", "eats", "berries")

    def said(*pieces: str) -> str | None:
        return facts.answer(fact, map(roots, pieces))

    assert said("Velmara, berry") == "berries"
    assert said("the velmara eats moss") == "moss"
    assert said("velmara", "berries") is None
    assert said("velmara, berries, moss") is None
    assert said("velmara crimson") is None
    assert said("velmara moss", "berries for a velmara", "velmara and berries") == "berries"
    assert said() is None


def test_questions_without_noise_find_all_shared_facts_and_none_of_another_world(facts):
    lines = {line["facts"]: line for line in facts.asked(0, facts.NO_NOISE, facts.World.of(0))}
    assert lines["shared"]["right"] == lines["shared"]["questions"] == facts.SHARED
    assert 0 < lines["private"]["right"] < facts.PRIVATE, "without noise a fact of one unit is told"
    assert lines["other world"]["answered"] == 0


def test_selected_phrases_are_those_of_many_units(facts):
    phrases = [("velmara eats berries", "aunt")] * 400 + [("zinlei eats moss",)]
    assert set(facts.selected(phrases, "4")) == {roots("velmara eats berries"), roots("aunt")}
    assert roots("zinlei eats moss") in set(facts.selected(phrases, facts.NO_NOISE))


def test_the_page_has_the_committed_figures(facts):
    lines = [json.loads(line) for line in facts.OUT.read_text(encoding="utf-8").splitlines()]
    assert {line["trial"] for line in lines} == set(range(facts.TRIALS))
    page = (facts.OUT.parents[1] / "utility.md").read_text(encoding="utf-8")
    for row in facts.table(lines):
        assert row in page, row
