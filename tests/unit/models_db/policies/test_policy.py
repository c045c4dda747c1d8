"""Policies: each rule is in the digest, what is out of form is refused, a dataset may have rules of its own."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models_db.policies.policy import (
    DatasetApprovals,
    EvaluationRules,
    MetricBound,
    Policy,
    ReleaseLimits,
    RequiredApprovals,
)
from models_db.values.canonical_json import digest, encode_canonical
from models_db.values.requests import model_to_json, parse_model
from tests.refusals import refusal


def policy(**fields: Any) -> Policy:
    """A policy, from what YAML gives."""
    return parse_model(Policy, fields, "policy.yaml")


def test_a_policy_states_its_format_and_all_that_it_allows() -> None:
    assert model_to_json(Policy()) == {
        "version": 1,
        "several_roles": False,
        "approvals": {"spend": 1, "publish": 1, "proposal": 2},
        "approval_days": 30,
        "request_days": 90,
        "attempts": 5,
        "delta_below_population": False,
        "evaluation": {"overrides": "allowed"},
        "refusals": "full",
    }
    assert Policy.model_validate_json("{}") == Policy()


@pytest.mark.parametrize("number", [0, 2, 3, True, "1", 1.0])
def test_another_format_is_refused_by_name(number: object) -> None:
    with refusal("FileInvalid", match="version: this almoner reads format 1"):
        parse_model(Policy, {"version": number}, "policy.yaml")


@pytest.mark.parametrize(
    "rule",
    [
        {"release": {"epsilon_max": 4, "delta_max": 1e-7}},
        {"delta_below_population": True},
        {"mechanisms": ["public_only"]},
        {"models": ["tiny"]},
        {"evaluation": {"required": {"length": {}}}},
        {"lifetime_while_secret": {"epsilon": 4, "delta": 1e-7}},
        {"refusals": "quiet"},
        {"datasets": {"clinic": {}}},
        {"approvals": {"proposal": 3}},
    ],
)
def test_every_rule_changes_the_digest(rule: dict[str, Any]) -> None:
    assert digest(model_to_json(policy(**rule))) != digest(model_to_json(policy()))


def test_the_same_rules_have_the_same_digest_however_they_are_written() -> None:
    written = policy(release={"epsilon_max": "4.0", "delta_max": "1e-7"})
    other = policy(
        release={"epsilon_max": 4, "delta_max": 1.0e-7}, refusals="full",
        mechanisms=None, evaluation={"required": {}},
    )  # fmt: skip
    assert digest(model_to_json(written)) == digest(model_to_json(other))
    assert encode_canonical(model_to_json(written)) == encode_canonical(written.model_dump())


FULL = {
    "several_roles": False,
    "approvals": {"spend": 2, "publish": 2, "proposal": 3},
    "approval_days": 14,
    "release": {"epsilon_max": 4, "delta_max": 1e-7},
    "delta_below_population": True,
    "mechanisms": ["invisible_ink", "public_only"],
    "models": ["tiny"],
    "evaluation": {"required": {"length": {"cut_share": {"max": 0.5}}, "distinct": {}}},
    "refusals": "quiet",
    "datasets": {
        "clinic": {
            "approvals": {"publish": 3},
            "release": {"epsilon_max": 1, "delta_max": 1e-8},
            "delta_below_population": False,
            "mechanisms": ["public_only"],
            "models": ["other"],
            "evaluation": {},
        },
        "harbour": {},
    },
}


def test_a_policy_survives_storage() -> None:
    full = policy(**FULL)
    assert Policy.model_validate_json(encode_canonical(model_to_json(full))) == full
    assert Policy.model_validate_json(full.model_dump_json()) == full


def test_a_dataset_has_the_general_rules_where_it_has_none_of_its_own() -> None:
    full = policy(**FULL)
    general, harbour, clinic = (full.rules_for(name) for name in ("elsewhere", "harbour", "clinic"))
    assert harbour == general
    assert (general.spend, general.publish, general.proposal) == (2, 2, 3)
    assert (clinic.spend, clinic.publish, clinic.proposal) == (2, 3, 3)
    assert clinic.release == ReleaseLimits(epsilon_max="1", delta_max="1e-8")  # type: ignore[arg-type]
    assert general.release != clinic.release
    assert (general.delta_below_population, clinic.delta_below_population) == (True, False)
    assert (general.mechanisms, clinic.mechanisms) == (("invisible_ink", "public_only"), ("public_only",))
    assert (general.models, clinic.models) == (("tiny",), ("other",))
    assert (set(general.required), set(clinic.required)) == ({"length", "distinct"}, set())


def test_a_proposal_needs_two_unless_the_policy_says_otherwise() -> None:
    assert policy().rules_for("clinic").proposal == 2
    assert policy(approvals={"spend": 1, "proposal": 1}).rules_for("clinic").proposal == 1
    assert Policy(approvals=RequiredApprovals(spend=1, publish=1)).rules_for("clinic").proposal == 2


WRONG: list[tuple[Any, str]] = [
    ([], "the file"),
    (None, "the file"),
    ({"colour": "red"}, "colour"),
    ({"several_roles": "yes"}, "several_roles"),
    ({"several_roles": 1}, "several_roles"),
    ({"approvals": {"spend": 0}}, "approvals.spend"),
    ({"approvals": {"spend": 21}}, "approvals.spend"),
    ({"approvals": {"publish": True}}, "approvals.publish"),
    ({"approvals": {"publish": "2"}}, "approvals.publish"),
    ({"approvals": {"proposal": 1.5}}, "approvals.proposal"),
    ({"approvals": {"spent": 1}}, "approvals.spent"),
    ({"approval_days": 0}, "approval_days"),
    ({"approval_days": 366}, "approval_days"),
    ({"request_days": 0}, "request_days"),
    ({"attempts": 0}, "attempts"),
    ({"attempts": 101}, "attempts"),
    ({"release": {"epsilon_max": 4}}, "release.delta_max"),
    ({"release": {"delta_max": 1e-7}}, "release.epsilon_max"),
    ({"release": {"epsilon_max": 0, "delta_max": 1e-7}}, "release.epsilon_max"),
    ({"release": {"epsilon_max": -1, "delta_max": 1e-7}}, "release.epsilon_max"),
    ({"release": {"epsilon_max": "nan", "delta_max": 1e-7}}, "release.epsilon_max"),
    ({"release": {"epsilon_max": "inf", "delta_max": 1e-7}}, "release.epsilon_max"),
    ({"release": {"epsilon_max": "1e999999999", "delta_max": 1e-7}}, "release.epsilon_max"),
    ({"release": {"epsilon_max": "1e-999999999", "delta_max": 1e-7}}, "release.epsilon_max"),
    ({"release": {"epsilon_max": 4, "delta_max": 0}}, "release.delta_max"),
    ({"release": {"epsilon_max": 4, "delta_max": 1}}, "release.delta_max"),
    ({"release": {"epsilon_max": 4, "delta_max": "1e-19"}}, "release.delta_max"),
    ({"release": {"epsilon_max": True, "delta_max": 1e-7}}, "release.epsilon_max"),
    ({"delta_below_population": "yes"}, "delta_below_population"),
    ({"mechanisms": []}, "mechanisms"),
    ({"mechanisms": ["Magic!"]}, "mechanisms.0"),
    ({"mechanisms": "public_only"}, "mechanisms"),
    ({"models": []}, "models"),
    ({"models": [""]}, "models.0"),
    ({"evaluation": {"required": ["length"]}}, "evaluation.required"),
    ({"evaluation": {"required": {"length": {"cut_share": {}}}}}, "cut_share"),
    ({"evaluation": {"required": {"length": {"cut_share": {"min": 2, "max": 1}}}}}, "cut_share"),
    ({"evaluation": {"required": {"length": {"cut_share": {"least": 2}}}}}, "cut_share.least"),
    ({"evaluation": {"required": {"length": {"cut_share": {"max": "1e500"}}}}}, "cut_share.max"),
    ({"refusals": "silent"}, "refusals"),
    ({"datasets": ["clinic"]}, "datasets"),
    ({"datasets": {"": {}}}, "datasets"),
    ({"datasets": {"clinic": {"epsilon": 1}}}, "datasets.clinic.epsilon"),
    ({"datasets": {"clinic": {"approvals": {"spend": 0}}}}, "datasets.clinic.approvals.spend"),
    ({"datasets": {"clinic": {"attempts": 1}}}, "datasets.clinic.attempts"),
]


@pytest.mark.parametrize(("written", "place"), WRONG)
def test_what_is_out_of_form_is_refused_by_its_place(written: Any, place: str) -> None:
    with refusal("FileInvalid") as refused:
        parse_model(Policy, written, "policy.yaml", "docs/policy.md")
    [problem] = [p for p in refused.value.facts["problems"] if p.startswith(place) or place in p.split(":")[0]]  # type: ignore[attr-defined]
    assert len(problem) < 500
    assert "docs/policy.md" in refused.value.advice


@pytest.mark.parametrize(
    "written",
    [
        {"approvals": {"spend": 20, "publish": 20, "proposal": 20}, "approval_days": 365, "attempts": 100},
        {"release": {"epsilon_max": 1_000_000, "delta_max": "1e-18"}},
        {"release": {"epsilon_max": "1e-12", "delta_max": "0.999"}},
        {"evaluation": {"required": {"length": {"cut_share": {"min": 1, "max": 1}}}}},
    ],
)
def test_the_ends_of_every_range_are_allowed(written: dict[str, Any]) -> None:
    assert policy(**written).version == 1


def test_a_bound_includes_its_ends() -> None:
    bound = MetricBound(min="0.1", max="0.5")  # type: ignore[arg-type]
    inside = [value for value in ("0.0999", "0.1", "0.3", "0.5", "0.5001") if bound.admits(as_decimal(value))]
    assert inside == ["0.1", "0.3", "0.5"]
    assert str(bound) == "at least 0.1 and at most 0.5"
    assert str(MetricBound(max="1e-7")) == "at most 0.0000001"  # type: ignore[arg-type]


def as_decimal(text: str) -> Any:
    """A figure, as files give it."""
    return MetricBound(min=text).min  # type: ignore[arg-type]


SCHEMA = Policy.model_json_schema()


@pytest.mark.parametrize("written", [{}, {"version": 1}, {"version": 1} | FULL])
def test_what_is_a_policy_fits_the_schema(written: dict[str, Any]) -> None:
    parse_model(Policy, written, "policy.yaml")
    jsonschema.validate(written, SCHEMA)


@pytest.mark.parametrize(
    "written",
    [
        {"version": 2},
        {"colour": "red"},
        {"approvals": {"spend": 0}},
        {"release": {"epsilon_max": 4}},
        {"mechanisms": ["Magic!"]},
    ],
)
def test_what_is_none_does_not_fit_the_schema(written: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(written, SCHEMA)


def test_every_field_is_explained_in_the_schema() -> None:
    shapes = {"Policy": SCHEMA, **SCHEMA["$defs"]}
    unexplained = [
        f"{shape}.{name}"
        for shape, content in shapes.items()
        for name, field in content["properties"].items()
        if not field.get("description")
    ]
    assert unexplained == []


@given(
    spend=st.integers(1, 20),
    own=st.none() | st.integers(1, 20),
    proposal=st.none() | st.integers(1, 20),
    own_proposal=st.none() | st.integers(1, 20),
)
def test_the_number_for_a_dataset_is_its_own_else_the_general_one(
    spend: int, own: int | None, proposal: int | None, own_proposal: int | None
) -> None:
    made = policy(
        approvals={"spend": spend} | ({} if proposal is None else {"proposal": proposal}),
        datasets={"clinic": {"approvals": model_to_json(DatasetApprovals(spend=own, proposal=own_proposal))}},
    )
    assert made.rules_for("clinic").spend == (own or spend)
    assert made.rules_for("clinic").proposal == (own_proposal or proposal or 2)
    assert made.rules_for("other").spend == spend


def test_rules_cannot_be_changed_by_whoever_reads_them() -> None:
    rules = policy(evaluation={"required": {"length": {}}}).rules_for("clinic")
    with pytest.raises(TypeError):
        rules.required["length"] = {}  # type: ignore[index]
    assert EvaluationRules().required == {}
