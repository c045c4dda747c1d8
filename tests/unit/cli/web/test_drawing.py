"""Charts of the dashboard: where marks go, and what is said to those who do not see them."""

import re
from datetime import date, timedelta

import pytest

from cli.web.drawing import ROWS, bar, burn_chart, burn_rows
from flows.pages.burn_down import BurnDown, drawn
from flows.pages.figures import Figures, figures_of
from models_db.budgets import Amount
from models_db.services.ledger import Balance

TODAY = date(2026, 11, 21)
CAP = Amount(1000, 1000)


def figures(spent: int, held: int = 0, reserved: int = 0) -> Figures:
    left = CAP - Amount(spent) - Amount(held) - Amount(reserved)
    return figures_of(Balance(CAP, Amount(spent), Amount(held), left, Amount(reserved)), 9 * 10**11)


def burn(days: int, each: int = 10) -> BurnDown:
    past = [((TODAY - timedelta(days=day)).isoformat(), each) for day in range(days, 0, -1)]
    return drawn(past, 1000, 0, (TODAY - timedelta(days=max(days, 30))).isoformat(), TODAY)


def test_a_bar_fills_as_much_as_is_gone() -> None:
    parts = bar(figures(500, 100, 50))["parts"]
    assert [(part["kind"], part["x"], part["width"]) for part in parts] == [
        ("this", 0.0, 320.0), ("held", 320.0, 64.0), ("others", 384.0, 32.0),
    ]  # fmt: skip
    assert bar(figures(0))["parts"] == []
    assert bar(figures(1000))["parts"] == [{"kind": "this", "x": 0.0, "width": 640.0}]


@pytest.mark.parametrize("spent", [0, 1, 333, 999, 1000])
def test_a_bar_stays_inside_and_shows_a_sliver(spent: int) -> None:
    parts = bar(figures(spent, min(1, 1000 - spent)))["parts"]
    assert all(part["width"] > 0 for part in parts)
    assert sum(part["width"] for part in parts) <= 640.1


@pytest.mark.parametrize("days", [0, 1, 40, 300])
@pytest.mark.parametrize("each", [1, 3, 10])
def test_a_chart_stays_inside_its_frame(days: int, each: int) -> None:
    chart = burn_chart(burn(days, each))
    places = [float(place) for place in re.findall(r"[\d.]+", chart["line"])]
    assert min(places) >= 0
    assert max(places) <= chart["width"]
    assert chart["line"].startswith(f"M{chart['left']:.1f} ")
    assert all(chart["left"] <= tick["at"] <= chart["end"] for tick in chart["across"])
    ahead = chart["ahead"]
    if ahead is not None:
        assert chart["left"] <= ahead["x1"] < ahead["x2"] <= chart["end"]
        assert ahead["y1"] <= ahead["y2"] <= chart["base"]


def test_the_forecast_ends_where_nothing_is_left_or_at_the_edge() -> None:
    near, far = burn(40, 20), burn(40, 1)
    assert (near.outlook, far.outlook) == ("near", "near")
    assert burn_chart(near)["ahead"]["y2"] == burn_chart(near)["base"]
    assert burn_chart(far)["ahead"]["y2"] < burn_chart(far)["base"]
    assert burn_chart(burn(0))["ahead"] is None


def test_the_table_is_short_and_ends_with_today() -> None:
    for days in (0, 5, 40, 500):
        rows = burn_rows(burn(days, 1))
        assert 1 < len(rows) <= ROWS
        assert rows[0].day == TODAY.isoformat()
        assert [row.day for row in rows] == sorted((row.day for row in rows), reverse=True)


def test_it_is_said_in_words() -> None:
    found = burn(40, 20)
    assert burn_chart(found)["desc"] == (
        f"From 100 % left on {found.points[0].day} to 20 % left on 2026-11-21. At the pace of the last 41 days nothing"
        f" would be left on {found.gone_on}."
    )
