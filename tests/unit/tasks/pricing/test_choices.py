"""Parameters that a request leaves out: chosen from public facts when it is priced, and fixed in its body."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models_db.errors import AlmonerError
from models_db.services.requests import configuration
from models_db.values.canonical_json import encode_canonical
from models_db.values.requests import PublicMetadata
from tasks.analysis.keywords.expected_keywords import EXPECTED
from tasks.planning.influence import clip_norm_of
from tasks.planning.parameter_choices import CHOSEN_PARAMETERS
from tasks.pricing.quote import quote, written_request
from tasks.release.approved_request import ApprovedRequest
from tasks.release.card_text import parameter_text
from tasks.systems.keyphrase_seeding.stages import TOPICS_FROM
from tasks.systems.registry import SYSTEMS
from tasks.text.public_topics import PUBLIC_TOPICS
from tasks.values.results import ReleaseKind
from tests.refusals import refusal
from tests.unit.tasks.pricing.test_quote import MODEL, facts, parameters, priced

pytestmark = pytest.mark.dear
PRIVATE = ("invisible_ink", "private_prediction", "private_icl", "few_shot_generation")


def chosen(quoted: Any) -> dict[str, Any]:
    return {name: quoted.body["parameters"][name] for name in quoted.choices}


def test_a_request_that_writes_everything_has_no_choices() -> None:
    quoted = priced(facts(population=2000))
    assert quoted.choices == {}
    assert "choices" not in quoted.body
    assert "choices" not in quoted.to_json()


def test_all_four_are_chosen_from_the_population() -> None:
    quoted = priced(facts(population=2000), parameters={})
    assert tuple(quoted.choices) == CHOSEN_PARAMETERS
    assert chosen(quoted) == {"samples": 100, "references": 20, "max_new_tokens": 64, "temperature": "0.7"}
    shown = quoted.to_json()["choices"]
    assert isinstance(shown, dict)
    assert shown["references"] == {"value": 20, "reason": "each text has about 20 of the declared 2000 units"}


def test_what_is_written_stays_and_the_rest_follows_it() -> None:
    quoted = priced(facts(population=2000), parameters={"samples": 250, "max_new_tokens": 32, "temperature": 0.8})
    assert chosen(quoted) == {"references": 8}
    fewer = priced(facts(population=2000), parameters={"references": 50, "max_new_tokens": 32, "temperature": 0.8})
    assert chosen(fewer) == {"samples": 40}
    assert fewer.body["parameters"]["temperature"] == "0.8"


def test_the_length_follows_the_declared_words() -> None:
    declared = facts(population=2000, public=PublicMetadata(typical_words=120))
    assert chosen(priced(declared, parameters={}))["max_new_tokens"] == 160
    own = priced(declared, parameters={}, public_metadata={"typical_words": 30})
    assert chosen(own)["max_new_tokens"] == 40
    long = facts(population=2000, public=PublicMetadata(typical_words=3000))
    assert "within 16 to 512" in priced(long, parameters={}).choices["max_new_tokens"]


def test_blocks_and_labels_have_as_many_texts_each() -> None:
    labels = [f"l{number}" for number in range(7)]
    quoted = priced(facts(population=20_000, blocks=3), parameters={"labels": labels})
    assert chosen(quoted)["samples"] == 84
    few = priced(facts(population=30, blocks=3), parameters={"labels": labels})
    assert chosen(few)["samples"] == 21
    assert chosen(few)["references"] == 1


def test_a_charged_metric_leaves_less_for_the_texts() -> None:
    alone, measured = (
        priced(facts(population=200_000), parameters={}, evaluation=names, evaluation_share="0.5")
        for names in ([], ["dp_length"])
    )
    assert chosen(measured)["references"] > chosen(alone)["references"]


@pytest.mark.parametrize("mechanism", PRIVATE)
@pytest.mark.parametrize("population", [60, 2000, 10**6])
def test_every_decoder_gets_values_that_can_be_priced(mechanism: str, population: int) -> None:
    quoted = priced(facts(population=population), parameters={"top_k": 100}, mechanism=mechanism)
    assert set(quoted.choices) == set(CHOSEN_PARAMETERS)
    measured = mechanism != "few_shot_generation"  # how far its rows move the next word was measured of the others
    assert (quoted.influence is not None) == measured
    assert ("influence" in quoted.to_json()) == measured


def test_references_without_protection_need_no_population() -> None:
    quoted = priced(parameters={}, mechanism="public_only", epsilon=None, delta=None)
    assert chosen(quoted) == {"samples": 20, "max_new_tokens": 64, "temperature": "0.7"}


SUMMARIES: dict[str, Any] = {"groups": ["K7", "L2"], "references": 8}


@pytest.mark.parametrize(
    ("mechanism", "temperature"), [("token_level_summary", "0.1"), ("invisible_ink", "0.4"), ("public_only", "0.1")]
)
def test_summaries_have_the_length_and_temperature_of_the_measured_ones(mechanism: str, temperature: str) -> None:
    """Typical words are those of a unit's texts, not of a summary."""
    claim = {"epsilon": None, "delta": None} if mechanism == "public_only" else {}
    own = {name: value for name, value in SUMMARIES.items() if name == "groups" or mechanism != "public_only"}
    declared = facts(public=PublicMetadata(typical_words=120))
    quoted = priced(declared, kind="summaries", mechanism=mechanism, parameters=own, **claim)
    assert chosen(quoted) == {"max_new_tokens": 50, "temperature": temperature}
    assert "measured" in quoted.choices["temperature"]
    written = {"max_new_tokens": 20, "temperature": "0.3"}
    whole = priced(declared, kind="summaries", mechanism=mechanism, parameters=own | written, **claim)
    assert whole.choices == {}


