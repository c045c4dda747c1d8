"""Who is read and who is held out, and how full the batches of a rehearsal are."""

from fractions import Fraction

import pytest

from tasks.attacks.canaries import CorpusDocument
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.rehearsal.split import RehearsalSplit, rehearsed_batches, split_people
from tests.refusals import refusal

UNITS = [CorpusDocument(f"unit {number}", f"text {number}") for number in range(200)]


@pytest.mark.parametrize(
    ("units", "size", "people", "held"), [(200, 60, 60, 50), (200, 4000, 150, 50), (20, 99, 10, 10)]
)
def test_nobody_is_on_both_sides(units: int, size: int, people: int, held: int) -> None:
    split = split_people(UNITS[:units], size, "plain", OS_RANDOM)
    assert (len(split.people), len(split.held_out)) == (people, held)
    assert len({one.unit for one in (*split.people, *split.held_out)}) == people + held
    assert RehearsalSplit.from_json(split.to_json()) == split


def test_every_unit_is_as_likely_to_be_read() -> None:
    """Of 4,000 draws of 10 people out of 20, each unit is in about half (6 standard deviations)."""
    counts = dict.fromkeys((one.unit for one in UNITS[:20]), 0)
    for _ in range(4000):
        for one in split_people(UNITS[:20], 10, "plain", OS_RANDOM).people:
            counts[one.unit] += 1
    assert all(abs(count - 2000) < 190 for count in counts.values())


def test_a_small_corpus_is_refused() -> None:
    with refusal("RehearsalTwinTooSmall") as refused:
        split_people(UNITS[:19], 10, "plain", OS_RANDOM)
    assert refused.value.facts == {"dataset": "plain", "units": 19, "least": 20}


@pytest.mark.parametrize(
    ("per_cell", "cells", "texts", "people", "declared", "made", "filled"),
    [
        (100, 1, 24, 1000, 1000, 100, Fraction(10)),  # the declared size: the request's own batches
        (100, 1, 24, 500, 1000, 50, Fraction(10)),  # half the people: half the batches
        (100, 1, 24, 100, 1000, 24, Fraction(100, 24)),  # too few people for 24 full batches
        (25, 4, 24, 1000, 1000, 25, Fraction(10)),
        (25, 4, 24, 990, 1000, 24, Fraction(990, 96)),
    ],
)
def test_batches_are_as_full_as_the_requests(
    per_cell: int, cells: int, texts: int, people: int, declared: int, made: int, filled: Fraction
) -> None:
    batches = rehearsed_batches(per_cell, cells, texts, people, declared)
    assert (batches.per_cell, batches.units_per_text) == (made, filled)
    assert batches.asked == Fraction(declared, cells * per_cell)
    assert batches.per_cell * cells >= texts
