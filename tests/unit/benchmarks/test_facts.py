"""The benchmark of facts: worlds, the string rule, what the systems may say, and the page's table."""

import argparse
import json
from collections import Counter

import pytest

from tasks.adapters.training.dataset import read_training_data
from tasks.inference.engine.engine import Engine
from tasks.systems.registry import SYSTEMS
from tasks.text.keyword_normalisation import roots
from tests.tiny_model import tiny_model

CONCERNS = ("benchmarks/invented_facts",)

SCRIPTS = (
    "invented_facts.corpus",
    "invented_facts.systems",
    "invented_facts.worlds",
    "invented_facts.released_values",
    "invented_facts.released_texts",
    "invented_facts.released_records",
)


@pytest.fixture(scope="module")
def facts(bench):
    return bench["invented_facts.worlds"]


@pytest.fixture(scope="module")
def values(bench):
    return bench["invented_facts.released_values"]


@pytest.fixture(scope="module")
def texts(bench):
    return bench["invented_facts.released_texts"]


@pytest.fixture(scope="module")
def corpora(bench):
    return bench["invented_facts.corpus"]


@pytest.fixture(scope="module")
def systems(bench):
    return bench["invented_facts.systems"]


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


@pytest.mark.slow
def test_questions_without_noise_find_all_shared_facts_and_none_of_another_world(facts, values):
    lines = {line["facts"]: line for line in values.asked(0, facts.NO_NOISE, facts.World.of(0))}
    assert lines["shared"]["right"] == lines["shared"]["questions"] == facts.SHARED
    assert 0 < lines["private"]["right"] < facts.PRIVATE, "without noise a fact of one unit is told"
    assert lines["other world"]["answered"] == 0


def test_selected_phrases_are_those_of_many_units(facts, values):
    phrases = [("velmara eats berries", "aunt")] * 400 + [("zinlei eats moss",)]
    assert set(values.selected(phrases, "4")) == {roots("velmara eats berries"), roots("aunt")}
    assert roots("zinlei eats moss") in set(values.selected(phrases, facts.NO_NOISE))


def test_the_committed_figures_are_of_all_worlds(facts, values):
    lines = values.read_lines_if_there(values.OUT)
    assert {line["trial"] for line in lines} == set(range(facts.TRIALS))


def test_a_sentence_of_a_text_is_a_piece(texts):
    assert texts.sentences("A velmara eats moss. It is\nred! And") == ["A velmara eats moss.", "It is", "red!", "And"]


def test_texts_are_asked_about_what_they_could_say(facts, texts):
    world = facts.World.of(0)
    mixed = texts.Cell(0, "invisible_ink", texts.ANY, "shared", "10", "1")
    lines = {line["facts"]: line for line in texts.scored(mixed, [fact.told(0) for fact in world.shared])}
    assert {name: line["right"] for name, line in lines.items()} == {"shared": 20, "private": 0, "other world": 0}
    assert len(lines["shared"]["texts"]) == 20
    private = texts.Cell(0, "invisible_ink", texts.EACH, "private", "10", "1")
    (line,) = texts.scored(private, [world.private[0].told(1), "nothing"])
    assert (line["facts"], line["release"], line["answered"], line["right"]) == ("private", "private", 1, 1)


def test_a_unit_has_the_label_of_a_creature_that_it_tells_about(facts, corpora, tmp_path):
    world = facts.World.of(0)
    corpus = corpora.store(world, tuple(fact.creature for fact in world.private), tmp_path)
    told = {label: text for text, label in corpus.labelled() if label != "none"}
    assert told.keys() == {fact.creature for fact in world.private}
    assert all(label in text.lower() for label, text in told.items())


@pytest.fixture(scope="module")
def records(bench):
    return bench["invented_facts.released_records"]


def test_a_record_says_all_relations_and_one_of_them_is_asked_for(facts, records):
    world = facts.World.of(0)
    cell = records.Cell(records.RECORDS, "invisible_ink", "shared", "10")
    guess = {relation: values[0] for relation, (_, values) in facts.RELATIONS.items()}
    right = [(fact.creature, json.dumps(guess | {fact.relation: fact.value})) for fact in world.shared]
    line = records.scored(cell, right)
    assert (line["answered"], line["right"], line["pieces"]) == (20, 20, 60)
    assert line["texts"] == [list(pair) for pair in right]
    guessed = records.scored(cell, [(fact.creature, json.dumps(guess)) for fact in world.shared])
    assert guessed["answered"] == 20
    assert guessed["right"] == sum(fact.value == guess[fact.relation] for fact in world.shared)


def test_a_summary_answers_by_what_its_sentences_say(facts, records):
    (fact, other, *_) = facts.World.of(0).shared
    cell = records.Cell(records.SUMMARIES, "invisible_ink", "shared", "10")
    line = records.scored(cell, [(fact.creature, fact.told(0)), (other.creature, "It is an animal.")])
    assert (line["answered"], line["right"], line["pieces"]) == (1, 1, 2)


