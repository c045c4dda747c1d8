"""What a request by the second claim gains: the priced epsilon, and differences that are paired by text."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.dear
CONCERNS = ("benchmarks/secret_assignment",)
SCRIPTS = ("secret_assignment.utility", "secret_assignment.labelled_texts", "secret_assignment.audits")


@pytest.fixture
def secret_claim(bench: dict[str, ModuleType]) -> ModuleType:
    return bench["secret_assignment.utility"]


def test_the_unconditional_epsilon_is_that_of_the_proofs_table(secret_claim: ModuleType) -> None:
    """docs/proofs/secret-assignment.md: a claim of 1 with 100 batches has 4.4 with a public assignment, 4 has 8.5."""
    assert [round(float(secret_claim.epsilon_for(claim, 100)), 1) for claim in ("1", "4")] == [4.4, 8.5]


def line(meaning: str, claim: str | None, kl: list[float]) -> dict[str, Any]:
    figures = {"kl": kl, "loss": kl, "covered": kl}
    return {
        "data": "yelp",
        "claim": claim,
        "meaning": meaning,
        "epsilon": claim,
        "clip_norm": 1,
        "seconds": 2,
    } | figures


def test_a_gain_is_paired_by_text(secret_claim: ModuleType) -> None:
    """Each text gains the same, so the interval of the gain is a point, whatever texts differ by."""
    before, after = [0.2, 0.9, 5.0], [0.1, 0.8, 4.9]
    lines = [
        line(secret_claim.MEAN, None, [0.0] * 3),
        line(secret_claim.UNCONDITIONAL, "1", before),
        line("100", "1", after),
    ]
    rows = list(secret_claim.table(lines))
    assert rows[-1].count("0.100 [0.100, 0.100]") == 2
    assert "0.100 [0.100, 0.100]" not in rows[-2]
    assert "while secret, of 100 batches" in rows[-1]


@pytest.fixture
def labelled(bench: dict[str, ModuleType]) -> ModuleType:
    return bench["secret_assignment.labelled_texts"]


def test_a_labelled_release_claims_by_the_batches_of_one_label(labelled: ModuleType) -> None:
    """32 batches of each label, and not the less that a claim of 1 would cost with 64."""
    priced = [float(labelled.epsilon_of("yelp", ("1", meaning))) for meaning in ("unconditional", labelled.SECRET)]
    assert priced == [1, 3.592]
    both = labelled.charged("yelp") | {"labels": (), "batches": 64}
    assert float(labelled.unconditional_epsilon("1", both)) > 4


@pytest.mark.slow
def test_accuracy_is_balanced_and_its_difference_paired_by_the_tested_texts(labelled: ModuleType) -> None:
    rng = np.random.default_rng(0)
    true = np.array([0] * 90 + [1] * 10)
    features = np.where(true[:, None] == 1, 2.0, -2.0) + rng.normal(size=(100, 4))
    classes = np.array([0, 1] * 16)
    points = np.where(classes[:, None] == 1, 2.0, -2.0) + rng.normal(size=(32, 4))
    good = labelled.balanced_accuracies([(points, classes)], features, true)
    swapped = labelled.balanced_accuracies([(points, 1 - classes)], features, true)
    constant = labelled.balanced_accuracies([(np.zeros((32, 4)), classes)], features, true)
    assert good[0] > 0.9
    assert swapped[0] < 0.1
    assert constant[0] == 0.5, "of a label that nine in ten have, the constant answer is no better than chance"
    assert len(good) == 1 + labelled.ROUNDS
    middle, low, high = labelled.shown(good - swapped)
    assert 0.8 < low <= middle <= high


def test_the_table_of_labelled_releases_has_differences_with_intervals(labelled: ModuleType) -> None:
    line = {
        "data": "yelp", "claim": "1", "meaning": "while secret", "epsilon": "3.592", "clip_norm": 0.5,
        "seconds": [61.2], "accuracy": [0.7, 0.6, 0.8], "more": [0.1, 0.0, 0.2], "more_than_public": [0.2, 0.1, 0.3],
    }  # fmt: skip
    rows = list(labelled.table([line]))
    assert rows[0].count("|") == rows[1].count("|") == rows[2].count("|")
    assert "| 0.100 [0.000, 0.200] |" in rows[2]


def test_audits_have_twins_and_the_table_has_honest_ones_first(bench: dict[str, ModuleType]) -> None:
    audits = bench["secret_assignment.audits"]
    assert {audit.broken for audit in audits.audits().values()} == {True, False}
    line = {
        "batches": 32, "trials": 200, "delta": "0.03", "confidence": 0.9999, "bound": 1.0, "claim": 2.0, "seconds": 3,
    }  # fmt: skip
    rows = list(audits.table([line | {"audit": "twin", "broken": True}, line | {"audit": "own", "broken": False}]))
    assert rows[2].startswith("| own | 32 | 200, 200 |")
    assert rows[3].startswith("| twin (broken) |")
