"""The report as a browser shows it: on a phone, on a desk, in the dark, on paper, without a network or a script."""

from pathlib import Path

import pytest

from tasks.reporting.html_report import report_html
from tests.browser.chromium import Tab
from tests.unit.tasks.reporting.a_report import the_facts
from tests.unit.tasks.reporting.test_html_report import contrast

pytestmark = pytest.mark.browser
PHONE, DESK = 375, 1280


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "steward.html"
    path.write_text(report_html(the_facts(), "steward"))
    return path


@pytest.mark.parametrize("width", [PHONE, 600, DESK])
def test_it_fits_its_window(tab: Tab, report: Path, width: int) -> None:
    """Nothing is wider than the window, and no table has to be pushed aside to be read."""
    tab.open(report, width)
    assert tab.ask("document.documentElement.scrollWidth") <= width
    wider = tab.ask(
        "[...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth + 1)"
        ".map(e => e.innerText.slice(0, 40))"
    )
    assert wider == []


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_what_decides_is_seen_without_scrolling(tab: Tab, report: Path, width: int) -> None:
    tab.open(report, width)
    lowest = tab.ask(
        "Math.max(...[...document.querySelectorAll('.tiles li')].map(e => e.getBoundingClientRect().bottom))"
    )
    assert 0 < lowest <= 800


def test_words_in_pictures_stay_inside_and_do_not_cover_each_other(tab: Tab, report: Path) -> None:
    for width in (PHONE, DESK):
        tab.open(report, width)
        covered = tab.ask(
            """(() => { const found = [];
            for (const svg of document.querySelectorAll('svg')) {
              const texts = [...svg.querySelectorAll('text')].map(e => [e.textContent, e.getBoundingClientRect()]);
              for (const [text, box] of texts)
                if (box.left < 0 || box.right > innerWidth) found.push('outside: ' + text);
              for (let i = 0; i < texts.length; i++) for (let j = i + 1; j < texts.length; j++) {
                const [a, b] = [texts[i][1], texts[j][1]];
                if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
                    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3)
                  found.push(width_of(svg) + ': ' + texts[i][0] + ' / ' + texts[j][0]);
              } }
            function width_of(svg) { return svg.querySelector('title').textContent; }
            return found; })()"""
        )
        assert covered == [], width


def test_it_asks_for_nothing_and_says_nothing_to_the_console(tab: Tab, report: Path) -> None:
    tab.open(report, DESK)
    asked = [e["params"]["request"]["url"] for e in tab.events if e["method"] == "Network.requestWillBeSent"]
    assert asked == [report.as_uri()]
    assert [e for e in tab.events if e["method"] in ("Runtime.consoleAPICalled", "Log.entryAdded")] == []
    assert [e for e in tab.events if e["method"] == "Page.javascriptDialogOpening"] == []


def test_a_script_in_a_page_would_not_run(tab: Tab, report: Path, tmp_path: Path) -> None:
    """The second wall: were a text ever let through as markup, the page's own policy stops it."""
    broken = tmp_path / "broken.html"
    evil = "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
    broken.write_text(report.read_text().replace("<main>", f"<main>{evil}"))
    tab.open(broken, DESK)
    assert tab.ask("document.title") != "run"
    assert any(e["method"] == "Log.entryAdded" for e in tab.events), "the browser says that it stopped something"


def test_it_reads_the_same_without_scripts(tab: Tab, report: Path) -> None:
    tab.open(report, DESK)
    before = tab.ask("document.body.innerText")
    tab.open(report, DESK, script=False)
    assert tab.ask("document.body.innerText") == before
    assert '<script>alert("x")</script>' in before


def as_hex(colour: str) -> str:
    red, green, blue = (int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))
    return f"#{red:02x}{green:02x}{blue:02x}"


@pytest.mark.parametrize("dark", [False, True])
def test_it_follows_the_colours_of_the_reader(tab: Tab, report: Path, dark: bool) -> None:
    tab.open(report, DESK, dark=dark)
    ink, paper = (as_hex(tab.ask(f"getComputedStyle(document.body).{name}")) for name in ("color", "backgroundColor"))
    assert contrast(ink, paper) >= 7
    assert (contrast(paper, "#ffffff") > 10) == dark


def test_it_prints(tab: Tab, report: Path) -> None:
    """On paper it is light, whatever the reader's colours; the bar's colours are there."""
    tab.open(report, DESK, dark=True)
    pdf = tab.printed()
    assert pdf.startswith(b"%PDF-")
    assert 2 <= pdf.count(b"/Type /Page\n") <= 12
    tab.send("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert as_hex(tab.ask("getComputedStyle(document.body).backgroundColor")) == "#ffffff"
    assert tab.ask("getComputedStyle(document.querySelector('nav')).display") == "none"
    tab.send("Emulation.setEmulatedMedia", media="")


def test_what_is_wrong_would_be_found(tab: Tab, tmp_path: Path, report: Path) -> None:
    """A page that is too wide is seen to be: the measure works."""
    wide = tmp_path / "wide.html"
    wide.write_text(
        report.read_text().replace("<main>", "<main><p style='width:900px'>x</p><pre>" + "x" * 200 + "</pre>")
    )
    tab.open(wide, PHONE)
    assert tab.ask("document.documentElement.scrollWidth") > PHONE
