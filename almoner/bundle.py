"""A published bundle: verify it; read its texts or topics as tables of other libraries, imported on demand."""

import importlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, overload

from models_db.errors import EnvironmentProblem
from models_db.home import ProjectHome

if TYPE_CHECKING:
    from tasks.object_storage.address import Place
    from tasks.publishing.verify import VerificationReport
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


BUNDLE_COLUMNS = TEXT_COLUMNS[:3]


@dataclass(frozen=True)
class Bundle:
    """A published bundle, on this machine or in a store.

    Attributes:
        project: the home whose settings open stores; a bundle on this machine needs none.
        place: the folder, or the address.
    """

    project: ProjectHome = field(repr=False)
    place: "Place"

    @classmethod
    def at(cls, place: str | os.PathLike[str]) -> "Bundle":
        """Return the bundle at a path or address; verify it before you rely on it."""
        from tasks.object_storage.address import parse_place

        return cls(ProjectHome.locate(), parse_place(os.fspath(place)))

    def verify(self, key: str | None = None) -> "VerificationReport":
        """Verify it offline, as `almoner verify-release` does: digests, signatures, approvals, epsilon recomputed.

        Args:
            key: the publisher's public key from another source; without it the origin stays unproven.

        Returns:
            The checks, with `holds` for all of them and a `conclusion` in words.
        """
        from tasks.publishing.verify import verify_release

        with self._folder() as folder:
            return verify_release(folder, key)

    def texts(self) -> Rows:
        """Return all published texts: `id`, `label`, `text`.

        Raises:
            NoBundle, FileUnfit: there is no bundle, or a file of it is not in its format.
        """
        from tasks.release.bundle_format import read_labelled

        with self._folder() as folder:
            rows = tuple(
                {"id": number, "label": label, "text": text}
                for number, (text, label) in enumerate(read_labelled(folder), 1)
            )
        return Rows(rows, f"texts of {self.place}", BUNDLE_COLUMNS)

    def topics(self) -> Rows:
        """Return all published topics, parents before their children.

        Raises:
            NotInsights: it is a release of another kind.
            NoBundle, FileUnfit: as `texts`.
        """
        from flows.releases.release_texts import read_topics

        with self._folder() as folder:
            return topic_rows(read_topics(folder, str(self.place)), f"topics of {self.place}")

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        from flows.workspace.object_stores import open_bundle_folder

        with open_bundle_folder(self.project, self.place) as folder:
            yield folder
