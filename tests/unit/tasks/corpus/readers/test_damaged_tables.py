"""Damaged tables: a named error, and never memory that is no part of the file; small tables of large values."""

import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from models_db.errors import AlmonerError
from tasks.corpus.readers.readers import read_documents


def strings(offsets: list[int], data: bytes) -> pa.Array:
    """An array of strings with these offsets, right or wrong."""
    packed = struct.pack(f"<{len(offsets)}i", *offsets)
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, [None, pa.py_buffer(packed), pa.py_buffer(data)])


def arrow_file(path: Path, text: pa.Array) -> Path:
    batch = pa.record_batch({"text": text})
    with path.open("wb") as file, pyarrow.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    return path


def damaged(path: Path, text: pa.Array, right: bytes, wrong: bytes) -> Path:
    data = arrow_file(path, text).read_bytes()
    assert data.count(right) == 1
    path.write_bytes(data.replace(right, wrong))
    return path


def error_of(path: Path) -> AlmonerError:
    with pytest.raises(AlmonerError) as caught:
        list(read_documents(path, None))
    return caught.value


@pytest.mark.parametrize("wrong", [(0, 3, 100_000), (0, -5, 6), (0, 6, 3)])
def test_offsets_outside_of_the_file_are_refused(tmp_path: Path, wrong: tuple[int, int, int]) -> None:
    right, false = struct.pack("<3i", 0, 3, 6), struct.pack("<3i", *wrong)
    path = damaged(tmp_path / "a.arrow", strings([0, 3, 6], b"onetwo"), right, false)
    assert error_of(path).code == "SourceUnreadable"


def test_an_index_into_no_dictionary_is_refused(tmp_path: Path) -> None:
    numbers = pa.array([1, 0, 1, 0, 1], pa.int32())
    text = pa.DictionaryArray.from_arrays(numbers, pa.array(["a", "b"]))
    right = struct.pack("<5i", 1, 0, 1, 0, 1)
    path = damaged(tmp_path / "a.arrow", text, right, struct.pack("<5i", 1, 0, 9_999_999, 0, 1))
    assert error_of(path).code == "SourceUnreadable"


def test_broken_utf8_is_named_by_its_row(tmp_path: Path) -> None:
    problem = error_of(arrow_file(tmp_path / "a.arrow", strings([0, 3, 6], b"one\xff\xfe\xfd")))
    assert problem.code == "NotUtf8"
    assert problem.message.startswith("Row 2 of ")


def test_a_column_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["x"], "qqqq": ["y"]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"qqqq", b"\xff\xfe\xfd\xfc"))
    assert error_of(path).code == "SourceUnreadable"


def test_a_value_that_a_dictionary_repeats_is_not_held_for_all_rows(tmp_path: Path) -> None:
    """A file of some hundred bytes: 256 rows of the same MiB."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 256, pa.int32()), pa.array(["x" * 2**20]))
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": text}), path, store_schema=False, compression="zstd")
    assert path.stat().st_size < 2**12
    usual = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(counting)
    try:
        assert sum(len(document.text) for document in read_documents(path, None)) == 256 * 2**20
    finally:
        pa.set_memory_pool(usual)
    assert 2**20 < counting.max_memory() < 80 * 2**20
