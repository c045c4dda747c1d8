"""Offline recomputation: every stored event back to its charge, and every altered one refused."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest

from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from tasks.mechanisms.core.post_processing import PostProcessing
from tasks.mechanisms.core.uncharged import uncharged
from tasks.mechanisms.counts.gaussian_selection import GaussianSelection
from tasks.mechanisms.counts.noisy_count import NoisyCount
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram
from tasks.mechanisms.counts.partition_selection import PartitionSelection
from tasks.mechanisms.counts.set_histogram import SetHistogram
from tasks.mechanisms.counts.weighted_selection import WeightedSelection
from tasks.mechanisms.registry import MECHANISMS, EventInconsistent, UnknownMechanism, recompute
from tasks.mechanisms.tokens.integer_table import IntegerTableMechanism
from tasks.mechanisms.tokens.sparse_vector import SparseVector
from tasks.mechanisms.vectors.kde_sketch import KdeSketches
from tasks.mechanisms.vectors.kmeans_rounds import KMeansRounds
from tasks.mechanisms.vectors.noisy_mean import NoisyMean

EVENTS = [
    IntegerTableMechanism(2**19, 4, Fraction(9, 10), 2**21).event(48),
    NoisyCount(Fraction(5, 2)).event(),
    NoisyHistogram(7, NoisyCount(Fraction(5, 2))).event(),
    NoisyMean(2**20, Fraction(3 * 2**22 + 1, 2), 18).event(48),
    KMeansRounds(5, Fraction(7, 2), 2, NoisyMean(2**20, Fraction(3 * 2**22 + 1, 2), 20)).event(),
    KdeSketches(1000, 14, 5, Fraction(3 * 2**22 + 1, 2)).event(),
    SetHistogram(32_000, 5, "gaussian", Fraction(5, 2)).event(),
    SetHistogram(None, 5, "laplace", Fraction(5, 2)).event(2),
    PartitionSelection(Fraction(5, 4), Fraction(1e-8), 5).event(),
    GaussianSelection(Fraction(33, 2), 95, 5).event(),
    WeightedSelection(Fraction(3 * 2**18 + 1, 2), 2**21, 5).event(),
    SparseVector(Fraction(7, 2), 4).event(12),
    PostProcessing(3, Amount(5 * 10**11, 10**9)).event(),
    uncharged("public_only"),
    uncharged("non_private"),
    uncharged("adapmixed"),
    uncharged("simple_clio"),
]


def test_every_mechanism_has_an_example_here():
    assert {event.mechanism for event in EVENTS} == set(MECHANISMS)


# Another head-room is another draw of the same charge, not a contradiction; so are other bins, more features or
# labels, and another grid under the same steps. What a parent has paid is planned again from the request instead.
FREE = {
    ("integer_draw", "head_room"),
    ("noisy_histogram", "bins"),
    ("set_histogram", "bins"),
    ("weighted_selection", "contributions"),  # the charge is the largest over fewer candidates
    ("noisy_mean", "grid_exponent"),
    ("kmeans", "grid_exponent"),
    ("kde", "features"),
    ("kde", "labels"),
    ("post_processing", "release"),
    ("post_processing", "covered_rho"),
    ("post_processing", "covered_delta"),
}


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.mechanism)
def test_a_stored_event_gives_its_charge(event):
    stored = PrivacyEvent.from_json(json.loads(json.dumps(event.to_json())))
    assert recompute(stored) == event.loss


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.mechanism)
def test_the_stored_charge_is_not_believed(event):
    assert recompute(replace(event, loss=Amount(1))) == event.loss


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.mechanism)
def test_contradictions_are_refused(event):
    altered = [
        replace(event, parameters={**event.parameters, "more": 1}),
        replace(event, count=event.count + 1),
        replace(event, count=0),
        replace(event, dp_event=None),
        replace(event, relation="replace_one"),
    ]
    altered += [
        replace(event, parameters={key: value for key, value in event.parameters.items() if key != gone})
        for gone in event.parameters
    ]
    altered += [
        replace(event, parameters={**event.parameters, key: other})
        for key in event.parameters
        if (event.mechanism, key) not in FREE
        for other in (0, -1, "abc", "1/0", 17)
    ]
    for broken in altered:
        with pytest.raises(EventInconsistent) as refusal:
            recompute(broken)
        assert refusal.value.exit_code == 1


def test_only_known_systems_are_uncharged():
    with pytest.raises(ValueError, match="not an uncharged mechanism"):
        uncharged("integer_draw")


def test_an_unknown_mechanism_is_refused_by_name():
    with pytest.raises(UnknownMechanism) as refusal:
        recompute(replace(EVENTS[0], mechanism="tarot"))
    assert refusal.value.facts == {"mechanism": "tarot"}
