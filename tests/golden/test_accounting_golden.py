"""The golden file is what its formulas give, to the digit."""

import json

from tests.golden.accounting_oracle import GOLDEN, golden


def test_the_golden_values_follow_from_their_formulas():
    assert json.loads(GOLDEN.read_text()) == golden()
