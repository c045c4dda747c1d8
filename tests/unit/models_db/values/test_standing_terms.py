"""What differs between two configurations, and what a canonical request costs."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json
from models_db.values.standing_terms import cost_of, describe_differences, differing_fields

CONFIGURATIONS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2) | st.none(), max_size=4)


@given(CONFIGURATIONS, CONFIGURATIONS)
def test_only_equal_configurations_differ_in_nothing(then: dict[str, Json], now: dict[str, Json]) -> None:
    found = differing_fields(then, now)
    assert found == differing_fields(now, then) == sorted(set(found))
    assert {name: value for name, value in then.items() if name not in found} == {
        name: value for name, value in now.items() if name not in found
    }
    assert bool(found) is (then != now)


@pytest.mark.parametrize(
    ("differs", "said"),
    [
        (["epsilon", "plan"], "the request has another `epsilon`, `plan`"),
        (["code"], "ends every standing authorisation"),
        (["code", "kind", "policy"], "almoner itself .*; another policy .*; the request has another `kind`"),
    ],
)
def test_reasons_are_said_in_words(differs: list[str], said: str) -> None:
    assert re.search(said, describe_differences(differs))


def test_a_cost_is_the_sum_of_all_instalments() -> None:
    part: Json = {"rho": "3", "delta": "1"}
    plan: Json = {"invocations": [{"instalments": [part, part]}, {"instalments": [part]}]}
    assert cost_of({"plan": plan}) == Amount(9, 3)
    assert cost_of({"plan": {"invocations": []}}) == Amount()
