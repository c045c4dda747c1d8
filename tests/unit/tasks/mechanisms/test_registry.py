"""Offline recomputation: every stored event back to its charge, and every altered one refused."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from models_db.values.amounts import Amount
from models_db.values.events import PrivacyEvent
from tasks.mechanisms.core.uncharged import PostProcessing, uncharged
from tasks.mechanisms.counts.noisy_count import NoisyCount
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram
from tasks.mechanisms.counts.partition_selection import PartitionSelection
from tasks.mechanisms.counts.set_histogram import SetHistogram
from tasks.mechanisms.counts.threshold_selection import GaussianSelection, WeightedSelection
from tasks.mechanisms.registry import MECHANISMS, recompute
from tasks.mechanisms.tokens.integer_table import IntegerTableMechanism
from tasks.mechanisms.tokens.sparse_vector import SparseVector
from tasks.mechanisms.vectors.kde_sketch import KdeSketches
from tasks.mechanisms.vectors.kmeans_rounds import KMeansRounds
from tasks.mechanisms.vectors.noisy_mean import NoisyMean
from tests.refusals import refusal

GOLDEN = Path(__file__).parent / "events.json"
MADE: list[tuple[Any, int]] = [
    (IntegerTableMechanism(2**19, 4, Fraction(9, 10), 2**21), 48),
    (IntegerTableMechanism(2**19, 7, Fraction(1), 7 * 2**19), 48),
    (NoisyCount(Fraction(5, 2)), 3),
    (NoisyHistogram(9, NoisyCount(Fraction(5, 2))), 2),
    (NoisyMean(2**20, Fraction(3 * 2**22 + 1, 2), 18), 48),
    (KMeansRounds(5, Fraction(7, 2), 2, NoisyMean(2**20, Fraction(3 * 2**22 + 1, 2), 20)), 3),
    (KdeSketches(1000, 14, 5, Fraction(3 * 2**22 + 1, 2)), 3),
    (SetHistogram(32_000, 5, "gaussian", Fraction(5, 2)), 1),
    (SetHistogram(None, 5, "laplace", Fraction(5, 2)), 2),
    (PartitionSelection(Fraction(5, 4), Fraction(1e-8), 5), 3),
    (GaussianSelection(Fraction(33, 2), 95, 5), 3),
    (WeightedSelection(Fraction(3 * 2**18 + 1, 2), 2**21, 5), 3),
    (SparseVector(Fraction(7, 2), 4), 12),
]
"""Mechanisms, and how often each is invoked."""
EVENTS = [
    *(made.event(count) for made, count in MADE),
    PostProcessing(3, Amount(5 * 10**11, 10**9)).event(),
    *map(uncharged, ("public_only", "non_private", "adapmixed", "simple_clio")),
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


def test_events_are_stored_as_they_were():
    """Records of published releases hold such events, and their digests cover them."""
    assert [event.to_json() for event in EVENTS] == json.loads(GOLDEN.read_text())


@pytest.mark.parametrize(("made", "count"), MADE)
def test_a_stored_event_is_that_of_its_mechanism(made, count):
    event = made.event(count)
    assert type(made).from_event(PrivacyEvent.from_json(json.loads(json.dumps(event.to_json())))) == made
    assert event.loss == made.loss() * count
    with pytest.raises(ValueError, match="at least one"):
        made.event(0)


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
        for other in ("abc", "1/0", *(() if (event.mechanism, key) in FREE else (0, -1, 17, "1/3")))
    ]
    for broken in altered:
        with refusal("EventInconsistent") as told:
            recompute(broken)
        assert told.value.exit_code == 1


def test_only_known_systems_are_uncharged():
    with pytest.raises(ValueError, match="not an uncharged mechanism"):
        uncharged("integer_draw")


def test_an_unknown_mechanism_is_refused_by_name():
    with refusal("UnknownMechanism") as told:
        recompute(replace(EVENTS[0], mechanism="tarot"))
    assert told.value.facts == {"mechanism": "tarot"}
