"""What a store answers has a name, and neither its words nor names of objects are repeated."""

from types import SimpleNamespace
from typing import Any

import pytest

from models_db.errors import AlmonerError
from tasks.object_storage.address import Address
from tasks.object_storage.bucket import Entry, Store
from tasks.object_storage.errors import (
    BucketMissing,
    ObjectChanged,
    StoreAnswer,
    StoreDenied,
    StoreFailed,
    StoreUnreachable,
)

NAME = "Zebulon Quartermaine"
PLACE = Address("clinic", "in")


class Refusing:
    """A file system whose every request has one answer."""

    def __init__(self, answer: Exception | dict[str, Any]) -> None:
        self.answer = answer

    def call_s3(self, method: str, **_: object) -> Any:
        if isinstance(self.answer, Exception):
            raise OSError(f"{NAME} hunter2") from self.answer
        return self.answer

    def open(self, *_: object, **__: object) -> Any:
        return SimpleNamespace(details=self.call_s3("head_object"))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("AccessDenied", StoreDenied), ("401", StoreDenied), ("503", StoreUnreachable), ("429", StoreUnreachable),
        ("NoSuchBucket", BucketMissing), ("NoSuchKey", ObjectChanged), ("412", ObjectChanged), ("418", StoreFailed),
        ("a code with spaces", StoreFailed),
    ],
)  # fmt: skip
def test_an_answer_has_a_name_and_its_words_are_not_repeated(code: str, error: type[AlmonerError]) -> None:
    store = Store(Refusing(StoreAnswer(code)), ())
    for use in (
        lambda: store.find(PLACE),
        lambda: list(store.list_below(PLACE)),
        lambda: store.open(Entry(PLACE / NAME, 4, "tag"), PLACE),
    ):
        with pytest.raises(error) as refused:
            use()
        said = refused.value.diagnostics()
        assert [word for word in (NAME, "hunter2", "spaces") if word in said] == []
        assert refused.value.temporary is (error is StoreUnreachable)


def test_objects_of_another_place_are_refused() -> None:
    listed = {"Contents": [{"Key": f"out/{NAME}", "Size": 4, "ETag": "tag"}]}
    with pytest.raises(StoreFailed, match="another place") as refused:
        list(Store(Refusing(listed), ()).list_below(PLACE))
    assert NAME not in refused.value.diagnostics()


@pytest.mark.parametrize("item", [{"Key": "in/a", "Size": 4}, {"Key": "in/a", "ETag": "tag"}, {"Size": 4, "ETag": "t"}])
def test_an_object_without_key_size_or_tag_is_refused(item: dict[str, Any]) -> None:
    with pytest.raises(StoreFailed, match="no-object"):
        list(Store(Refusing({"Contents": [item]}), ()).list_below(PLACE))


def test_an_object_in_another_state_is_not_opened() -> None:
    with pytest.raises(ObjectChanged):
        Store(Refusing({"ETag": "another"}), ()).open(Entry(PLACE, 4, "tag"))
