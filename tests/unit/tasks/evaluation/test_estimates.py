"""Charged metrics: one bin a unit, by that unit alone; figures of noisy counts, and what the noise may have done."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.evaluation import charged
from tasks.evaluation import coverage as dp_coverage
from tasks.evaluation.algorithms import frontier_area
from tasks.evaluation.charged import SHARE, EstimateRequest, NoisyHistogramEstimate, UnitText, counted, shares
from tasks.evaluation.evaluation_input import EvaluationInput
from tasks.evaluation.registry import METRICS
from tasks.inference.embeddings.unit_embeddings import CachedEmbedder
from tasks.values.results import MetricResult
from tests.refusals import refusal
from tests.tiny_embedder import Letters
from tests.unit.tasks.evaluation.embedded_subjects import number, themed
from tests.unit.tasks.evaluation.subjects import Text

CONCERNS = ("tasks/evaluation",)

pytestmark = pytest.mark.dear

ASKED = EstimateRequest(40, ("a", "b", "c"))
ESTIMATES = (dp_coverage.CoverageEstimate(), charged.LabelEstimate(), charged.LengthEstimate())
RELEASED = themed(40, 1)


def released(*texts: str) -> EvaluationInput:
    """Texts that carry the labels a, b, c, a, ..."""
    return EvaluationInput(
        [Text(text, label="abc"[i % 3]) for i, text in enumerate(texts or RELEASED)], embed=Letters()
    )


def noisy(*counts: int, sigma: float = 0.001) -> NoisyHistogramEstimate:
    return NoisyHistogramEstimate(np.array(counts, np.int64), sigma)


def units(texts: list[str]) -> list[UnitText]:
    return [UnitText(text, i % 4 if i % 4 < 3 else None) for i, text in enumerate(texts)]


# --- sensitivity -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimate", ESTIMATES, ids=lambda found: type(found).__name__)
@given(st.lists(st.text(max_size=30), max_size=8), st.data())
def test_one_unit_moves_one_count_by_one(estimate, texts, data):
    subject, bins = released(), estimate.bins(ASKED)
    place = estimate.places(subject, ASKED)
    one = UnitText(data.draw(st.text(max_size=30)), data.draw(st.sampled_from([0, 1, 2, None])))
    where = data.draw(st.integers(0, len(texts)))
    others = units(texts)
    before = counted(others, place, bins)
    after = counted([*others[:where], one, *others[where:]], place, bins)
    moved = [b - a for a, b in zip(before, after, strict=True) if a != b]
    assert moved in ([1], []) if estimate.by_label else moved == [1]


def test_each_unit_is_embedded_by_itself():
    """In a batch, one unit's length could move another's point by rounding (PRIVACY §4.2)."""
    calls = []

    class Alone(Letters):
        def __call__(self, texts):
            calls.append(len(texts))
            return super().__call__(texts)

    subject = EvaluationInput(released().texts, embed=Alone())
    place = dp_coverage.CoverageEstimate().places(subject, ASKED)
    calls.clear()
    counted(units(themed(9, 2)), place, 11)
    assert calls == [1] * 9


def test_no_point_of_a_unit_is_kept():
    """A released text that equals one is read with the others: its point is no unit's business."""
    letters = Letters()
    remembering = CachedEmbedder(letters)
    subject = EvaluationInput([*released().texts, Text(" ")], embed=remembering)
    place = dp_coverage.CoverageEstimate().places(subject, ASKED)
    private = [" ", *themed(9, 2)]
    counted(units(private), place, 11)
    letters.asked.clear()
    remembering(private)
    assert letters.asked == [*dict.fromkeys(private)]


def test_a_unit_that_cannot_be_read_is_in_no_bin():
    def place(unit):
        if unit.text == "bad":
            raise RuntimeError("Mrs. Smith")
        return 0 if unit.text else 7

    assert counted([UnitText("a"), UnitText("bad"), UnitText(""), UnitText("b")], place, 2) == [2, 0]


# --- figures ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([3, 1], [0.75, 0.25]),
        ([4, -2], [1, 0]),
        ([-1, -1], [0.5, 0.5]),
        ([0, 0], [0.5, 0.5]),
        ([3, -5], [0.5, 0.5]),
        ([10, 4, 1, -3], [0.75, 0.25, 0, 0]),  # a level of 1 is taken off: 9, 3 and nothing, together 12
    ],
)
def test_shares_of_noisy_counts(counts, expected):
    assert shares(np.array([counts], np.float64)).tolist() == [expected]


def test_the_interval_is_that_of_the_noise():
    """A count itself: 1.96 sigma on either side; with hardly any noise no width."""
    value, (low, high) = NoisyHistogramEstimate(np.array([100, 0]), 10.0).figure(lambda counts: counts[:, 0])
    assert (value, low, high) == (100, pytest.approx(100 - 19.6, abs=2), pytest.approx(100 + 19.6, abs=2))
    value, (low, high) = noisy(100, 0).figure(lambda counts: shares(counts)[:, 0], SHARE)
    assert (value, low, high) == (1.0, pytest.approx(1.0, abs=1e-4), 1.0)


