"""The page of a dataset with several cohorts, as a browser shows it: readable for everybody, and without colour."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from cli.web.charts import MOST_LINES
from flows.dashboard import dataset_pages
from flows.dashboard.burn_down import BurnDown, burn_down_of
from tests.browser.chromium import Tab
from tests.browser.test_dashboard import day, looked_at, serving
from tests.browser.test_report_page import DESK, PHONE
from tests.dashboard_homes import grown

pytestmark = pytest.mark.browser
PAGE = "/datasets/clinic"
CAP = 10**6


def histories(*_: object) -> tuple[BurnDown, ...]:
    """Three years of seven cohorts, which no home of a test has; some end alike."""
    today = datetime.now(UTC).date()
    found = []
    for number, (opened, gone) in enumerate(
        ((1100, 990), (900, 600), (700, 600), (500, 590), (300, 100), (100, 0), (10, 0)), 1
    ):
        spent = [(day(today, opened - step), CAP * gone // 2000) for step in (1, opened // 2)] if gone else []
        found.append(burn_down_of(spent, CAP, 2 * number - 2, day(today, opened), today, number))
    return tuple(found)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = grown(tmp_path_factory.mktemp("grown"))
    for _ in range(4):
        home.cohort("clinic")
    with serving(home) as found:
        yield found


@pytest.mark.parametrize(("width", "dark"), [(PHONE, False), (DESK, True)])
def test_everybody_can_read_the_page_of_a_dataset_with_cohorts(tab: Tab, base: str, width: int, dark: bool) -> None:
    looked_at(tab, base, ["/", PAGE, "/approvals"], width, dark)


def test_lines_of_cohorts_differ_by_more_than_colour(tab: Tab, base: str) -> None:
    tab.open(base + PAGE, DESK)
    of_each = "[...document.querySelectorAll('path.burn')].map(e => getComputedStyle(e).{})"
    dashes = tab.ask(of_each.format("strokeDasharray"))
    assert len(dashes) == len({*dashes}) == MOST_LINES
    assert len({*tab.ask(of_each.format("stroke"))}) == MOST_LINES


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_names_beside_lines_stay_inside_and_do_not_cover_each_other(
    tab: Tab, base: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset_pages, "burn_downs", histories)
    looked_at(tab, base, [PAGE], width, dark=False)
    boxes = tab.ask(
        "[...document.querySelectorAll('figure svg text')].map(e => { const b = e.getBoundingClientRect();"
        " return [b.left, b.right, b.top, b.bottom]; })"
    )
    assert len(boxes) >= 7 + MOST_LINES
    assert all(left >= 0 and right <= width for left, right, _, _ in boxes)
    for number, (left, right, top, bottom) in enumerate(boxes):
        for other, more, high, low in boxes[number + 1 :]:
            assert min(right, more) - max(left, other) <= 1 or min(bottom, low) - max(top, high) <= 3
