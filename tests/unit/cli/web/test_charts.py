"""Charts of the dashboard: where marks go, and what is said to those who do not see them."""

import re
from datetime import date, timedelta
from itertools import pairwise

import pytest

from cli.web.charts import MOST_LINES, MOST_ROWS, NAME_SPACING, budget_bar, burn_chart, burn_rows, visible_series
from flows.dashboard.burn_down import BalanceFigures, BurnDown, burn_down_of, figures_of
from models_db.services.budget import Balance
from models_db.services.datasets import LifetimeClaim
from models_db.values.amounts import Amount
from tasks.accounting.lifetime_claims import BudgetFacts
from tasks.common.svg_axes import TOP

TODAY = date(2026, 11, 21)
CAP = Amount(1000, 1000)


def figures(spent: int, held: int = 0) -> BalanceFigures:
    balance = Balance(CAP, Amount(spent), Amount(held), CAP - Amount(spent) - Amount(held))
    return figures_of(BudgetFacts(LifetimeClaim("8", "1e-6", 9 * 10**11, CAP), balance))


def burn(days: int, each: int = 10) -> BurnDown:
    past = [((TODAY - timedelta(days=day)).isoformat(), each) for day in range(days, 0, -1)]
    return burn_down_of(past, 1000, 0, (TODAY - timedelta(days=max(days, 30))).isoformat(), TODAY)


def test_a_bar_fills_as_much_as_is_gone() -> None:
    parts = budget_bar(figures(500, 100))["parts"]
    assert [(part["kind"], part["x"], part["width"]) for part in parts] == [
        ("this", 0.0, 320.0), ("held", 320.0, 64.0),
    ]  # fmt: skip
    assert budget_bar(figures(0))["parts"] == []
    assert budget_bar(figures(1000))["parts"] == [{"kind": "this", "x": 0.0, "width": 640.0}]


@pytest.mark.parametrize("spent", [0, 1, 333, 999, 1000])
def test_a_bar_stays_inside_and_shows_a_sliver(spent: int) -> None:
    parts = budget_bar(figures(spent, min(1, 1000 - spent)))["parts"]
    assert all(part["width"] > 0 for part in parts)
    assert sum(part["width"] for part in parts) <= 640.1


@pytest.mark.parametrize("days", [0, 1, 40, 300])
@pytest.mark.parametrize("each", [1, 3, 10])
def test_a_chart_stays_inside_its_frame(days: int, each: int) -> None:
    chart = burn_chart([burn(days, each)])
    [line] = chart["lines"]
    places = [float(place) for place in re.findall(r"[\d.]+", line["path"])]
    assert min(places) >= 0
    assert max(places) <= chart["width"]
    assert line["path"].startswith(f"M{chart['left']:.1f} ")
    assert all(chart["left"] <= tick["at"] <= chart["end"] for tick in chart["across"])
    ahead = chart["ahead"]
    if ahead is not None:
        assert chart["left"] <= ahead["x1"] < ahead["x2"] <= chart["end"]
        assert ahead["y1"] <= ahead["y2"] <= chart["base"]


def test_the_forecast_ends_where_nothing_is_left_or_at_the_edge() -> None:
    near, far = burn(40, 20), burn(40, 1)
    assert (near.outlook, far.outlook) == ("near", "near")
    assert burn_chart([near])["ahead"]["y2"] == burn_chart([near])["base"]
    assert burn_chart([far])["ahead"]["y2"] < burn_chart([far])["base"]
    assert burn_chart([burn(0)])["ahead"] is None


def test_the_table_is_short_and_ends_with_today() -> None:
    for days in (0, 5, 40, 500):
        rows = burn_rows([burn(days, 1)])
        assert 1 < len(rows) <= MOST_ROWS
        assert rows[0].day == TODAY.isoformat()
        assert [row.day for row in rows] == sorted((row.day for row in rows), reverse=True)


def test_it_is_said_in_words() -> None:
    found = burn(40, 20)
    assert burn_chart([found])["desc"] == (
        f"From 100 % left on {found.points[0].day} to 20 % left on 2026-11-21. At the pace of the last 41 days nothing"
        f" would be left on {found.gone_on}."
    )


# --- several cohorts -----------------------------------------------------------------------------------------


def cohorts(*each: int) -> list[BurnDown]:
    """One cohort opened every thirty days, the last one ten days ago, each with so much spent on the day after."""
    found = []
    for number, rho in enumerate(each, 1):
        since = TODAY - timedelta(days=30 * (len(each) - number) + 10)
        spent = [((since + timedelta(days=1)).isoformat(), rho)] if rho else []
        found.append(burn_down_of(spent, 1000, 0, since.isoformat(), TODAY, number))
    return found


def test_each_cohort_has_a_line_of_its_own_dashes_that_begins_when_it_was_opened() -> None:
    chart = burn_chart(cohorts(900, 300, 0))
    starts = [float(line["path"][1:].split()[0]) for line in chart["lines"]]
    assert starts == sorted(starts)
    assert len({*starts}) == 3
    assert [line["dashes"] for line in chart["lines"]] == [0, 1, 2]
    assert (chart["area"], chart["ahead"]) == (None, None)
    assert chart["desc"] == " ".join(
        f"Cohort {number}: From 100 % left on {day} to {left} % left on 2026-11-21.{more}"
        for number, day, left, more in (
            (1, "2026-09-11", "10", f" At the pace of the last 71 days nothing would be left on {near(100, 900, 71)}."),
            (2, "2026-10-11", "70", f" At the pace of the last 41 days nothing would be left on {near(700, 300, 41)}."),
            (3, "2026-11-10", "100", ""),
        )
    )


def near(left: int, spent: int, days: int) -> str:
    return (TODAY + timedelta(days=left * days // spent)).isoformat()


@pytest.mark.parametrize("each", [(0, 0), (500, 500, 500, 500, 500), (999, 998, 997, 0), (0, 1, 2, 3, 1000), (400, 10)])
def test_names_of_cohorts_stand_apart_inside_the_frame_in_the_order_of_their_lines(each: tuple[int, ...]) -> None:
    chart = burn_chart(cohorts(*each))
    places = [name["y"] for name in chart["names"]]
    assert all(below - above >= NAME_SPACING for above, below in pairwise(places))
    assert min(places) >= TOP
    assert max(places) <= chart["base"]
    assert [name["from_y"] for name in chart["names"]] == sorted(line["y"] for line in chart["lines"])
    assert all(chart["left"] <= name["from_x"] <= chart["end"] < name["x"] < chart["width"] for name in chart["names"])


def test_of_many_cohorts_the_newest_are_drawn_with_the_dashes_they_have_always_had() -> None:
    seven = cohorts(*[100] * 7)
    assert [one.cohort for one in visible_series(seven)] == [3, 4, 5, 6, 7]
    assert [line["dashes"] for line in burn_chart(seven)["lines"]] == [2, 3, 4, 0, 1]
    assert {line["dashes"] for line in burn_chart(seven)["lines"]} == {*range(MOST_LINES)}


def test_a_table_has_every_cohort_on_every_day_and_nothing_before_it_was_opened() -> None:
    rows = burn_rows(cohorts(900, 300))
    assert [(row.day, row.left_percent) for row in rows] == [
        ("2026-11-21", ("10", "70")), ("2026-11-12", ("10", "70")), ("2026-11-10", ("10", "100")),
        ("2026-10-13", ("10", None)), ("2026-10-11", ("100", None)),
    ]  # fmt: skip