EQUAL = np.full((1, 16), 1 / 16)
HALF = [125] * 8 + [0] * 8
FEW = [0] * 4 + [750, 250] + [0] * 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("counts", "measured"),
    [
        ([63] * 16, lambda noisy: noisy.total_variation(np.ones(16, np.int64))),
        (HALF, lambda noisy: noisy.total_variation(np.ones(16, np.int64))),
        (FEW, lambda noisy: noisy.figure(lambda counts: shares(counts) @ np.arange(16.0), (0.0, 15.0))),
        ([63] * 16, lambda noisy: noisy.figure(lambda c: frontier_area(shares(c), EQUAL), SHARE, EQUAL[0])),
        (HALF, lambda noisy: noisy.figure(lambda c: frontier_area(shares(c), EQUAL), SHARE, EQUAL[0])),
    ],
    ids=["equal", "half", "mean of few", "area of equal", "area of half"],
)
def test_the_interval_holds_the_figure_without_noise(counts, measured):
    """Noise moves these figures all the same way, so that simulations around the noisy counts hardly ever hold it."""
    generator = np.random.default_rng(1)
    true, _ = measured(noisy(*counts, sigma=1e-9))
    drawn = [
        NoisyHistogramEstimate(np.array(counts) + np.rint(generator.normal(0, 20, 16)).astype(int), 20.0)
        for _ in range(60)
    ]
    held = [low - 1e-6 <= true <= high + 1e-6 for _, (low, high) in map(measured, drawn)]
    assert np.mean(held) > 0.8


def test_lengths():
    """Two units of 10 words and two of 60: bins that begin at 8 and 48, middles 11.5 and 55.5."""
    estimate = charged.LengthEstimate()
    texts = ["w " * 10, "w " * 10, "w " * 60, "w " * 60]
    counts = counted(units(texts), estimate.places(released(), ASKED), estimate.bins(ASKED))
    assert (counts[1], counts[5], sum(counts)) == (2, 2, 4)
    found = estimate.result(released(*texts[:2]), ASKED, noisy(*counts))
    assert number(found.values["mean_words"]) == pytest.approx((11.5 + 55.5) / 2, abs=0.1)
    assert found.values["released_mean_words"] == "10.0"
    assert number(found.values["total_variation"]) == pytest.approx(0.5)  # half of the units are in no released bin


@pytest.mark.parametrize(("words", "place"), [(0, 0), (7, 0), (8, 1), (2047, 14), (2048, 15), (9999, 15)])
def test_length_bins_are_public_and_the_last_is_open(words, place):
    assert charged.LengthEstimate().places(released(), ASKED)(UnitText("w " * words)) == place


def test_labels():
    estimate = charged.LabelEstimate()
    found = estimate.result(released(*RELEASED[:3]), ASKED, noisy(80, 10, 10))
    assert [found.values[f"share_{n}"] for n in (1, 2, 3)] == ["0.8000", "0.1000", "0.1000"]
    assert number(found.values["total_variation"]) == pytest.approx(0.8 - 1 / 3, abs=1e-3)
    assert "80% of the units enter 'a'" in found.line


def test_labels_without_labels_are_refused():
    with refusal("NoLabels", match="declares no labels"):
        charged.LabelEstimate().bins(EstimateRequest(10, ()))


def coverage(documents: list[str], sigma: float = 0.001) -> MetricResult:
    estimate, subject = dp_coverage.CoverageEstimate(), released()
    counts = counted(units(documents), estimate.places(subject, ASKED), estimate.bins(ASKED))
    return estimate.result(subject, ASKED, noisy(*counts, sigma=sigma))


def test_units_like_the_release_are_near_and_others_are_not():
    same, other = coverage(themed(200, 7)), coverage(["zzz qqq xxx jjj"] * 200)
    assert number(same.values["near"]) > 0.85
    assert number(same.values["supported"]) > 0.9
    assert number(same.values["area"]) > 0.8
    assert [other.values[name] for name in ("near", "supported")] == ["0.0000", "0.0000"]
    assert number(other.values["area"]) < 0.65  # what two histograms have that share nothing, at this scaling


def test_more_noise_gives_a_wider_interval():
    sharp, blunt = coverage(themed(200, 7)), coverage(themed(200, 7), 20.0)
    width = [number(found.values["near_high"]) - number(found.values["near_low"]) for found in (sharp, blunt)]
    assert width[0] < 0.01 < width[1]


@pytest.mark.parametrize(("samples", "bins"), [(16, 5), (40, 11), (64, 17), (10_000, 17)])
def test_the_number_of_centres_is_public(samples, bins):
    assert dp_coverage.CoverageEstimate().bins(EstimateRequest(samples, ())) == bins


def test_a_map_of_few_texts_is_not_sold():
    with refusal("TooFewTexts", match="at least 16 texts, and the request asks for 15"):
        dp_coverage.CoverageEstimate().bins(EstimateRequest(15, ()))


@pytest.mark.parametrize("texts", [("",), ("", " "), ("the same",) * 12], ids=["empty", "blank", "all equal"])
def test_odd_releases_are_still_measured(texts):
    estimate = dp_coverage.CoverageEstimate()
    subject = released(*texts)
    counts = counted(units(themed(9, 3)), estimate.places(subject, ASKED), estimate.bins(ASKED))
    assert sum(counts) == 9
    assert estimate.result(subject, ASKED, noisy(*counts)).values["near"] is not None


@pytest.mark.parametrize("name", ["dp_coverage", "dp_labels", "dp_length"])
def test_without_its_mechanism_a_charged_metric_is_null(name):
    found = METRICS[name].compute(EvaluationInput(()))
    assert (found.exposure, set(found.values.values())) == ("charged", {None})
    assert found.line == "not measured"
