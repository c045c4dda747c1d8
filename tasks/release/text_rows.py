"""Lines of `texts.jsonl`: one JSON object per text, in a form that each kind of release fixes.

| kind | fields |
| --- | --- |
| `records` | `id`, `raw` as it was generated, and `record`: what `raw` parses to, where it is one JSON object |
| `summaries` | `id`, the public `group` that it is about, `text` |
| `insights` | as in `tasks.release.insight_rows` |
| every other | `id`, `text` |

Where the request declares labels, every line also has its `label`. Labels and groups follow from the request alone. A
line is a function of these values, so verification can write it again.
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
    """Return the name of the field that holds the label, or the group, of a line."""
    return "group" if kind == ReleaseKind.SUMMARIES else "label"


def line(kind: str, number: int, text: str, label: str | None) -> bytes:
    """Return the line of a text, which must be valid Unicode."""
    row: dict[str, Any] = {"id": number} | ({} if label is None else {part(kind): label})
    if kind != ReleaseKind.RECORDS:
        return encode_canonical(row | {"text": text}) + b"\n"
    parsed_record = parsed(text)
    row |= {"raw": text} | ({} if parsed_record is None else {"record": parsed_record})
    # A record may hold decimal fractions, which canonical JSON does not know; the order of its fields is kept.
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def fields(kind: str, *, labelled: bool) -> set[str]:
    """Return the required fields of a line; a record may also have `record`."""
    return {"id", "raw" if kind == ReleaseKind.RECORDS else "text", *([part(kind)] if labelled else [])}


def text_of(row: Mapping[str, Any]) -> str:
    """Return the generated text of a line of any kind.

    Raises:
        KeyError: it has none.
    """
    return str(row["text"] if "text" in row else row["raw"])


def read_labelled(folder: Path, count: int | None = None) -> Iterator[tuple[str, str | None]]:
    """Read the first `count` texts of a draft or bundle (all without `count`), each with its label or group, if any.

    Raises:
        FileUnfit: there is no such file.
    """
    with open_regular_file(folder / TEXTS) as file:
        for stored_line in islice(file, count):
            row: dict[str, Any] = json.loads(stored_line)
            yield text_of(row), row.get("label", row.get("group"))


def labels_of_texts(kind: str, labels: Sequence[str], samples: int, blocks: int) -> list[str | None]:
    """Return the label or group of every text, in public order: from the request alone, so none depends on data."""
    if kind == ReleaseKind.SUMMARIES:
        return list(labels)
    return BatchLayout(samples, blocks, max(len(labels), 1)).labels_of_texts(labels)
