"""The suite: planted leaks win, random text stays at chance, and what cannot be measured is null."""

from dataclasses import replace

import numpy as np
import pytest

from tasks.attacks.attack_input import AttackInput
from tasks.attacks.canaries import make_canaries
from tasks.attacks.registry import ATTACKS, possible
from tasks.mechanisms.core.rng import DeterministicRandom
from tasks.text.public_models import Entity
from tasks.values.results import MetricResult
from tests.unit.tasks.attacks.people import WordEmbedder, random_texts, uniform_score

pytestmark = pytest.mark.dear
CONCERNS = ("tasks/attacks",)

CANARIES = make_canaries(12, DeterministicRandom("suite"), alternatives=100)


class Names:
    """Every word after `named` is a name."""

    name = "after named"

    def __call__(self, texts):
        return [
            [Entity("PERSON", w) for v, w in zip(t.split(), t.split()[1:], strict=False) if v == "named"] for t in texts
        ]


def corpus(count, seed, name):
    mail = [f" mail {name}{number}@example.org named {name}{number}" for number in range(count)]
    return [text + end for text, end in zip(random_texts(count, 30, seed), mail, strict=True)]


def labels(count, seed):
    return list(np.random.default_rng(seed).choice(["left", "right"], count))


SCENE = AttackInput(
    released=random_texts(40, 30, 9),
    members=corpus(60, 1, "ann"),
    nonmembers=corpus(120, 2, "bob"),
    exposure="public",
    canaries=CANARIES,
    member_labels=labels(60, 1),
    nonmember_labels=labels(120, 2),
    score=uniform_score,
    embed=WordEmbedder(),
    tag=Names(),
)
COPIED = replace(SCENE, released=[*SCENE.members, *(canary.document for canary in CANARIES.planted)])
MEMBERSHIP = ["membership_embedding", "membership_likelihood", "membership_overlap", "canary_membership"]


def made(name, scene):
    found = ATTACKS[name].compute(scene)
    assert MetricResult.from_json(found.to_json()) == found
    assert found.name == name
    return found


@pytest.mark.parametrize("name", MEMBERSHIP)
def test_a_copied_corpus_is_told_from_chance(name):
    found = made(name, COPIED)
    assert float(found.values["auc_low"]) > 0.5
    assert float(found.values["auc"]) > 0.95
    assert "above chance" in found.line


@pytest.mark.parametrize("name", MEMBERSHIP)
def test_random_text_is_not(name):
    found = made(name, SCENE)
    assert float(found.values["auc_low"]) < 0.5 < float(found.values["auc_high"])
    assert "indistinguishable from chance" in found.line


def test_low_rates_need_enough_nonmembers():
    values = made("membership_embedding", COPIED).values
    assert float(values["tpr_at_1_percent"]) > 0.9
    assert values["tpr_at_0_1_percent"] is None


def test_planted_secrets_are_exposed_by_a_copy_and_not_by_random_text():
    loud, silent = made("canary_exposure", COPIED).values, made("canary_exposure", SCENE).values
    assert (loud["planted"], loud["planted_appearing"], loud["held_out_appearing"]) == (12, 12, 0)
    assert float(loud["exposure_mean_low"]) > 5
    assert float(loud["exposure_possible"]) == pytest.approx(6.658, abs=1e-3)
    assert silent["planted_appearing"] == silent["planted_nearly_appearing"] == 0
    assert float(silent["exposure_mean_low"]) < float(silent["exposure_by_chance"]) + 0.5


def test_identifiers_are_extracted_from_a_copy_and_not_from_random_text():
    loud, silent = made("identifier_extraction", COPIED).values, made("identifier_extraction", SCENE).values
    assert (loud["emails"], loud["emails_of"], loud["held_out_emails"]) == (60, 60, 0)
    assert (loud["names"], loud["names_of"]) == (60, 60)
    assert (silent["emails"], silent["emails_share"], silent["phones_share"]) == (0, "0.0000", None)
    without = made("identifier_extraction", replace(COPIED, tag=None)).values
    assert without["names"] is None


def test_replay_of_a_copy_and_of_random_text():
    loud, silent = made("replay", COPIED).values, made("replay", SCENE).values
    assert loud["near_copies"] == 60  # the canaries copy no member
    assert loud["near_copies_of"] == 72
    assert loud["held_out_near_copies"] == silent["near_copies"] == 0
    assert loud["longest_run"] > 30 > silent["longest_run"]


def test_an_attribute_of_nobody_is_not_inferred():
    values = made("attribute_inference", SCENE).values
    assert values["right_of"] == values["held_out_right_of"] == 60
    assert float(values["right_share_low"]) < 0.5 < float(values["right_share_high"])
    unlabelled = made("attribute_inference", replace(SCENE, member_labels=(), nonmember_labels=())).values
    assert set(unlabelled.values()) == {None}


@pytest.mark.slow_except(
    "no canaries-membership_embedding",
    "no canaries-membership_likelihood",
    "no canaries-membership_overlap",
    "no canaries-canary_membership",
    "no canaries-canary_exposure",
    "no canaries-identifier_extraction",
    "no canaries-attribute_inference",
    "no canaries-replay",
    "empty texts-membership_embedding",
    "empty texts-membership_likelihood",
    "empty texts-membership_overlap",
    "empty texts-canary_membership",
    "empty texts-canary_exposure",
    "empty texts-identifier_extraction",
    "empty texts-attribute_inference",
    "empty texts-replay",
)
@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize(
    "scene",
    [
        replace(SCENE, released=[]),
        replace(SCENE, released=["", "  "]),
        replace(SCENE, members=[], member_labels=[]),
        replace(SCENE, nonmembers=[], nonmember_labels=[]),
        replace(SCENE, canaries=None),
        replace(
            SCENE, released=["one text"], members=["one"], nonmembers=["other"], member_labels=[], nonmember_labels=[]
        ),
        replace(SCENE, members=["", "a b"], nonmembers=["", ""], member_labels=["x", "y"], nonmember_labels=["x", "y"]),
    ],
    ids=["no text", "empty texts", "no members", "no nonmembers", "no canaries", "one text", "empty people"],
)
def test_poor_scenes_give_figures_or_nulls(name, scene):
    found = made(name, scene)
    full = ATTACKS[name].compute(COPIED)
    assert set(found.values) == set(full.values)
    assert found.line


@pytest.mark.parametrize("name", ATTACKS)
def test_without_a_text_no_share_is_measured(name):
    values = made(name, replace(SCENE, released=[])).values
    assert all(value is None for figure, value in values.items() if figure.endswith(("share", "auc", "_mean", "low")))


def test_only_what_has_its_tools_is_possible():
    assert [attack.name for attack in possible(SCENE)] == list(ATTACKS)
    bare = {attack.name for attack in possible(replace(SCENE, score=None, embed=None))}
    assert bare == {name for name, attack in ATTACKS.items() if not attack.needs}
    for name in set(ATTACKS) - bare:
        with pytest.raises(ValueError, match="needs"):
            ATTACKS[name].compute(replace(SCENE, score=None, embed=None))


def test_results_are_internal_unless_the_members_are_public():
    assert AttackInput((), (), ()).exposure == "internal"
    assert {attack.compute(replace(SCENE, exposure="internal")).exposure for attack in possible(SCENE)} == {"internal"}
