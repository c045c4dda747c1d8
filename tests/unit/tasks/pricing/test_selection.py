"""A selection of texts in the price and in the canonical request."""

import copy
from typing import Any

import pytest

from models_db.values.canonical_json import encode_canonical
from models_db.values.requests import SELECTION_CRITERIA, FileInvalid
from tasks.evaluation.charged.coverage import TooFewTexts
from tasks.planning.selection import KeepTooLarge, KeepTooSmall, SelectionUnfit
from tasks.pricing import quote as pricing
from tasks.pricing.quote import written_request
from tasks.release.approved_request import ApprovedRequest, PlanMismatch
from tests.unit.tasks.pricing.test_quote import MODEL, facts, parameters, priced

STATED = {"nonce": "n", "policy": "a" * 64, "code": "c" * 64}


def test_a_request_without_one_is_as_before() -> None:
    plain = priced()
    assert "selection" not in plain.body
    assert "texts published" not in plain.plan.facts
    assert plain.to_json()["expected_texts"] == 4


def test_it_is_part_of_the_request_and_costs_nothing() -> None:
    plain, made = priced(), priced(selection={"keep": 3})
    assert made.body["selection"] == {"keep": 3, "criteria": list(SELECTION_CRITERIA)}
    assert made.plan.facts["texts published"] == f"3 of 4, selected by {', '.join(SELECTION_CRITERIA)}"
    assert (made.plan.loss, made.plan.invocations) == (plain.plan.loss, plain.plan.invocations)
    assert made.to_json()["expected_texts"] == 3
    others = {name for name in made.body if made.body.get(name) != plain.body.get(name)}
    assert others == {"selection", "plan"}


def test_more_texts_cost_no_more_while_batches_are_disjoint() -> None:
    population = facts(population=700)
    few, many = priced(population), priced(population, parameters=parameters(samples=40), selection={"keep": 4})
    assert many.plan.loss == few.plan.loss
    assert many.plan.invocations == few.plan.invocations


def test_the_canonical_request_leads_back_to_it() -> None:
    made = priced(selection={"keep": 3, "criteria": ["perplexity", "nonsense"]})
    assert made.body["selection"] == {"keep": 3, "criteria": ["nonsense", "perplexity"]}
    again = pricing.quote(written_request(copy.deepcopy(dict(made.body))), facts(), MODEL, "p" * 64, "c" * 64)
    assert encode_canonical(again.body) == encode_canonical(made.body)


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"selection": {"keep": 5}}, KeepTooLarge),
        ({"selection": {"keep": 0}}, FileInvalid),
        ({"selection": {"keep": 3, "criteria": ["beauty"]}}, FileInvalid),
        ({"selection": 3}, FileInvalid),
        ({"selection": {"keep": 1}, "parameters": parameters(labels=["a", "b"])}, KeepTooSmall),
        ({"selection": {"keep": 2}, "parameters": parameters(form="It is {type}.")}, SelectionUnfit),
        (
            {
                "selection": {"keep": 2},
                "kind": "summaries",
                "mechanism": "token_level_summary",
                "parameters": {"references": 7, "max_new_tokens": 9, "temperature": 1, "groups": ["a", "b"]},
            },
            SelectionUnfit,
        ),
    ],
)
def test_what_cannot_be_selected_is_refused_by_name(changes: dict[str, Any], refusal: type[Exception]) -> None:
    with pytest.raises(refusal):
        priced(**changes)


def test_charged_metrics_are_planned_for_the_published_texts() -> None:
    twenty = parameters(samples=40)
    bins = [
        priced(parameters=twenty, evaluation=["dp_coverage"], selection=selection).plan.measuring[0].event
        for selection in (None, {"keep": 20})
    ]
    assert [event.parameters["bins"] for event in bins] == [11, 6]
    with pytest.raises(TooFewTexts, match="asks for 3"):
        priced(parameters=twenty, evaluation=["dp_coverage"], selection={"keep": 3})


def test_a_record_states_it_as_it_was_approved() -> None:
    made = {**priced(selection={"keep": 3}).body, **STATED}
    ApprovedRequest.model_validate(made).require_planned()
    for stated in ({"keep": 3}, {"keep": 3, "criteria": list(reversed(SELECTION_CRITERIA))}, {"keep": 2}, None):
        forged = {name: value for name, value in made.items() if name != "selection"}
        forged |= {} if stated is None else {"selection": stated}
        with pytest.raises(PlanMismatch):
            ApprovedRequest.model_validate(forged).require_planned()
    with pytest.raises(KeepTooLarge):
        ApprovedRequest.model_validate({**made, "selection": {**made["selection"], "keep": 9}}).require_planned()
