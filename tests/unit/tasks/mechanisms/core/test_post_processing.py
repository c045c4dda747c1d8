"""Post-processing: no loss, a claim that rests on what the parent has paid, and no other form than its own."""

from dataclasses import replace
from decimal import Decimal

import pytest

from models_db.values.amounts import Amount
from tasks.mechanisms.core.uncharged import PostProcessing, loss_paid_by_parent, parent_of
from tasks.mechanisms.counts.noisy_count import calibrate_count
from tasks.mechanisms.registry import recompute
from tasks.release.claim import ClaimTooSmall, state_claim
from tests.refusals import refusal

PAID = calibrate_count(10**11).event()
MORE = PostProcessing(3, PAID.loss).event()


def test_it_costs_nothing_and_claims_what_its_parent_claims():
    assert recompute(MORE) == MORE.loss == Amount()
    assert loss_paid_by_parent([MORE]) == loss_paid_by_parent([PAID]) == PAID.loss
    more, paid = (state_claim([event], 3, "1e-6") for event in (MORE, PAID))
    assert more.model_copy(update={"replace_one": paid.replace_one}) == paid
    # Which of its parent's mechanisms were one-hot further texts do not know: they take the larger factor.
    assert Decimal(str(more.replace_one.rho)) == Decimal((PAID.loss * 4).rho_text)


def test_it_cannot_claim_less_than_its_parent_has_paid():
    with pytest.raises(ClaimTooSmall):
        state_claim([MORE], "0.01", "1e-6")


def test_it_names_its_parent():
    assert (parent_of([PAID]), parent_of([MORE])) == (None, 3)
    assert PostProcessing.from_event(MORE) == PostProcessing(3, PAID.loss)


@pytest.mark.parametrize(
    "parameters",
    [
        {"release": 0},
        {"release": "3"},
        {"covered_rho": "-1"},
        {"covered_rho": "0.0000000000001"},
        {"covered_delta": "Infinity"},
        {"covered_delta": "much"},
        {"covered_rho": "0.10"},
        {"more": 1},
    ],
)
def test_another_form_is_refused(parameters):
    with refusal("EventInconsistent"):
        recompute(replace(MORE, parameters={**MORE.parameters, **parameters}))
