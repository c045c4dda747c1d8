"""Plans: whatever is proposed is a priced request, fits the population and the time, and says truly what to expect."""

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models_db.errors import UsageError
from models_db.values.requests import ReleaseRequest, parse_model
from tasks.planning.influence import clip_norm_of
from tasks.pricing.alternatives import (
    CLAIM_NOTE,
    LEAST_REFERENCES,
    READ_TEXTS,
    Alternative,
    PlanTerms,
    PopulationTooSmall,
    notes_of,
    plan_alternatives,
    rounded_epsilon,
    topics_alternative,
    verdict,
)
from tasks.pricing.quote import Quote, quote
from tasks.pricing.request_warnings import setting_warnings
from tests.refusals import refusal
from tests.unit.tasks.pricing.test_quote import MODEL, facts

pytestmark = pytest.mark.dear
CONCERNS = ("tasks/planning", "tasks/pricing")

AS_DEAR = 2e-5
"""Relative: a table loses less than 10^-5 of its clip norm (docs/decisions/0016), so twice that of the cost."""
DOCS = Path(__file__).resolve().parents[4] / "docs"


def pricing(**dataset: Any) -> Callable[[ReleaseRequest], Quote]:
    """The price of a request for a dataset with these facts."""
    return partial(_price, dataset=dataset)


def _price(request: ReleaseRequest, dataset: dict[str, Any]) -> Quote:
    return quote(request, facts(**dataset), MODEL, "p" * 64, "c" * 64)


def terms(population: int = 2000, epsilon: str = "4", blocks: int = 1, **changes: Any) -> PlanTerms:
    given_terms: dict[str, Any] = {
        "dataset": "clinic",
        "model": "tiny",
        "kind": "synthetic_corpus",
        "epsilon": Decimal(epsilon),
        "delta": Decimal("1e-6"),
        "population": population,
        "description": "Short notes.",
        "price": pricing(population=population, blocks=blocks),
    }
    return PlanTerms(**given_terms | changes)


def norm(one: Alternative) -> Decimal:
    found = clip_norm_of(one.quote.plan.facts)
    assert found is not None
    return found


def level(one: Alternative) -> str:
    assert one.quote.influence is not None
    return one.quote.influence.level.name


def test_three_requests_from_most_texts_to_the_best() -> None:
    plan = plan_alternatives(terms())
    assert [one.name for one in plan] == ["more texts", "balanced", "better texts"]
    assert [level(one) for one in plan] == ["clearly", "strongly", "almost fully"]
    assert [one.samples for one in plan] == [400, 133, 68]
    costs = [one.quote.plan.loss.rho for one in plan]
    assert costs == pytest.approx([max(costs)] * 3, rel=AS_DEAR)


def test_spare_people_buy_half_the_epsilon() -> None:
    *same, cheaper = plan_alternatives(terms(200_000))
    assert cheaper.name == "half the epsilon"
    assert cheaper.quote.request.epsilon == 2
    balanced = same[1]
    assert level(cheaper) == level(balanced) == "strongly"
    assert cheaper.samples == balanced.samples
    assert cheaper.quote.plan.loss.rho < balanced.quote.plan.loss.rho / 3
    assert same[0].name == "quicker"


def test_more_texts_than_are_of_use_are_not_offered() -> None:
    wanted = terms(samples=1000)
    plan = plan_alternatives(wanted)
    assert [one.name for one in plan] == ["more texts", "balanced", "better texts"]
    assert plan[0].samples == 400
    (note,) = [note for note in notes_of(wanted, plan, declared=True) if "1000 texts were wanted" in note]
    assert "no more than 400" in note


def test_a_wanted_number_that_fits_is_that_number() -> None:
    assert {one.samples for one in plan_alternatives(terms(samples=17))} == {17}


def test_labels_and_blocks_have_as_many_texts_each() -> None:
    labels = ("a", "b", "c")
    plan = plan_alternatives(terms(blocks=2, labels=labels, kind="demonstrations"))
    assert all(one.samples % 6 == 0 for one in plan)
    assert all(one.request["parameters"]["labels"] == list(labels) for one in plan)  # type: ignore[index, call-overload]


