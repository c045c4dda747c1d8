"""Hierarchy of wider topics above the clusters: post-processing of released values by public models (PRIVACY §5).

After Urania, appendix H.1: names with their keywords are embedded and put into groups by k-means; the model names each
group from the names in it; similar names are merged; every node goes to the nearest name; empty groups are
dropped, and each remaining group is named again from its members. The next level repeats this.

A group's size is the sum of the noisy sizes below it. Its keywords are the most frequent below it, weighted by
the noisy sizes of the nodes; ties keep the order of first occurrence.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.generation.decoding.structured_output import Schema, Write
from tasks.insights.cluster_descriptions import MOST_WORDS, Described, mentioned_keywords, topics
from tasks.insights.cluster_descriptions import SCHEMAS as DESCRIBING
from tasks.insights.hierarchy_parameters import HierarchySettings
from tasks.insights.prompts import of_names
from tasks.text.output_cleaning import first_words, plain_text
from tasks.values.insight import Insight, Topic

Embed = Callable[[Sequence[str]], NDArray[np.float32]]
"""Texts to rows, float32 [n, d], of length 1."""
Cluster = tuple[Topic, Sequence[str], int | None]
"""A topic, its keywords, the most frequent first, and its noisy size if it was measured."""

SCHEMAS: tuple[Schema, ...] = DESCRIBING
"""All schemas of this module, for which a `Writer` is prepared."""

ALIKE = 0.9
"""Two names are merged from this cosine of their rows on."""
MOST_NAMES = 8
"""Most names of a group in the prompt: those of its largest nodes."""
LONGEST_NAME = 80
"""Most characters of one such name."""
STARTS = 8
"""Starts of k-means, of which the best is used."""


@dataclass(frozen=True)
class Node:
    """A cluster or a group, before it has a number.

    Attributes:
        below: its children; empty for a cluster.
    """

    topic: Topic
    keywords: tuple[str, ...]
    size: int | None
    below: tuple["Node", ...] = ()

    @property
    def weight(self) -> int:
        """Weight of its keywords: its noisy size, at least 1; 1 where it was not measured."""
        return 1 if self.size is None else max(1, self.size)


def hierarchy(clusters: Sequence[Cluster], embed: Embed, write: Write, settings: HierarchySettings) -> list[Insight]:
    """Build the groups above clusters and number all nodes, parents before their children, numbered from 1.

    The highest level comes first, then level by level downwards; within a level the children of an earlier parent come
    first, among siblings the larger and then those whose name comes first.

    A level without information is left out: one group of all nodes, or a group for each node. So at most `branching`
    clusters, or clusters that all have one name, get no group; no cluster gives no insight, and one cluster gives one.

    Args:
        clusters: in their public order.
    """
    level = [Node(topic, tuple(keywords), size) for topic, keywords, size in clusters]
    depth = 0
    while depth + 1 < settings.levels and (above := _grouped(level, embed, write, settings.branching)):
        level, depth = above, depth + 1
    return list(_numbered(level, depth))


def _grouped(nodes: Sequence[Node], embed: Embed, write: Write, branching: int) -> list[Node]:
    """Return the level above `nodes`; empty where it would have no information."""
    from tasks.analysis.clustering.kmeans import nearest_centre

    count = -(-len(nodes) // branching)
    if count < 2:
        return []
    points = _points(embed, nodes)
    named = _different(_groups(write, _by_place(nodes, nearest_centre(points, _centres(points, count)))), embed)
    groups = _merged(_groups(write, _by_place(nodes, nearest_centre(points, _points(embed, named)))))
    return groups if 1 < len(groups) < len(nodes) else []


def _points(embed: Embed, nodes: Sequence[Node]) -> NDArray[np.float64]:
    """Embed each node by its name and keywords: descriptions have too much text in common."""
    return np.asarray(
        embed([": ".join(filter(None, (n.topic.name, ", ".join(n.keywords)))) for n in nodes]), np.float64
    )


def _centres(points: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return the best centres of several fixed starts: all inputs are public."""
    from tasks.analysis.clustering.kmeans import k_means, nearest_centre

    solutions = [k_means(points, count, start) for start in range(STARTS)]
    costs = [float(((points - centres[nearest_centre(points, centres)]) ** 2).sum()) for centres in solutions]
    return solutions[costs.index(min(costs))]


