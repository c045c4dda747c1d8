"""The levels above clusters: who is whose parent, in which order, with which sizes and keywords."""

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError

from tasks.generation.decoding.structured_output import Record
from tasks.insights.hierarchy import Cluster, hierarchy
from tasks.insights.hierarchy_parameters import HierarchySettings
from tasks.values.insight import Insight, Topic
from tests.unit.tasks.insights.scribes import Scribe, last_line, of_names

FIELDS = ("food", "money", "sport", "law")


def embed(texts: Sequence[str]) -> NDArray[np.float32]:
    """A text is which of the fields it speaks of, and how long it is."""
    rows = np.array([[field in text.lower() for field in FIELDS] + [len(text) / 1e4] for text in texts], np.float32)
    rows = rows.reshape(-1, len(FIELDS) + 1)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


def cluster(name: str, size: int | None, *keywords: str) -> Cluster:
    return Topic(name, f"About {name}."), keywords or (name,), size


def many(each: int = 3) -> list[Cluster]:
    """Clusters of every field, in turn, the later the larger."""
    return [cluster(f"{field} {n}", 10 * n + i, field) for n in range(each) for i, field in enumerate(FIELDS)]


def settings(levels: int = 2, branching: int = 3) -> HierarchySettings:
    return HierarchySettings(levels=levels, branching=branching)


def children(insights: Sequence[Insight], parent: int | None) -> list[Insight]:
    return [insight for insight in insights if insight.parent == parent]


def check_form(insights: Sequence[Insight]) -> None:
    """What every hierarchy keeps to."""
    assert [insight.number for insight in insights] == list(range(1, len(insights) + 1))
    by_number = {insight.number: insight for insight in insights}
    for insight in insights:
        if insight.parent is not None:
            assert insight.parent < insight.number
            assert by_number[insight.parent].level == insight.level + 1
        if insight.level:
            below = children(insights, insight.number)
            assert below
            sizes = [child.size for child in below]
            assert insight.size == (None if None in sizes else sum(size or 0 for size in sizes))
    assert all(first.level >= second.level for first, second in pairwise(insights))


def test_clusters_of_one_field_are_under_one_topic() -> None:
    found = hierarchy(many(), embed, Scribe(of_names), settings())
    check_form(found)
    top = children(found, None)
    assert len(top) == len(FIELDS)
    for group in top:
        (field,) = {child.keywords[0] for child in children(found, group.number)}
        assert group.keywords == (field,)
        assert group.topic.name == f"Realm of {field} 2"  # its largest cluster is told first
    # 10 n + i: the last field has the largest clusters
    assert [group.keywords[0] for group in top] == list(FIELDS[::-1])
    assert [child.topic.name for child in children(found, top[0].number)] == ["law 2", "law 1", "law 0"]


def test_every_cluster_is_there_once_as_it_was() -> None:
    clusters = many(4)
    found = [insight for insight in hierarchy(clusters, embed, Scribe(of_names), settings()) if insight.level == 0]
    assert len(found) == len(clusters)
    assert {(i.topic, i.keywords, i.size) for i in found} == {(t, tuple(words), size) for t, words, size in clusters}


def test_it_is_a_function_of_what_it_is_given() -> None:
    clusters = many()
    once, again = (hierarchy(clusters, embed, Scribe(of_names), settings()) for _ in range(2))
    assert once == again


def test_levels_are_made_until_one_would_hold_everything() -> None:
    found = hierarchy(many(3), embed, Scribe(of_names), settings(levels=6, branching=2))
    check_form(found)
    assert found[0].level == max(insight.level for insight in found) < 5
    assert len(children(found, None)) > 1


@pytest.mark.parametrize(("count", "expected"), [(0, 0), (1, 1), (3, 3)])
def test_few_clusters_have_no_groups_and_nothing_is_asked(count: int, expected: int) -> None:
    scribe = Scribe(of_names)
    found = hierarchy(many()[:count], embed, scribe, settings())
    assert [(insight.level, insight.parent) for insight in found] == [(0, None)] * expected
    assert scribe.asked == []


