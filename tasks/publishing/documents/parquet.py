"""Parquet file of a release (`texts.parquet`): the rows of `texts.jsonl` in typed columns.

| kind | columns |
| --- | --- |
| `records` | `id` (int64), `label` where there are labels, `raw`, and `record`: the object as JSON text, or null |
| `summaries` | `id` (int64), `group`, `text` |
| `insights` | `id`, `parent` or null, `level`, `name`, `text`, `keywords`, `support`, `origins`, `size`, `clusters` |
| every other | `id` (int64), `label` where there are labels, `text` |

Its bytes depend on the version of the library that writes it, and on nothing else: no time, no schema of another
library, no key with a value. So a reader compares rows with rows; the bytes are what the stewards approved, by their
digest.
"""

import json
from collections.abc import Iterable
from io import BytesIO
from typing import Any, Final

from tasks.release.bundle_format import label_field
from tasks.values.results import ReleaseKind

_ROWS_OF_A_GROUP: Final = 10_000


def parquet(lines: Iterable[bytes], kind: str, *, labelled: bool) -> bytes:
    """Return the content of `texts.parquet` for these lines of `texts.jsonl`."""
    from pyarrow.parquet import write_table  # takes a tenth of a second to load

    out = BytesIO()
    write_table(
        _table(lines, kind, labelled=labelled),
        out,
        version="2.6",
        compression="none",  # a search of a bundle for a word finds it, and no second library determines the bytes
        data_page_version="1.0",
        row_group_size=_ROWS_OF_A_GROUP,
        store_schema=False,
    )
    return out.getvalue()


def same_rows(data: bytes, lines: Iterable[bytes], kind: str, *, labelled: bool) -> bool:
    """Return whether a Parquet file has exactly the columns and rows of these lines, and no metadata.

    Raises:
        ValueError, OSError: it is not a Parquet file.
    """
    from pyarrow.parquet import ParquetFile

    file = ParquetFile(BytesIO(data))
    expected = _table(lines, kind, labelled=labelled)
    if file.metadata.metadata is not None or file.metadata.num_rows != expected.num_rows:
        return False
    rows = file.read()
    return bool(rows.schema.equals(expected.schema, check_metadata=True) and rows.equals(expected))


def _table(lines: Iterable[bytes], kind: str, *, labelled: bool) -> Any:
    import pyarrow

    if kind == ReleaseKind.INSIGHTS:
        return pyarrow.Table.from_pylist([_row(line) for line in lines], schema=_insights_schema())
    fields = [pyarrow.field("id", pyarrow.int64(), nullable=False)]
    fields += [pyarrow.field(label_field(kind), pyarrow.string(), nullable=False)] if labelled else []
    fields.append(pyarrow.field("raw" if kind == ReleaseKind.RECORDS else "text", pyarrow.string(), nullable=False))
    fields += [pyarrow.field("record", pyarrow.string())] if kind == ReleaseKind.RECORDS else []
    return pyarrow.Table.from_pylist([_row(line) for line in lines], schema=pyarrow.schema(fields))


def _insights_schema() -> Any:
    from pyarrow import field, int64, list_, schema, string

    return schema([
        field("id", int64(), nullable=False),
        field("parent", int64()),
        field("level", int64(), nullable=False),
        field("name", string(), nullable=False),
        field("text", string(), nullable=False),
        field("keywords", list_(field("element", string(), nullable=False)), nullable=False),
        field("support", list_(field("element", int64(), nullable=False))),
        field("origins", list_(field("element", string(), nullable=False))),
        field("size", int64()),
        field("clusters", int64(), nullable=False),
    ])  # fmt: skip


def _row(line: bytes) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(line)
    if "record" in row:
        row["record"] = json.dumps(row["record"], ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return row
