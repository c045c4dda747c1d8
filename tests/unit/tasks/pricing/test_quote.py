"""The price of a request: public facts in, one canonical body out."""

import json
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from models_db.services.budget import Balance, BudgetExceeded, InvocationPlan
from models_db.values.amounts import Amount
from models_db.values.canonical_json import digest, encode_canonical
from models_db.values.requests import PublicMetadata, ReleaseRequest, parse_model
from tasks.accounting.lifetime_claims import BudgetFacts, lifetime_claim, lifetime_epsilon
from tasks.accounting.zcdp import lifetime_cap, release_amount, spent_epsilon
from tasks.inference.catalogue.model_check import NetworkShape
from tasks.inference.catalogue.registry import ModelNotPulled, NoRevision, UnknownModel
from tasks.inference.prompt_spec import DEFAULT_WORDING, PRESETS
from tasks.mechanisms.counts.partition_selection import calibrate_selection
from tasks.planning.block_selection import Reading
from tasks.pricing.model_facts import ModelFacts, model_facts
from tasks.pricing.quote import (
    START_SECONDS,
    DatasetFacts,
    Quote,
    plan_json,
    quote,
    written_request,
)
from tasks.release.approved_request import ApprovedRequest
from tests.refusals import refusal

pytestmark = pytest.mark.dear
CONCERNS = ("tasks/pricing",)

MODEL = ModelFacts("tiny", "1", "d" * 64, "Apache-2.0")
LIFETIME = lifetime_cap("8", "1e-6")
CLAIM = lifetime_claim("8", "1e-6")
WRITTEN: dict[str, Any] = {
    "dataset": "clinic",
    "kind": "synthetic_corpus",
    "mechanism": "invisible_ink",
    "epsilon": 4.0,
    "delta": 1.0e-7,
    "model": "tiny",
    "parameters": {"samples": 4, "references": 7, "max_new_tokens": 48, "temperature": 1.0},
    "prompt": {"description": "Short notes."},
    "evaluation": ["length", "distinct"],
}


def facts(spent: Amount | None = None, held: Amount | None = None, *, governed: bool = True, **changes: Any) -> Any:
    """A dataset with lifetime epsilon 8, delta 1e-6."""
    spent, held = spent or Amount(), held or Amount()
    balance = Balance(LIFETIME.amount, spent, held, LIFETIME.amount - spent - held)
    given: dict[str, Any] = {
        "name": "clinic",
        "unit_field": "patient_id",
        "relation": "add_or_remove_one",
        "governed": governed,
        "population": None,
        "blocks": 1,
        "version": 1,
        "version_uid": "u" * 32,
        "budget": BudgetFacts(CLAIM, balance),
    }
    return DatasetFacts(**given | changes)


def priced(dataset: DatasetFacts | None = None, by: ModelFacts | None = None, **changes: Any) -> Quote:
    """WRITTEN with some fields changed, or left out if None."""
    written = {name: value for name, value in (WRITTEN | changes).items() if value is not None}
    return quote(
        parse_model(ReleaseRequest, written, "The request"), dataset or facts(), by or MODEL, "p" * 64, "c" * 64
    )


def parameters(**changes: Any) -> dict[str, Any]:
    return WRITTEN["parameters"] | changes


def test_the_same_request_has_the_same_body() -> None:
    first, second = priced(), priced()
    assert first.body == second.body
    assert digest(first.body) == digest(second.body)


def test_a_body_is_canonical_and_survives_storage() -> None:
    body = priced().body
    assert encode_canonical(json.loads(encode_canonical(body))) == encode_canonical(body)


def test_numbers_mean_what_was_written_however_they_were_written() -> None:
    other = priced(epsilon="4.00", delta="1e-7", parameters=parameters(temperature="1"))
    assert other.body == priced().body


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 4.1},
        {"delta": 2e-7},
        {"parameters": parameters(samples=5)},
        {"parameters": parameters(top_k=99)},
        {"prompt": {"description": "Short notes!"}},
        {"evaluation": ["distinct", "length"]},
        {"mechanism": "public_only"},
    ],
)
def test_whatever_is_asked_changes_the_digest(change: dict[str, Any]) -> None:
    assert digest(priced(**change).body) != digest(priced().body)


