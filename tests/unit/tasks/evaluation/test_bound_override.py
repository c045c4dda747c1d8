"""Overrides of a policy's bounds: in one form, for exactly the figures that are outside."""

import pytest

from models_db.policies.policy import Policy
from models_db.values.requests import model_to_json
from tasks.evaluation.policy_bounds import (
    OutsideBounds,
    missed,
    nothing_to_override,
    overridden_bounds,
    override_reason,
    require_admitted,
)
from tasks.values.results import MetricResult

RULES = {
    "version": 1,
    "evaluation": {"required": {"length": {"texts": {"max": 2}, "empty": {"max": 0}}, "distinct": {}}},
}
FORBIDDING = RULES | {"evaluation": {**RULES["evaluation"], "overrides": "refused"}}  # type: ignore[dict-item]


def rules_of(written):
    return Policy.model_validate(written).rules_for("clinic")


def measured(texts=3, empty=0):
    found = {"length": MetricResult("length", "public", {"texts": texts, "empty": empty}, "s", "m", "l")}
    return found | {"distinct": MetricResult("distinct", "public", {}, "s", "m", "l")}


def reason_for(figures, why="a pilot"):
    return override_reason(missed(rules_of(RULES).required, figures), why)


def test_the_reason_names_every_figure_and_says_why():
    assert reason_for(measured(empty=1)) == (
        "Overrides the bounds of the policy (length.empty is 1, allowed is at most 0; length.texts is 3, allowed is at"
        " most 2): a pilot"
    )
    missing = {"length": measured()["length"]}
    assert overridden_bounds(reason_for(missing)) == (
        "length.texts is 3, allowed is at most 2; distinct is not measured, allowed is measured"
    )
    assert overridden_bounds("names nobody") is None


def test_what_is_inside_needs_no_reason_at_all():
    require_admitted(1, rules_of(RULES), measured(texts=2), [])
    require_admitted(1, rules_of(FORBIDDING), measured(texts=2), ["names nobody"])


def test_every_approval_has_to_override():
    figures, rules = measured(), rules_of(RULES)
    require_admitted(1, rules, figures, [reason_for(figures), reason_for(figures, "another reason")])
    for reasons in ([], ["fine"], [reason_for(figures), "fine"]):
        with pytest.raises(OutsideBounds) as refused:
            require_admitted(1, rules, figures, reasons)
        assert refused.value.facts["overridable"] is True
        assert "--override" in refused.value.advice


@pytest.mark.parametrize(
    "reason",
    [
        reason_for(measured(texts=4)),
        reason_for(measured(empty=1)),
        reason_for(measured(), ""),
        reason_for(measured(), "  "),
        " " + reason_for(measured()),
        reason_for(measured()).replace("Overrides", "overrides"),
    ],
)
def test_an_override_of_something_else_is_none(reason):
    with pytest.raises(OutsideBounds):
        require_admitted(1, rules_of(RULES), measured(), [reason])


def test_a_policy_may_refuse_all_of_them():
    figures = measured()
    with pytest.raises(OutsideBounds) as refused:
        require_admitted(1, rules_of(FORBIDDING), figures, [reason_for(figures)])
    assert "--override" not in refused.value.advice
    assert refused.value.facts["overridable"] is False


def test_overrides_are_allowed_unless_a_policy_refuses_them():
    assert model_to_json(Policy.model_validate(RULES))["evaluation"]["overrides"] == "allowed"  # type: ignore[index,call-overload]
    assert model_to_json(Policy.model_validate(FORBIDDING))["evaluation"]["overrides"] == "refused"  # type: ignore[index,call-overload]
    assert rules_of({}).overrides is True


def test_there_has_to_be_something_outside():
    assert "nothing to override" in nothing_to_override(7).message
