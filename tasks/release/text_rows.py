"""The lines of `texts.jsonl`: one JSON object a text, in a form that each kind of release fixes.

| kind | fields |
| --- | --- |
| `records` | `id`, `raw` as it was generated, and `record`: what `raw` parses to, where it is one JSON object |
| `summaries` | `id`, the public `group` that it is about, `text` |
| `insights` | as in `tasks.release.insight_rows` |
| every other | `id`, `text` |

Where the request declares labels, every line also has its `label`. Labels and groups follow from the request alone. A
line is a function of these values, so whoever verifies a release makes it again.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from models_db.values.canonical_json import encode_canonical
from tasks.common.files import open_regular_file
from tasks.common.strict_json import parsed
from tasks.planning.batches import BatchLayout
from tasks.release.file_names import TEXTS
from tasks.values.release_kinds import ReleaseKind


def part(kind: str) -> str:
    """The field of a line that names its label, or its group."""
    return "group" if kind == ReleaseKind.SUMMARIES else "label"


def line(kind: str, number: int, text: str, label: str | None) -> bytes:
    """One line. `text` must be valid Unicode."""
    row: dict[str, Any] = {"id": number} | ({} if label is None else {part(kind): label})
    if kind != ReleaseKind.RECORDS:
        return encode_canonical(row | {"text": text}) + b"\n"
    found = parsed(text)
    row |= {"raw": text} | ({} if found is None else {"record": found})
    # A record may hold decimal fractions, which canonical JSON does not know; the order of its fields is kept.
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def fields(kind: str, *, labelled: bool) -> set[str]:
    """What a line must have; a record may have its `record` beside."""
    return {"id", "raw" if kind == ReleaseKind.RECORDS else "text", *([part(kind)] if labelled else [])}


def text_of(row: Mapping[str, Any]) -> str:
    """The generated text of a line, of whatever kind.

    Raises:
        KeyError: it has none.
    """
    return str(row["text"] if "text" in row else row["raw"])


def read_labelled(folder: Path, count: int | None = None) -> Iterator[tuple[str, str | None]]:
    """The first `count` texts of a draft or bundle (all without one), each with its label or group, if it has one.

    Raises:
        FileUnfit: there is no such file.
    """
    with open_regular_file(folder / TEXTS) as file:
        for stored in islice(file, count):
            row: dict[str, Any] = json.loads(stored)
            yield text_of(row), row.get("label", row.get("group"))


def labels_of_texts(kind: str, labels: Sequence[str], samples: int, blocks: int) -> list[str | None]:
    """The label or group of every text, in their public order: of the request alone, so nothing of the data."""
    if kind == ReleaseKind.SUMMARIES:
        return list(labels)
    return BatchLayout(samples, blocks, max(len(labels), 1)).labels_of_texts(labels)