def test_every_system_of_summaries_has_a_measured_temperature() -> None:
    of_summaries = {name for name, system in SYSTEMS.items() if ReleaseKind.SUMMARIES in system.kinds}
    assert of_summaries == {name for name, system in SYSTEMS.items() if system.summary_temperature is not None}


def test_the_references_of_summaries_and_the_length_of_forms_are_not_chosen() -> None:
    with refusal("FileInvalid", match="references"):
        priced(facts(population=2000), kind="summaries", mechanism="token_level_summary", parameters={"groups": ["K7"]})
    form = {**SUMMARIES, "form": "People like {slot}."}
    with refusal("LengthNeeded"):
        priced(kind="summaries", mechanism="token_level_summary", parameters=form)


@pytest.mark.parametrize(
    ("dataset", "changes", "error"),
    [
        ({}, {"parameters": {}}, "PopulationNeeded"),
        ({}, {"parameters": {"samples": 5}}, "PopulationNeeded"),
        ({"population": 9}, {"parameters": {"samples": 10}}, "TooFewUnits"),
        ({"population": 2000}, {"parameters": {"form": "It is {what}."}}, "LengthNeeded"),
        ({"population": 2000}, {"parameters": {}, "epsilon": None}, "ClaimMissing"),
        ({}, {"parameters": {}, "kind": "records"}, "SchemaNeeded"),
        ({}, {"parameters": {}, "kind": "demonstrations"}, "LabelsNeeded"),
        ({}, {"parameters": {"groups": ["lamp"]}}, "GroupsUnexpected"),
    ],
)
def test_what_cannot_be_chosen_is_refused_by_name(dataset: dict[str, Any], changes: dict[str, Any], error: str) -> None:
    with refusal(error) as refused:
        priced(facts(**dataset), **changes)
    assert refused.value.advice


def test_length_and_temperature_are_chosen_without_a_population() -> None:
    quoted = priced(parameters={"samples": 4, "references": 7})
    assert chosen(quoted) == {"max_new_tokens": 64, "temperature": "0.7"}


def test_nothing_is_chosen_again_from_the_stored_request() -> None:
    first = priced(facts(population=2000), parameters={})
    stored = json.loads(encode_canonical(first.body))
    again = quote(written_request(stored), facts(population=50), MODEL, "p" * 64, "c" * 64)
    assert again.choices == {}
    assert again.body["parameters"] == first.body["parameters"]
    same = quote(written_request(stored), facts(population=2000), MODEL, "p" * 64, "c" * 64)
    assert same.body == {name: value for name, value in first.body.items() if name != "choices"}
    assert configuration(same.body) == configuration(first.body)


def test_the_approved_request_names_only_parameters_that_it_has() -> None:
    body = {**priced(facts(population=2000), parameters={}).body, "nonce": "n" * 32, "policy": "a" * 64}
    ApprovedRequest.model_validate(body).require_planned()
    forged = ApprovedRequest.model_validate({**body, "choices": {"beauty": "because"}})
    with refusal("PlanMismatch", match="choices that are no parameters"):
        forged.require_planned()


def test_more_epsilon_or_more_people_never_lower_the_chosen_clip_norm_of_given_texts() -> None:
    norms = [
        clip_norm_of(priced(facts(population=population), parameters={"samples": 50}, epsilon=epsilon).plan.facts)
        for population, epsilon in ((100, 1), (1000, 1), (1000, 2), (5000, 2))
    ]
    assert norms == sorted(norms)


@settings(max_examples=30, deadline=None)
@given(
    population=st.integers(1, 10**7),
    epsilon=st.sampled_from(["0.5", "1", "4", "8"]),
    words=st.none() | st.integers(1, 2000),
    blocks=st.integers(1, 4),
    labels=st.integers(0, 3),
)
def test_whatever_is_chosen_is_priced_and_is_the_same_again(
    population: int, epsilon: str, words: int | None, blocks: int, labels: int
) -> None:
    dataset = facts(population=population, blocks=blocks, public=PublicMetadata(typical_words=words))
    written = {"labels": [f"l{number}" for number in range(labels)]}
    try:
        quoted = priced(dataset, parameters=written, epsilon=epsilon)
    except AlmonerError as refused:
        if refused.code != "TooFewUnits":
            raise
        assert population < blocks * max(1, labels)
        return
    values = chosen(quoted)
    assert priced(dataset, parameters=written, epsilon=epsilon).body == quoted.body
    assert values["samples"] * values["references"] <= max(population, values["samples"])
    assert values["samples"] % (blocks * max(1, labels)) == 0
    assert priced(dataset, parameters=parameters(**written, **values), epsilon=epsilon).plan == quoted.plan