def _by_place(nodes: Sequence[Node], places: NDArray[np.int64]) -> list[tuple[Node, ...]]:
    """Group nodes by place, without empty places; the largest nodes first, and the largest places first."""
    members_by_place = [
        sorted((node for node, place_of_node in zip(nodes, places, strict=True) if place_of_node == place), key=_order)
        for place in sorted(set(places.tolist()))
    ]
    return sorted(
        map(tuple, members_by_place), key=lambda members: (-sum(node.weight for node in members), _order(members[0]))
    )


def _groups(write: Write, held: Sequence[Sequence[Node]]) -> list[Node]:
    """Return a node above each list of nodes, named by the model."""
    return [_group(topic, members) for topic, members in zip(_named(write, held), held, strict=True)]


def _different(groups: Sequence[Node], embed: Embed) -> list[Node]:
    """Drop groups whose name is similar to that of an earlier one, by its words or by its row."""
    names = [group.topic.name for group in groups]
    rows = np.asarray(embed(names), np.float64)
    distinct: list[int] = []
    for number, name in enumerate(names):
        if not any(plain_text(names[k]) == plain_text(name) or rows[k] @ rows[number] >= ALIKE for k in distinct):
            distinct.append(number)
    return [groups[number] for number in distinct]


def _named(write: Write, groups: Sequence[Sequence[Node]]) -> list[Topic]:
    """Write a topic for each group from the names in it; a group of one node has that node's topic."""
    prompt_names = [
        mentioned_keywords([node.topic.name for node in group], MOST_NAMES, LONGEST_NAME) for group in groups
    ]
    several = [number for number, group in enumerate(groups) if len(group) > 1]
    written_topics = topics(
        write, [prompt_names[number] for number in several], lambda _, names: of_names(names), _plain
    )
    topic_by_number = dict(zip(several, written_topics, strict=True))
    return [topic_by_number.get(number) or group[0].topic for number, group in enumerate(groups)]


def _plain(names: Sequence[str]) -> Topic:
    """Return the plain form: the name of the largest node, and a sentence that lists all names."""
    if not names:
        return Described("Without a name", "Nothing in this group has a name.", plain=True)
    return Described(first_words(f"{names[0]} and others", MOST_WORDS), f"Topics: {'; '.join(names)}.", plain=True)


def _group(topic: Topic, members: Sequence[Node]) -> Node:
    sizes = [node.size for node in members if node.size is not None]
    size = sum(sizes) if len(sizes) == len(members) else None
    return Node(topic, _frequent(members), size, tuple(members))


def _frequent(members: Sequence[Node]) -> tuple[str, ...]:
    """Return the most frequent keywords, as many as the member with most of them has."""
    counted: dict[str, int] = {}
    for node in members:
        for keyword in dict.fromkeys(node.keywords):
            counted[keyword] = counted.get(keyword, 0) + node.weight
    most = max(len(node.keywords) for node in members)
    return tuple(sorted(counted, key=lambda keyword: -counted[keyword])[:most])


def _merged(groups: Sequence[Node]) -> list[Node]:
    """Merge groups that have the same name."""
    group_by_name: dict[str, Node] = {}
    for group in groups:
        name = plain_text(group.topic.name)
        earlier = group_by_name.get(name)
        group_by_name[name] = group if earlier is None else _group(earlier.topic, (*earlier.below, *group.below))
    return list(group_by_name.values())


def _order(node: Node) -> tuple[float, str, tuple[str, ...]]:
    return (np.inf if node.size is None else -node.size), node.topic.name, node.keywords


def _numbered(top: Sequence[Node], depth: int) -> Iterable[Insight]:
    level: list[tuple[int | None, Node]] = [(None, node) for node in sorted(top, key=_order)]
    number = 0
    while level:
        below: list[tuple[int | None, Node]] = []
        for parent, node in level:
            number += 1
            yield Insight(number, parent, depth, node.topic, node.keywords, node.size)
            below += [(number, child) for child in sorted(node.below, key=_order)]
        level, depth = below, depth - 1
