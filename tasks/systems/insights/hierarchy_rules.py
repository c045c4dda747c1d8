"""Rules that a released hierarchy of topics obeys: public, they follow from the rows and from the request."""

from collections.abc import Sequence

from tasks.common.files import FileUnfit
from tasks.text.output_cleaning import plain_text
from tasks.text.words import unsupported_words
from tasks.values.results import MIXED, TEXTS_FILE, UNNAMED, Insight, SupportRule


def require_hierarchy(
    nodes: Sequence[Insight], most: int | None, least: int | None, rule: SupportRule | None = None
) -> None:
    """Check that nodes are one hierarchy, in order, and within the bounds of the request.

    Args:
        most: the number of clusters in the request; None where it leaves that open.
        least: the smallest noisy size of a published cluster; None where there is no threshold.
        rule: when a keyword has support; None where names and keywords need none.

    Raises:
        FileUnfit: one of these is violated.
    """
    for number, node in enumerate(nodes, 1):
        if node.number != number:
            raise FileUnfit(TEXTS_FILE, f"has a line {number} that is out of order")
    _require_places(nodes)
    _require_sums(nodes)
    _require_allowed([node for node in nodes if node.level == 0], most, least)
    _require_support(nodes, rule)


def _require_places(nodes: Sequence[Insight]) -> None:
    """Check that parents come first and are one level above, only the top has none, and every group has members."""
    highest = max((node.level for node in nodes), default=0)
    for node in nodes:
        if node.parent is None:
            if node.level != highest:
                raise FileUnfit(TEXTS_FILE, f"has a line {node.number} without a parent below the highest level")
        elif node.parent >= node.number:
            raise FileUnfit(TEXTS_FILE, f"has a line {node.number} that comes before its parent")
        elif nodes[node.parent - 1].level != node.level + 1:
            raise FileUnfit(TEXTS_FILE, f"has a line {node.number} that is not one level below its parent")
    parents = {node.parent for node in nodes}
    for node in nodes:
        if node.level and node.number not in parents:
            raise FileUnfit(TEXTS_FILE, f"has a line {node.number} for a group without members")


def _require_sums(nodes: Sequence[Insight]) -> None:
    """Check that a group's size and number of clusters are the sums of its members'; a size is null if one of them is.

    So is the support of each of its keywords, over the members that list it.
    """
    members = _members(nodes)
    for node in nodes:
        if not node.level:
            continue
        sizes = [member.size for member in members[node.number]]
        if node.size != (None if None in sizes else sum(size or 0 for size in sizes)):
            raise FileUnfit(TEXTS_FILE, f"has a line {node.number} whose size is not the sum of its members' sizes")
        if node.clusters != sum(member.clusters for member in members[node.number]):
            raise FileUnfit(TEXTS_FILE, f"has a line {node.number} whose clusters are not those of its members")
        if node.support != _summed(node.keywords, members[node.number]):
            raise FileUnfit(
                TEXTS_FILE, f"has a line {node.number} whose support is not the sum of its members' support"
            )


def _members(nodes: Sequence[Insight]) -> dict[int, list[Insight]]:
    members: dict[int, list[Insight]] = {node.number: [] for node in nodes}
    for node in nodes:
        if node.parent is not None:
            members[node.parent].append(node)
    return members


def _summed(keywords: Sequence[str], members: Sequence[Insight]) -> tuple[int, ...] | None:
    """Return the support of a group's keywords; None where one of its members has none."""
    if any(member.support is None for member in members):
        return None
    counts: dict[str, int] = {}
    for member in members:
        for keyword, count in zip(member.keywords, member.support or (), strict=True):
            counts[keyword] = counts.get(keyword, 0) + count
    return tuple(counts.get(keyword, 0) for keyword in keywords)


def _require_allowed(clusters: Sequence[Insight], most: int | None, least: int | None) -> None:
    """Check for at most as many clusters as requested, and none below the public threshold, where there is one.

    Clusters of one name share a line, whose size is at least as many times the threshold.
    """
    count = sum(node.clusters for node in clusters)
    if most is not None and count > most:
        raise FileUnfit(TEXTS_FILE, f"has {count} clusters, more than the {most} of the request")
    if least is None:
        return
    for node in clusters:
        if node.size is None or node.size < least * node.clusters:
            raise FileUnfit(TEXTS_FILE, f"has a line {node.number} for a cluster below the threshold of {least}")


def _require_support(nodes: Sequence[Insight], rule: SupportRule | None) -> None:
    """Check that names agree with keywords, keywords of clusters have support, and no level has a name twice.

    A group is named after some of its keywords, and every member lists one of them.
    """
    if rule is None:
        return
    members = _members(nodes)
    for node in nodes:
        if node.support is None or node.size is None:
            raise FileUnfit(TEXTS_FILE, f"has a line {node.number} without support")
        counts = zip(node.keywords, node.support, strict=True)
        if not node.level and any(not rule.holds(count, node.size) for _, count in counts):
            raise FileUnfit(TEXTS_FILE, f"has a line {node.number} with a keyword below the threshold of support")
        if not _is_named_rightly(node, members[node.number]):
            raise FileUnfit(TEXTS_FILE, f"has a line {node.number} whose name its keywords do not support")
    names = [(node.level, plain_text(node.topic.name)) for node in nodes]
    if len(set(names)) < len(names):
        raise FileUnfit(TEXTS_FILE, "has two lines of one level with one name")


def _is_named_rightly(node: Insight, members: Sequence[Insight]) -> bool:
    name = node.topic.name
    if name == UNNAMED:
        return not node.keywords
    if name == MIXED and node.level:
        return True
    own = {keyword for keyword in node.keywords if not unsupported_words(keyword, [name])} if node.level else set()
    covered = all(own & set(member.keywords) for member in members)
    return covered and bool(node.keywords) and not unsupported_words(name, node.keywords)
