"""The generated files of a release of insights: what they are in the present format.

`golden_insights/` holds them. Before almoner is released, `python -m tests.unit.tasks.release.test_insight_files`
writes them again; afterwards other words are another format.
"""

import json
from pathlib import Path

import pytest

from tasks.publishing.draft import MAKERS, derived_files
from tasks.release.record import PublicContent, ReleaseRecord
from tasks.values.results import MetricResult
from tests.insights_rows import described, insights_record, known, plausible
from tests.unit.tasks.publishing.test_derived_files import DATA, LENGTH, OPINION, golden

GOLDEN = Path(__file__).parent / "golden_insights"


def release(record: ReleaseRecord, *metrics: MetricResult) -> PublicContent:
    nodes = plausible()
    return PublicContent(record, metrics, DATA, tuple((text, None) for text in described(nodes)), nodes)


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> ReleaseRecord:
    known(monkeypatch)
    return insights_record(second_opinion=OPINION)


def test_every_maker_has_made_one(record: ReleaseRecord) -> None:
    assert set(derived_files(release(record))) == set(MAKERS) == {path.name for path in GOLDEN.iterdir()}


@pytest.mark.parametrize("name", MAKERS)
def test_a_file_is_what_it_was(record: ReleaseRecord, name: str) -> None:
    assert golden(MAKERS[name](release(record, LENGTH))) == (GOLDEN / name).read_text()


@pytest.mark.parametrize("name", MAKERS)
def test_a_file_is_the_same_after_storage(record: ReleaseRecord, name: str) -> None:
    stored = ReleaseRecord.from_bytes(record.to_bytes())
    metric = MetricResult.from_json(json.loads(json.dumps(LENGTH.to_json())))
    assert MAKERS[name](release(stored, metric)) == MAKERS[name](release(record, LENGTH))


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        known(patch)
        for each, content in derived_files(release(insights_record(second_opinion=OPINION), LENGTH)).items():
            (GOLDEN / each).write_text(golden(content.decode()))