def test_defaults_are_written_out() -> None:
    assert priced(parameters=parameters(top_k=100, instalment=16, clipping="log_probability")).body == priced().body
    assert priced().body["parameters"]["max_reference_tokens"] == 256


def test_the_body_names_every_public_fact_that_the_plan_rests_on() -> None:
    body = priced(facts(population=70, blocks=2, governed=False)).body
    assert (body["population"], body["blocks"], body["governed"]) == (70, 2, False)
    assert priced().body["population"] is None


def test_a_price_with_a_failure_probability_says_it_and_has_no_rho_for_replacing() -> None:
    """The claim re-converts it from epsilon and delta (PRIVACY §1)."""
    event = calibrate_selection(Amount(10**10, 10**10), 5).event()
    plan = replace(priced().plan, invocations=(InvocationPlan(event, (event.loss,)),))
    price = replace(priced(), plan=plan).to_json()
    assert price["rho_replace_one"] is None
    assert Decimal(str(price["delta_fail"])) == Decimal("1e-8")


def test_the_body_names_every_instalment() -> None:
    quoted = priced()
    stored = json.loads(encode_canonical(plan_json(quoted.plan)))
    assert quoted.body["plan"] == plan_json(quoted.plan)
    rho = [int(part["rho"]) for invocation in stored["invocations"] for part in invocation["instalments"]]
    assert len(rho) == 1 + 3
    assert sum(rho) == quoted.plan.loss.rho


def test_a_price_is_json_and_adds_up() -> None:
    spent = release_amount("1", "1e-7")
    price = json.loads(json.dumps(priced(facts(spent=spent)).to_json()))
    budget = {name: value for name, value in price["budget"].items() if name.startswith("rho")}
    left = Decimal(budget["rho_cap"]) - Decimal(budget["rho_spent"]) - Decimal(budget["rho_held"])
    assert Decimal(budget["rho_left_before"]) == left
    assert Decimal(budget["rho_left_after"]) == left - Decimal(price["rho"])
    assert price["budget"]["affordable"] is True
    count = Decimal(priced(facts(spent=spent)).plan.invocations[0].event.loss.rho_text)
    assert Decimal(price["rho_replace_one"]) == 2 * count + 4 * (Decimal(price["rho"]) - count)
    assert (price["unit"], price["relation"]) == ("patient_id", "add_or_remove_one")
    assert Decimal(price["budget"]["epsilon_spent_before"]) < Decimal(price["budget"]["epsilon_spent_after"]) <= 8
    assert price["expected_texts"] == 4
    assert price["expected_rows"] == 4 * (1 + 7)
    assert price["expected_seconds"] > 0
    assert price["facts"]["clip norm C"]


INSIGHTS: dict[str, Any] = {
    "kind": "insights",
    "mechanism": "urania",
    "parameters": {"clusters": {"count": 20}},
    "evaluation": [],
}


@pytest.mark.slow
def test_a_time_counts_the_units_that_are_declared_and_says_what_others_cost() -> None:
    few, many = (priced(facts(population=number), **INSIGHTS).to_json() for number in (1_000, 101_000))
    assert 600 < int(str(many["expected_seconds"])) - int(str(few["expected_seconds"])) < 1_000
    assert "expected_seconds_per_unit" not in few
    unknown = priced(**INSIGHTS).to_json()
    assert Decimal(str(unknown["expected_seconds_per_unit"])) == Decimal("0.0067")
    assert int(str(unknown["expected_seconds"])) < int(str(few["expected_seconds"]))


def test_a_time_grows_with_the_model_and_includes_its_loading() -> None:
    sizes = dict.fromkeys(("layers", "hidden", "heads", "key_value_heads", "head_size", "vocabulary", "context"), 1)
    small, large = (
        NetworkShape(
            architecture="Llama", attention="all", rotary="default", tied=True, parameters=parameters,
            head_parameters=0, linear_parameters=parameters, **sizes,
        )
        for parameters in (134_515_008, 8_000_000_000)
    )  # fmt: skip
    unknown = priced()
    of_small, of_large = (replace(unknown, shape=shape).seconds for shape in (small, large))
    assert unknown.seconds < of_small <= unknown.seconds + 2  # half a gigabyte is loaded in 1.3 seconds
    assert of_large > 50 * (unknown.seconds - START_SECONDS)


