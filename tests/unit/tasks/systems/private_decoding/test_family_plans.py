"""Plans of the decoders with private rows: pure functions of public numbers, never above what was asked for."""

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from models_db.errors import AlmonerError
from models_db.values.amounts import RHO_UNIT, Amount, total_amount
from models_db.values.requests import model_to_json
from tasks.accounting.zcdp import release_amount
from tasks.mechanisms.registry import recompute
from tasks.mechanisms.tokens.sparse_vector import SparseVector
from tasks.systems.few_shot_generation import FewShotGeneration, FewShotGenerationParameters
from tasks.systems.private_decoding import COUNT_SHARE, PrivateDecodingSystem, instalments
from tasks.systems.private_icl import PrivateIcl, PrivateIclParameters
from tasks.systems.private_prediction import PrivatePrediction, PrivatePredictionParameters
from tests.refusals import refusal
from tests.unit.tasks.systems.asking import AMOUNT, OUT_OF_RANGE, ask, ink

AMIN, ICL, TANG = PrivatePrediction(), PrivateIcl(), FewShotGeneration()
GIVEN: dict[str, Any] = {
    "samples": 3,
    "references": 40,
    "max_new_tokens": 48,
    "temperature": "1",
    "max_reference_tokens": 48,
    "batches": 3,
    "instalment": 5,
}


@pytest.fixture(autouse=True)
def completion_tokens() -> None:
    """Plans are those of the default number of tokens that finish a sentence."""


def amin(**changes: Any) -> PrivatePredictionParameters:
    return PrivatePredictionParameters.model_validate(GIVEN | changes)


def icl(**changes: Any) -> PrivateIclParameters:
    return PrivateIclParameters.model_validate(GIVEN | changes)


def tang(**changes: Any) -> FewShotGenerationParameters:
    return FewShotGenerationParameters.model_validate(GIVEN | changes)


SYSTEMS: list[tuple[PrivateDecodingSystem[Any], Any]] = [(AMIN, amin), (ICL, icl), (TANG, tang)]
each_system = pytest.mark.parametrize(("system", "asked"), SYSTEMS, ids=["amin", "icl", "tang"])
EPSILONS = st.decimals("0.5", "20", places=1)
CHANGES = st.fixed_dictionaries({
    "references": st.integers(1, 300),
    "max_new_tokens": st.integers(1, 600),
    "temperature": st.decimals("0.2", "4", places=1),
    "instalment": st.integers(1, 700),
    "batches": st.none() | st.integers(1, 9),
})  # fmt: skip


@each_system
@settings(max_examples=25)
@given(EPSILONS, CHANGES)
def test_a_plan_costs_at_most_what_was_asked_and_its_instalments_are_its_loss(system, asked, epsilon, changes) -> None:
    amount = release_amount(epsilon, "1e-6")
    try:
        plan = system.plan(ask(asked(**changes), amount))
    except AlmonerError as refused:
        if refused.code != "BudgetTooSmall":
            raise
        assert float(epsilon) < 2
        return
    assert plan.loss.fits(amount)
    assert plan.loss.delta == 0
    for invocation in plan.invocations:
        assert total_amount(list(invocation.instalments)) == invocation.event.loss == recompute(invocation.event)


@each_system
def test_nearly_all_of_the_budget_is_used(system, asked) -> None:
    assert system.plan(ask(asked())).loss.rho >= 0.995 * AMOUNT.rho


def test_the_golden_figures_of_private_icl() -> None:
    """PRIVACY §4.3: rho = T c^2 / (8 s^2 tau^2), so c = s tau sqrt(8 rho / T)."""
    plan = ICL.plan(ask(icl()))
    stated = 40 * math.sqrt(8 * AMOUNT.rho / RHO_UNIT / 48)
    assert float(Decimal(plan.facts["clip norm c"])) == pytest.approx(stated, rel=1e-5)
    assert [invocation.event.mechanism for invocation in plan.invocations] == ["integer_draw"]
    assert plan.invocations[0].event.count == 48


@pytest.mark.parametrize(
    ("epsilon", "delta", "ratio"),
    [("1", "1e-3", 0.390), ("1", "1e-5", 0.422), ("4", "1e-5", 0.482), ("10", "1e-5", 0.552)],
)
def test_what_private_icl_states_itself_is_about_twice_as_much(epsilon: str, delta: str, ratio: float) -> None:
    """Their Theorem 1, epsilon = c sqrt(2 T ln(1/delta)) / (s tau), for the c that our plan has."""
    plan = ICL.plan(ask(icl(), release_amount(epsilon, delta)))
    c = float(Decimal(plan.facts["clip norm c"]))
    theirs = c * math.sqrt(2 * 48 * math.log(1 / float(delta))) / 40
    assert float(epsilon) / theirs == pytest.approx(ratio, abs=0.001)


