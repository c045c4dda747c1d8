"""Where marks go: inside the picture, in proportion, and the same every time."""

import itertools
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.common.svg_axes import WIDTH, Axis
from tasks.reporting import html_report
from tasks.reporting.embedding_map import text_map
from tasks.reporting.html_report import report_html
from tasks.reporting.release_sections import Text
from tests.unit.tasks.reporting.a_report import BUDGET, TWIN, the_facts, the_map, the_points


def budget(**percents):
    shares = {f"{name}_percent": "0" for name in ("before", "release", "held", "left")}
    return shares | {f"{name}_percent": str(value) for name, value in percents.items()}


def test_the_budget_bar_is_in_proportion():
    parts = html_report.budget_bar(BUDGET.to_json())["parts"]
    assert [(part["kind"], part["x"], part["width"]) for part in parts] == [
        ("others", 0.0, 137.6),
        ("this", 137.6, 170.9),
        ("held", 308.5, 32.0),
    ]


@pytest.mark.parametrize("percents", [{"release": "0.1", "left": "99.9"}, {"before": "99.9", "release": "0.1"}, {}])
def test_a_sliver_can_be_seen_and_nothing_runs_over(percents):
    parts = html_report.budget_bar(budget(**percents))["parts"]
    assert len(parts) == sum(name != "left" for name in percents)
    assert all(part["width"] > 0.5 for part in parts)
    assert all(part["x"] + part["width"] <= WIDTH + 0.11 for part in parts)


def test_bars_are_as_high_as_their_counts():
    found = {"texts": 7, "empty": 0, "median": "3", "longest": 9, "edges": [0, 5, 10], "counts": [6, 3]}
    first, second = html_report.histogram(found)["bars"]
    assert first["height"] == pytest.approx(2 * second["height"], abs=0.1)
    assert first["said"] == "0 to 4 words: 6 texts"
    assert "0 to 4 words: 6 texts" in html_report.histogram(found)["desc"]


def test_one_plot_for_each_figure_that_two_releases_have():
    found = html_report.tradeoffs([point.to_json() for point in the_points()])
    assert [chart["name"] for chart in found] == ["distinct: distinct_2", "perplexity: perplexity"]
    alone = [point.to_json() for point in the_points()][:1]
    assert html_report.tradeoffs(alone) == []
    marks = {mark["release"]: mark for mark in found[1]["marks"]}
    assert marks[3]["x"] < marks[5]["x"] < marks[1]["x"]
    assert marks[3]["y"] < marks[5]["y"] < marks[1]["y"], "more is higher up"
    assert marks[1]["this"] is True
    assert marks[1]["high"] < marks[1]["y"] < marks[1]["low"]


@given(
    st.lists(
        st.floats(-1e9, 1e9, allow_subnormal=False).filter(lambda v: v == 0 or abs(v) > 1e-9), min_size=1, max_size=8
    )
)
def test_an_axis_holds_every_value(values):
    axis = Axis.over(values, 0, 100)
    ticks = axis.ticks()
    assert 2 <= len(ticks) <= 9
    assert all(-0.2 <= axis.place(value) <= 100.2 for value in values)
    assert [tick["at"] for tick in ticks] == sorted(tick["at"] for tick in ticks)


def test_the_map_fills_its_square():
    found = html_report.scatter(the_map().to_json())
    assert all(13 <= mark[axis] <= found["size"] - 13 for mark in found["marks"] for axis in ("x", "y"))
    assert [one["name"] for one in found["legend"]] == ["follow-up", "general"]


def test_a_point_of_the_map_names_its_text_and_leads_to_it_where_it_is_shown():
    marks = html_report.scatter(the_map().to_json(), in_full={2})["marks"]
    assert [mark["target"] for mark in marks[:3]] == [None, 2, None]
    assert marks[0]["said"].startswith("Text 1, ")
    page = report_html(the_facts(), "steward")
    targets = set(re.findall(r'href="#(text-\d+)"', page))
    assert targets
    assert targets <= set(re.findall(r'id="(text-\d+)"', page))
    assert "#text-" not in report_html(the_facts(), "public")  # it shows samples alone


class Embedder:
    """Texts on a line that leans: (number, 2 number, noise, 0)."""

    name = "a line"

    def __call__(self, texts):
        return np.array([[float(t), 2 * float(t), math.sin(float(t)), 0] for t in texts], np.float32)


def test_a_map_keeps_the_directions_of_most_difference():
    found = text_map([Text(n, str(n), "ab"[n % 2]) for n in range(9)], Embedder())
    assert found is not None
    xs = [float(x) for x, _ in found.points]
    assert xs == sorted(xs)
    assert xs[-1] - xs[0] == pytest.approx(8 * math.sqrt(5), rel=0.02)
    assert found.explained == "100"
    assert found.labels == tuple("ababababa")


def test_clusters_have_words_of_their_own():
    """Two places on the line, with a word that both have and words that one has."""
    near = [Text(n, f"{n % 4} the garden roses note") for n in range(4)]
    far = [Text(n, f"{100 + n} the kettle note tea {'x' * n}") for n in range(4, 9)]

    class Places(Embedder):
        def __call__(self, texts):
            return super().__call__([text.split()[0] for text in texts])

    found = text_map([*near, *far], Places())
    assert [(one.words, one.texts) for one in found.clusters] == [(("kettle", "tea"), 5), (("garden", "roses"), 4)]
    right, left = (float(one.x) for one in found.clusters)
    assert left < 0 < right
    assert text_map(near, Places()).clusters == ()  # too few for two clusters


@given(st.lists(st.floats(0, 400), max_size=8))
def test_names_of_clusters_do_not_overlap_and_stay_inside(heights):
    apart = html_report._apart(sorted(heights), 24, 406)
    assert all(after - before >= 24 - 1e-6 for before, after in itertools.pairwise(apart))
    assert all(height <= 406 for height in apart)


def test_texts_on_one_point_have_no_map():
    assert text_map([Text(n, "3") for n in range(5)], Embedder()) is None


def test_attacks_stand_beside_chance():
    """Those that have an area under the curve; the others are in the table alone."""
    chart = html_report.forest([attack.to_json() for attack in TWIN.attacks])
    assert chart is not None
    assert [(row["name"], row["run"]) for row in chart["rows"]] == [
        ("membership_embedding", "as released"),
        ("membership_embedding", "without protection"),
        ("membership_embedding", "the corpus itself"),
    ]
    assert all(row["low"] <= row["x"] <= row["high"] for row in chart["rows"])
    assert html_report.forest([TWIN.attacks[1].to_json()]) is None


def test_an_attack_that_was_not_measured_as_released_has_no_rows():
    """Its other runs would stand there without a name, as if they were those of the attack above."""
    measured = TWIN.attacks[0]
    unmeasured = replace(measured, name="other", runs=(replace(measured.runs[0], auc=None), *measured.runs[1:]))
    chart = html_report.forest([measured.to_json(), unmeasured.to_json()])
    assert chart is not None
    assert {row["name"] for row in chart["rows"]} == {measured.name}
    assert html_report.forest([unmeasured.to_json()]) is None
