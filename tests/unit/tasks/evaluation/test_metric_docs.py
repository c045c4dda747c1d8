"""Every metric has its row in the docs, and the row says who may see it."""

import re
from pathlib import Path

import pytest

from tasks.evaluation.registry import METRICS

PAGE = Path(__file__).parents[4] / "docs" / "metrics.md"
ROWS = {
    found[1]: [cell.strip() for cell in found[0].strip("|").split("|")]
    for found in re.finditer(r"^\| `(\w+)` \|.*\|$", PAGE.read_text(), re.MULTILINE)
}


@pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))
def test_a_metric_has_its_row(metric):
    assert metric.name in ROWS, f"docs/metrics.md has no row for {metric.name}"
    row = ROWS[metric.name]
    assert len(row) == 6  # name, exposure, figures, interval, source, what it does not tell
    assert row[1] == metric.exposure
    assert all(row)


def test_no_row_is_of_a_metric_that_is_gone():
    assert set(ROWS) <= set(METRICS)
