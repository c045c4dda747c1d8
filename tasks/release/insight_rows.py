"""The lines of `texts.jsonl` in a release of insights: one JSON object a node, parents before their children.

`id` counts from 1; `parent` is the id of the node above, null at the top; `level` is 0 for clusters; then `name`,
`text` (the description), `keywords`, and `size`, null where none was measured. A line is canonical JSON of exactly
these, so whoever verifies a release makes it again.

What a hierarchy must be (`require_hierarchy`) is public: it follows from the rows and from the request.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, ValidationError

from models_db.values.canonical_json import encode_canonical
from tasks.common.files import FileUnfit, open_regular_file
from tasks.common.strict_model import Strict
from tasks.release.file_names import TEXTS
from tasks.values.insight import Insight, Topic

_LARGEST: Final = 2**53 - 1


class InsightRow(Strict):
    """One line."""

    id: Annotated[int, Field(ge=1, le=_LARGEST)]
    parent: Annotated[int, Field(ge=1, le=_LARGEST)] | None
    level: Annotated[int, Field(ge=0, le=_LARGEST)]
    name: str
    text: str
    keywords: tuple[str, ...]
    size: Annotated[int, Field(ge=-_LARGEST, le=_LARGEST)] | None

    @property
    def insight(self) -> Insight:
        """The node that it tells of."""
        topic = Topic(self.name, self.text)
        return Insight(self.id, self.parent, self.level, topic, self.keywords, self.size)


def carried(insight: Insight) -> Insight:
    """`insight` with whatever UTF-8 cannot carry replaced: an odd character must not turn a paid release into none."""
    topic = Topic(_unicode(insight.topic.name), _unicode(insight.topic.description))
    return replace(insight, topic=topic, keywords=tuple(map(_unicode, insight.keywords)))


def insight_line(insight: Insight) -> bytes:
    """One line. Its words must be valid Unicode."""
    row = {
        "id": insight.number,
        "parent": insight.parent,
        "level": insight.level,
        "name": insight.topic.name,
        "text": insight.topic.description,
        "keywords": list(insight.keywords),
        "size": insight.size,
    }
    return encode_canonical(row) + b"\n"


def insight_of(stored: bytes, number: int) -> Insight:
    """The node that line `number` tells of.

    Raises:
        FileUnfit: the line is not, byte for byte, the one of a node.
    """
    try:
        found = InsightRow.model_validate_json(stored).insight
        same = insight_line(found) == stored
    except (ValidationError, ValueError):
        raise FileUnfit(TEXTS, f"has a line {number} that is no insight") from None
    if not same:
        raise FileUnfit(TEXTS, f"has a line {number} that is not in its one form")
    return found


def read_insights(folder: Path, count: int | None = None) -> Iterator[Insight]:
    """The first `count` nodes of a draft or bundle of insights (all without one).

    Raises:
        FileUnfit: there is no such file, or a line in it is no insight.
    """
    with open_regular_file(folder / TEXTS) as file:
        for number, stored in enumerate(islice(file, count), 1):
            yield insight_of(stored, number)


def require_hierarchy(nodes: Sequence[Insight], most: int | None, least: int | None) -> None:
    """Check that nodes are one hierarchy, in order, and what was asked for.

    Args:
        most: how many clusters were asked for; None where that was left open.
        least: the smallest noisy size of a cluster that is not left out; None where nothing is.

    Raises:
        FileUnfit: they are not.
    """
    for number, node in enumerate(nodes, 1):
        if node.number != number:
            raise FileUnfit(TEXTS, f"has a line {number} that is out of order")
    _require_places(nodes)
    _require_sums(nodes)
    _require_allowed([node for node in nodes if node.level == 0], most, least)


def _require_places(nodes: Sequence[Insight]) -> None:
    """A parent comes before and is one level above; only the highest level has none; every group has members."""
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
    """A group's size is the sum of its members' sizes; unknown if one of them is."""
    sums: dict[int, int | None] = {node.number: 0 for node in nodes if node.level}
    for node in reversed(nodes):  # members come after their group
        if node.level and sums[node.number] != node.size:
            raise FileUnfit(TEXTS, f"has a line {node.number} whose size is not the sum of its members' sizes")
        if node.parent is not None:
            before = sums[node.parent]
            sums[node.parent] = None if before is None or node.size is None else before + node.size


def _require_allowed(clusters: Sequence[Insight], most: int | None, least: int | None) -> None:
    """Not more clusters than were asked for, and none below the public threshold, where there is one."""
    if most is not None and len(clusters) > most:
        raise FileUnfit(TEXTS, f"has {len(clusters)} clusters, more than the {most} that were asked for")
    if least is None:
        return
    for node in clusters:
        if node.size is None or node.size < least:
            raise FileUnfit(TEXTS, f"has a line {node.number} for a cluster below the threshold of {least}")


def _unicode(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