def test_one_level_is_the_clusters_by_size_and_name() -> None:
    clusters = [cluster("b", 1), cluster("a", 1), cluster("c", -4), cluster("d", 9), cluster("e", None)]
    found = hierarchy(clusters, embed, Scribe(of_names), settings(levels=1))
    assert [insight.topic.name for insight in found] == ["d", "a", "b", "c", "e"]


def test_clusters_that_are_all_alike_have_no_group_above_them() -> None:
    found = hierarchy([cluster("food", n) for n in range(12)], embed, Scribe(of_names), settings())
    assert {insight.level for insight in found} == {0}
    assert [insight.size for insight in found] == list(range(11, -1, -1))


def same_name(prompt: str) -> Record:
    first = last_line(prompt, "Topics:")[0]
    return {"name": "Food and others", "description": f"These texts are about {first}."}


def test_groups_that_get_one_name_are_one() -> None:
    """Here all of them: a group of everything says nothing."""
    assert {insight.level for insight in hierarchy(many(), embed, Scribe(same_name), settings())} == {0}


def test_names_that_differ_in_case_and_signs_alone_are_one() -> None:
    def answer(prompt: str) -> Record:
        first = last_line(prompt, "Topics:")[0]
        field = first.split()[0].lower()
        name = {"law": "Money!", "money": "money"}.get(field, f"All {field}")
        return {"name": name, "description": f"These texts are about {first}."}

    found = hierarchy(many(), embed, Scribe(answer), settings())
    check_form(found)
    names = [re.sub(r"\W", "", group.topic.name).lower() for group in children(found, None)]
    assert len(set(names)) == len(names)


def test_a_name_that_nothing_goes_to_is_dropped() -> None:
    """Here the row of one name is far from everything, so its clusters go elsewhere."""

    def astray(texts: Sequence[str]) -> NDArray[np.float32]:
        rows = np.hstack([embed(texts), np.zeros((len(texts), 1), np.float32)])
        for row, text in zip(rows, texts, strict=True):
            if text.startswith("Realm of sport"):
                row[:] = [0, 0, 0, 0, 0, -1]
            elif text.startswith("Realm"):
                row[:] += [0, 0, 0.1, 0, 0, 0]
        return rows

    found = hierarchy(many(), astray, Scribe(of_names), settings())
    check_form(found)
    assert sum(insight.level == 0 for insight in found) == 12
    assert len(children(found, None)) == len(FIELDS) - 1


def test_useless_answers_leave_a_plain_name() -> None:
    found = hierarchy(many(), embed, Scribe(lambda prompt: {}), settings())
    check_form(found)
    top = children(found, None)
    assert top[0].topic.name == "law 2 and others"
    assert top[0].topic.description == "Topics: law 2; law 1; law 0."
    assert all(group.topic.plain for group in top)  # type: ignore[attr-defined]


def test_keywords_count_by_noisy_size_and_keep_their_order_where_they_tie() -> None:
    clusters = [
        *(cluster(f"food {n}", 100 - n, *words) for n, words in enumerate([("a", "b"), ("b", "c"), ("c", "a")])),
        cluster("law 1", 5, "x", "y", "x"),
        cluster("law 2", -7, "y", "z"),
        cluster("law 3", 5, "w"),
    ]
    found = hierarchy(clusters, embed, Scribe(of_names), settings(branching=3))
    food, law = children(found, None)
    assert food.keywords == ("b", "a")
    assert law.keywords == ("y", "x", "w")  # once in a node is once, and a noisy size below 1 counts as 1
    assert (food.size, law.size) == (297, 3)


def test_a_size_that_was_not_measured_makes_none_above_it() -> None:
    clusters = [*many(), cluster("law 9", None, "law")]
    found = hierarchy(clusters, embed, Scribe(of_names), settings())
    check_form(found)
    assert [group.size for group in children(found, None)].count(None) == 1


@pytest.mark.parametrize("bad", [{"levels": 0}, {"levels": 7}, {"branching": 1}, {"depth": 2}])
def test_settings_have_limits(bad: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        HierarchySettings.model_validate(bad)
