"""Lines of `texts.jsonl` in a release of insights: one JSON object per node, parents before their children.

`id` counts from 1; `parent` is the id of the node above, null at the top; `level` is 0 for clusters; then `name`,
`text` (the description), `keywords`, `support` and `origins` (of each keyword; null where there are none), `size`, null
where none was measured, and `clusters`, how many clusters it consists of. A line is canonical JSON of exactly these
fields, so verification can write it again.

The rules of a hierarchy (`require_hierarchy`) are public: they follow from the rows and from the request.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, ValidationError

from models_db.values.canonical_json import Json, encode_canonical
from tasks.common.files import FileUnfit, open_regular_file
from tasks.common.strict_model import Strict
from tasks.release.file_names import TEXTS
from tasks.text.output_cleaning import plain_text
from tasks.text.supported_words import unsupported_words
from tasks.values.insight import MIXED, UNNAMED, Insight, Origin, SupportRule, Topic

_LARGEST: Final = 2**53 - 1


class InsightRow(Strict):
    """Fields of one line."""

    id: Annotated[int, Field(ge=1, le=_LARGEST)]
    parent: Annotated[int, Field(ge=1, le=_LARGEST)] | None
    level: Annotated[int, Field(ge=0, le=_LARGEST)]
    name: str
    text: str
    keywords: tuple[str, ...]
    support: tuple[Annotated[int, Field(ge=-_LARGEST, le=_LARGEST)], ...] | None
    origins: tuple[Origin, ...] | None
    size: Annotated[int, Field(ge=-_LARGEST, le=_LARGEST)] | None
    clusters: Annotated[int, Field(ge=1, le=_LARGEST)]

    @property
    def insight(self) -> Insight:
        """The node that the line describes."""
        topic = Topic(self.name, self.text)
        beside = self.support, self.origins, self.clusters
        return Insight(self.id, self.parent, self.level, topic, self.keywords, self.size, *beside)


def carried(insight: Insight) -> Insight:
    """Return `insight` without characters that UTF-8 cannot encode: one of them must not void a paid release."""
    topic = Topic(_unicode(insight.topic.name), _unicode(insight.topic.description))
    return replace(insight, topic=topic, keywords=tuple(map(_unicode, insight.keywords)))


def insight_row(insight: Insight) -> dict[str, Json]:
    """Return the fields of a node's line."""
    return {
        "id": insight.number,
        "parent": insight.parent,
        "level": insight.level,
        "name": insight.topic.name,
        "text": insight.topic.description,
        "keywords": list(insight.keywords),
        "support": None if insight.support is None else list(insight.support),
        "origins": None if insight.origins is None else list(insight.origins),
        "size": insight.size,
        "clusters": insight.clusters,
    }


def insight_line(insight: Insight) -> bytes:
    """Return the line of a node. Its words must be valid Unicode."""
    return encode_canonical(insight_row(insight)) + b"\n"


def insight_of(stored: bytes, number: int) -> Insight:
    """Parse line `number` into its node.

    Raises:
        FileUnfit: the line is not, byte for byte, that of a node.
    """
    try:
        insight = InsightRow.model_validate_json(stored).insight
        is_canonical = insight_line(insight) == stored
    except (ValidationError, ValueError):
        raise FileUnfit(TEXTS, f"has a line {number} that is no insight") from None
    if not is_canonical:
        raise FileUnfit(TEXTS, f"has a line {number} that is not in its one form")
    return insight


def read_insights(folder: Path, count: int | None = None) -> Iterator[Insight]:
    """Read the first `count` nodes of a draft or bundle of insights; all of them without `count`.

    Raises:
        FileUnfit: there is no such file, or a line in it is no insight.
    """
    with open_regular_file(folder / TEXTS) as file:
        for number, stored in enumerate(islice(file, count), 1):
            yield insight_of(stored, number)


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
            raise FileUnfit(TEXTS, f"has a line {number} that is out of order")
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
                raise FileUnfit(TEXTS, f"has a line {node.number} without a parent below the highest level")
        elif node.parent >= node.number:
            raise FileUnfit(TEXTS, f"has a line {node.number} that comes before its parent")
        elif nodes[node.parent - 1].level != node.level + 1:
            raise FileUnfit(TEXTS, f"has a line {node.number} that is not one level below its parent")
    parents = {node.parent for node in nodes}
    for node in nodes:
        if node.level and node.number not in parents:
            raise FileUnfit(TEXTS, f"has a line {node.number} for a group without members")


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
            raise FileUnfit(TEXTS, f"has a line {node.number} whose size is not the sum of its members' sizes")
        if node.clusters != sum(member.clusters for member in members[node.number]):
            raise FileUnfit(TEXTS, f"has a line {node.number} whose clusters are not those of its members")
        if node.support != _summed(node.keywords, members[node.number]):
            raise FileUnfit(TEXTS, f"has a line {node.number} whose support is not the sum of its members' support")


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
        raise FileUnfit(TEXTS, f"has {count} clusters, more than the {most} of the request")
    if least is None:
        return
    for node in clusters:
        if node.size is None or node.size < least * node.clusters:
            raise FileUnfit(TEXTS, f"has a line {node.number} for a cluster below the threshold of {least}")


def _require_support(nodes: Sequence[Insight], rule: SupportRule | None) -> None:
    """Check that names agree with keywords, keywords of clusters have support, and no level has a name twice.

    A group is named after some of its keywords, and every member lists one of them.
    """
    if rule is None:
        return
    members = _members(nodes)
    for node in nodes:
        if node.support is None or node.size is None:
            raise FileUnfit(TEXTS, f"has a line {node.number} without support")
        counts = zip(node.keywords, node.support, strict=True)
        if not node.level and any(not rule.holds(count, node.size) for _, count in counts):
            raise FileUnfit(TEXTS, f"has a line {node.number} with a keyword below the threshold of support")
        if not _is_named_rightly(node, members[node.number]):
            raise FileUnfit(TEXTS, f"has a line {node.number} whose name its keywords do not support")
    names = [(node.level, plain_text(node.topic.name)) for node in nodes]
    if len(set(names)) < len(names):
        raise FileUnfit(TEXTS, "has two lines of one level with one name")


def _is_named_rightly(node: Insight, members: Sequence[Insight]) -> bool:
    name = node.topic.name
    if name == UNNAMED:
        return not node.keywords
    if name == MIXED and node.level:
        return True
    own = {keyword for keyword in node.keywords if not unsupported_words(keyword, [name])} if node.level else set()
    covered = all(own & set(member.keywords) for member in members)
    return covered and bool(node.keywords) and not unsupported_words(name, node.keywords)


def _unicode(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
