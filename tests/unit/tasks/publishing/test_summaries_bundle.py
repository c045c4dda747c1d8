"""A bundle of summaries: verification finds every altered event, also where all is signed again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from models_db.values.events import PrivacyEvent
from tasks.mechanisms.core.uncharged import uncharged
from tasks.mechanisms.vectors.noisy_mean import NoisyMean
from tasks.publishing.verify import verify_release
from tasks.release.bundle_format import RECORD
from tasks.release.record import planned_events, second_opinion
from tests.unit.tasks.publishing.builders import SUMMARIES, TEXTS, a_record, a_release, a_request
from tests.unit.tasks.publishing.forging import edit, failed, reseal

pytestmark = pytest.mark.dear

Json = dict[str, Any]


@pytest.fixture(scope="module")
def summaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published bundle of two token-level summaries."""
    made, request = tmp_path_factory.mktemp("summaries"), a_request(**SUMMARIES)
    opinion = second_opinion(planned_events(request), request["delta"])
    record = a_record(request, second_opinion=opinion, released={})
    return a_release(made, record, TEXTS, ("b7", "b8")).publish(made / "out").folder


@pytest.fixture
def folder(summaries: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    copy = tmp_path / "bundle"
    copy.mkdir()
    for file in summaries.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    return copy


def test_it_holds(summaries: Path) -> None:
    report = verify_release(summaries)
    assert report.holds, failed(report)
    events = json.loads((summaries / RECORD).read_text())["events"]
    assert [PrivacyEvent.from_json(one).mechanism for one in events] == ["noisy_mean"]
    assert report.epsilon == "4"
    assert str(report.recomputed_epsilon).startswith("3.9")


def another_scale(stored: Json) -> None:
    """A whole event with more noise than was drawn."""
    event = PrivacyEvent.from_json(stored["events"][0])
    mean = NoisyMean.from_event(event)
    forged = NoisyMean(mean.clip_steps, 2 * mean.sigma_steps, mean.grid_exponent).event(event.count)
    stored["events"][0] = forged.to_json()


@pytest.mark.parametrize(
    ("change", "found_by"),
    [
        (lambda stored: stored["events"][0].update(count=1), {"events", "request"}),
        (lambda stored: stored["events"][0]["parameters"].update(sigma_steps="99999999"), {"events", "request"}),
        (another_scale, {"request", "claim"}),
        (lambda stored: stored["events"].append(uncharged("public_only").to_json()), {"request", "card"}),
        (lambda stored: stored["events"].append(uncharged("non_private").to_json()), {"request"}),
    ],
)
def test_an_altered_event_is_found_though_all_is_signed_again(
    folder: Path, new_key: Callable[[str], Any], change: Callable[[Json], None], found_by: set[str]
) -> None:
    edit(folder, RECORD, change)
    reseal(folder, new_key("forger"))
    report = verify_release(folder)
    assert found_by <= failed(report)
    assert "approvals" in failed(report)
