"""Keys: how they are kept, and the one encoding under which they are applied."""

import hashlib
import hmac
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.corpus.keys import (
    COMMITTED_TEXT,
    KeyExists,
    create_key,
    ensure_key,
    key_commitment,
    keyed_hash,
    length_prefixed,
    load_key,
)
from tests.refusals import refusal

pytestmark = pytest.mark.contract

KEY = bytes(range(32))


def test_the_encoding_is_the_stated_one() -> None:
    # label "batch", then "s1", then "é" (two bytes of UTF-8), each behind its 64-bit big-endian length
    message = b"\0\0\0\0\0\0\0\5batch" + b"\0\0\0\0\0\0\0\2s1" + b"\0\0\0\0\0\0\0\2\xc3\xa9"
    assert keyed_hash(KEY, "batch", "s1", "é") == hmac.new(KEY, message, hashlib.sha256).digest()


PARTS = st.lists(st.text(alphabet="ab\0\1", max_size=4), max_size=4)


@given(PARTS, PARTS)
def test_different_tuples_are_different_messages(one: list[str], other: list[str]) -> None:
    same = b"".join(map(length_prefixed, one)) == b"".join(map(length_prefixed, other))
    assert same == (one == other)


def test_a_key_comes_back_as_it_was_made(tmp_path: Path) -> None:
    committed = create_key(tmp_path / "a.key")
    key = load_key(tmp_path / "a.key", committed)
    assert len(key) == 32
    assert (tmp_path / "a.key").read_bytes() == key
    assert create_key(tmp_path / "b.key") != committed


def test_a_commitment_is_the_stated_function_of_the_key() -> None:
    message = len(COMMITTED_TEXT).to_bytes(8, "big") + COMMITTED_TEXT.encode()
    assert key_commitment(KEY) == hmac.new(KEY, message, hashlib.sha256).hexdigest()


def altered(key: bytes) -> Iterator[tuple[str, bytes]]:
    """Other contents of a key file: every bit flipped alone, and what disks, tools and people leave behind."""
    number = int.from_bytes(key, "big")
    for bit in range(8 * len(key)):
        yield f"bit {bit}", (number ^ (1 << bit)).to_bytes(len(key), "big")
    yield from (("zeros", bytes(32)), ("ones", b"\xff" * 32), ("reversed", key[::-1]), ("a newline more", key + b"\n"))
    yield from ((f"{size} bytes", (key * 2)[:size]) for size in (0, 1, 31, 33, 64))
    yield from (("as hexadecimal", key.hex().encode()), ("its own commitment", bytes.fromhex(key_commitment(key))))


def test_no_other_key_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    committed = create_key(path)
    key, number = path.read_bytes(), 0
    for what, content in altered(key):
        path.write_bytes(content)
        with refusal("KeyDiffers") as refused:
            load_key(path, committed)
        assert key.hex() not in f"{refused.value.message} {refused.value.facts}", what
        number += 1
    assert number == 256 + 4 + 5 + 2
    path.write_bytes(key)
    assert load_key(path, committed) == key


@pytest.mark.parametrize("commitment", ["", "0" * 64, "\u00e9"])
def test_without_a_commitment_no_key_is_loaded(tmp_path: Path, commitment: str) -> None:
    committed = create_key(tmp_path / "a.key")
    for wrong in (commitment, committed.upper(), committed[:-1]):
        with refusal("KeyDiffers"):
            load_key(tmp_path / "a.key", wrong)


def test_a_broken_off_founding_goes_on_with_its_key(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    committed = ensure_key(path)
    assert (ensure_key(path), key_commitment(path.read_bytes())) == (committed, committed)
    path.write_bytes(b"short")
    with refusal("KeyDiffers"):
        ensure_key(path)


def test_two_keys_of_one_name_in_one_place_are_different(tmp_path: Path) -> None:
    """A key says nothing about what it is for: it is drawn, not derived."""
    path, made = tmp_path / "a", set()
    for _ in range(8):
        made.add(create_key(path))
        path.unlink()
    assert len(made) == 8


def test_a_key_is_0600_even_under_an_open_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        create_key(tmp_path / "a.key")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.key").stat().st_mode) == 0o600


def test_a_key_is_never_replaced(tmp_path: Path) -> None:
    committed = create_key(tmp_path / "a.key")
    with pytest.raises(KeyExists):
        create_key(tmp_path / "a.key")
    load_key(tmp_path / "a.key", committed)


def test_a_key_that_cannot_be_written_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refusal("KeyNotWritable"):
        create_key(tmp_path / "no-such-folder" / "a.key")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with refusal("KeyNotWritable", match="No space left"):
        create_key(tmp_path / "a.key")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    with refusal("KeyMissing", match=r"a\.key"):
        load_key(tmp_path / "a.key", "0" * 64)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644])
def test_a_key_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "a.key"
    committed = create_key(path)
    path.chmod(mode)
    with refusal("KeyTooOpen", match=f"{mode:04o}"):
        load_key(path, committed)