def test_each_creature_is_told_about_by_as_many_units_as_a_summary_reads(facts, corpora, tmp_path):
    world = facts.World.of(0)
    labels = tuple(fact.creature for fact in world.shared)
    corpus = corpora.store(corpora.few(world, labels, 16), labels, tmp_path)
    told = Counter(label for _, label in corpus.labelled())
    # A unit that tells of two has the label of the first by name, which leaves the last creature fewer.
    assert {told[label] for label in sorted(labels)[:-1]} == {16}
    assert 0 < told[max(labels)] <= 16
    private = corpora.few(world, tuple(fact.creature for fact in world.private), 16)
    assert len(private.texts) == facts.PRIVATE


def test_the_table_leaves_out_what_was_not_asked(facts, texts):
    lines = [facts.line_of(trial, "s", epsilon, "shared", [(facts.World.of(0).shared[0], "no")], 4)
             for trial in range(2) for epsilon in ("10", "-", "4")]  # fmt: skip
    rows = list(facts.table(lines))[2:]
    assert rows == [f"| s | {epsilon} | 0.00 (0.00 to 0.66) | 1.00 |  |  | 4 |" for epsilon in ("-", "4", "10")]


def test_an_adapter_learns_from_worlds_that_no_release_is_of(facts, corpora, systems, tmp_path):
    others = [facts.World.of(number) for number in systems.PUBLIC_WORLDS]
    path = corpora.training_file(others, tmp_path / "worlds.jsonl", systems.UNITS_OF_AN_EXAMPLE)
    data = read_training_data(path)
    assert len(data.groups) == len(systems.PUBLIC_WORLDS) * facts.SHARED
    own = facts.World.of(0)
    words = set().union(*map(roots, path.read_text().splitlines()))
    assert not words & {next(iter(roots(fact.creature))) for fact in (*own.shared, *own.private)}
    first = json.loads(path.read_text().splitlines()[0])
    assert first["summary"] == others[0].shared[0].told(0)
    assert 0 < len(first["documents"]) <= systems.UNITS_OF_AN_EXAMPLE
    assert all(first["about"] in text.lower() for text in first["documents"])


def test_a_name_says_the_mechanism_and_its_references(systems):
    assert systems.system("private_icl with 32 references") == systems.System("private_icl", {"references": 32})
    assert systems.system("private_icl") == systems.System("private_icl", {})
    assert systems.system("keyphrase_seeding").changes["phrase_words"] == 4


def test_releases_are_selected_by_mechanism_and_by_epsilon(systems, texts):
    def names(systems_asked: list[str], epsilons: list[str]) -> set[tuple[str, str]]:
        options = argparse.Namespace(systems=systems_asked, epsilons=epsilons)
        return {(cell.system, cell.epsilon) for cell in texts.cells(1) if systems.selected(options, cell)}

    assert names(["private_icl"], ["100"]) == {("private_icl", "100"), ("private_icl with 32 references", "100")}
    assert names([], []) == {(cell.system, cell.epsilon) for cell in texts.cells(1)}


def test_every_system_that_charges_is_asked(systems, texts, records):
    """Insights, counts and keyphrases by themselves are asked in `released_values`."""
    asked = {systems.system(cell.system).mechanism for cell in (*texts.cells(1), *records.cells())}
    assert {name for name, own in SYSTEMS.items() if own.charges} - asked == {"urania", "question_histogram"}


def test_releases_differ(texts, records):
    for cells in (list(texts.cells(2)), list(records.cells())):
        keys = [(cell.trial, cell.shown, cell.facts, cell.epsilon) for cell in cells]
        assert len(set(keys)) == len(keys)


def test_the_committed_releases_are_those_that_the_scripts_make(texts, records):
    """Some may be missing, and are made by the next run; none is of settings that the scripts do not have."""
    made = {(line["system"], line["release"], line["epsilon"]) for line in texts.read_lines_if_there(texts.OUT)}
    assert made <= {(cell.shown, cell.facts, cell.epsilon) for cell in texts.cells(1)}
    made = {(line["system"], line["facts"], line["epsilon"]) for line in records.read_lines_if_there(records.OUT)}
    assert made <= {(cell.shown, cell.facts, cell.epsilon) for cell in records.cells()}


@pytest.fixture
def place(systems, tmp_path):
    made = systems.Workplace("tiny", "cpu", "float32", tmp_path)
    made.engine = Engine(tiny_model(stops=False))
    return made


def test_a_summary_without_data_reads_no_unit_of_its_creatures(facts, records, place, monkeypatch):
    monkeypatch.setattr(records, "SUMMARY_TOKENS", 2)
    cell = records.Cell(records.SUMMARIES, "token_level_summary", "shared", "100", "0.3", told=False)
    made = records.release(place, cell)
    assert [creature for creature, _ in made] == [fact.creature for fact in facts.World.of(0).shared]
    (corpus,) = place.corpora.values()
    told = {label for _, label in corpus.labelled()}
    assert told == {fact.creature for fact in facts.World.of(0).private}
    assert records.scored(cell, made)["system"] == "summaries, token_level_summary, no data, temperature 0.3"