def test_the_golden_figures_of_private_prediction() -> None:
    """Per private token c^2/(2 s^2 tau^2) for the draw, and epsilon^2/2 at most for the tests before it."""
    plan = AMIN.plan(ask(amin(private_tokens=10)))
    draws, tests = (invocation.event for invocation in plan.invocations)
    assert (draws.mechanism, tests.mechanism) == ("integer_draw", "sparse_vector")
    assert (draws.count, tests.count) == (10, 10)
    c, half = float(Decimal(plan.facts["clip norm c"])), AMOUNT.rho / RHO_UNIT / 2
    assert c == pytest.approx(40 * math.sqrt(2 * half / 10), rel=2e-3)
    sigma = float(SparseVector.from_event(tests).sigma)
    assert tests.loss.rho / RHO_UNIT / 10 <= ((1 + 2 / 1.26) / (40 * sigma)) ** 2 / 2
    assert tests.loss.rho / RHO_UNIT / 10 == pytest.approx(((1 + 2 / 1.26) / (40 * sigma)) ** 2 / 2, rel=1e-2)
    assert tests.loss.rho / RHO_UNIT == pytest.approx(half, rel=1e-2)


@pytest.mark.parametrize(
    ("changes", "runs"),
    [({}, 12), ({"max_new_tokens": 3}, 1), ({"private_tokens": 7}, 7), ({"private_tokens": 99}, 48)],
)
def test_how_many_private_tokens_a_text_may_have(changes: dict[str, Any], runs: int) -> None:
    plan = AMIN.plan(ask(amin(**changes)))
    assert plan.facts["private tokens per text r"] == str(runs)
    assert [invocation.event.count for invocation in plan.invocations] == [runs, runs]


def test_the_share_of_the_tests_is_public_and_splits_the_budget() -> None:
    shares = {}
    for share in ("0.1", "0.5", "0.9"):
        plan = AMIN.plan(ask(amin(test_share=share)))
        shares[share] = plan.invocations[1].event.loss.rho / plan.loss.rho
    assert shares == pytest.approx({"0.1": 0.1, "0.5": 0.5, "0.9": 0.9}, abs=0.01)


@each_system
def test_texts_of_other_papers_end_with_their_last_draw(system, asked) -> None:
    assert asked().completion_tokens == 0
    assert "cut sentences" not in system.plan(ask(asked())).facts


def test_both_mechanisms_of_a_private_token_come_in_equal_instalments() -> None:
    plan = AMIN.plan(ask(amin(private_tokens=12)))
    assert [len(invocation.instalments) for invocation in plan.invocations] == [3, 3]


@each_system
def test_without_batches_or_population_a_count_comes_first(system, asked) -> None:
    plan = system.plan(ask(asked(batches=None)))
    assert plan.invocations[0].event.mechanism == "noisy_count"
    assert plan.invocations[0].event.loss.rho <= AMOUNT.rho / COUNT_SHARE
    assert system.plan(ask(asked(batches=None), population=1200)).facts["batches per block"] == "30"


@each_system
@pytest.mark.parametrize("rho", [0, 1, 11])
def test_a_budget_too_small_for_one_token_is_refused_by_name(system, asked, rho: int) -> None:
    with refusal("BudgetTooSmall", "NoiseInvalid") as refused:
        system.plan(ask(asked(), Amount(rho)))
    assert "larger epsilon" in refused.value.advice


@each_system
@pytest.mark.parametrize(
    "wrong",
    [
        *OUT_OF_RANGE,
        {"clipping": "logit"},
        {"labels": ["a", "a"]},
    ],
)
def test_parameters_out_of_range_are_refused(system, asked, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        asked(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"private_tokens": 0},
        {"threshold": "-0.1"},
        {"threshold": "2.1"},
        {"test_share": 0},
        {"test_share": 1},
        {"public_temperature": 0},
    ],
)
def test_parameters_of_the_tests_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        amin(**wrong)


@pytest.mark.parametrize(("system", "asked"), SYSTEMS[:2])
def test_defaults_are_written_out_and_labels_only_where_there_are_some(system, asked) -> None:
    stored = model_to_json(asked())
    assert isinstance(stored, dict)
    assert stored["top_k"] == 0
    assert "labels" not in stored
    assert model_to_json(asked(labels=["b", "a"]))["labels"] == ["b", "a"]  # type: ignore[index,call-overload]


@each_system
def test_parameters_of_another_system_are_a_mistake_of_ours(system, asked) -> None:
    with pytest.raises(TypeError, match="are needed"):
        system.plan(ask(ink()))


def test_instalments_are_of_equal_invocations() -> None:
    event = AMIN.plan(ask(amin())).invocations[0].event
    assert total_amount(list(instalments(event, 7))) == event.loss
    assert len(instalments(event, 7)) == 2


@pytest.mark.parametrize("name", ["temperature", "public_temperature"])
def test_a_temperature_that_no_draw_takes_is_refused_with_the_price(name: str) -> None:
    """That of public tokens, too: refused later, it would be refused when something has been spent."""
    with refusal("TokenDrawInvalid", match="temperature"):
        AMIN.plan(ask(amin(**{name: "0.0001"})))
