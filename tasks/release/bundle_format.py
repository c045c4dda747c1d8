"""Format of a draft and of a bundle (docs/bundle.md): names of its files, its version, and the lines of `texts.jsonl`.

The version is named in `release.json`. It fixes fields of the record, words of the card and files of the bundle: a
change of any of them after a release of almoner gets another number. This almoner writes and reads one format, and
refuses every other by name. Releases of insights have one file more.

A further file that follows from the record has its name in `DRAFT_FILES`, its maker in `tasks.publishing.draft`, and a
row in `card_text` and in docs/bundle.md; no other place names it.

`texts.jsonl` has one JSON object per text, in a form that each kind of release fixes:

| kind | fields |
| --- | --- |
| `records` | `id`, `raw` as it was generated, and `record`: what `raw` parses to, where it is one JSON object |
| `summaries` | `id`, the public `group` that it is about, `text` |
| `insights` | as below |
| every other | `id`, `text` |

Where the request declares labels, every line also has its `label`. Labels and groups follow from the request alone.

A release of insights has one object per node, parents before their children. `id` counts from 1; `parent` is the id of
the node above, null at the top; `level` is 0 for clusters; then `name`, `text` (the description), `keywords`, `support`
and `origins` (of each keyword; null where there are none), `size`, null where none was measured, and `clusters`, how
many clusters it consists of. A line is canonical JSON of exactly these fields.

A line is a function of these values, so verification can write it again.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, ValidationError

from models_db.errors import AlmonerError
from models_db.values.canonical_json import Json, encode_canonical
from models_db.values.untrusted_text import without_surrogates
from tasks.common.files import FileUnfit, decode_json, open_regular_file, parse_object
from tasks.common.published_values import Strict
from tasks.planning.layout import BatchLayout
from tasks.values.results import Insight, Origin, ReleaseKind, Topic

TEXTS: Final = "texts.jsonl"
EVALUATION: Final = "evaluation.json"
RECORD: Final = "release.json"
CARD: Final = "README.md"
CHECKLIST: Final = "checklist.md"
CROISSANT: Final = "croissant.json"
DEPLOYMENT: Final = "deployment.yaml"
PARQUET: Final = "texts.parquet"
REPORT: Final = "report.html"
EXPLORER: Final = "explorer.html"
DRAFT_FILES: Final = (CARD, CHECKLIST, CROISSANT, DEPLOYMENT, EVALUATION, RECORD, REPORT, TEXTS, PARQUET)
"""Files that every run produces; the publish gate approves their digest. Further files of one kind are in
`tasks.release.bundle_format`."""

APPROVALS: Final = "approvals.json"
ATTESTATION: Final = "attestation.json"
CHECKPOINT: Final = "checkpoint.json"
REVOCATIONS: Final = "revocations.json"
SUMS: Final = "SHA256SUMS"
SUMS_SIGNATURE: Final = "SHA256SUMS.sig"


def checksum_lines(files: Mapping[str, str]) -> bytes:
    """Return the content of SHA256SUMS for {name: digest}, as `sha256sum -c` reads it."""
    return "".join(f"{files[name]}  {name}\n" for name in sorted(files)).encode()


def bundle_name(dataset: str, release: int) -> str:
    """Return the folder name of a bundle: one plain path component for any dataset name."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", dataset).strip(".-") or "dataset"
    return f"{plain}-release-{release}"


FORMAT: Final = "almoner-release/1"

_DECIDED: Final = (APPROVALS, ATTESTATION, CHECKPOINT, REVOCATIONS)


def drafted_files(kind: str) -> tuple[str, ...]:
    """Return the files that a run produces, and the publish gate approves, in a release of that kind."""
    return tuple(sorted((*DRAFT_FILES, EXPLORER) if kind == ReleaseKind.INSIGHTS else DRAFT_FILES))


def summed_files(kind: str) -> tuple[str, ...]:
    """Return the files that SHA256SUMS lists."""
    return tuple(sorted((*drafted_files(kind), *_DECIDED)))


def bundle_files(kind: str) -> tuple[str, ...]:
    """Return the published files: a bundle may hold no others."""
    return (*summed_files(kind), SUMS, SUMS_SIGNATURE)


def stated_kind(record: bytes) -> str:
    """Return the kind in `release.json`, which decides the files; empty where it names none, which is refused later."""
    try:
        stored = decode_json(record, RECORD)
    except AlmonerError:
        return ""
    kind = stored.get("kind") if isinstance(stored, dict) else None
    return kind if isinstance(kind, str) else ""


def label_field(kind: str) -> str:
    """Return the name of the field that holds the label, or the group, of a line."""
    return "group" if kind == ReleaseKind.SUMMARIES else "label"


def text_line(kind: str, number: int, text: str, label: str | None) -> bytes:
    """Return the line of a text, which must be valid Unicode."""
    row: dict[str, Any] = {"id": number} | ({} if label is None else {label_field(kind): label})
    if kind != ReleaseKind.RECORDS:
        return encode_canonical(row | {"text": text}) + b"\n"
    parsed_record = parse_object(text)
    row |= {"raw": text} | ({} if parsed_record is None else {"record": parsed_record})
    # A record may hold decimal fractions, which canonical JSON does not know; the order of its fields is kept.
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def text_fields(kind: str, *, labelled: bool) -> set[str]:
    """Return the required fields of a line; a record may also have `record`."""
    return {"id", "raw" if kind == ReleaseKind.RECORDS else "text", *([label_field(kind)] if labelled else [])}


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
    topic = Topic(without_surrogates(insight.topic.name), without_surrogates(insight.topic.description))
    return replace(insight, topic=topic, keywords=tuple(map(without_surrogates, insight.keywords)))


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
