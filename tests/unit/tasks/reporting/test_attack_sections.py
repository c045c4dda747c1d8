"""Attacks on a public twin, judged beside what protects nothing."""

import copy

import pytest

from tasks.reporting.attack_sections import RUNS, TRIES, Run, TwinAttack, TwinAttacks, exceeds_reference
from tests.unit.tasks.reporting.a_report import STORED, TWIN


def test_a_stored_result_becomes_facts_that_everybody_may_read():
    assert {fact.exposure for fact in TWIN.facts()} == {"public"}
    assert (TWIN.twin.corpus, TWIN.twin.members, TWIN.twin.same_code) == ("mts-dialog", 60, True)
    assert [(one.name, one.verdict) for one in TWIN.attacks] == [
        ("membership_embedding", "does not win"),
        ("replay", "does not win"),
    ]
    assert [run.run for run in TWIN.attacks[0].runs] == list(RUNS.values())


def test_another_software_is_told():
    assert TwinAttacks.of(STORED, "d1" * 32).twin.same_code is False


def test_what_was_judged_by_private_data_is_no_attack_on_a_twin():
    stored = copy.deepcopy(STORED)
    stored["runs"][1]["results"][0]["exposure"] = "internal"
    with pytest.raises(ValueError, match="is public"):
        TwinAttacks.of(stored, "c0" * 32)


@pytest.mark.parametrize(
    ("protected", "others", "verdict"),
    [
        (False, (True, True), "does not win"),
        (False, (None, True), "does not win"),
        (True, (True, True), "wins"),
        (True, (), "wins"),
        (False, (False, False), "says nothing"),
        (False, (), "says nothing"),
        (None, (True, True), "not measured"),
    ],
)
def test_an_attack_is_judged_beside_what_protects_nothing(protected, others, verdict):
    runs = tuple(Run(name, "line", won) for name, won in zip(RUNS.values(), (protected, *others), strict=False))
    assert TwinAttack("a", "b", runs).to_json()["verdict"] == verdict


@pytest.mark.parametrize(
    ("values", "won"),
    [
        ({"auc": "0.6", "auc_low": "0.5001", "auc_high": "0.7"}, True),
        ({"auc": "0.6", "auc_low": "0.5", "auc_high": "0.7"}, False),
        ({"auc": None, "auc_low": None, "auc_high": None}, None),
        ({"exposure_mean_low": "1.5", "exposure_by_chance": "1.44"}, True),
        ({"exposure_mean_low": "1.4", "exposure_by_chance": "1.44"}, False),
        ({"names_share_low": "0.2", "held_out_names_share_low": "0", "held_out_names_share_high": "0.1"}, True),
        ({"names_share_low": "0.1", "held_out_names_share_low": "0", "held_out_names_share_high": "0.2"}, False),
        ({"names_share_low": "0.1"}, None),
        ({"texts": 3}, None),
    ],
)
def test_an_attack_wins_where_the_whole_interval_is_above_the_level(values, won):
    assert exceeds_reference(values) is won


def test_every_attack_of_the_suite_says_what_it_tries():
    from tasks.attacks.registry import ATTACKS

    assert set(ATTACKS) == set(TRIES)
