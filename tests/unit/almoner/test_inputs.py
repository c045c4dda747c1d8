"""Tables of other libraries as sources: the same rows from each, nothing but the fields that are needed, no trace."""

import builtins
import json
import os
import stat
from collections.abc import Callable, Iterator
from datetime import date
from itertools import count
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from almoner import inputs
from almoner.inputs import open_input
from models_db.home import ProjectHome
from tasks.corpus.readers.documents import NO_TEXT, BadRecord
from tasks.corpus.readers.readers import read_documents
from tests.refusals import refusal

SECRET = "zanzibarquux"
ROWS: list[dict[str, Any]] = [
    {"id": f"n{number}", "patient": number % 7, "text": f"Note {number} — naïve", "section": "a", "diary": SECRET}
    for number in range(2500)
]
WRITTEN = [{name: row[name] for name in ("text", "patient", "section", "id")} for row in ROWS]
FIELDS = ("text", "patient", "section")


def columns() -> dict[str, list[Any]]:
    return {name: [row[name] for row in ROWS] for name in ROWS[0]}


def arrow() -> pa.Table:
    return pa.Table.from_pylist(ROWS)


TABLES: dict[str, Callable[[], Any]] = {
    "list of dicts": lambda: ROWS,
    "iterator of dicts": lambda: iter(ROWS),
    "pandas": lambda: pd.DataFrame(ROWS),
    "pandas with another index": lambda: pd.DataFrame(ROWS, index=[7] * len(ROWS)),
    "pandas of objects": lambda: pd.DataFrame(ROWS).astype(object),
    "pandas with categories": lambda: pd.DataFrame(ROWS).astype({"section": "category", "patient": "Int64"}),
    "polars": lambda: pl.DataFrame(columns()),
    "polars with categories": lambda: pl.DataFrame(columns()).with_columns(pl.col("section").cast(pl.Categorical)),
    "pyarrow table": arrow,
    "pyarrow dictionary": lambda: arrow().set_column(3, "section", arrow()["section"].dictionary_encode()),
    "pyarrow batch": lambda: arrow().combine_chunks().to_batches()[0],
    "pyarrow reader": lambda: arrow().to_reader(max_chunksize=999),
    "datasets": lambda: datasets.Dataset.from_dict(columns()),
    "datasets in another format": lambda: datasets.Dataset.from_dict(columns()).with_format("numpy"),
    "datasets, a stream": lambda: datasets.Dataset.from_dict(columns()).to_iterable_dataset(),
    "datasets, a stream of unknown columns": lambda: datasets.IterableDataset.from_generator(lambda: iter(ROWS)),
}


@pytest.fixture
def home(tmp_path: Path) -> ProjectHome:
    made = ProjectHome(tmp_path / "home")
    made.create()
    return made


def rows_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def left(home: ProjectHome) -> list[Path]:
    return list(home.scratch.iterdir())


@pytest.mark.parametrize("kind", TABLES)
def test_every_kind_of_table_gives_the_same_rows(home: ProjectHome, kind: str) -> None:
    with open_input(home, TABLES[kind](), FIELDS, optional="id") as source:
        assert isinstance(source, Path)
        written = source.read_text()
        assert rows_in(source) == WRITTEN
        found = list(read_documents(source, "patient", "text", label_field="section"))
    assert [document.unit for document in found] == [str(row["patient"]) for row in ROWS]
    assert [document.document_id for document in found] == [row["id"] for row in ROWS]
    assert SECRET not in written
    assert left(home) == []


def test_the_file_lies_in_the_home_for_its_owner_alone(home: ProjectHome) -> None:
    with open_input(home, ROWS[:3], FIELDS) as source:
        assert isinstance(source, Path)
        assert home.scratch in source.parents
        assert stat.S_IMODE(source.stat().st_mode) == 0o600
        assert stat.S_IMODE(source.parent.stat().st_mode) == 0o700
        assert not source.is_symlink()


