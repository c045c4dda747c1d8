"""AdaPMixED: a ball around the public distribution, a screening, a loss that depends on the data; no guarantee."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models_db.values.amounts import Amount
from tasks.corpus.store import Corpus
from tasks.mechanisms.core.rng import DeterministicRandom
from tasks.systems.adapmixed import LOSS_FIGURE, AdaPMixed, AdaPMixedParameters
from tasks.systems.adapmixed.rule import AdaPMixedRule, divergence, symmetric
from tests.refusals import refusal
from tests.unit.tasks.systems.asking import ask
from tests.unit.tasks.systems.fake_step import FakeSteps
from tests.unit.tasks.systems.workshop import Workshop

pytestmark = pytest.mark.dear

SYSTEM = AdaPMixed()
EVEN, SURE = [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 9.0]


def mixed(**changes: Any) -> AdaPMixedParameters:
    given_parameters: dict[str, Any] = {
        "samples": 3,
        "references": 4,
        "max_new_tokens": 8,
        "temperature": "1",
        "max_reference_tokens": 48,
        "batches": 4,
    }
    return AdaPMixedParameters.model_validate(given_parameters | changes)


def rule(**changes: Any) -> AdaPMixedRule:
    given_parameters: dict[str, Any] = {
        "temperature": 1.0,
        "references": 4,
        "top_k": 0,
        "order": 3.0,
        "radius": 0.1,
        "weight": 1e-4,
        "noise": 0.01,
        "threshold": 1.0,
        "rng": DeterministicRandom("mixed"),
    }
    return AdaPMixedRule(**given_parameters | changes)


def test_on_governed_data_it_is_refused_with_the_reason() -> None:
    with refusal("GuaranteeDependsOnData", match="holds for that data alone") as refused:
        SYSTEM.plan(ask(mixed(), None, governed=True))
    assert "--public" in refused.value.advice


def test_on_public_data_it_charges_nothing_and_is_recorded() -> None:
    plan = SYSTEM.plan(ask(mixed(), None, governed=False))
    assert plan.loss == Amount()
    (invocation,) = plan.invocations
    assert (invocation.event.mechanism, invocation.instalments) == ("adapmixed", (Amount(),))


def test_batches_must_be_declared() -> None:
    with refusal("BatchesNotDeclared", match="nothing pays for a count") as refused:
        SYSTEM.plan(ask(mixed(batches=None), None, governed=False))
    assert "parameters.batches" in refused.value.advice
    assert refused.value.exit_code == 2
    assert SYSTEM.plan(ask(mixed(batches=None), None, governed=False, population=40)).facts["batches per block"] == "10"


def test_it_runs_and_says_what_its_figure_is_not(corpus: Corpus) -> None:
    workshop = Workshop(corpus)
    made = SYSTEM.generate(SYSTEM.plan(ask(mixed(), None, governed=False)), mixed(), workshop.context())
    assert [text.tokens for text in made.texts] == [8, 8, 8]
    assert [step for step in workshop.seen if step[0] == "arm"] == [("arm", 0, 0)]
    assert workshop.seen[0] == ("arm", 0, 0)
    assert float(made.released[LOSS_FIGURE]) > 0
    assert "not_a_guarantee" in LOSS_FIGURE


DISTRIBUTIONS = st.lists(st.floats(-8, 8), min_size=4, max_size=4).map(lambda z: torch.tensor(z).double().softmax(0))


@given(DISTRIBUTIONS, st.lists(DISTRIBUTIONS, min_size=1, max_size=4), st.floats(0.001, 1))
def test_every_mixture_lies_within_the_ball(public: torch.Tensor, rows: list[torch.Tensor], radius: float) -> None:
    made = rule(radius=radius)._mixed(public, torch.stack(rows))
    assert (symmetric(3.0, made, public) <= 3.0 * radius + 1e-9).all()
    assert torch.allclose(made.sum(1), torch.ones(len(rows)).double())


def test_a_row_inside_the_ball_keeps_all_its_weight() -> None:
    public = torch.tensor(EVEN).double().softmax(0)
    near = torch.tensor([0.0, 0.0, 0.0, 0.01]).double().softmax(0)
    assert torch.allclose(rule(radius=1.0)._mixed(public, near[None]), near[None])


def test_the_divergence_is_renyis() -> None:
    """Two Bernoulli distributions at order 2: ln(sum p^2/q)."""
    first, second = torch.tensor([0.75, 0.25]).double(), torch.tensor([0.5, 0.5]).double()
    assert float(divergence(2.0, first, second)) == pytest.approx(math.log(0.75**2 / 0.5 + 0.25**2 / 0.5))
    assert float(symmetric(2.0, first, second)) == pytest.approx(math.log(0.25 / 0.75 + 0.25 / 0.25))


def test_without_rows_the_token_is_public_and_nothing_is_lost() -> None:
    steps = FakeSteps([SURE])
    made = rule()
    assert [made.next_tokens(steps.step(position)) for position in range(5)] == [[3]] * 5
    assert made.facts(0) == {"renyi_loss": 0.0, "private_tokens": 0.0}


def test_rows_that_agree_lose_next_to_nothing_and_those_that_differ_lose_more() -> None:
    losses = []
    for rows in ([SURE] * 4, [SURE] * 3 + [EVEN]):
        made = rule(radius=5.0, threshold=100.0)
        made.next_tokens(FakeSteps([SURE], {0: rows}).step(0))
        losses.append(made.facts(0)["renyi_loss"])
    assert 0 < losses[0] < 0.01 < losses[1]


def test_the_screening_keeps_expensive_steps_public() -> None:
    steps = FakeSteps([EVEN], {0: [[0.0, 0.0, 0.0, 40.0]] * 4})
    made = rule(weight=1.0, threshold=0.1)
    made.next_tokens(steps.step(0))
    assert made.facts(0)["private_tokens"] == 0
    cheap = rule(weight=1.0, threshold=100.0)
    cheap.next_tokens(steps.step(0))
    assert cheap.facts(0)["private_tokens"] == 1


def test_rows_move_the_tokens() -> None:
    """A wide ball lets rows that are sure of one token decide."""
    steps = FakeSteps([EVEN], {0: [[0.0, 0.0, 0.0, 40.0]] * 4})
    made = rule(radius=30.0, threshold=100.0)
    drawn = [made.next_tokens(steps.step(position))[0] for position in range(20)]
    assert drawn.count(3) > 15
