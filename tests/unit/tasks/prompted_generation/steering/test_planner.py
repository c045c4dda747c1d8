"""What a steering vector promises before it begins: its charge, its facts, its refusals."""

from math import sqrt
from typing import Any

import pytest
from pydantic import ValidationError

from models_db.values.amounts import Amount
from tasks.mechanisms.core.post_processing import loss_paid_by_parent
from tasks.mechanisms.counts.noisy_count import NoiseInvalid
from tasks.mechanisms.registry import recompute
from tasks.mechanisms.vectors.noisy_mean import NoisyMean
from tasks.planning.batches import LabelWithoutSample
from tasks.planning.labels_and_groups import ContributionBoundExceeded
from tasks.pricing.external_models import shows_private_text
from tasks.pricing.registry import system_for
from tasks.prompted_generation.steering.parameters import SteeringParameters
from tasks.prompted_generation.steering.planner import SteeringVector
from tasks.values.plan import Plan, PlanInputs
from tests.unit.tasks.generation.asking import AMOUNT, ask, ink

CONCERNS = ("tasks/prompted_generation/steering",)

RHO = 10**11
EXTENDS = {"release": 3, "artifact": "a" * 64, "values": "b" * 64}


def settings(**changes: Any) -> SteeringParameters:
    return SteeringParameters.model_validate({"samples": 4, "references": 100} | changes)


def planned(population: int | None = None, rho: int = RHO, **changes: Any) -> Plan:
    return SteeringVector().plan(PlanInputs(Amount(rho), settings(**changes), 3, population, True))


@pytest.mark.parametrize("kind", ["synthetic_corpus", "demonstrations"])
def test_it_is_a_system_that_reads_private_text_with_the_engine(kind: str) -> None:
    system = system_for("steering_vector", kind)
    assert isinstance(system, SteeringVector)
    assert shows_private_text(system)  # so no model behind an API
    assert system.charges
    assert system.failure_delta_share(settings()) == 0


@pytest.mark.parametrize("samples", [4, 4000])
@pytest.mark.parametrize("labels", [(), ("a", "b", "c")])
def test_one_noisy_mean_is_bought_whatever_the_number_of_texts_and_labels(
    samples: int, labels: tuple[str, ...]
) -> None:
    plan = planned(samples=samples, labels=labels)
    (invocation,) = plan.invocations
    assert plan.blocks == (0, 1, 2)
    assert invocation.event.count == 1
    assert invocation.instalments == (invocation.event.loss,) == (recompute(invocation.event),)
    assert 0.99 * RHO < plan.loss.rho <= RHO
    mean = NoisyMean.from_event(invocation.event)
    assert float(mean.sigma) == pytest.approx(1 / sqrt(2 * 0.1), rel=1e-3)  # rho = C^2 / (2 sigma^2)
    assert float(NoisyMean.from_event(planned(clip_norm=2).invocations[0].event).sigma) == pytest.approx(
        2 * float(mean.sigma), rel=1e-3
    )


def test_further_texts_charge_nothing_and_cover_what_its_parent_paid() -> None:
    parent, child = planned(), planned(samples=900, extends=EXTENDS)
    assert child.loss == Amount()
    assert loss_paid_by_parent([invocation.event for invocation in child.invocations]) == parent.loss
    assert (child.rows, child.reading_rows) == (900, 0)
    assert child.facts["extends"] == f"release 3, artifact {'a' * 64}; no private text is read"


def test_what_is_read_follows_from_public_numbers() -> None:
    assert planned().reading_rows == 100 + 32
    assert planned(labels=["a", "b"]).reading_rows == 200 + 64
    plan = planned(population=5000, labels=["a", "b"], complete_sentence=9, max_new_tokens=40)
    assert (plan.rows, plan.reading_rows, plan.steps, plan.prompt_tokens) == (5068, 5064, 49, 40)


def test_units_are_read_as_far_as_public_draws_go_unless_a_request_says_more() -> None:
    assert [settings(**one).max_reference_tokens for one in ({}, {"max_new_tokens": 40})] == [256, 40]
    longer = settings(max_new_tokens=40, max_reference_tokens=90, complete_sentence=9)
    assert (longer.max_reference_tokens, longer.tokens_per_text, longer.row_tokens) == (90, 49, 90)
    assert settings(max_new_tokens=40, complete_sentence=9).row_tokens == 49


def test_what_people_read() -> None:
    facts = planned(labels=["a", "b"], depth="0.25", strength=2, precision="bfloat16").facts
    assert facts["labels"] == "a, b"
    assert facts["units of a label n"] == "100"
    assert facts["depth"] == "behind 25 % of the model's layers"
    assert facts["clip norm of a unit"] == "1, in multiples of the spread of those texts"
    assert facts["noise on each entry of a vector"] == "0.022361, in the same unit"
    assert (facts["strength"], facts["top k"], facts["precision"]) == ("2", "100", "bfloat16")
    assert planned(top_k=0).facts["top k"] == "whole vocabulary"
    assert not any("\n" in fact for fact in facts.values())  # they stand in a table of the card


@pytest.mark.parametrize(
    ("depth", "layers", "place"), [("0.5", 30, 15), ("0.5", 3, 2), ("1", 30, 30), ("0.001", 30, 1)]
)
def test_the_place_of_the_vector(depth: str, layers: int, place: int) -> None:
    assert settings(depth=depth).layer_of(layers) == place


def test_what_is_refused() -> None:
    with pytest.raises(NoiseInvalid):
        planned(rho=0)
    with pytest.raises(LabelWithoutSample):
        planned(samples=1, labels=["a", "b"])
    with pytest.raises(ContributionBoundExceeded):
        settings(samples=1, groups=[{"id": "a"}], groups_per_unit=2)
    for name, values in {
        "samples": (0,), "references": (0,), "depth": (0, 2), "strength": (0, 101), "clip_norm": (0, 1001),
        "public_draws": (1, 1001), "max_new_tokens": (0,), "max_reference_tokens": (0,), "precision": ("float8",),
        "unknown": (1,),
    }.items():  # fmt: skip
        for value in values:
            with pytest.raises(ValidationError):
                settings(**{name: value})


def test_parameters_of_another_system() -> None:
    with pytest.raises(TypeError, match="steering vectors"):
        SteeringVector().plan(ask(ink(), AMOUNT))
