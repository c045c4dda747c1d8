"""The levels above clusters: who is whose parent, in which order, with which sizes, keywords and support."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError

from tasks.systems.insights.hierarchy import Keyword, Node, cluster_node, covering, hierarchy, numbered_nodes
from tasks.systems.insights.parameters import HierarchySettings
from tasks.values.results import MIXED, UNNAMED, Insight, SupportRule, Topic

FIELDS = ("food", "money", "sport", "law")


def embed(texts: Sequence[str]) -> NDArray[np.float32]:
    """A text is which of the fields it speaks of, and how long it is."""
    rows = np.array([[field in text.lower() for field in FIELDS] + [len(text) / 1e4] for text in texts], np.float32)
    rows = rows.reshape(-1, len(FIELDS) + 1)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


def cluster(name: str, size: int | None, *keywords: str | Keyword, number: int = 0) -> Node:
    words = [Keyword(word) if isinstance(word, str) else word for word in keywords or (name,)]
    return cluster_node(number, Topic(name, f"About {name}."), words, size)


def many(each: int = 3) -> list[Node]:
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
            assert insight.clusters == sum(child.clusters for child in below)
    assert all(first.level >= second.level for first, second in pairwise(insights))
    names = [(insight.level, insight.topic.name) for insight in insights]
    assert len(set(names)) == len(names)


def test_clusters_of_one_field_are_under_one_topic() -> None:
    found = hierarchy(many(), embed, settings())
    check_form(found)
    top = children(found, None)
    assert [group.topic.name for group in top] == list(FIELDS[::-1])  # 10 n + i: the last field is the largest
    for group in top:
        (field,) = {child.keywords[0] for child in children(found, group.number)}
        assert group.keywords == (field,)
    assert top[0].topic.description == "Topics: law 2; law 1; law 0."
    assert [child.topic.name for child in children(found, top[0].number)] == ["law 2", "law 1", "law 0"]


def test_every_cluster_is_there_once_as_it_was() -> None:
    clusters = many(4)
    found = [insight for insight in hierarchy(clusters, embed, settings()) if insight.level == 0]
    assert len(found) == len(clusters)
    assert {(i.topic, i.keywords, i.size) for i in found} == {
        (node.topic, tuple(keyword.word for keyword in node.keywords), node.size) for node in clusters
    }


def test_it_is_a_function_of_what_it_is_given() -> None:
    once, again = (hierarchy(many(), embed, settings()) for _ in range(2))
    assert once == again


def test_levels_are_made_until_one_would_hold_everything() -> None:
    found = hierarchy(many(3), embed, settings(levels=6, branching=2))
    check_form(found)
    assert found[0].level == max(insight.level for insight in found) < 5
    assert len(children(found, None)) > 1


@pytest.mark.parametrize(("count", "expected"), [(0, 0), (1, 1), (3, 3)])
def test_few_clusters_have_no_groups(count: int, expected: int) -> None:
    found = hierarchy(many()[:count], embed, settings())
    assert [(insight.level, insight.parent) for insight in found] == [(0, None)] * expected


def test_one_level_is_the_clusters_by_size_and_name() -> None:
    clusters = [cluster("b", 1), cluster("a", 1), cluster("c", -4), cluster("d", 9), cluster("e", None)]
    found = hierarchy(clusters, embed, settings(levels=1))
    assert [insight.topic.name for insight in found] == ["d", "a", "b", "c", "e"]


# --- equal names -----------------------------------------------------------------------------------------------


def counted(word: str, units: int) -> Keyword:
    return Keyword(word, units)


def test_clusters_with_the_words_of_one_name_are_one_topic() -> None:
    first = cluster("Food!", 100, counted("food", 30), counted("oven", 25))
    second = cluster("food", 200, counted("food", 40), counted("salt", 50), number=1)
    rule = SupportRule(20, Fraction(1, 10))
    (both, node), = numbered_nodes([first, second], embed, settings(), rule)  # fmt: skip
    assert (both.topic.name, both.size, both.clusters, sorted(node.clusters)) == ("food", 300, 2, [0, 1])
    assert dict(zip(both.keywords, both.support or (), strict=True)) == {"food": 70, "salt": 50}  # oven: 25 of 300


def test_topics_without_a_name_are_one_and_in_no_group_with_others() -> None:
    nameless = [cluster(UNNAMED, 50 + n) for n in range(3)]
    nameless = [Node(node.topic, (), node.size, (n,)) for n, node in enumerate(nameless)]
    found = hierarchy([*many(), *nameless], embed, settings())
    check_form(found)
    (top,) = [group for group in children(found, None) if group.topic.name == UNNAMED]
    (below,) = children(found, top.number)
    assert (below.topic.name, below.size, below.clusters, below.keywords) == (UNNAMED, 153, 3, ())


# --- names of groups -------------------------------------------------------------------------------------------


def test_a_group_is_named_after_keywords_that_its_members_share() -> None:
    members = [
        cluster("a", 9, "film", "star"),
        cluster("b", 8, "film"),
        cluster("c", 7, "song", "star"),
        cluster("d", 6, "song"),
        cluster("e", 5, "tax"),
    ]
    words, covered = covering(members)
    assert words == ["film", "song"], "the larger of equals first, and no more than are needed"
    assert covered == {0, 1, 2, 3}, "nobody shares the tax"
    assert covering(members[:1]) == ([], frozenset())
    assert covering([]) == ([], frozenset())


def test_what_shares_no_keyword_with_its_group_is_mixed() -> None:
    odd = [cluster(f"{field} alone", 3, f"{field} {n} alone") for n, field in enumerate(FIELDS)]
    found = hierarchy([*many(), *odd], embed, settings(branching=4))
    check_form(found)
    (mixed,) = [group for group in children(found, None) if group.topic.name == MIXED]
    assert {child.topic.name for child in children(found, mixed.number)} == {f"{field} alone" for field in FIELDS}
    for group in children(found, None):
        for child in children(found, group.number):
            assert group is mixed or set(group.topic.name.split(", ")) & set(child.keywords)


def test_groups_that_share_nothing_are_left_out() -> None:
    clusters = [cluster(f"{field} {n}", 5, f"{field} {n}") for n in range(4) for field in FIELDS]
    assert {insight.level for insight in hierarchy(clusters, embed, settings())} == {0}


def test_the_support_of_a_group_is_the_sum_of_what_its_members_list() -> None:
    clusters = [
        cluster("food 1", 100, counted("food", 40), counted("oven", 20)),
        cluster("food 2", 90, counted("food", 30)),
        *(cluster(f"law {n}", 50, counted("law", 10 + n), counted(f"court {n}", 9)) for n in range(3)),
    ]
    found = hierarchy(clusters, embed, settings())
    food, law = sorted(children(found, None), key=lambda group: group.topic.name)
    assert (food.topic.name, food.keywords, food.support) == ("food", ("food", "oven"), (70, 20))
    assert (law.topic.name, law.keywords, law.support) == ("law", ("law", "court 0"), (33, 9))


def test_a_name_that_nothing_goes_to_is_dropped() -> None:
    """Here the row of one group's name is far from everything, so its clusters go elsewhere."""

    def astray(texts: Sequence[str]) -> NDArray[np.float32]:
        rows = np.hstack([embed(texts), np.zeros((len(texts), 1), np.float32)])
        for row, text in zip(rows, texts, strict=True):
            if text.startswith("sport:"):
                row[:] = [0, 0, 0, 0, 0, -1]
        return rows

    found = hierarchy(many(), astray, settings())
    check_form(found)
    assert sum(insight.level == 0 for insight in found) == 12