def test_a_small_population_is_told_the_smallest_that_would_do() -> None:
    with pytest.raises(PopulationTooSmall) as refused:
        plan_alternatives(terms(11, epsilon="1"))
    smallest = refused.value.facts["smallest"]
    assert isinstance(smallest, int)
    assert str(smallest) in refused.value.advice
    (only,) = plan_alternatives(terms(smallest, epsilon="1"))
    assert only.name == "the one that fits"
    with pytest.raises(PopulationTooSmall):
        plan_alternatives(terms(smallest - 1, epsilon="1"))


def test_the_time_limits_the_texts() -> None:
    plan = plan_alternatives(terms(seconds=600))
    assert all(one.quote.seconds <= 600 for one in plan)
    assert max(one.quote.seconds for one in plan) > 500
    with refusal("TimeTooShort") as refused:
        plan_alternatives(terms(seconds=6))
    least = refused.value.facts["least"]
    assert isinstance(least, int)
    assert plan_alternatives(terms(seconds=least))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"kind": "records"}, "InvalidPlan"),
        ({"population": 0}, "InvalidPlan"),
        ({"kind": "demonstrations"}, "LabelsNeeded"),
        ({"mechanisms": ("public_only",)}, "MechanismsForbidden"),
        ({"kind": "insights", "mechanisms": ("invisible_ink",)}, "MechanismsForbidden"),
        ({"kind": "insights", "population": 999}, "PopulationTooSmall"),
    ],
)
def test_what_cannot_be_planned_is_refused_by_name(changes: dict[str, Any], error: str) -> None:
    with refusal(error) as refused:
        plan_alternatives(terms(**changes))
    assert refused.value.advice


@pytest.mark.parametrize("mechanism", ["private_icl", "private_prediction"])
def test_another_allowed_mechanism_is_planned_above_its_noise(mechanism: str) -> None:
    plan = plan_alternatives(terms(20_000, epsilon="8", mechanisms=(mechanism,)))
    assert {one.quote.request.mechanism for one in plan} == {mechanism}
    assert "noise" not in {level(one) for one in plan}


def test_topics_are_offered_where_there_are_people_enough() -> None:
    topics = topics_alternative(terms(5000))
    assert topics is not None
    assert topics.quote.request.parameters == {"clusters": {"count": 50}}
    assert "Keywords to expect: those that" in topics.judgement
    assert topics.tokens is None
    assert topics_alternative(terms(999)) is None
    assert topics_alternative(terms(5000, epsilon="0.2")) is None
    assert topics_alternative(terms(5000, mechanisms=("invisible_ink",))) is None
    assert plan_alternatives(terms(5000, kind="insights"))[0].request == topics.request


def test_topics_have_no_labels() -> None:
    with refusal("InvalidPlan", match="Topics have no labels"):
        plan_alternatives(terms(5000, kind="insights", labels=("a",)))


def test_topics_have_no_examples_of_texts() -> None:
    with refusal("InvalidPlan", match="Topics have no examples"):
        plan_alternatives(terms(5000, kind="insights", examples=("A note.",)))


def test_the_notes_say_what_the_figures_do_not() -> None:
    plan = plan_alternatives(terms(500))
    said = " ".join(notes_of(terms(500), plan, declared=False, groups=3))
    for part in ("two public examples", "noisy count", "3 public groups"):
        assert part in said
    with_examples = " ".join(notes_of(terms(500, examples=("A note.",)), plan, declared=True))
    assert "noisy count" not in with_examples
    assert "examples" not in with_examples


def test_the_verdict_is_in_words_of_texts() -> None:
    small, other, topics = terms(500, model="smollm2-135m-instruct"), terms(500), terms(5000, kind="insights")
    assert READ_TEXTS[small.model] in verdict(small, plan_alternatives(small))
    assert "rehearse first" in verdict(other, plan_alternatives(other))
    assert "subjects" in verdict(topics, plan_alternatives(topics))


def test_a_verdict_on_a_model_is_what_readers_found() -> None:
    """At epsilon 4 and temperature 0.7 (docs/utility.md#read-blind)."""
    page = " ".join((DOCS / "utility.md").read_text().split())
    assert "Both readers accept 15 of 20 at epsilon 4" in page
    assert "15 of 20 notes" in READ_TEXTS["gemma3-270m"]
    assert "5 of 20 of its short notes are coherent" in page
    assert "5 of 20 short notes" in READ_TEXTS["smollm2-135m-instruct"]


@pytest.mark.parametrize(
    ("exact", "rounded"), [("4.49", "4"), ("4.5", "4.5"), ("1.99", "1.9"), ("0.12", "0.1"), ("0.057", "0.05")]
)
def test_a_proposed_epsilon_is_rounded_down(exact: str, rounded: str) -> None:
    assert rounded_epsilon(Decimal(exact)) == Decimal(rounded)


