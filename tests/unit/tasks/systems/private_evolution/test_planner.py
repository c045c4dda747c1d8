"""What private evolution promises before it begins: its charge, its noise, its prompts."""

from math import sqrt
from typing import Any

import pytest
from pydantic import ValidationError

from models_db.values.amounts import Amount, total_amount
from models_db.values.requests import model_to_json
from tasks.inference.catalogue.registry import UnknownModel
from tasks.mechanisms.counts.noisy_count import NoiseInvalid
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram, calibrate_histogram
from tasks.mechanisms.registry import recompute
from tasks.systems.private_evolution import PrivateEvolution
from tasks.systems.private_evolution.schedule import WAYS, EvolutionParameters, Schedule, Sizes
from tasks.systems.registry import system_for
from tasks.values.plan import Plan, PlanInputs
from tests.refusals import refusal
from tests.unit.tasks.systems.asking import AMOUNT, ask, ink
from tests.unit.tasks.systems.electing import RHO, settings
from tests.unit.tasks.systems.workshop import NoCorpus, Workshop


def planned(population: int | None = None, rho: int = RHO, **changes: Any) -> Plan:
    return PrivateEvolution().plan(PlanInputs(Amount(rho), settings(**changes), 3, population, True))


def candidates(**changes: Any) -> tuple[int, ...]:
    return Sizes.planned(settings(**changes)).candidates


@pytest.mark.parametrize("kind", ["synthetic_corpus", "demonstrations"])
def test_it_is_a_system_that_shows_a_model_nothing_private(kind: str) -> None:
    system = system_for("private_evolution", kind)
    assert isinstance(system, PrivateEvolution)
    assert system.shows_private_text is False
    assert system.charges
    assert system.failure_delta_share(settings()) == 0


@pytest.mark.parametrize("rounds", [1, 2, 7, 100])
@pytest.mark.parametrize("labels", [(), ("a", "b")])
def test_the_noise_is_for_the_whole_schedule(rounds: int, labels: tuple[str, ...]) -> None:
    plan = planned(rounds=rounds, labels=labels)
    assert len(plan.invocations) == rounds
    assert plan.blocks == (0, 1, 2)
    for invocation in plan.invocations:
        assert invocation.instalments == (invocation.event.loss,) == (recompute(invocation.event),)
    assert plan.loss.fits(Amount(RHO))
    assert plan.loss.rho > 0.99 * RHO
    sigma = NoisyHistogram.from_event(plan.invocations[0].event).noise.sigma
    assert float(sigma) == pytest.approx(sqrt(rounds / 2), rel=1e-3)  # rho = rounds / (2 sigma^2)


def test_the_number_of_labels_changes_nothing_about_the_noise() -> None:
    plans = [planned(samples=8, labels=labels) for labels in ((), ("a",), ("a", "b", "c", "d"))]
    assert len({NoisyHistogram.from_event(plan.invocations[0].event).noise for plan in plans}) == 1


def test_a_longer_schedule_costs_more_for_the_same_noise() -> None:
    """Whoever goes on for ten rounds more with the noise of ten has paid half (a request's schedule is fixed)."""
    ten = Schedule.of(settings(rounds=10), Amount(RHO))
    assert total_amount([event.loss for event in (*ten.events, *ten.events)]).rho > 1.99 * RHO


def test_what_people_read() -> None:
    facts = planned(4000, rho=10**11, samples=10, rounds=5, labels=["a", "b"], candidates=20, variations=4).facts
    assert facts["labels"] == "a, b"
    assert facts["rounds"] == "5"
    assert facts["candidates of a round"] == "40, 20 of each label"
    assert facts["selected after a round"] == "10, 5 of each label, by rank"
    assert facts["noise of a count (sigma)"] == "5 votes; a candidate has 100 on average if 4000 units vote"
    assert facts["prompts in all"] == f"at most {40 + 4 * 2 * 15}"
    assert facts["candidates are reworded as"] == "Rewrite the following text {way}: {text}"
    assert facts["ways of rewording"].split("; ") == list(WAYS)
    assert not any("\n" in fact for fact in facts.values())  # they stand in a table of the card
    assert planned(candidates=8).facts["candidates of a round"] == "8"
    assert planned(candidates=8).facts["selected after a round"] == "4, by rank"
    assert "not declared" in planned().facts["noise of a count (sigma)"]
    assert "of counts above 7" in planned(selection="sample", threshold=7).facts["selected after a round"]


def test_prompts_are_counted_for_the_cost() -> None:
    plan = planned(samples=6, rounds=1, candidates=2)
    assert (plan.prompts, plan.rows, plan.samples) == (2 + 4, 6, 6)
    sampled = planned(samples=6, rounds=3, candidates=4, selection="sample")
    assert sampled.prompts == 4 + 2 * 3 + 5


def test_candidates_follow_from_the_texts_where_a_request_does_not_say() -> None:
    assert candidates(samples=10, variations=3) == (30,)
    assert candidates(samples=10, variations=3, labels=["a", "b", "c"]) == (12, 12, 12)
    assert candidates(samples=10, candidates=7) == (7,)
    assert Sizes.planned(settings(samples=10, variations=9, candidates=7)).kept == (1,)


def test_parameters_have_a_stable_stored_form() -> None:
    stored = model_to_json(EvolutionParameters(samples=4))
    assert stored == {
        "samples": 4, "rounds": 5, "variations": 4, "selection": "rank", "threshold": 0, "groups_per_unit": 1,
        "embedder": "all-minilm-l6-v2", "max_new_tokens": 256, "temperature": "1", "top_k": 0,
    }  # fmt: skip
    assert EvolutionParameters.model_validate(stored) == EvolutionParameters(samples=4)


@pytest.mark.parametrize(
    "changes",
    [
        {"samples": 0}, {"rounds": 0}, {"rounds": 1001}, {"variations": 1}, {"candidates": 0}, {"temperature": 0},
        {"selection": "best"}, {"threshold": 3}, {"threshold": -1, "selection": "sample"}, {"seed": 1}, {"top_k": -1},
        {"max_new_tokens": 0}, {"labels": ["a", "a"]}, {"lookahead": 2},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_out_of_range_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        settings(**changes)


def test_what_cannot_be_bought_is_refused_when_it_is_priced() -> None:
    with pytest.raises(UnknownModel):
        planned(embedder="nobody")
    with refusal("LabelWithoutSample"):
        planned(samples=1, labels=["a", "b"])
    with pytest.raises(NoiseInvalid):
        planned(rho=1)
    with refusal("BinsInvalid"):
        planned(samples=2, candidates=1_000_000, labels=["a", "b"])
    with pytest.raises(TypeError, match="private evolution"):
        PrivateEvolution().plan(ask(ink()))


def test_a_plan_of_other_rounds_is_not_carried_out() -> None:
    plan = PrivateEvolution().plan(ask(settings(rounds=2)))
    assert plan.amount == AMOUNT
    with pytest.raises(ValueError, match="not those of the plan"):
        PrivateEvolution().generate(plan, settings(rounds=4), Workshop(NoCorpus()).context())


def test_a_schedule_is_that_of_one_histogram() -> None:
    wanted = settings(rounds=3)
    assert Schedule.of(wanted, Amount(RHO)).events == (calibrate_histogram(RHO // 3, 4).event(),) * 3
