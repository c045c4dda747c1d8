"""A bundle of Gaussian noise alone: all documents state the second epsilon, and verification recomputes it."""

import json
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from models_db.values.events import PrivacyEvent
from tasks.mechanisms.core.uncharged import uncharged
from tasks.mechanisms.vectors.noisy_mean import NoisyMean
from tasks.planning.gaussian_claim import BASIS, METHOD, state_gaussian_claim
from tasks.publishing.verify import verify_release
from tasks.release.file_names import CARD, RECORD
from tasks.release.independent_accountant import second_opinion
from tasks.release.record import planned_events
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


def test_it_holds_and_states_both_figures(summaries: Path) -> None:
    report = verify_release(summaries)
    assert report.holds, failed(report)
    stored = json.loads((summaries / RECORD).read_text())
    events = [PrivacyEvent.from_json(one) for one in stored["events"]]
    assert [event.mechanism for event in events] == ["noisy_mean"]
    assert report.gaussian == state_gaussian_claim(events, Fraction(1, 10**7))
    assert report.gaussian is not None
    assert (report.epsilon, report.recomputed_epsilon[:3]) == ("4", "3.9")  # type: ignore[index]
    assert Decimal("3.7") < Decimal(report.gaussian.epsilon) < Decimal("3.8")
    assert stored["claim"]["gaussian"] == {"epsilon": report.gaussian.epsilon, "method": METHOD}
    assert report.to_json()["gaussian"] == stored["claim"]["gaussian"]
    assert report.gaussian.epsilon in next(check.detail for check in report.checks if check.name == "claim")


def test_every_document_says_it(summaries: Path) -> None:
    epsilon = json.loads((summaries / RECORD).read_text())["claim"]["gaussian"]["epsilon"]
    assert f"| epsilon {BASIS} | `{epsilon}` |" in (summaries / CARD).read_text()
    assert json.loads((summaries / "croissant.json").read_text())["dp:epsilonOfGaussianNoise"] == epsilon
    for name in ("checklist.md", "deployment.yaml", "report.html"):
        assert BASIS in " ".join((summaries / name).read_text().split()), name


def test_the_bounds_on_guessing_are_those_of_the_smaller_epsilon(summaries: Path) -> None:
    claim = a_record(a_request(**SUMMARIES), second_opinion=None, released={}).claim
    assert claim is not None
    assert claim.gaussian is not None
    factor, right = claim.guessing_bounds
    assert float(factor) == pytest.approx(2.718281828 ** float(claim.gaussian.epsilon), rel=1e-3)
    assert f"{factor} times" in (summaries / CARD).read_text()
    assert right < Decimal("98")


def setting(name: str, value: object) -> Callable[[Json], None]:
    return lambda stored: stored["claim"]["gaussian"].update({name: value})


def another_scale(stored: Json) -> None:
    """A whole event with more noise than was drawn, and the figure that follows from it."""
    event = PrivacyEvent.from_json(stored["events"][0])
    mean = NoisyMean.from_event(event)
    forged = NoisyMean(mean.clip_steps, 2 * mean.sigma_steps, mean.grid_exponent).event(event.count)
    stored["events"][0] = forged.to_json()
    figure = state_gaussian_claim([forged], Fraction(1, 10**7))
    assert figure is not None
    stored["claim"]["gaussian"]["epsilon"] = figure.epsilon


@pytest.mark.parametrize(
    ("change", "found_by"),
    [
        (setting("epsilon", "3.5"), {"claim", "request", "card"}),
        (setting("epsilon", "3.999"), {"claim", "request", "card"}),
        (setting("method", "an assertion"), {"claim", "request"}),
        (lambda stored: stored["claim"].update(gaussian=None), {"claim", "request", "card"}),
        (lambda stored: stored["events"][0].update(count=1), {"events", "request"}),
        (lambda stored: stored["events"][0]["parameters"].update(sigma_steps="99999999"), {"events", "request"}),
        (another_scale, {"request", "claim"}),
        (lambda stored: stored["events"].append(uncharged("public_only").to_json()), {"request", "card"}),
        (lambda stored: stored["events"].append(uncharged("non_private").to_json()), {"request", "claim"}),
    ],
)
def test_an_altered_figure_or_event_is_found_though_all_is_signed_again(
    folder: Path, new_key: Callable[[str], Any], change: Callable[[Json], None], found_by: set[str]
) -> None:
    edit(folder, RECORD, change)
    reseal(folder, new_key("forger"))
    report = verify_release(folder)
    assert found_by <= failed(report)
    assert "approvals" in failed(report)
    assert report.gaussian is None, "no figure of events that were not approved"
