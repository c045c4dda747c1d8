"""The plan of InvisibleInk: a pure function of public numbers that never costs more than was asked for."""

from decimal import Decimal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from models_db.values.amounts import Amount, total_amount
from tasks.accounting.zcdp import release_amount
from tasks.mechanisms.counts.noisy_count import NoisyCount
from tasks.mechanisms.tokens.integer_table import IntegerTableMechanism
from tasks.planning import shared_parameters
from tasks.systems.baselines import BaselineParameters
from tasks.systems.invisible_ink import InvisibleInk
from tasks.systems.private_decoding import COUNT_SHARE
from tests.refusals import refusal
from tests.unit.tasks.systems.asking import AMOUNT, OUT_OF_RANGE, ask, ink

SYSTEM = InvisibleInk()
EPSILONS = st.decimals("0.1", "20", places=2)
PARAMETERS = st.builds(
    ink,
    samples=st.integers(1, 50),
    references=st.integers(1, 200),
    max_new_tokens=st.integers(1, 600),
    temperature=st.decimals("0.1", "4", places=2),
    instalment=st.integers(1, 700),
    batches=st.none() | st.integers(1, 100),
)
# Below it, one step of the grid of 2^-20 is more than a thousandth of C (`integer_table.calibrate`).
LEAST_CLIP_NORM = Decimal(2) ** -9
POPULATIONS = st.none() | st.integers(1, 10**6)


@pytest.fixture(autouse=True)
def completion_tokens() -> None:
    """Plans are those of the default number of tokens that finish a sentence."""


@given(EPSILONS, PARAMETERS, POPULATIONS)
def test_a_plan_costs_at_most_what_was_asked_and_nearly_all_of_it(epsilon, parameters, population) -> None:
    amount = release_amount(epsilon, "1e-6")
    plan = SYSTEM.plan(ask(parameters, amount, population=population))
    assert plan.loss.fits(amount)
    assert plan.loss.delta == 0
    if Decimal(plan.facts["clip norm C"]) > LEAST_CLIP_NORM:
        assert plan.loss.rho >= 0.998 * amount.rho


@given(EPSILONS, PARAMETERS, POPULATIONS)
def test_instalments_are_exactly_the_loss_of_their_event(epsilon, parameters, population) -> None:
    plan = SYSTEM.plan(ask(parameters, release_amount(epsilon, "1e-6"), population=population))
    for invocation in plan.invocations:
        assert total_amount(list(invocation.instalments)) == invocation.event.loss


@given(PARAMETERS)
def test_each_instalment_pays_for_its_draws(parameters) -> None:
    drawing = SYSTEM.plan(ask(parameters)).invocations[-1]
    draw = IntegerTableMechanism.from_event(drawing.event)
    assert drawing.event.count == parameters.max_new_tokens
    left = parameters.max_new_tokens
    for instalment in drawing.instalments:
        assert instalment == draw.loss() * min(left, parameters.instalment)
        left -= parameters.instalment
    assert left <= 0
    assert draw.references == parameters.references


@given(PARAMETERS, st.integers(1, 20))
def test_every_block_is_eligible(parameters, blocks: int) -> None:
    assume(parameters.samples >= blocks)
    assert SYSTEM.plan(ask(parameters, blocks=blocks)).blocks == tuple(range(blocks))


def test_the_golden_clip_norm() -> None:
    """PRIVACY §4.1: epsilon 10, delta 1e-5, T = 500, B = 7, tau = 1 give C = tau B sqrt(2 rho / T) = 0.5911."""
    wanted = ink(references=7, max_new_tokens=500, batches=1)
    plan = SYSTEM.plan(ask(wanted, release_amount("10", "1e-5")))
    assert plan.facts["clip norm C"].startswith("0.591")
    # The paper's figure is C rounded down to the grid of 2^-20; shown figures are rounded up.
    assert Decimal("0.59110") < Decimal(plan.facts["clip norm C"]) < Decimal("0.59120")


def test_without_a_population_the_count_comes_first_and_costs_its_share() -> None:
    plan = SYSTEM.plan(ask())
    count, draws = plan.invocations
    assert (count.event.mechanism, draws.event.mechanism) == ("noisy_count", "integer_draw")
    assert count.event.count == 1
    assert count.instalments == (NoisyCount.from_event(count.event).loss(),)
    assert 0.99 * AMOUNT.rho / COUNT_SHARE < count.event.loss.rho <= AMOUNT.rho / COUNT_SHARE
    assert plan.facts["batches per block"].startswith("from a noisy count of the units (sigma ")