def test_a_dataset_without_a_unit_field_protects_records() -> None:
    assert priced(facts(unit_field=None)).to_json()["unit"] == "record"


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"mechanism": "urania"}, "UnknownSystem", "cannot make a 'synthetic_corpus'"),
        ({"kind": "summaries"}, "GroupsNeeded", "one text for each public group"),
        ({"mechanism": "magic"}, "UnknownSystem", "cannot make a"),
        ({"mechanism": "Magic!"}, "FileInvalid", "mechanism"),
        ({"kind": "poems"}, "FileInvalid", "kind"),
        ({"evaluation": ["length", "beauty"]}, "UnknownMetric", "'beauty'"),
        ({"evaluation": ["verbatim_overlap"]}, "InternalMetric", "'verbatim_overlap'"),
        ({"parameters": parameters(seed=42)}, "FileInvalid", "seed"),
        ({"parameters": {}}, "PopulationNeeded", "`samples` and `references`"),
        ({"parameters": parameters(samples="many")}, "FileInvalid", "samples"),
        ({"parameters": parameters(temperature=0)}, "FileInvalid", "temperature"),
        ({"epsilon": None}, "ClaimMissing", "'invisible_ink' needs an epsilon and a delta"),
        ({"delta": None}, "ClaimMissing", "'invisible_ink' needs an epsilon and a delta"),
        ({"epsilon": 0}, "FileInvalid", "epsilon"),
        ({"epsilon": -1}, "FileInvalid", "epsilon"),
        ({"epsilon": "nan"}, "FileInvalid", "epsilon"),
        ({"epsilon": "inf"}, "FileInvalid", "epsilon"),
        ({"epsilon": "a lot"}, "FileInvalid", "epsilon"),
        ({"epsilon": True}, "FileInvalid", "epsilon"),
        ({"epsilon": 10**7}, "InvalidTarget", "1000000"),
        ({"delta": 0}, "FileInvalid", "delta"),
        ({"delta": 1}, "FileInvalid", "delta"),
        ({"prompt": {"description": "  "}}, "FileInvalid", "prompt.description"),
        ({"prompt": None}, "FileInvalid", "prompt"),
        ({"colour": "red"}, "FileInvalid", "colour"),
        ({"mechanism": "non_private"}, "NotForGovernedData", "non_private"),
    ],
)
def test_what_cannot_be_is_refused_by_name(change: dict[str, Any], error: str, said: str) -> None:
    with refusal(error) as refused:
        priced(**change)
    assert said in refused.value.message
    assert refused.value.advice


def test_every_problem_of_a_file_is_named_at_once() -> None:
    with refusal("FileInvalid") as refused:
        priced(kind="poems", epsilon="a lot", colour="red")
    assert [problem.split(":")[0] for problem in refused.value.facts["problems"]] == ["kind", "epsilon", "colour"]


def test_fewer_samples_than_blocks_are_refused() -> None:
    with refusal("BlockWithoutSample"):
        priced(facts(blocks=5))


def test_what_is_too_expensive_is_priced_and_then_refused_with_what_fits() -> None:
    spent = release_amount("7.5", "1e-7")
    quoted = priced(facts(spent=spent))
    price = quoted.to_json()["budget"]
    assert price["affordable"] is False
    assert price["rho_left_after"] is None
    with pytest.raises(BudgetExceeded, match=r"could still have epsilon [0-9.]+") as refused:
        quoted.require_affordable()
    assert refused.value.requested == quoted.plan.loss
    assert refused.value.remaining == LIFETIME.amount - spent


@given(st.integers(1, LIFETIME.amount.rho))
def test_the_epsilon_that_is_said_to_fit_does_and_is_the_largest(left: int) -> None:
    quoted = priced(facts(spent=Amount(LIFETIME.amount.rho - left)))
    assume(not quoted.affordable)
    with pytest.raises(BudgetExceeded) as refused:
        quoted.require_affordable()
    offered = Decimal(refused.value.message.rsplit(" ", 1)[1].rstrip("."))
    assert offered == 0 or release_amount(offered, "1e-7").rho <= left
    assert release_amount(offered + Decimal("0.001"), "1e-7").rho >= left


