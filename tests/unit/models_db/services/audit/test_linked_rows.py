import json

import pytest

from models_db.services.audit.log import MOST_BODY_BYTES, parse_body
from models_db.values.canonical_json import MOST_DEPTH


def test_an_object_is_read() -> None:
    body = {"rho": "17", "blocks": [0, 1], "nested": {"of": None}}
    assert parse_body(json.dumps(body)) == body


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "17",
        "{",
        '{"n": NaN}',
        f'{{"n": {"9" * 5000}}}',
        f'{{"n": {"[" * 3000}{"]" * 3000}}}',
        f'{{"n": {"[" * (MOST_DEPTH + 1)}{"]" * (MOST_DEPTH + 1)}}}',
        f'{{"n": "{"x" * MOST_BODY_BYTES}"}}',
    ],
    ids=["empty", "list", "number", "cut", "constant", "digits", "deep", "just too deep", "long"],
)
def test_a_hostile_body_is_unreadable(text: str) -> None:
    assert parse_body(text) is None
