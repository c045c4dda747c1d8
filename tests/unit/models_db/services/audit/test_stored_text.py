"""Texts that rows keep are read within bounds, also those whose digest is right."""

import hashlib

import pytest

from models_db.services.audit.stored_text import stored_object
from tests.refusals import refusal


@pytest.mark.parametrize("value", ["[" * 400 + "]" * 400, "9" * 400, "[" * 5000 + "]" * 5000, "9" * 5000, "NaN"])
def test_depth_and_numbers_are_bounded(value: str) -> None:
    """What has its digest was recorded so, and says nothing."""
    text = f'{{"a":{value}}}'
    assert stored_object(text, "a row", hashlib.sha256(text.encode()).hexdigest()) == {}
    for digest in (None, "e" * 64):
        with refusal("LedgerAltered"):
            stored_object(text, "a row", digest)


def test_brackets_in_strings_do_not_count() -> None:
    assert stored_object('{"a":"' + "[" * 100 + '\\"{"}', "a row") == {"a": "[" * 100 + '"{'}