def test_more_epsilon_never_gives_a_smaller_clip_norm_for_the_same_texts() -> None:
    request = plan_alternatives(terms())[1].request
    norms = []
    for epsilon in ("0.5", "1", "2", "3.9", "4", "8", "20"):
        written = parse_model(ReleaseRequest, request | {"epsilon": epsilon}, "The request")
        norms.append(clip_norm_of(terms().price(written).plan.facts))
    assert norms == sorted(norms)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    population=st.integers(1, 10**7),
    epsilon=st.sampled_from(["0.3", "1", "4", "7.5"]),
    tokens=st.none() | st.integers(1, 400),
    samples=st.none() | st.integers(1, 3000),
    blocks=st.integers(1, 12),
    labels=st.integers(0, 3),
    seconds=st.none() | st.integers(10, 10**5),
)
def test_every_proposal_is_a_request_that_is_priced_alike(
    population: int,
    epsilon: str,
    tokens: int | None,
    samples: int | None,
    blocks: int,
    labels: int,
    seconds: int | None,
) -> None:
    wanted = terms(
        population,
        epsilon,
        blocks,
        max_new_tokens=tokens,
        samples=samples,
        labels=tuple(f"l{number}" for number in range(labels)),
        seconds=seconds,
    )
    try:
        plan = plan_alternatives(wanted)
    except UsageError as problem:
        if problem.code not in ("PopulationTooSmall", "TimeTooShort"):
            raise
        refused = problem
        plan = ()
    if not plan:
        given_figure = population if refused.code == "PopulationTooSmall" else seconds
        assert given_figure is not None
        assert given_figure < int(str(refused.facts.get("smallest", refused.facts.get("least"))))
        return
    assert [one.request for one in plan] == [one.request for one in plan_alternatives(wanted)]
    for one in plan:
        again = wanted.price(parse_model(ReleaseRequest, one.request, "The request"))
        assert again.plan == one.quote.plan
        assert again.choices == {}
        assert again.affordable
        assert seconds is None or one.quote.seconds <= seconds
        assert one.references is not None
        assert one.samples * one.references <= population
        assert one.references >= LEAST_REFERENCES
        assert not list(setting_warnings(one.quote.body))
    alike = [one for one in plan if one.quote.request.epsilon == Decimal(epsilon)]
    for more, better in pairwise(alike):
        assert more.samples >= better.samples
        assert norm(more) < norm(better)


@pytest.mark.slow
def test_a_plan_by_the_claim_while_secret_reaches_its_levels_with_fewer_units() -> None:
    """Larger batches are fewer and hide less, so the references of each level follow from prices with so many."""
    by_second = plan_alternatives(terms(300, "50", epsilon_while_secret=Decimal(1)))
    before = plan_alternatives(terms(300, "1"))
    assert max(one.samples for one in by_second) > 2 * max(one.samples for one in before)
    aims = {"more texts": "clearly", "balanced": "strongly", "better texts": "almost fully"}
    for one in by_second:
        secret = one.quote.secret_assignment
        assert secret is not None
        assert one.quote.request.epsilon is not None
        assert Decimal(secret.epsilon) <= 1 < one.quote.request.epsilon <= 50
        assert one.request["epsilon_while_secret"] == "1"
        assert not list(setting_warnings(one.quote.body))
        if one.name in aims:
            assert level(one) == aims[one.name]
    notes = notes_of(terms(300, "50", epsilon_while_secret=Decimal(1)), by_second, declared=True)
    assert CLAIM_NOTE in notes


def test_what_makes_no_claim_while_secret_is_offered_at_that_epsilon() -> None:
    asked = terms(300, "50", epsilon_while_secret=Decimal(1))
    assert asked.claim_of("urania") == {"epsilon": Decimal(1), "delta": Decimal("1e-6")}
    assert asked.claim_of("private_prediction")["epsilon"] == 1
    assert asked.claim_of("private_icl")["epsilon_while_secret"] == 1
    half = asked.with_half_the_epsilon
    assert half is not None
    assert (half.epsilon, half.epsilon_while_secret) == (50, Decimal("0.5"))
    assert terms(300, "50", epsilon_while_secret=Decimal("0.1")).with_half_the_epsilon is None