def test_of_a_used_up_budget_nothing_is_offered() -> None:
    with pytest.raises(BudgetExceeded, match="Nothing is left"):
        priced(facts(spent=LIFETIME.amount)).require_affordable()


def test_what_others_hold_is_not_left() -> None:
    held = Amount(LIFETIME.amount.rho - 1)
    assert priced().affordable
    assert not priced(facts(held=held)).affordable


@pytest.mark.parametrize("mechanism", ["public_only", "non_private"])
def test_a_system_that_charges_nothing_needs_no_claim_and_no_budget(mechanism: str) -> None:
    quoted = priced(facts(spent=LIFETIME.amount, governed=False), mechanism=mechanism, epsilon=None, delta=None)
    quoted.require_affordable()
    assert quoted.plan.loss == Amount()
    assert quoted.to_json()["epsilon"] is None


def test_on_public_data_an_internal_metric_may_be_asked_for() -> None:
    assert priced(facts(governed=False), evaluation=["verbatim_overlap"]).body["evaluation"] == ["verbatim_overlap"]


@given(st.integers(1, LIFETIME.amount.rho))
def test_the_shown_lifetime_epsilon_is_never_below_the_true_one(rho: int) -> None:
    shown = Decimal(lifetime_epsilon(Amount(rho), int(LIFETIME.delta_conv * 10**18)))
    true = spent_epsilon(Amount(rho), LIFETIME.delta_conv)
    assert true <= shown < true + Decimal("0.0001")
    assert shown <= 8


def test_nothing_spent_is_epsilon_zero() -> None:
    assert lifetime_epsilon(Amount(), 10**11) == "0"


def test_models_are_named_to_the_byte_or_refused() -> None:
    with pytest.raises(UnknownModel):
        model_facts("gpt")
    with pytest.raises(NoRevision):
        model_facts("org/model")
    with pytest.raises(ModelNotPulled):
        model_facts("org/model@" + "0" * 40)


def test_pricing_does_not_load_torch() -> None:
    """A price is to be there at once; torch and transformers take seconds to import."""
    code = "import flows.releases.propose, sys; print(sorted({'torch', 'transformers', 'prefect'} & set(sys.modules)))"
    root = Path(__file__).resolve().parents[4]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_price_without_the_balance_says_only_whether_it_fits() -> None:
    """Whatever was spent or is held, two prices of the same request differ in that one word at most."""
    spent = Amount(LIFETIME.amount.rho // 3, 7)
    fresh, used = (priced(facts(amount)).to_json(with_balance=False) for amount in (Amount(), spent))
    assert fresh == used
    assert set(fresh["budget"]) == {"epsilon_cap", "delta_cap", "rho_cap", "affordable"}  # type: ignore[arg-type]
    full = priced(facts(LIFETIME.amount)).to_json(with_balance=False)
    assert full["budget"] == {**fresh["budget"], "affordable": False}  # type: ignore[dict-item]
    assert priced(facts(spent)).to_json()["budget"] != priced().to_json()["budget"]


def test_what_is_declared_about_a_dataset_is_part_of_what_is_approved():
    declared = facts(public=PublicMetadata(licence="MIT", region="Utopia"))
    body = priced(declared, public_metadata={"licence": "CC0-1.0"}).body
    assert body["public_metadata"] == {"licence": "CC0-1.0", "region": "Utopia"}
    assert priced(declared).body["public_metadata"] == {"licence": "MIT", "region": "Utopia"}
    assert "public_metadata" not in priced().body
    assert "public_metadata" not in priced(public_metadata={}).body
    assert priced().to_json()["public_metadata"] == {}


SMOLLM2 = ModelFacts("smollm2-135m-instruct", "1", "d" * 64, "Apache-2.0")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, PRESETS["brief"].system),
        ({"mechanism": "public_only", "epsilon": None, "delta": None}, PRESETS["brief"].system),
        ({"prompt": {"description": "Short notes.", "examples": ["Cough."]}}, PRESETS["brief"].system),
        ({"prompt": {"description": "Short notes.", "preset": "clinical"}}, PRESETS["clinical"].system),
        ({"prompt": {"description": "Short notes.", "public": "{description} Go on."}}, DEFAULT_WORDING.system),
        ({"parameters": WRITTEN["parameters"] | {"labels": ["hand", "foot"]}}, DEFAULT_WORDING.system),
        (
            {"kind": "demonstrations", "parameters": WRITTEN["parameters"] | {"labels": ["hand", "foot"]}},
            DEFAULT_WORDING.system,
        ),
    ],
)
def test_a_model_has_the_wording_that_was_measured_to_suit_it(changes: dict[str, Any], words: str) -> None:
    """Only where the request names none, and for texts without labels; the request stores it in full."""
    made = priced(by=SMOLLM2, **changes)
    assert made.prompt.system == words
    again = quote(written_request(dict(made.body)), facts(), SMOLLM2, "p" * 64, "c" * 64)
    assert encode_canonical(again.body) == encode_canonical(made.body)
    assert priced(**changes).prompt.system == (
        words if "preset" in changes.get("prompt", {}) else DEFAULT_WORDING.system
    )


