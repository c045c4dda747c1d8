"""Facts of records that a comparison rests on: numbers, or refused by name."""

import pytest

from flows.reports.compare_insights import stated_deviation, stated_threshold
from tasks.common.files import FileUnfit
from tasks.values.results import SIZE_DEVIATION, SMALLEST_CLUSTER
from tests.insights_rows import DEVIATION, LEAST, insights_record, known


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch)


@pytest.mark.parametrize("stated", ["NaN", "sNaN", "-1", "Infinity", "1e999999", "9" * 400, "many", ""])
def test_a_noise_that_is_no_number_is_refused(stated: str) -> None:
    record = insights_record().model_copy(update={"facts": {SIZE_DEVIATION: stated}})
    with pytest.raises(FileUnfit, match=SIZE_DEVIATION):
        stated_deviation(record)


@pytest.mark.parametrize("stated", ["many", "", "1.5", "9" * 5000])
def test_a_threshold_that_is_no_number_is_refused(stated: str) -> None:
    record = insights_record().model_copy(update={"facts": {SMALLEST_CLUSTER: stated}})
    with pytest.raises(FileUnfit, match=SMALLEST_CLUSTER):
        stated_threshold(record)


def test_what_is_stated_is_read_and_what_is_not_is_none() -> None:
    record = insights_record()
    assert (stated_deviation(record), stated_threshold(record)) == (float(DEVIATION), LEAST)
    silent = record.model_copy(update={"facts": {}})
    assert (stated_deviation(silent), stated_threshold(silent)) == (None, None)


def test_sizes_of_a_release_without_a_claim_are_exact() -> None:
    assert stated_deviation(insights_record().model_copy(update={"claim": None, "facts": {}})) == 0.0
