"""Two prices within one text: together they cost no more than was given, and each draw has one of them."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.mechanisms.tokens import sampler
from tasks.mechanisms.tokens.exponential_mechanism import BudgetTooSmall
from tasks.mechanisms.tokens.first_draws import FirstDraws, calibrate_both

RHO = 500_000_000_000
KINDS = st.sampled_from(sampler.KINDS)
SHARES = st.fractions(Fraction(1, 100), Fraction(99, 100))


@given(KINDS, SHARES, st.integers(1, 60), st.integers(1, 400), st.integers(1, 40))
def test_both_together_cost_what_was_given_at_most(kind, share, first, later, references) -> None:
    outline, sections = calibrate_both(kind, RHO, share, first, later, references, "1.1")
    of_outline, of_sections = outline.event(first).loss.rho, sections.event(later).loss.rho
    assert of_outline <= share * RHO
    assert of_outline + of_sections <= RHO
    assert of_outline + of_sections > 0.99 * RHO
    assert outline.loss().rho * first == of_outline
    assert sections.loss().rho * later == of_sections


def test_a_proportional_share_makes_all_draws_alike() -> None:
    outline, sections = calibrate_both("table", RHO, Fraction(40, 200), 40, 160, 7, "1")
    plain = sampler.calibrate("table", RHO, 200, 7, "1")
    for draw in (outline, sections):
        assert float(draw.clip_norm) == pytest.approx(float(plain.clip_norm), rel=1e-3)


def test_a_larger_share_has_a_larger_clip_norm() -> None:
    norms = [calibrate_both("opendp", RHO, Fraction(share, 10), 40, 160, 7, "1") for share in (2, 4, 8)]
    assert [float(first.clip_norm / norms[0][0].clip_norm) for first, _ in norms] == pytest.approx(
        [1, 2**0.5, 2], rel=0.01
    )
    assert [float(later.clip_norm) for _, later in norms] == sorted(
        [float(draw.clip_norm) for _, draw in norms], reverse=True
    )


@pytest.mark.parametrize(("share", "later"), [(Fraction(1, 10**12), 160), (Fraction(99, 100), 10**12)])
def test_a_share_that_buys_no_clip_norm_is_refused(share: Fraction, later: int) -> None:
    with pytest.raises(BudgetTooSmall):
        calibrate_both("table", RHO, share, 40, later, 7, "1")


def test_the_number_of_a_draw_alone_decides() -> None:
    draw = sampler.public_sampler("1", "table")
    assert FirstDraws(4, draw).split([0, 3, 4, 9, 2]) == ([0, 1, 4], [2, 3])
    assert FirstDraws(4, draw).split([4]) == ([], [0])
