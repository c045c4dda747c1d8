"""Hierarchy of wider topics above the clusters: post-processing of released values by public models (PRIVACY §5).

After Urania, appendix H.1: names with their keywords are embedded and put into groups by k-means; similar names are
merged, every node goes to the nearest name, and empty groups are dropped. The next level repeats this. Unlike there, no
model names a group, because a name that it invents has no support. A group is named after at most three keywords of its
members: each of several members, and every member has one of them. Nodes that share no keyword with their group go into
one that is called `Mixed`.

Equal names within a level are one node. A topic without a name is in no group with others. A group's size is the sum of
the noisy sizes below it, and the support of a keyword the sum of its support below, where a member that does not list
the keyword adds nothing: it may have less support there than it needs. So sizes and support follow from the rows alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tasks.systems.insights.parameters import HierarchySettings
from tasks.text.output_cleaning import plain_text
from tasks.text.words import roots
from tasks.values.results import MIXED, UNNAMED, Insight, Origin, SupportRule, Topic

Embed = Callable[[Sequence[str]], NDArray[np.float32]]
"""Texts to rows, float32 [n, d], of length 1."""

ALIKE = 0.9
"""Two names are merged from this cosine of their rows on."""
STARTS = 8
"""Starts of k-means, of which the best is used."""
IN_NAME = 3
"""Most keywords in the name of a group."""
MOST_NAMES = 8
"""Most names of members in a group's description: those of its largest."""


@dataclass(frozen=True)
class Keyword:
    """A keyword of a node.

    Attributes:
        units: how many units chose it, with noise; None if that was not counted.
    """

    word: str
    units: int | None = None
    origin: Origin = "selected"


@dataclass(frozen=True)
class Node:
    """A cluster, clusters of one name, or a group, before it has a number.

    Attributes:
        keywords: the most telling first.
        size: its noisy size if it was measured.
        below: its children; empty for a node of the lowest level.
        clusters: the numbers of the released clusters that it consists of, as they were given.
    """

    topic: Topic
    keywords: tuple[Keyword, ...]
    size: int | None
    clusters: tuple[int, ...]
    below: tuple["Node", ...] = ()

    @property
    def weight(self) -> int:
        """Weight among others: its noisy size, at least 1; 1 if it was not measured."""
        return 1 if self.size is None else max(1, self.size)

    @property
    def named(self) -> bool:
        """Return whether the node has a keyword, which can name it."""
        return bool(self.keywords)


def cluster_node(number: int, topic: Topic, keywords: Sequence[Keyword], size: int | None) -> Node:
    """Return the node of one cluster, with its number in the public order of clusters."""
    return Node(topic, tuple(keywords), size, (number,))


def hierarchy(
    clusters: Sequence[Node], embed: Embed, settings: HierarchySettings, rule: SupportRule | None = None
) -> list[Insight]:
    """Build the groups above clusters and number all nodes, as `numbered_nodes` without the nodes."""
    return [insight for insight, _ in numbered_nodes(clusters, embed, settings, rule)]


def numbered_nodes(
    clusters: Sequence[Node], embed: Embed, settings: HierarchySettings, rule: SupportRule | None = None
) -> list[tuple[Insight, Node]]:
    """Build the groups above clusters and number all nodes, parents before their children, numbered from 1.

    The highest level comes first, then level by level downwards; within a level the children of an earlier parent come
    first, among siblings the larger and then those whose name comes first.

    A level without information is left out: one group of all nodes, or a group for each node. So at most `branching`
    topics get no group; no cluster gives no insight, and one cluster gives one.

    Args:
        clusters: in their public order.
        rule: when keywords of clusters with one name have support in their union; None keeps all of them.
    """
    level = _one_of_each_name(clusters, rule)
    depth = 0
    while depth + 1 < settings.levels and (above := _next_level(level, embed, settings.branching)):
        level, depth = above, depth + 1
    return list(_number_nodes(level, depth))


def _one_of_each_name(clusters: Sequence[Node], rule: SupportRule | None) -> list[Node]:
    """Merge clusters whose names have the same words; a keyword that lacks support in the union is dropped."""
    return [
        nodes[0] if len(nodes) == 1 else _merge_nodes(nodes, rule)
        for nodes in _by_name(sorted(clusters, key=_sort_key)).values()
    ]


