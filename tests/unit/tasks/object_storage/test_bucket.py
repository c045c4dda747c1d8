"""What a store answers has a name, and neither its words nor names of objects are repeated."""

import os
from typing import Any

import pytest
from fsspec.asyn import get_loop

from tasks.object_storage import bucket
from tasks.object_storage.address import Address
from tasks.object_storage.bucket import Entry, Store
from tasks.object_storage.errors import (
    ObjectChanged,
    StoreAnswer,
)
from tests.refusals import refusal

NAME = "Zebulon Quartermaine"
PLACE = Address("clinic", "in")


class Refusing:
    """The files of a store whose every request has one answer."""

    errors = ()

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.loop = get_loop()

    async def head(self, *_: object) -> Any:
        if isinstance(self.answer, Exception):
            raise OSError(f"{NAME} hunter2") from self.answer
        return self.answer

    page = read = head


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("AccessDenied", "StoreDenied"),
        ("401", "StoreDenied"),
        ("503", "StoreUnreachable"),
        ("429", "StoreUnreachable"),
        ("NoSuchBucket", "BucketMissing"),
        ("NoSuchKey", "ObjectChanged"),
        ("412", "ObjectChanged"),
        ("418", "StoreFailed"),
        ("a code with spaces", "StoreFailed"),
    ],
)
def test_an_answer_has_a_name_and_its_words_are_not_repeated(code: str, error: str) -> None:
    store = Store(Refusing(StoreAnswer(code)))
    for use in (
        lambda: store.find(PLACE),
        lambda: list(store.list_below(PLACE)),
        lambda: store.open(Entry(PLACE / NAME, 4, "tag"), PLACE),
    ):
        with refusal(error) as refused:
            use()
        said = refused.value.diagnostics()
        assert [word for word in (NAME, "hunter2", "spaces") if word in said] == []
        assert refused.value.temporary is (error == "StoreUnreachable")


@pytest.mark.parametrize("key", [f"out/{NAME}", "in", ""])
def test_objects_of_another_place_are_refused(key: str) -> None:
    with refusal("StoreFailed", match="another place") as refused:
        list(Store(Refusing(([(key, 4, "tag")], None))).list_below(PLACE))
    assert NAME not in refused.value.diagnostics()


def test_an_object_in_another_state_is_not_opened() -> None:
    with pytest.raises(ObjectChanged):
        Store(Refusing((4, "another"))).open(Entry(PLACE, 4, "tag"))


class Holding(Refusing):
    """The files of a store with one object, ten bytes at most at once."""

    def __init__(self, data: bytes) -> None:
        super().__init__((len(data), "tag"))
        self.data = data

    async def read(self, _bucket: str, _key: str, _tag: str, first: int, last: int) -> bytes:
        assert last - first < 10
        return self.data[first : last + 1]


def test_an_object_is_read_like_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket, "_READ_AHEAD", 10)
    data = bytes(range(37))
    with Store(Holding(data)).open(Entry(PLACE, 37, "tag")) as file:
        assert file.read() == data
        assert file.seek(-5, os.SEEK_END) == 32
        assert file.read(3) == data[32:35]
        assert file.seek(-30, os.SEEK_CUR) == 5
        assert file.read(25) == data[5:30]
        assert file.tell() == 30
        with pytest.raises(ValueError, match="negative"):
            file.seek(-1)
    with Store(Holding(b"")).open(Entry(PLACE, 0, "tag")) as file:
        assert file.read() == b""


def test_a_range_that_is_too_short_is_no_range() -> None:
    with Store(Holding(b"abc")).open(Entry(PLACE, 3, "tag")) as file:
        file.raw._size = 4
        with refusal("StoreUnreachable"):
            file.read()
