"""Released rows, texts or topics, as tables of other libraries; each is imported only where it is asked for."""

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, overload

from models_db.errors import EnvironmentProblem

if TYPE_CHECKING:
    from tasks.values.results import Insight

Kind: TypeAlias = Literal["int", "text", "texts", "ints"]
Row: TypeAlias = Mapping[str, Any]

TEXT_COLUMNS: Final[tuple[tuple[str, Kind], ...]] = (
    ("id", "int"), ("label", "text"), ("text", "text"), ("doubts", "texts"),
)  # fmt: skip
TOPIC_COLUMNS: Final[tuple[tuple[str, Kind], ...]] = (
    ("id", "int"), ("parent", "int"), ("level", "int"), ("name", "text"), ("text", "text"), ("keywords", "texts"),
    ("support", "ints"), ("origins", "texts"), ("size", "int"), ("clusters", "int"),
)  # fmt: skip
"""Columns of tables, with the kind of their values; every value may be missing."""


def topic_rows(topics: Iterable["Insight"], what: str) -> "Rows":
    """Return topics as rows; `what` says of what."""
    from tasks.release.bundle_format import insight_row

    return Rows(tuple(map(insight_row, topics)), what, TOPIC_COLUMNS)


@dataclass(frozen=True, repr=False)
class Rows(Sequence[Row]):
    """Rows of a release, in the order of its file. Their content is not in the repr: a notebook keeps what it shows.

    Attributes:
        what: what the rows are, such as "texts of request 1".
        columns: the columns of tables that are made of them.
        looked_for: the sentence about their doubts (`tasks.text.doubts.describe_doubts`), where they have such a
            column.
    """

    rows: tuple[dict[str, Any], ...] = field(repr=False)
    what: str
    columns: tuple[tuple[str, Kind], ...]
    looked_for: str = ""

    def __repr__(self) -> str:
        columns = ", ".join(name for name, _ in self.columns)
        return f"<{len(self.rows)} {self.what}: {columns}{self.looked_for and f'. {self.looked_for}'}>"

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return map(MappingProxyType, self.rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> "Rows": ...
    def __getitem__(self, index: int | slice) -> "Row | Rows":
        if isinstance(index, slice):
            return Rows(self.rows[index], self.what, self.columns)
        return MappingProxyType(self.rows[index])

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as new dicts."""
        return [dict(row) for row in self.rows]

    def to_arrow(self) -> Any:
        """Return a `pyarrow.Table`: int64, string, and lists of them."""
        arrow = importlib.import_module("pyarrow")
        kinds = {"int": arrow.int64(), "text": arrow.string(), "texts": arrow.list_(arrow.string())}
        kinds["ints"] = arrow.list_(arrow.int64())
        schema = arrow.schema([(name, kinds[kind]) for name, kind in self.columns])
        return arrow.Table.from_pylist(list(self.rows), schema=schema)

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame`; integers that may be missing are `Int64`.

        Raises:
            LibraryMissing: pandas is not installed.
        """
        pandas = _library("pandas")
        kinds = {"int": "Int64", "text": "string", "texts": "object", "ints": "object"}
        return pandas.DataFrame(
            {
                name: pandas.Series([row[name] for row in self.rows], dtype=kinds[kind], name=name)
                for name, kind in self.columns
            }
        )

    def to_polars(self) -> Any:
        """Return a `polars.DataFrame`.

        Raises:
            LibraryMissing: polars is not installed.
        """
        return _library("polars").from_arrow(self.to_arrow())

    def to_datasets(self) -> Any:
        """Return a `datasets.Dataset` in memory: no file of it is written.

        Raises:
            LibraryMissing: datasets is not installed.
        """
        datasets = _library("datasets")
        return datasets.Dataset(datasets.table.InMemoryTable(self.to_arrow()))


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise EnvironmentProblem(
            f"{name} is not installed in this environment.",
            f"Type `python -m pip install {name}`, then call again; `to_arrow()` and `to_dicts()` need nothing more.",
            {"library": name},
            code="LibraryMissing",
        ) from None