def _merge_nodes(nodes: Sequence[Node], rule: SupportRule | None) -> Node:
    size = _sum_sizes(node.size for node in nodes)
    keywords = _combine_keywords(nodes)
    if rule is not None and size is not None:
        keywords = tuple(keyword for keyword in keywords if keyword.units is None or rule.holds(keyword.units, size))
    clusters = tuple(number for node in nodes for number in node.clusters)
    return replace(nodes[0], keywords=keywords, size=size, clusters=clusters)


def _by_name(nodes: Iterable[Node]) -> Mapping[str, list[Node]]:
    nodes_by_name: dict[str, list[Node]] = {}
    for node in nodes:
        nodes_by_name.setdefault(plain_text(node.topic.name), []).append(node)
    return nodes_by_name


def _next_level(nodes: Sequence[Node], embed: Embed, branching: int) -> list[Node]:
    """Return the level above `nodes`; empty if it would have no information."""
    named = [node for node in nodes if node.named]
    nameless = [node for node in nodes if not node.named]
    groups: list[Node] = []
    others: list[Node] = []
    for members in _members(named, embed, branching):
        words, covered = covering(members)
        if words:
            groups.append(_parent_node([members[number] for number in sorted(covered)], _name(words)))
        others += [node for number, node in enumerate(members) if number not in covered]
    if not groups or len(groups) + bool(others) in (1, len(named)):
        return []
    mixed = [_parent_node(sorted(others, key=_sort_key), MIXED)] if others else []
    return [*_merge_same_names(groups), *mixed, *([_parent_node(nameless, UNNAMED)] if nameless else [])]


