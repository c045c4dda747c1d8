"""What a request by the second claim gains: the priced epsilon, and differences that are paired by text."""

from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.dear
SCRIPTS = ("secret_assignment.utility",)


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
