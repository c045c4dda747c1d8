"""Stored events are read back as they were written; what is not one of ours is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models_db.values.amounts import Amount
from models_db.values.canonical_json import encode_canonical
from models_db.values.events import PrivacyEvent

names = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1)
events = st.builds(
    PrivacyEvent,
    mechanism=names,
    count=st.integers(0, 10**6),
    parameters=st.dictionaries(names, st.integers(0, 2**53 - 1) | st.from_regex(r"[0-9]{1,5}/[1-9]", fullmatch=True)),
    loss=st.builds(Amount, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)),
    dp_event=st.dictionaries(names, names | st.integers(0, 100) | st.lists(names)),
    relation=st.sampled_from(["add_or_remove_one", "replace_one"]),
)  # fmt: skip

STORED: dict[str, Any] = PrivacyEvent(
    "integer_draw", 500, {"eta": "1/7"}, Amount(10**12, 5), {"class_name": "X"}
).to_json()


@given(events)
def test_stored_and_read_back(event: PrivacyEvent) -> None:
    stored = encode_canonical(event.to_json())
    assert PrivacyEvent.from_json(json.loads(stored)) == event
    assert encode_canonical(PrivacyEvent.from_json(json.loads(stored)).to_json()) == stored


def test_the_stored_form_does_not_change() -> None:
    """Rows and published bundles outlive the code: this text is what they hold."""
    assert encode_canonical(STORED) == (
        b'{"count":500,"delta":"5","dp_event":{"class_name":"X"},"mechanism":"integer_draw","parameters":{"eta":"1/7"},'
        b'"relation":"add_or_remove_one","rho":"1000000000000"}'
    )


@pytest.mark.parametrize("missing", STORED)
def test_a_missing_field_is_refused(missing: str) -> None:
    with pytest.raises(KeyError, match=missing):
        PrivacyEvent.from_json({key: value for key, value in STORED.items() if key != missing})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"epsilon": "1"}, ValueError),
        ({"count": "500"}, TypeError),
        ({"count": True}, TypeError),
        ({"count": 1.5}, TypeError),
        ({"parameters": ["eta"]}, TypeError),
        ({"parameters": {"eta": 0.14}}, TypeError),
        ({"parameters": {"eta": True}}, TypeError),
        ({"parameters": {"eta": None}}, TypeError),
        ({"rho": "1.5"}, ValueError),
        ({"rho": 15}, TypeError),
        ({"rho": "1_000"}, ValueError),
        ({"rho": " 7"}, ValueError),
        ({"rho": "007"}, ValueError),
        ({"rho": "-1"}, ValueError),
        ({"delta": "many"}, ValueError),
        ({"mechanism": 3}, TypeError),
        ({"relation": None}, TypeError),
    ],
)
def test_what_is_not_ours_is_refused(change: dict[str, object], problem: type[Exception]) -> None:
    with pytest.raises(problem):
        PrivacyEvent.from_json(STORED | change)  # type: ignore[arg-type]