def _members(nodes: Sequence[Node], embed: Embed, branching: int) -> list[tuple[Node, ...]]:
    """Put nodes into groups by their points; none if there would be one."""
    from tasks.analysis.clustering.kmeans import nearest_centre

    count = -(-len(nodes) // branching)
    if count < 2:
        return []
    points = _points(embed, nodes)
    groups = [
        _parent_node(members, _name(covering(members)[0]) or members[0].topic.name)
        for members in _by_place(nodes, nearest_centre(points, _centres(points, count)))
    ]
    return _by_place(nodes, nearest_centre(points, _points(embed, _drop_similar(groups, embed))))


def _points(embed: Embed, nodes: Sequence[Node]) -> NDArray[np.float64]:
    """Embed each node by its name and keywords: descriptions have too much text in common."""
    texts = [": ".join(filter(None, (n.topic.name, ", ".join(keyword.word for keyword in n.keywords)))) for n in nodes]
    return np.asarray(embed(texts), np.float64)


def _centres(points: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return the best centres of several fixed starts: all inputs are public."""
    from tasks.analysis.clustering.kmeans import k_means, nearest_centre

    solutions = [k_means(points, count, start) for start in range(STARTS)]
    costs = [float(((points - centres[nearest_centre(points, centres)]) ** 2).sum()) for centres in solutions]
    return solutions[costs.index(min(costs))]


def _by_place(nodes: Sequence[Node], places: NDArray[np.int64]) -> list[tuple[Node, ...]]:
    """Group nodes by place, without empty places; the largest nodes first, and the largest places first."""
    members_by_place = [
        sorted(
            (node for node, place_of_node in zip(nodes, places, strict=True) if place_of_node == place), key=_sort_key
        )
        for place in sorted(set(places.tolist()))
    ]
    return sorted(
        map(tuple, members_by_place), key=lambda members: (-sum(node.weight for node in members), _sort_key(members[0]))
    )


def _drop_similar(groups: Sequence[Node], embed: Embed) -> list[Node]:
    """Drop groups whose name is similar to that of an earlier one, by its words or by its row."""
    names = [group.topic.name for group in groups]
    rows = np.asarray(embed(names), np.float64)
    distinct: list[int] = []
    for number, name in enumerate(names):
        if not any(plain_text(names[k]) == plain_text(name) or rows[k] @ rows[number] >= ALIKE for k in distinct):
            distinct.append(number)
    return [groups[number] for number in distinct]


def _parent_node(members: Sequence[Node], name: str) -> Node:
    """Return a node of this name above others, with as many keywords as the member with most, at least its name's."""
    names = [node.topic.name for node in members]
    more = f"; and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    topic = Topic(name, f"Topics: {'; '.join(names[:MOST_NAMES])}{more}.")
    keywords, most = _combine_keywords(members), max(len(node.keywords) for node in members)
    naming = [keyword for keyword in keywords if name not in (MIXED, UNNAMED) and roots(keyword.word) <= roots(name)]
    chosen = tuple(dict.fromkeys((*naming, *keywords)))[: max(most, len(naming))]
    clusters = tuple(number for node in members for number in node.clusters)
    return Node(topic, chosen, _sum_sizes(node.size for node in members), clusters, tuple(members))


def _name(words: Sequence[str]) -> str:
    return ", ".join(words)


def covering(members: Sequence[Node]) -> tuple[list[str], frozenset[int]]:
    """Return at most IN_NAME keywords, each of two members or more, and the places of the members that have one.

    Each is the one that most members have that have none yet; among equals that with the larger size of these, and then
    the first in the order of the alphabet.
    """
    having: dict[str, set[int]] = {}
    for number, node in enumerate(members):
        for keyword in node.keywords:
            having.setdefault(keyword.word, set()).add(number)
    several = {word: frozenset(numbers) for word, numbers in having.items() if len(numbers) > 1}
    chosen: list[str] = []
    covered = frozenset[int]()
    while len(chosen) < IN_NAME:
        gains = {word: numbers - covered for word, numbers in several.items() if numbers - covered}
        if not gains:
            break
        weights = {word: sum(members[number].weight for number in new) for word, new in gains.items()}
        best = min(gains, key=lambda word: (-len(gains[word]), -weights[word], word))
        chosen.append(best)
        covered |= gains[best]
    return chosen, covered


def _combine_keywords(members: Sequence[Node]) -> tuple[Keyword, ...]:
    """Return the keywords of several nodes: those of most units first, where it was not counted, of the largest nodes.

    Among equals the order of first occurrence is kept.
    """
    weights: dict[str, int] = {}
    units: dict[str, int | None] = {}
    origins: dict[str, Origin] = {}
    for node in members:
        for keyword in {keyword.word: keyword for keyword in reversed(node.keywords)}.values():
            before = units.get(keyword.word, 0)
            units[keyword.word] = None if before is None or keyword.units is None else before + keyword.units
            weights[keyword.word] = weights.get(keyword.word, 0) + (
                node.weight if keyword.units is None else keyword.units
            )
            origins.setdefault(keyword.word, keyword.origin)
    first = list(dict.fromkeys(keyword.word for node in members for keyword in node.keywords))
    return tuple(Keyword(word, units[word], origins[word]) for word in sorted(first, key=lambda word: -weights[word]))


def _merge_same_names(groups: Iterable[Node]) -> list[Node]:
    """Merge groups that have the same name; every member of the union has a keyword of it."""
    return [
        nodes[0]
        if len(nodes) == 1
        else _parent_node([child for node in nodes for child in node.below], nodes[0].topic.name)
        for nodes in _by_name(groups).values()
    ]


def _sum_sizes(sizes: Iterable[int | None]) -> int | None:
    measured = list(sizes)
    return None if None in measured else sum(size for size in measured if size is not None)


def _sort_key(node: Node) -> tuple[float, str, tuple[str, ...]]:
    words = tuple(keyword.word for keyword in node.keywords)
    return (np.inf if node.size is None else -node.size), node.topic.name, words


def _number_nodes(top: Sequence[Node], depth: int) -> Iterable[tuple[Insight, Node]]:
    level: list[tuple[int | None, Node]] = [(None, node) for node in sorted(top, key=_sort_key)]
    number = 0
    while level:
        below: list[tuple[int | None, Node]] = []
        for parent, node in level:
            number += 1
            yield _insight(number, parent, depth, node), node
            below += [(number, child) for child in sorted(node.below, key=_sort_key)]
        level, depth = below, depth - 1


def _insight(number: int, parent: int | None, depth: int, node: Node) -> Insight:
    counts = [keyword.units for keyword in node.keywords]
    support = None if None in counts else tuple(count for count in counts if count is not None)
    return Insight(
        number,
        parent,
        depth,
        node.topic,
        tuple(keyword.word for keyword in node.keywords),
        node.size,
        support,
        tuple(keyword.origin for keyword in node.keywords),
        len(node.clusters),
    )