@pytest.mark.parametrize(
    ("batches", "population", "expected"),
    [
        (17, None, "17"),
        (None, 400, "100"),
        (17, 400, "17"),  # the request goes before the dataset
        (1, None, "3"),  # every sample needs a batch of its own
        (None, 5, "3"),
    ],
)
def test_declared_batches_or_population_need_no_count(batches, population, expected: str) -> None:
    plan = SYSTEM.plan(ask(ink(batches=batches), population=population))
    assert [invocation.event.mechanism for invocation in plan.invocations] == ["integer_draw"]
    assert plan.facts["batches per block"] == expected


def test_a_population_is_shared_out_over_the_blocks() -> None:
    assert SYSTEM.plan(ask(blocks=2, population=400)).facts["batches per block"] == "50"


def test_more_text_for_the_same_budget_means_a_smaller_clip_norm() -> None:
    norms = [Decimal(SYSTEM.plan(ask(ink(max_new_tokens=t))).facts["clip norm C"]) for t in (4, 16, 64, 256)]
    assert norms == sorted(norms, reverse=True)
    assert norms[0] / norms[1] == pytest.approx(2, rel=0.01)


def test_the_number_of_texts_costs_nothing() -> None:
    assert SYSTEM.plan(ask(ink(samples=1))).loss == SYSTEM.plan(ask(ink(samples=500))).loss


@pytest.mark.parametrize("rho", [0, 1, 11])
def test_a_budget_that_buys_no_clip_norm_is_refused(rho: int) -> None:
    with refusal("BudgetTooSmall"):
        SYSTEM.plan(ask(ink(batches=3), Amount(rho)))


@pytest.mark.parametrize("rho", [0, COUNT_SHARE - 1])
def test_a_budget_that_buys_no_count_is_refused(rho: int) -> None:
    with refusal("BudgetTooSmall"):
        SYSTEM.plan(ask(amount=Amount(rho)))


def test_fewer_samples_than_blocks_are_refused() -> None:
    with refusal("BlockWithoutSample"):
        SYSTEM.plan(ask(blocks=4))


def test_parameters_of_another_system_are_a_mistake_of_ours() -> None:
    with pytest.raises(TypeError, match="parameters of InvisibleInk"):
        SYSTEM.plan(ask(BaselineParameters(samples=1, max_new_tokens=1, temperature="1")))


@pytest.mark.parametrize(
    "wrong",
    [
        *OUT_OF_RANGE,
        {"temperature": "hot"},
        {"temperature": "nan"},
        {"temperature": True},
        {"max_reference_tokens": 0},
        {"clipping": "none"},
        {"batches": 0},
        {"instalment": 0},
    ],
)
def test_parameters_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ink(**wrong)


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@given(EPSILONS, PARAMETERS, POPULATIONS)
def test_completed_sentences_change_no_charge_and_count_in_a_text(epsilon, parameters, population) -> None:
    amount = release_amount(epsilon, "1e-6")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_parameters, "COMPLETION_TOKENS", 0)
        plain, row_tokens = SYSTEM.plan(ask(parameters, amount, population=population)), parameters.row_tokens
    completed = SYSTEM.plan(ask(parameters, amount, population=population))
    assert (completed.loss, completed.invocations) == (plain.loss, plain.invocations)
    more = parameters.completion_tokens
    assert more == (0 if parameters.clipping == "logit" else 24)
    assert (completed.steps, parameters.row_tokens) == (plain.steps + more, row_tokens + more)
    said = {"cut sentences": "are finished with at most 24 more tokens of the public model, which cost nothing"}
    assert dict(completed.facts) == {**plain.facts, **(said if more else {})}


@pytest.mark.parametrize(
    "changes",
    [{"form": "The product is a {type}."}, {"schema": SCHEMA}, {"clipping": "logit"}],
    ids=["form", "schema", "paper"],
)
def test_texts_of_a_grammar_and_of_the_paper_end_with_their_last_draw(changes: dict[str, object]) -> None:
    asked = ink(**changes)
    assert (asked.completion_tokens, asked.tokens_per_text) == (0, asked.max_new_tokens)
    assert "cut sentences" not in SYSTEM.plan(ask(asked)).facts
