"""Clusters under wider topics: post-processing of what was released, by public models (PRIVACY §5).

After Urania, appendix H.1: names with their keywords are embedded and put into groups by k-means; the model names each
group from the names in it; names that are alike are one; every node goes to the nearest name; groups that nothing went
to are dropped, and each group that is left is named anew from what it holds. Then the same once more, a level higher.

A group's size is the sum of the noisy sizes below it. Its keywords are the most frequent below it, a node's keywords
counting as often as its noisy size says; ties keep the order in which they are met.
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
"""Everything that is asked for here: a `Writer` is made for it."""

ALIKE = 0.9
"""Two names are one from this cosine of their rows on."""
MOST_NAMES = 8
"""Names of a group that the model is told: those of its largest nodes."""
LONGEST_NAME = 80
"""Characters of one such name."""
STARTS = 8
"""Starts of k-means, of which the best is taken."""


@dataclass(frozen=True)
class Node:
    """A cluster or a group, before it has a number.

    Attributes:
        below: what it holds; nothing in a cluster.
    """

    topic: Topic
    keywords: tuple[str, ...]
    size: int | None
    below: tuple["Node", ...] = ()

    @property
    def weight(self) -> int:
        """How often its keywords count: its noisy size; once where it was not measured; never below that."""
        return 1 if self.size is None else max(1, self.size)


def hierarchy(clusters: Sequence[Cluster], embed: Embed, write: Write, settings: HierarchySettings) -> list[Insight]:
    """Clusters and the groups above them, parents before their children, numbered from 1.

    The highest level comes first, then level by level downwards; within a level the children of an earlier parent come
    first, among siblings the larger and then those whose name comes first.

    Fewer levels are made than `settings` asks for where one would say nothing: a group of everything, or a group for
    each node. So no more clusters than `branching`, or clusters that all have one name, have no group; no cluster
    makes no insight, and one cluster makes one.

    Args:
        clusters: in their public order.
    """
    level = [Node(topic, tuple(keywords), size) for topic, keywords, size in clusters]
    depth = 0
    while depth + 1 < settings.levels and (above := _grouped(level, embed, write, settings.branching)):
        level, depth = above, depth + 1
    return list(_numbered(level, depth))


def _grouped(nodes: Sequence[Node], embed: Embed, write: Write, branching: int) -> list[Node]:
    """The level above `nodes`; empty where it would say nothing."""
    from tasks.analysis.clustering.kmeans import nearest_centre

    count = -(-len(nodes) // branching)
    if count < 2:
        return []
    points = _points(embed, nodes)
    named = _different(_groups(write, _held(nodes, nearest_centre(points, _centres(points, count)))), embed)
    groups = _merged(_groups(write, _held(nodes, nearest_centre(points, _points(embed, named)))))
    return groups if 1 < len(groups) < len(nodes) else []


def _points(embed: Embed, nodes: Sequence[Node]) -> NDArray[np.float64]:
    """A row for each node, of its name and keywords: descriptions are too much alike in what they say besides."""
    return np.asarray(
        embed([": ".join(filter(None, (n.topic.name, ", ".join(n.keywords)))) for n in nodes]), np.float64
    )


def _centres(points: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """The best centres of several starts, always the same ones: what is read here is public."""
    from tasks.analysis.clustering.kmeans import k_means, nearest_centre

    found = [k_means(points, count, start) for start in range(STARTS)]
    costs = [float(((points - centres[nearest_centre(points, centres)]) ** 2).sum()) for centres in found]
    return found[costs.index(min(costs))]


def _held(nodes: Sequence[Node], places: NDArray[np.int64]) -> list[tuple[Node, ...]]:
    """The nodes at each place that has some, the largest nodes of a place first, the largest places first."""
    found = [
        sorted((node for node, its in zip(nodes, places, strict=True) if its == place), key=_order)
        for place in sorted(set(places.tolist()))
    ]
    return sorted(map(tuple, found), key=lambda members: (-sum(node.weight for node in members), _order(members[0])))


def _groups(write: Write, held: Sequence[Sequence[Node]]) -> list[Node]:
    """A node above each of these lists of nodes, named by the model."""
    return [_group(topic, members) for topic, members in zip(_named(write, held), held, strict=True)]


def _different(groups: Sequence[Node], embed: Embed) -> list[Node]:
    """The groups without those whose name is like that of an earlier one, by its words or by its row."""
    names = [group.topic.name for group in groups]
    rows = np.asarray(embed(names), np.float64)
    kept: list[int] = []
    for number, name in enumerate(names):
        if not any(plain_text(names[k]) == plain_text(name) or rows[k] @ rows[number] >= ALIKE for k in kept):
            kept.append(number)
    return [groups[number] for number in kept]


def _named(write: Write, groups: Sequence[Sequence[Node]]) -> list[Topic]:
    """A topic for each group, from the names in it; a group of one node is called like it."""
    told = [mentioned_keywords([node.topic.name for node in group], MOST_NAMES, LONGEST_NAME) for group in groups]
    several = [number for number, group in enumerate(groups) if len(group) > 1]
    made = topics(write, [told[number] for number in several], lambda _, names: of_names(names), _plain)
    written = dict(zip(several, made, strict=True))
    return [written.get(number) or group[0].topic for number, group in enumerate(groups)]


def _plain(names: Sequence[str]) -> Topic:
    """The plain form: the name of the largest node, and a sentence that lists all names."""
    if not names:
        return Described("Without a name", "Nothing in this group has a name.", plain=True)
    return Described(first_words(f"{names[0]} and others", MOST_WORDS), f"Topics: {'; '.join(names)}.", plain=True)


def _group(topic: Topic, members: Sequence[Node]) -> Node:
    sizes = [node.size for node in members if node.size is not None]
    size = sum(sizes) if len(sizes) == len(members) else None
    return Node(topic, _frequent(members), size, tuple(members))


def _frequent(members: Sequence[Node]) -> tuple[str, ...]:
    """As many keywords as the member with most of them has."""
    counted: dict[str, int] = {}
    for node in members:
        for keyword in dict.fromkeys(node.keywords):
            counted[keyword] = counted.get(keyword, 0) + node.weight
    most = max(len(node.keywords) for node in members)
    return tuple(sorted(counted, key=lambda keyword: -counted[keyword])[:most])


def _merged(groups: Sequence[Node]) -> list[Node]:
    """The groups; those that were given one name in the end are one."""
    found: dict[str, Node] = {}
    for group in groups:
        name = plain_text(group.topic.name)
        known = found.get(name)
        found[name] = group if known is None else _group(known.topic, (*known.below, *group.below))
    return list(found.values())


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