def seeded(population: int | None, **own: Any) -> Any:
    """A request of texts seeded by phrases, by one whose author leaves the vocabulary out unless `own` has it."""
    return priced(
        facts(population=population),
        mechanism="keyphrase_seeding",
        parameters={"samples": 4, "references": 20, "max_new_tokens": 16, **own},
    )


def test_phrases_are_public_where_next_to_none_could_be_selected() -> None:
    quoted = seeded(300)
    assert tuple(quoted.choices) == ("vocabulary",)
    vocabulary = quoted.body["parameters"]["vocabulary"]
    assert (vocabulary["method"], vocabulary["words_from"]) == ("public", TOPICS_FROM)
    assert vocabulary["words"][0] == PUBLIC_TOPICS[0]
    assert len(quoted.plan.invocations) == 1  # the sketches, with all of rho
    found = re.search(r"would need (\d+) of the declared 300;", quoted.choices["vocabulary"])
    assert found
    needed = int(found[1])
    assert parameter_text(vocabulary) == f"public, {len(vocabulary['words'])} phrases"
    for population, method in ((10 * needed - 1, "public"), (10 * needed, "private")):
        assert seeded(population).body["parameters"]["vocabulary"]["method"] == method


@pytest.mark.parametrize("population", [None, 10**6])
def test_phrases_are_selected_where_some_are_to_be_expected_or_nobody_can_tell(population: int | None) -> None:
    quoted = seeded(population)
    assert quoted.choices == {}
    assert quoted.body["parameters"]["vocabulary"]["method"] == "private"


def test_a_vocabulary_that_is_written_stays() -> None:
    quoted = seeded(300, vocabulary={"method": "private"})
    assert quoted.choices == {}
    assert quoted.body["parameters"]["vocabulary"]["method"] == "private"
    assert quoted.plan.facts[EXPECTED].startswith(("none", "next to none"))


SEEDED = ("keyphrase_seeding", "private_evolution")


@pytest.mark.parametrize("mechanism", SEEDED)
@pytest.mark.parametrize("labels", [(), ("a", "b", "c")])
def test_texts_and_n_of_released_values_are_chosen(mechanism: str, labels: tuple[str, ...]) -> None:
    quoted = priced(
        facts(population=100_001), mechanism=mechanism, parameters={"labels": list(labels), "max_new_tokens": 16}
    )
    values = chosen(quoted)
    assert values.pop("samples") == (99 if labels else 100)
    divided = mechanism != "private_evolution"  # votes are counts, which nothing is divided by
    assert values == ({"references": 33_333 if labels else 100_001} if divided else {})
    if divided:
        of_labels = " over 3 labels" if labels else ""
        assert quoted.choices["references"] == f"the declared 100001 units{of_labels}"
    again = quote(
        written_request(json.loads(encode_canonical(quoted.body))), facts(population=9), MODEL, "p" * 64, "c" * 64
    )
    assert again.choices == {}
    assert again.body["parameters"] == quoted.body["parameters"]


@pytest.mark.parametrize(("population", "rounds"), [(300, 5), (2000, 20), (10**5, 5)])
def test_an_evolution_has_as_many_texts_as_its_votes_tell_apart(population: int, rounds: int) -> None:
    quoted = priced(
        facts(population=population), mechanism="private_evolution", parameters={"rounds": rounds, "max_new_tokens": 16}
    )
    samples = chosen(quoted)["samples"]
    sigma = float(quoted.plan.facts["noise of a count (sigma)"].split()[0])
    if population == 10**5:
        assert samples == 100
    else:
        assert 0.8 * sigma <= population / (4 * (samples + 1)) <= sigma <= 1.02 * population / (4 * samples)
        assert f"{population} units" in quoted.choices["samples"]


@pytest.mark.parametrize("mechanism", SEEDED)
def test_what_is_written_of_released_values_stays(mechanism: str) -> None:
    own = {"samples": 7} | ({} if mechanism == "private_evolution" else {"references": 50})
    quoted = priced(facts(population=100_000), mechanism=mechanism, parameters={**own, "max_new_tokens": 16})
    assert quoted.choices == {}
    assert own.items() <= quoted.body["parameters"].items()


def test_a_vocabulary_is_chosen_beside_texts_and_n() -> None:
    quoted = priced(facts(population=300), mechanism="keyphrase_seeding", parameters={"max_new_tokens": 16})
    assert tuple(quoted.choices) == ("samples", "references", "vocabulary")


@pytest.mark.parametrize(
    ("population", "labels", "error"), [(None, [], "PopulationNeeded"), (2, ["a", "b", "c"], "TooFewUnits")]
)
def test_n_needs_a_declared_unit_of_each_label(population: int | None, labels: list[str], error: str) -> None:
    with refusal(error, match=r"references|at least"):
        priced(facts(population=population), mechanism="keyphrase_seeding", parameters={"labels": labels})