def test_a_canonical_request_leads_back_to_what_was_written() -> None:
    """All of it: a run that forgot a field would ask for another price than the one that was approved."""
    given: dict[str, Any] = {
        "evaluation": ["length", "dp_length"],
        "evaluation_share": "0.3",
        "public_metadata": {"licence": "CC-BY-4.0"},
        "prompt": {"description": "Short notes.", "preset": "clinical"},
    }
    made = priced(**given)
    again = quote(written_request(dict(made.body)), facts(), MODEL, "p" * 64, "c" * 64)
    assert encode_canonical(again.body) == encode_canonical(made.body)
    assert {"evaluation_share", "public_metadata"} <= set(made.body)


def grown(*left: int) -> DatasetFacts:
    """A dataset whose cohorts have so much left, in rho units; the request reads all of them."""
    each = 4 // len(left)
    reading = Reading(each, tuple(range(1, len(left) + 1)), several=True)
    spent = LIFETIME.amount - Amount(min(left), LIFETIME.amount.delta)
    by_cohort = {number: Amount(rho, LIFETIME.amount.delta) for number, rho in enumerate(left, 1)}
    found: DatasetFacts = facts(spent, blocks=each, reading=reading, left_by_cohort=by_cohort)
    return found


@pytest.mark.parametrize(
    ("left", "said"),
    [((0, 10**12), ("in cohort 1.", "`cohorts: newest`")),
     ((10**12, 0, 10**12), ("in cohort 2.", "`cohorts: [1, 3]`")),
     ((0, 10**12, 0), ("in cohort 1 and in cohort 3.", "`cohorts: [2]`"))],
)  # fmt: skip
def test_a_refusal_names_the_cohort_that_is_spent_and_those_that_are_not(
    left: tuple[int, ...], said: tuple[str, ...]
) -> None:
    with pytest.raises(BudgetExceeded) as refusal:
        priced(grown(*left)).require_affordable()
    assert [words for words in said if words not in refusal.value.message] == []


def test_where_no_cohort_can_pay_it_says_what_still_fits() -> None:
    with pytest.raises(BudgetExceeded) as refusal:
        priced(grown(10**9, 10**10)).require_affordable()
    assert "cohorts:" not in refusal.value.message
    assert "could still have epsilon" in refusal.value.message


def test_a_request_of_cohorts_is_priced_and_verified_by_its_own_words() -> None:
    """The blocks follow from the cohorts it names, and from the number that each has."""
    alone, both = priced(facts(blocks=2)), priced(grown(10**12, 10**12))
    assert (alone.plan.blocks, both.plan.blocks) == ((0, 1), (0, 1, 2, 3))
    assert "cohorts" not in alone.body
    assert both.body["cohorts"] == [1, 2]
    asked = ApprovedRequest.model_validate({**both.body, "nonce": "n", "policy": "a" * 64})
    asked.require_planned()
    for lie in ({"cohorts": [1]}, {"cohorts": [2, 3]}, {"cohorts": [2, 1]}, {"cohorts": None}):
        with refusal("PlanMismatch"):
            asked.model_copy(update=lie).require_planned()


def test_a_request_from_when_there_was_one_cohort_still_reads_that_one() -> None:
    assert written_request(dict(priced().body)).cohorts == (1,)
    assert written_request(dict(priced(grown(10**12, 10**12)).body)).cohorts == (1, 2)