def test_nothing_is_written_elsewhere(home: ProjectHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file that is opened for writing, by whichever way of Python, lies in the home."""
    written: list[str] = []
    os_open, own_open = os.open, builtins.open

    def watch(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            written.append(os.fspath(path))
        return os_open(path, flags, *more, **named)

    def watch_own(path: Any, mode: str = "r", *more: Any, **named: Any) -> Any:
        if set(mode) & set("wax+") and not isinstance(path, int):
            written.append(os.fspath(path))
        return own_open(path, mode, *more, **named)

    tables = [make() for make in TABLES.values()]
    monkeypatch.setattr(os, "open", watch)
    monkeypatch.setattr(builtins, "open", watch_own)
    for table in tables:
        with open_input(home, table, FIELDS):
            pass
    assert len(written) == len(TABLES)
    assert all(Path(path).is_relative_to(home.scratch) for path in written)


def boom(data: Any) -> Iterator[dict[str, Any]]:
    yield from data
    raise KeyError("from the caller's own generator")


@pytest.mark.parametrize("problem", [KeyboardInterrupt, RuntimeError, BadRecord])
def test_it_is_gone_after_a_failure_of_the_reader(home: ProjectHome, problem: type[BaseException]) -> None:
    def fail(path: Any) -> None:
        assert left(home)
        raise BadRecord(NO_TEXT, path, 1, "text") if problem is BadRecord else problem

    with pytest.raises(problem), open_input(home, ROWS, FIELDS) as source:
        fail(source)
    assert left(home) == []


def test_it_is_gone_after_a_failure_of_the_data(home: ProjectHome) -> None:
    with pytest.raises(KeyError, match="own generator"), open_input(home, boom(ROWS), FIELDS):
        pass
    assert left(home) == []


def test_it_is_gone_after_a_full_disk(home: ProjectHome, monkeypatch: pytest.MonkeyPatch) -> None:
    written = count()
    true_dumps = json.dumps

    def dumps(row: object) -> str:
        if next(written) == 5:
            raise OSError(28, "No space left on device")
        return true_dumps(row)

    monkeypatch.setattr(inputs.json, "dumps", dumps)
    with pytest.raises(OSError, match="No space"), open_input(home, ROWS, FIELDS):
        pass
    assert left(home) == []


def test_a_large_table_is_never_held_as_rows(home: ProjectHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not more than a thousand rows are Python objects at a time, and as many are asked for."""
    asked: list[int] = []
    true_pylist = pa.RecordBatch.to_pylist

    class Watched:
        def __init__(self, batch: pa.RecordBatch) -> None:
            self.batch, self.num_rows = batch, batch.num_rows

        def select(self, names: list[str]) -> "Watched":
            return Watched(self.batch.select(names))

        def slice(self, start: int, rows: int) -> "Watched":
            return Watched(self.batch.slice(start, rows))

        def to_pylist(self) -> list[dict[str, Any]]:
            asked.append(self.num_rows)
            return true_pylist(self.batch)

    rows = inputs._arrow_batches([Watched(arrow().combine_chunks().to_batches()[0])], ["text"])
    assert asked == []
    assert next(rows) == {"text": ROWS[0]["text"]}
    assert asked == [inputs.ROWS_AT_ONCE]
    assert sum(1 for _ in rows) == len(ROWS) - 1
    assert max(asked) <= inputs.ROWS_AT_ONCE


@pytest.mark.parametrize("missing", ["patient", "text"])
@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow table", "pyarrow batch", "datasets"])
def test_a_missing_column_is_named_before_anything_is_written(home: ProjectHome, kind: str, missing: str) -> None:
    make = {
        "pandas": pd.DataFrame,
        "polars": pl.DataFrame,
        "pyarrow table": pa.table,
        "pyarrow batch": lambda data: pa.table(data).to_batches()[0],
        "datasets": datasets.Dataset.from_dict,
    }[kind]
    table = make({name: values for name, values in columns().items() if name != missing})
    with refusal("ColumnMissing") as refused, open_input(home, table, ("text", "patient")):
        pass
    assert repr(missing) in refused.value.message
    assert "diary" not in refused.value.diagnostics()
    assert left(home) == []


def test_a_column_that_is_there_twice_is_no_column(home: ProjectHome) -> None:
    frame = pd.DataFrame([["a", "b"]], columns=["text", "text"])
    with refusal("ColumnMissing"), open_input(home, frame, ("text",)):
        pass


UNFIT: dict[str, tuple[Any, str]] = {
    "no text": ([{"patient": 1, "section": "a", "text": None}], "NoText"),
    "a number as text": ([{"patient": 1, "section": "a", "text": 7}], "NoText"),
    "not a number as text": (pd.DataFrame({"patient": [1], "section": ["a"], "text": [np.nan]}), "NoText"),
    "a text of bytes": ([{"patient": 1, "section": "a", "text": SECRET.encode()}], "NoText"),
    "half a pair": ([{"patient": 1, "section": "a", "text": "\ud800"}], "NotUtf8"),
    "a unit with a fraction": (pd.DataFrame({"patient": [1, None], "section": "a", "text": "b"}), "NoUnit"),
    "a truth value as unit": ([{"patient": True, "section": "a", "text": "b"}], "NoUnit"),
    "a day as unit": (pl.DataFrame({"patient": [date(2020, 1, 1)], "section": ["a"], "text": ["b"]}), "NoUnit"),
    "a list as label": (pa.table({"patient": [1], "section": [[SECRET]], "text": ["b"]}), "BadLabel"),
    "a missing field": ([{"patient": 1, "section": "a"}], "NoText"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_an_unfit_value_is_refused_with_its_row_and_never_quoted(home: ProjectHome, case: str) -> None:
    table, problem = UNFIT[case]
    with refusal(problem) as refused, open_input(home, table, FIELDS) as source:
        list(read_documents(source, "patient", "text", label_field="section"))
    assert "Line 1 of 'rows.jsonl'" in refused.value.message
    assert SECRET not in refused.value.diagnostics()
    assert left(home) == []


def test_a_missing_label_is_a_document_without_one(home: ProjectHome) -> None:
    frame = pd.DataFrame({"patient": [1, 2], "section": ["a", np.nan], "text": ["b", "c"]})
    with open_input(home, frame, FIELDS) as source:
        found = [one.label for one in read_documents(source, "patient", "text", label_field="section")]
    assert found == ["a", None]


def test_what_a_library_raises_is_replaced(home: ProjectHome) -> None:
    """pyarrow's message on bytes that are no UTF-8, like many of pandas, quotes them."""
    broken = pa.StringArray.from_buffers(
        1, pa.array([0, 12], pa.int32()).buffers()[1], pa.py_buffer(b"zanzibarqu\xff\xff")
    )
    table = pa.table({"text": broken, "patient": [1]})
    with refusal("InputUnreadable") as refused, open_input(home, table, ("text", "patient")):
        pass
    assert "zanzibar" not in refused.value.diagnostics()
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__
    assert left(home) == []


@pytest.mark.parametrize(
    "data",
    [
        7, None, b"bytes", {"text": ["a"]}, ["a text"], [("a", 1)], pd.Series(["a"]), pl.LazyFrame({"text": ["a"]}),
        np.array(["a"]), datasets.DatasetDict(),
    ],
    ids=lambda data: type(data).__name__,
)  # fmt: skip
def test_other_data_is_refused_by_its_type(home: ProjectHome, data: Any) -> None:
    with refusal("InputUnknown") as refused, open_input(home, data, ("text",)):
        pass
    assert "iterable of dicts" in refused.value.advice
    assert left(home) == []


def test_a_first_look_reads_some_rows_and_spoils_nothing(home: ProjectHome) -> None:
    with open_input(home, pd.DataFrame(ROWS), FIELDS, most=10) as source:
        assert isinstance(source, Path)
        assert rows_in(source) == [{name: row[name] for name in FIELDS} for row in ROWS[:10]]
    once = iter(ROWS)
    with refusal("InputUnknown", match="only once"), open_input(home, once, FIELDS, most=10):
        pass
    assert next(once) == ROWS[0]


def test_a_path_is_opened_as_a_command_opens_it(home: ProjectHome, tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text('{"text": "a"}\n')
    for given in (path, str(path), path.as_uri()):
        with open_input(home, given, ("text",)) as source:
            assert source == path
            assert left(home) == []
