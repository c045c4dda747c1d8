"""The runs of controls: what they compare, and what their tables show of planted results."""

from collections import Counter
from types import ModuleType
from typing import Any

import numpy as np

from tasks.evaluation.in_context.demonstrations import Example
from tasks.mechanisms.vectors.fixed_point import GridPoints
from tasks.systems.private_evolution.voting import BlockVotes

SCRIPTS = (
    "external_models.systems",
    "in_context.accuracy",
    "records",
    "summaries.controls",
    "summaries.data",
    "utility.next_tokens",
)


def by_letters(texts: Any) -> Any:
    """Points of texts by the letters that they have, of length 1."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    counts = np.array([[text.count(each) for each in letters] for text in texts], np.float32).reshape(-1, len(letters))
    return counts / np.maximum(1, np.linalg.norm(counts, axis=1, keepdims=True))


def test_a_summary_of_its_product_is_preferred_and_one_of_none_is_not(bench: dict[str, ModuleType]) -> None:
    product = bench["summaries.data"].Product
    tested = [
        product("K", "home", (), ("the kettle boils fast", "a fast kettle")),
        product("L", "home", (), ("the lamp is dim", "a dim lamp")),
        product("S", "cloth", (), ("the shoe fits", "a good shoe")),
        product("T", "cloth", (), ("the tie is red", "a red tie")),
    ]
    judge = bench["summaries.controls"].Judge(tested, by_letters)
    people = {each.id: each.summaries for each in tested}
    own = judge.line("a kettle that boils fast", "K", people)
    assert own["rouge_l"]["own"] > own["rouge_l"]["others"]
    assert own["rouge_l"]["preference"] == own["closeness"]["preference"] == 1
    nothing = judge.line("xyz", "K", people)
    assert nothing["rouge_l"] == {"own": 0.0, "others": 0.0, "preference": 0.5}
    assert len(list(judge.of_people())) == 8


def test_the_table_of_summaries_has_a_line_for_each_epsilon_with_intervals_over_products(
    bench: dict[str, ModuleType],
) -> None:
    lines = [
        {"system": system, "epsilon": epsilon, "trial": trial, "group": group}
        | {"rouge_l": {"own": own, "others": 0.1, "preference": 1.0}, "closeness": {"preference": own * 4}}
        for system, epsilon, own in (("people", None, 0.25), ("one_shot", "2", 0.1), ("no data", "2", 0.1))
        for trial in range(3)
        for group in ("K", "L", "S")
    ]
    rows = list(bench["summaries.controls"].table(lines))[2:]
    assert [row.split(" | ")[:2] for row in rows] == [
        ["| people's own summaries", "-"],
        ["| one-shot, a new adapter, **no data**", "2"],
        ["| one-shot, ours", "2"],
    ]
    assert rows[0].endswith("| 0.250 | 0.100 | 0.150 [0.150, 0.150] | 1.00 [1.00, 1.00] |")


def test_phrases_of_a_label_are_those_nearest_to_its_name(bench: dict[str, ModuleType]) -> None:
    module = bench["external_models.systems"]
    label = module.PUBLIC_TOPICS[7]
    found = module.phrases_named(by_letters, [label], 40, trial=0)
    assert [name for _, name in found] == [label] * 40
    phrases = {phrase for text, _ in found for phrase in text.split(", ")}
    assert label in phrases
    assert len(phrases) == module.NEAREST
    assert all(len(set(text.split(", "))) == module.PHRASES_OF_A_TEXT for text, _ in found)
    assert found != module.phrases_named(by_letters, [label], 40, trial=1)


def test_shuffled_labels_leave_texts_and_shares_as_they_were(bench: dict[str, ModuleType]) -> None:
    examples = [Example(f"text {number}", "ab"[number % 2]) for number in range(100)]
    found = bench["in_context.accuracy"].with_shuffled_labels(examples)
    assert [one.text for one in found] == [one.text for one in examples]
    assert Counter(one.label for one in found) == Counter(one.label for one in examples)
    assert 30 < sum(one.label == other.label for one, other in zip(found, examples, strict=True)) < 70


def test_votes_at_random_are_as_many_of_each_label_and_do_not_look(bench: dict[str, ModuleType]) -> None:
    """All units stand on the first candidate of their label; read, it gets every vote."""
    voters = BlockVotes(np.array([0] * 400 + [1] * 40), GridPoints.of(np.array([[1.0, 0.0]] * 440, np.float32)))
    candidates = [np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)] * 2
    assert voters.counts(candidates) == [400, 0, 40, 0]
    with bench["external_models.systems"].votes_at_random(3):
        first, second, third, fourth = voters.counts(candidates)
    assert (first + second, third + fourth) == (400, 40)
    assert 140 < second < 260
    assert voters.counts(candidates) == [400, 0, 40, 0]


def test_the_content_of_records_is_what_films_have_too(bench: dict[str, ModuleType]) -> None:
    films = [{"title": "A", "year": 1950, "genres": ["Drama", "Noir"], "cast": ["Ann Ay", "Bob Be"]}]
    of_film = '{"title": "a", "year": 1980, "genres": ["drama", "x"], "cast": ["Ann Ay"]}'
    of_none = '{"title": "B", "year": 1970, "genres": [], "cast": ["Zed"]}'
    records = bench["records"]
    found = records.content([{"text": of_film}, {"text": of_none}, {"text": "no record"}], films)
    assert found == [
        {"genres": 0.5, "cast": 1.0, "title": 1.0, "year": 1.0},
        {"genres": 0.0, "cast": 0.0, "title": 0.0, "year": 0.0},
    ]
    control = {"cell": {"mechanism": "public_only", "epsilon": None}, "content": [found[1]] * 20}
    release = {"cell": {"mechanism": "invisible_ink", "epsilon": "10"}, "content": [found[0]] * 20}
    rows = list(records.content_table([release, control]))
    assert rows[2] == "| genres that a film has | `invisible_ink` | 10 | 20 | 0.50 | 0.00, 20 | 0.50 [0.50, 0.50] |"
    assert len(rows) == 2 + len(records.CONTENT)