def test_keywords_count_by_noisy_size_where_units_were_not_counted() -> None:
    clusters = [
        *(
            cluster(f"food {n}", 100 - n, f"food {one}", f"food {two}")
            for n, (one, two) in enumerate(["ab", "bc", "ca"])
        ),
        cluster("law 1", 5, "law x", "law y", "law x"),
        cluster("law 2", -7, "law y", "law z"),
        cluster("law 3", 5, "law y"),
    ]
    found = hierarchy(clusters, embed, settings(branching=3))
    food, law = children(found, None)
    assert food.topic.name == "food b, food a"
    assert set(food.keywords) == {"food b", "food a"}
    assert law.keywords == ("law y", "law x", "law z")  # once in a node is once, and a size below 1 counts as 1
    assert (food.size, law.size) == (297, 3)
    assert law.support is None


def test_a_size_that_was_not_measured_makes_none_above_it() -> None:
    found = hierarchy([*many(), cluster("law 9", None, "law")], embed, settings())
    check_form(found)
    assert [group.size for group in children(found, None)].count(None) == 1


@pytest.mark.parametrize("bad", [{"levels": 0}, {"levels": 7}, {"branching": 1}, {"depth": 2}])
def test_settings_have_limits(bad: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        HierarchySettings.model_validate(bad)
