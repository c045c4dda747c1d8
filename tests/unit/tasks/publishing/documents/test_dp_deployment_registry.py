"""Registry records: valid by the schema we keep, whatever was declared, and silent about what nobody may know."""

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from tasks.mechanisms.core.uncharged import uncharged
from tasks.publishing.documents.dp_deployment_registry import NOT_DECLARED, NOTHING, SCHEMA, deployment
from tasks.publishing.documents.markup import yaml_lines
from tasks.release.record import CapChange, Lifetime, PublicContent, ReleaseRecord
from tests.unit.tasks.publishing.builders import a_record, a_request, invocation

VALIDATOR = Draft7Validator(SCHEMA, format_checker=Draft7Validator.FORMAT_CHECKER)
DECLARED = {
    "name": "Visits to a clinic",
    "description": "Notes.\n\n  Indented.\n- and: a list",
    "creators": ["The clinic", "The board"],
    "intended_use": "Teaching.",
    "region": "Utopia",
    "sector": "Healthcare",
    "publication_date": "2026-12-01",
}
NASTY = "x: [\n  - 'y'\n# z\n\u202e\n|2-\n'\"\\"


def text(record: ReleaseRecord) -> str:
    return deployment(PublicContent(record, (), {}))


def loaded(record: ReleaseRecord) -> Any:
    found = yaml.safe_load(text(record))
    assert [error.message for error in VALIDATOR.iter_errors(found)] == []
    return found


def part(name: str, request: dict[str, Any] | None = None, **changes: Any) -> Any:
    return loaded(a_record(request, **changes))["deployment"][name]


def without_charge(name: str, **changes: Any) -> ReleaseRecord:
    plan = {"blocks": [0], "facts": {}, "invocations": [invocation(uncharged(name))]}
    return a_record(a_request(mechanism=name, plan=plan, **changes), second_opinion=None, released={})


def test_the_schema_is_a_schema() -> None:
    Draft7Validator.check_schema(SCHEMA)


def test_the_claim_is_stated_to_the_last_digit() -> None:
    assert "      epsilon: 4\n      delta: 0.0000001\n      rho: 0.266311880304\n" in text(a_record())
    loss = part("privacy_loss")
    assert loss["privacy_parameters"] == {"epsilon": 4, "delta": 1e-7, "rho": 0.266311880304}
    assert loss["privacy_unit"] == "id"
    assert "replacing one unit by another: epsilon 8.705414862406 at delta 0.0000001" in loss["privacy_unit_details"]
    assert part("dp_variant")["variant_name"] == "Zero-concentrated DP"


def test_what_is_declared_is_in_its_field_and_the_rest_is_said_to_be_missing() -> None:
    basic = part("basic", a_request(public_metadata=DECLARED))
    assert basic["name"] == "Visits to a clinic, release 1"
    assert [one["data_curator_name"] for one in basic["data_curators"]] == ["The clinic", "The board"]
    assert basic["description"].startswith("Notes.\n\n  Indented.\n- and: a list\n\nTexts written by")
    assert (basic["publication_date"], basic["data_product_sector"]) == ("2026-12-01", "Healthcare")
    bare = part("basic")
    assert {bare["intended_use"], bare["data_product_region"], bare["data_curators"][0]["data_curator_name"]} == {
        NOT_DECLARED
    }
    assert not {"publication_date", "data_product_sector"} & set(bare)


def test_it_never_says_how_many_units_there_are() -> None:
    assert "number_of_privacy_units" not in text(a_record())


def test_mechanisms_and_budget_are_stated() -> None:
    change = CapChange(old_epsilon="2", old_delta="0", new_epsilon="8", new_delta="0.000001")
    lifetime = Lifetime(epsilon="8", delta="0.000001", shared=True)
    found = part("implementation", cap_changes=[change], lifetime=lifetime)
    assert "integer_draw: 48 invocations, rho 0.266311880304 in all" in found["mechanisms"]
    for stated in ("epsilon 8 at delta 0.000001", "Several datasets share", "Stewards have changed it"):
        assert stated in found["composition"]


def test_a_mechanism_that_can_fail_makes_it_approximate() -> None:
    record = a_record()
    claim = record.claim.model_copy(update={"delta_fail": "0.00000001"}) if record.claim else None
    assert loaded(record.model_copy(update={"claim": claim}))["deployment"]["dp_variant"]["variant_name"] == (
        "Approximate DP"
    )


def test_a_release_that_reads_nothing_is_private_without_any_loss() -> None:
    found = loaded(without_charge("public_only"))["deployment"]
    assert found["dp_variant"]["variant_name"] == "Pure DP"
    assert found["privacy_loss"]["privacy_parameters"] == {"epsilon": 0, "delta": 0, "rho": 0}


def test_nothing_is_registered_where_nothing_is_claimed() -> None:
    record = without_charge("non_private", governed=False, epsilon=None, delta=None)
    assert text(record) == NOTHING
    assert yaml.safe_load(NOTHING) is None


@pytest.mark.parametrize("word", [NASTY, "a", "\u0416\u00e9", "null", "1", "- a", "yes"])
def test_whatever_is_declared_stays_in_its_field(word: str) -> None:
    said = dict.fromkeys(("description", "intended_use"), word) | {"creators": [word.replace("\n", " ")]}
    request = a_request(
        dataset={"name": word, "version": 1, "uid": "4d"}, unit=word, public_metadata=said, plan=a_request()["plan"]
    )
    found = loaded(a_record(request))
    assert set(found["deployment"]) == set(loaded(a_record())["deployment"])
    assert found["deployment"]["privacy_loss"]["privacy_parameters"]["epsilon"] == 4


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["deployment"].pop("basic"),
        lambda d: d["deployment"]["privacy_loss"].pop("privacy_parameters"),
        lambda d: d["deployment"]["privacy_loss"].update(number_of_privacy_units=154),
        lambda d: d["deployment"]["privacy_loss"]["privacy_parameters"].update(epsilon="4"),
        lambda d: d["deployment"]["basic"].update(publication_date="1.12.2026"),
        lambda d: d["deployment"]["administrative"].update(tier=4),
        lambda d: d["deployment"]["basic"].update(description=""),
        lambda d: d.update(url_slug="Two words"),
    ],
)
def test_the_schema_refuses_other_records(change: Any) -> None:
    found = loaded(a_record())
    change(found)
    assert not VALIDATOR.is_valid(found)


LINES = st.text("a1 -:#'\"|>{[&*!%@`\\\u00e9\u0416\U0001f600", max_size=10)
KEYS = st.sampled_from(["name", "a_b", "c"])
FLAT = st.one_of(st.integers(), LINES, st.lists(LINES, min_size=2, max_size=3).map("\n".join))
VALUES = st.one_of(
    FLAT,
    st.dictionaries(KEYS, FLAT, min_size=1, max_size=3),
    st.lists(st.dictionaries(KEYS, LINES, min_size=1, max_size=2), min_size=1, max_size=2),
)


def as_written(value: Any) -> Any:
    """A value as it can be written: no space around a text or at the end of a line."""
    if isinstance(value, str):
        return "\n".join(line.rstrip() for line in value.strip().splitlines())
    if isinstance(value, dict):
        return {name: as_written(item) for name, item in value.items()}
    return [as_written(item) for item in value] if isinstance(value, list) else value


@settings(max_examples=50)
@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=3))
def test_what_is_written_is_read(values: dict[str, Any]) -> None:
    assert yaml.safe_load(yaml_lines(values)) == as_written(values)
