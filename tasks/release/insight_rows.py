"""Lines of `texts.jsonl` in a release of insights: one JSON object per node, parents before their children.

`id` counts from 1; `parent` is the id of the node above, null at the top; `level` is 0 for clusters; then `name`,
`text` (the description), `keywords`, `support` and `origins` (of each keyword; null where there are none), `size`, null
where none was measured, and `clusters`, how many clusters it consists of. A line is canonical JSON of exactly these
fields, so verification can write it again.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, ValidationError

from models_db.values.canonical_json import Json, encode_canonical
from tasks.common.files import FileUnfit, open_regular_file
from tasks.common.strict_model import Strict
from tasks.release.file_names import TEXTS
from tasks.values.insight import Insight, Origin, Topic

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


def _unicode(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
